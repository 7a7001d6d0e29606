/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated CUDA text, run on the CPU (shim.h), against the interpreter, bit for bit, all NaNs
 * being equal: random kernels of every mode, every op and dtype on awkward values, the kernels of
 * all programs of tests/expect; on random shapes, strides and data, by every kind of entry. A case
 * is a kernel and a shape; each is run by two entries at least. Buffers end at an inaccessible
 * page. --quick: some random ones alone; --only: programs alone.
 *
 *   shim_cases COMPILER FOLDER-OF-SHIM [--quick] [--only] [FILE.expect ...] [FILE.trace ...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "batch.h"
#include "jit_cuda/gen/held.h"
#include "programs.h"
#include "runtime/interp/interp.h"
#include "support/budget.h"
#include "support/random_kernel.h"

enum { IN_BATCH = 64, N_SEGMENTS = 3 };

typedef struct subject {
    random_kernel g;
    batch_kernel b;
} subject;

typedef struct counts {
    long kernels, cases, launches, wide, held, many, split, left_out, faults;
    double compiling;
} counts;

static counts n;
static batch_tools tools;

static void fault(const subject *s, const char *what, const char *more)
{
    printf("%s: %s: %s\n", s->b.where, what, more);
    n.faults++;
}

/* ---- entries ---- */

static void add_entry(batch_kernel *b, df_cuda_pass pass, unsigned flags)
{
    b->entry[b->n_entries++] = (df_cuda_entry){ (uint8_t)pass, (uint8_t)flags };
}

/* Two or more that differ in all that k has. */
static void choose_entries(batch_kernel *b, uint32_t number)
{
    const df_kernel *const k = b->k;
    const bool odd = number % 2;
    b->n_entries = 0;
    switch ((df_mode)k->mode) {
    case DF_MODE_MAP:
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_NARROW | DF_CUDA_WIDE : DF_CUDA_WIDE);
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_MANY : DF_CUDA_NARROW | DF_CUDA_MANY);
        break;
    case DF_MODE_ROW:
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_NARROW : DF_CUDA_NARROW | DF_CUDA_MANY);
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_LONG | DF_CUDA_MANY : DF_CUDA_LONG);
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_WIDE : DF_CUDA_WIDE | DF_CUDA_LONG);
        if (df_cuda_held_of(k).n == 0) break;
        add_entry(b, DF_CUDA_MAIN, DF_CUDA_HELD | (odd ? DF_CUDA_NARROW : DF_CUDA_MANY));
        add_entry(b, DF_CUDA_MAIN, DF_CUDA_HELD | DF_CUDA_LONG | (odd ? DF_CUDA_MANY : 0));
        add_entry(b, DF_CUDA_MAIN, DF_CUDA_HELD | DF_CUDA_WIDE | (odd ? DF_CUDA_LONG : 0));
        break;
    case DF_MODE_COL:
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_WIDE : DF_CUDA_NARROW | DF_CUDA_WIDE);
        /* fall through */
    case DF_MODE_LOOP:
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_NARROW : 0);
        add_entry(b, DF_CUDA_MAIN, odd ? DF_CUDA_MANY : DF_CUDA_NARROW | DF_CUDA_MANY);
        break;
    }
    if (!(k->flags & DF_KERNEL_SPLIT)) return;
    const unsigned split = (odd ? DF_CUDA_NARROW : 0) | (number % 4 < 2 ? DF_CUDA_MANY : 0);
    const bool is_wide = number % 3 == 0;
    add_entry(b, DF_CUDA_PART, split | (is_wide ? DF_CUDA_WIDE : 0));
    add_entry(b, DF_CUDA_FIN, split);
}

/* ---- runs ---- */

static bool run_interp(subject *s, random_run *r)
{
    void *const work = aligned_alloc(64, (df_interp_work_size(&s->g.k) + 127) & ~(size_t)63);
    if (!work) return false;
    df_interp_main(&s->g.k, work, &r->a, 0, r->n_outer, 0,
                   s->g.k.mode == DF_MODE_ROW ? 1 : r->n_inner);
    free(work);
    random_run_keep(&s->g, r);
    return true;
}

/* Numbers that any kernel can do with. */
static void set_numbers(subject *s, random_run *r)
{
    for (uint32_t i = 0; i < s->g.k.n_ins; i++) {
        const df_ins *const ins = &s->g.k.ins[i];
        if (ins->op != DF_K_num || ins->imm < 4) continue;
        r->num[ins->imm] = is_real(ins->dtype) ? of_real(ins->dtype, 0.625) : of_int(ins->dtype, 5);
    }
}

/* Few blocks, so that kernels stride over the grid. */
static int64_t some_blocks(subject *s, df_cuda_entry e, const random_run *r)
{
    const int64_t most = df_cuda_blocks(&s->g.k, e, &r->a);
    const int64_t some = 1 + random_pick(&s->g, 3);
    return most < some ? most : some;
}

/* With LONG and HELD, as many threads as have work, or all. */
static bool launch_blocks(const batch *b, subject *s, df_cuda_entry e, const random_run *r,
                          uint32_t n_segments, const void *params, int64_t n_blocks)
{
    int64_t threads = random_pick(&s->g, 2) ? df_cuda_threads(s->b.k, (df_cuda_pass)e.pass) : 0;
    int64_t shared = 0;
    for (uint32_t i = 0; i < n_segments; i++) {
        threads = df_max_i64(threads, df_cuda_team_threads(&s->g.k, e, &r[i].a));
        shared = df_max_i64(shared, df_cuda_shared_bytes(&s->g.k, e, &r[i].a));
    }
    return batch_launch_held(b, &s->b, e, params, n_blocks, (uint32_t)threads, (uint32_t)shared);
}

static bool launch_each(const batch *b, subject *s, df_cuda_entry e, random_run *r)
{
    uint64_t words[DF_CUDA_PARAM_BYTES / 8];
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        df_cuda_fill(&s->g.k, &r[i].a, words);
        const int64_t blocks = some_blocks(s, e, &r[i]);
        if (blocks > 0 && !launch_blocks(b, s, e, &r[i], 1, words, blocks)) return false;
    }
    return true;
}

/* All segments in one grid. */
static bool launch_many(const batch *b, subject *s, df_cuda_entry e, random_run *r)
{
    uint32_t first[N_SEGMENTS], blocks = 0;
    const uint32_t n_words = df_cuda_layout(&s->g.k, NULL, NULL);
    uint64_t *const table = malloc(sizeof *table * n_words * N_SEGMENTS);
    if (!table) return false;
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        df_cuda_fill(&s->g.k, &r[i].a, table + (size_t)i * n_words);
        first[i] = blocks;
        blocks += (uint32_t)some_blocks(s, e, &r[i]);
    }
    const df_cuda_many many = { table, first, N_SEGMENTS, blocks };
    const bool good = blocks == 0 || launch_blocks(b, s, e, r, N_SEGMENTS, &many, blocks);
    free(table);
    n.many++;
    return good;
}

static bool allowed(const subject *s, df_cuda_entry e, const random_run *r)
{
    const unsigned asked = e.flags & (DF_CUDA_NARROW | DF_CUDA_WIDE);
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        if ((df_cuda_facts(&s->g.k, &r[i].a) & asked) != asked) return false;
        if (e.flags & DF_CUDA_HELD && !df_cuda_holds(&s->g.k, e.flags, &r[i].a)) return false;
    }
    return true;
}

static bool launch(const batch *b, subject *s, df_cuda_entry e, random_run *r)
{
    n.launches++;
    n.wide += (e.flags & DF_CUDA_WIDE) != 0;
    n.held += (e.flags & DF_CUDA_HELD) != 0;
    return e.flags & DF_CUDA_MANY ? launch_many(b, s, e, r) : launch_each(b, s, e, r);
}

static void compare(subject *s, df_cuda_entry e, random_run *r)
{
    char name[64], text[160];
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        df_cuda_entry_name(s->b.name, e, name, sizeof name);
        if (random_run_differs(&s->g, &r[i], text, sizeof text)) fault(s, name, text);
        random_run_reset(&s->g, &r[i]);
    }
}

static bool take_partial(subject *s, random_run *r)
{
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        r[i].a.partial = malloc((size_t)df_cuda_partial_words(&s->g.k, &r[i].a) * 8 + 8);
        if (!r[i].a.partial) return false;
    }
    return true;
}

/* N_SEGMENTS shapes by all entries. A WIDE entry that the shapes do not allow is left out. */
static void check_shapes(const batch *b, subject *s)
{
    random_run r[N_SEGMENTS];
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        random_run_make(&s->g, &r[i], 2.5, 0.75f, random_pick(&s->g, 2));
        set_numbers(s, &r[i]);
        if (!run_interp(s, &r[i])) fault(s, "interpreter", "no memory");
        random_run_reset(&s->g, &r[i]);
    }
    bool good = take_partial(s, r);
    for (uint32_t j = 0; good && j < s->b.n_entries; j++) {
        const df_cuda_entry e = s->b.entry[j];
        if (!allowed(s, e, r)) continue;
        if (e.pass == DF_CUDA_FIN) continue; /* with its PART */
        good = launch(b, s, e, r);
        if (good && e.pass == DF_CUDA_PART) {
            n.split++;
            good = launch(b, s, s->b.entry[j + 1], r);
        }
        if (good) compare(s, e, r);
    }
    if (!good) fault(s, "launch", "failed");
    n.cases += N_SEGMENTS;
    for (uint32_t i = 0; i < N_SEGMENTS; i++) {
        free(r[i].a.partial);
        random_run_end(&s->g, &r[i]);
    }
}

/* ---- batches ---- */

static void check_batch(subject *s, uint32_t n_subjects, uint32_t rounds)
{
    static uint32_t number;
    batch_kernel k[IN_BATCH];
    batch b;
    struct timespec t0, t1;
    for (uint32_t i = 0; i < n_subjects; i++) {
        s[i].b.k = &s[i].g.k;
        snprintf(s[i].b.name, sizeof s[i].b.name, "k%u", i);
        choose_entries(&s[i].b, i);
        k[i] = s[i].b;
    }
    clock_gettime(CLOCK_MONOTONIC, &t0);
    const bool good = batch_build(&b, &tools, k, n_subjects, number++);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    n.compiling += (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    n.faults += !good;
    for (uint32_t i = 0; good && i < n_subjects; i++) {
        /* few kernels hold rows, and those have one more way for each length */
        const uint32_t more = df_cuda_held_of(&s[i].g.k).n > 0 ? 8 : 1;
        for (uint32_t j = 0; j < rounds * more; j++) check_shapes(&b, &s[i]);
    }
    n.kernels += n_subjects;
    batch_close(&b);
}

/* Where time is limited, small batches: the clock is looked at between two of them. */
static uint32_t batch_size(void)
{
    return test_is_limited() ? 16 : IN_BATCH;
}

/* share: of the test's time, when it is limited, that may be used up at the end. */
static void check_random(subject *s, df_mode mode, bool runs, uint32_t n_kernels, uint32_t rounds,
                         double share)
{
    static char where[IN_BATCH][48];
    for (uint32_t done = 0; done < n_kernels && (done == 0 || test_time_left(share));) {
        const uint32_t left = n_kernels - done;
        const uint32_t here = left < batch_size() ? left : batch_size();
        for (uint32_t i = 0; i < here; i++) {
            random_kernel_make(&s[i].g, 5000 + done + i, mode, runs);
            if (i % 4 == 3) s[i].g.k.flags |= DF_KERNEL_FAST; /* the shim does not contract */
            s[i].g.k.ins = s[i].g.ins;
            s[i].g.k.access = s[i].g.access;
            snprintf(where[i], sizeof where[i], "random mode %d%s seed %u", mode,
                     runs ? " runs" : "", 5000 + done + i);
            s[i].b.where = where[i];
        }
        check_batch(s, here, rounds);
        done += here;
    }
}

/* ---- programs ---- */

/* What reads at indices that memory holds can be given no random memory. */
static bool reads_anywhere(const df_kernel *k)
{
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_AT) return true;
    return false;
}

static void check_programs(subject *s, const char *const *files, int n_files, uint32_t rounds)
{
    programs p;
    uint32_t here = 0;
    programs_read(&p, files, n_files);
    for (uint32_t i = 0; i < p.n_kernels; i++) {
        const uint32_t which = test_scattered(i, p.n_kernels);
        if (here == 0 && i > 0 && !test_time_left(1)) break;
        if (reads_anywhere(p.kernel[which]) ||
            !random_kernel_of(&s[here].g, p.kernel[which], which)) {
            n.left_out++;
        } else {
            s[here].g.k.access = s[here].g.access;
            s[here++].b.where = p.where[which];
        }
        if (here == batch_size() || (here > 0 && i + 1 == p.n_kernels)) {
            check_batch(s, here, rounds);
            here = 0;
        }
    }
    programs_finish(&p);
}

/* ---- every op and dtype on awkward values ---- */

typedef struct op_data {
    char in[3][1040 * 8], got[1040 * 8], want[1040 * 8];
} op_data;

static void check_one_op(const batch *b, const one_op *x, const batch_kernel *k, int64_t length,
                         op_data *m)
{
    const uint32_t n_in = x->k.n_access - 1;
    const uint8_t t = x->ins[n_in].dtype, from[3] = { x->src, x->mid, x->mid };
    char *ptr[4] = { m->in[0], m->in[1], m->in[2], m->got };
    for (uint32_t i = 0; i < n_in; i++)
        for (uint64_t e = 0; e < (uint64_t)length; e++) {
            const uint64_t which[3] = { e, e / 32, e * 7 + e / 32 };
            const uint64_t bits = awkward_bits(from[i], which[i]);
            memcpy(m->in[i] + e * size_of(from[i]), &bits, size_of(from[i]));
        }
    const int64_t stride[4] = { 1, 1, 1, 1 };
    df_kargs a = { .ptr = ptr, .stride = stride, .extent = &length };
    void *const work = aligned_alloc(64, (df_interp_work_size(&x->k) + 127) & ~(size_t)63);
    ptr[n_in] = m->want;
    if (work) df_interp_main(&x->k, work, &a, 0, 1, 0, length);
    free(work);
    ptr[n_in] = m->got;
    for (uint32_t e = 0; e < k->n_entries; e++) {
        uint64_t words[16];
        memset(m->got, 0xA5, sizeof m->got);
        df_cuda_fill(&x->k, &a, words);
        if (!batch_launch(b, k, k->entry[e], words, 1)) n.faults++;
        for (int64_t i = 0; i < length; i++)
            if (!same_bits(t, load_bits(m->got + i * size_of(t), t),
                           load_bits(m->want + i * size_of(t), t))) {
                printf("%s: element %lld is %llx, not %llx\n", k->where, (long long)i,
                       (unsigned long long)load_bits(m->got + i * size_of(t), t),
                       (unsigned long long)load_bits(m->want + i * size_of(t), t));
                n.faults++;
                break;
            }
        n.launches++;
    }
    n.cases++;
}

static void check_op_batch(const one_op *x, const batch_kernel *k, uint32_t n_ops, op_data *m)
{
    batch b;
    const bool good = batch_build(&b, &tools, k, n_ops, 1000000 + (uint32_t)n.kernels);
    n.faults += !good;
    for (uint32_t i = 0; good && i < n_ops; i++) {
        check_one_op(&b, &x[i], &k[i], 1024 + 13, m);
        check_one_op(&b, &x[i], &k[i], 1 + i % 40, m);
    }
    n.kernels += n_ops;
    batch_close(&b);
}

static void check_ops(void)
{
    enum { MOST = 200 };
    static one_op x[MOST];
    static batch_kernel k[MOST];
    static char where[MOST][64];
    static op_data m;
    uint32_t here = 0, seen = 0;
    for (int op = DF_K_add; op <= DF_K_bitcast; op++)
        for (uint32_t types = 0; types < 2 * DF_N_RECORDED * DF_N_RECORDED; types++) {
            const uint8_t t = types / DF_N_RECORDED % DF_N_RECORDED, src = types % DF_N_RECORDED;
            const bool fast = types / DF_N_RECORDED >= DF_N_RECORDED;
            if (!one_op_is_known((df_kop)op, t, src)) continue;
            if (fast && (op > DF_K_mul || !is_float(t))) continue; /* the others are alike */
            if (test_is_limited() && (op + t + src) % 3 != 0) continue;
            one_op_make(&x[here], (df_kop)op, t, src);
            x[here].k.flags = fast ? DF_KERNEL_FAST : 0;
            snprintf(where[here], sizeof where[here], "%s%s %s <- %s", fast ? "fast " : "",
                     df_kop_infos[op].name, deft_dtype_name((deft_dtype)t),
                     deft_dtype_name((deft_dtype)src));
            k[here] = (batch_kernel){ .k = &x[here].k, .where = where[here] };
            snprintf(k[here].name, sizeof k[here].name, "k%u", here);
            add_entry(&k[here], DF_CUDA_MAIN, DF_CUDA_NARROW);
            if (++here < MOST) continue;
            check_op_batch(x, k, here, &m);
            seen += here;
            here = 0;
        }
    if (here > 0) check_op_batch(x, k, here, &m);
    printf("ops: %u kernels of one op each\n", seen + here);
}

int main(int argc, char **argv)
{
    bool quick = false, only = false;
    int first_file = 3;
    if (argc < 3) return 2;
    tools = (batch_tools){ .compiler = argv[1],
                           .shim = argv[2],
                           .folder = "/tmp/deft-shim-XXXXXX",
                           .runs_briefly = true };
    if (!mkdtemp(tools.folder)) return 2;
    for (; first_file < argc && argv[first_file][0] == '-'; first_file++) {
        quick |= strcmp(argv[first_file], "--quick") == 0;
        only |= strcmp(argv[first_file], "--only") == 0;
    }
    subject *const s = calloc(IN_BATCH, sizeof *s);
    if (!s) return 2;
    const uint32_t each = quick ? 8 : 72, rounds = quick ? 1 : 4;
    const double share = 0.5 / (DF_MODE_LOOP + 1.0);
    for (int mode = DF_MODE_MAP; mode <= DF_MODE_LOOP && !only; mode++)
        check_random(s, (df_mode)mode, false, each, rounds, share * mode);
    if (!only) check_random(s, DF_MODE_ROW, true, each, rounds, 0.5);
    if (!quick && !only) check_ops();
    if (!quick)
        check_programs(s, (const char *const *)argv + first_file, argc - first_file, rounds);
    free(s);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n.faults == 0 && system(command) != 0) n.faults++;
    printf(
        "%ld kernels, %ld cases, %ld launches (%ld wide, %ld with rows held, %ld of many "
        "segments, %ld split), %ld kernels of programs left out, %.1f s of compiling, %ld faults\n",
        n.kernels, n.cases, n.launches, n.wide, n.held, n.many, n.split, n.left_out, n.compiling,
        n.faults);
    return n.faults == 0 ? 0 : 1;
}
