/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a run as data. The run layout of a run is built as ever, for a GPU that is not
 * here. Then its words are filled in twice, with other addresses and other numbers. A word that
 * differs is a fix: the difference says which address it was made from.
 *
 * So nothing has to know which words are addresses, those of products and routines among them. What
 * must hold: no two addresses differ by the same between the two times, and a word depends on one
 * address at most, by adding to it. A word that differs in any other way is found, and ends the
 * export.
 *
 * Kernels are compiled by several threads, program by program and architecture by architecture.
 */
#include "jit_cuda/exec/export.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/driver/nvrtc.h"
#include "jit_cuda/exec/call.h"
#include "runtime/os.h"

enum {
    MOST_ARCHS = 16,
    KERNELS = 16, /* of one program: each program costs some 28 ms, and NVRTC is one thread */
    MOST_THREADS = 16
};

#define EXPORT_BASE (UINT64_C(1) << 32) /* of the addresses that words are filled in with */
#define EXPORT_DELTA UINT64_C(256)      /* how address i differs the second time: i + 1 of these */

/* The state of one export. */
typedef struct shipment {
    df_diag *d;
    const df_mem *mem;
    const df_log *log;
    const df_gpu_properties *gpu;
    const df_gpu_export_options *o;
    df_trace t; /* strict; args are those of the first or the second filling */
    int64_t *args;
    df_cuda_device c; /* without a GPU */
    df_plan *plan;
    int64_t *slots;
    df_cuda_run_layout *f;
    df_nvrtc *nvrtc;
    df_str *text; /* per program */
    uint32_t n_texts;
    df_gpu_export *out;
} shipment;

static void *export_take(shipment *s, size_t n, size_t size)
{
    void *const at = df_arena_zalloc(&s->out->arena, (n + 1) * size, 8);
    if (!at) (void)df_fail_mem(s->d, "export", n * size);
    return at;
}

#define TAKE(s, type, n) ((type *)export_take(s, n, sizeof(type)))

/* ---- what cannot be exported ---- */

static deft_status export_refuse_control(const shipment *s)
{
    for (uint32_t i = 0; i < s->t.n_nodes; i++)
        if (df_op_infos[s->t.nodes[i].op].cls == DF_CLASS_control)
            return df_fail(s->d, DEFT_E_ARG,
                           "export: GPU code has no loops and branches that the host runs, and %s "
                           "(%%%u) is one",
                           df_op_infos[s->t.nodes[i].op].name, i);
    return df_fail(s->d, DEFT_E_INTERNAL, "export: a plan of parts without control");
}

/* A number on which extents or offsets depend is no parameter. */
static deft_status export_refuse_bounds(const shipment *s)
{
    for (uint32_t i = 0; i < s->plan->n_slots; i++)
        for (uint32_t k = 0; k < s->o->n_numbers; k++)
            if (s->plan->slots[i].op == DF_SLOT_arg && s->plan->slots[i].a == s->o->number[k])
                return df_fail(s->d, DEFT_E_ARG,
                               "export: argument %u is a bound, and cannot be a parameter",
                               s->o->number[k]);
    return DEFT_OK;
}

static deft_status export_make_plan(shipment *s)
{
    deft_status st = DEFT_OK;
    df_diag why = { 0 };
    const df_limits limits = df_cuda_limits(s->gpu);
    TRY(df_fuse(s->d, &s->t, &limits, s->mem, &s->plan));
    TRY(df_plan_verify(s->d, s->plan));
    if (s->plan->root_cell) TRY(export_refuse_control(s));
    if (df_cuda_needs_host(s->plan, &why))
        TRY(df_fail(s->d, DEFT_E_ARG, "export: no GPU code: %s", why.text));
    s->slots = TAKE(s, int64_t, s->plan->n_slots);
    if (!s->slots) return DEFT_E_MEMORY;
    TRY(export_refuse_bounds(s));
    df_slots_eval(s->plan->slots, s->plan->n_slots, &s->t, s->slots);
    for (uint32_t i = 0; i < s->plan->n_guards; i++) {
        const df_guard *const g = &s->plan->guards[i];
        if (df_guard_n_slots((df_guard_kind)g->kind) > 0 &&
            df_guard_first_miss(g, 1, &s->t, s->slots))
            TRY(df_fail(s->d, DEFT_E_INTERNAL,
                        "export: the plan refuses the program that it was made from"));
    }
done:
    return st;
}

/* ---- the layout ---- */

static deft_status export_lay_out(shipment *s)
{
    deft_status st = DEFT_OK;
    s->f = df_cuda_run_layout_create(s->mem, s->plan);
    if (!s->f) return df_fail_mem(s->d, "export", sizeof *s->f);
    for (uint32_t i = 0; i < s->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &s->plan->bufs[i];
        s->f->origin[i] = (char *)DF_CUDA_NOWHERE;
        if (buf->kind == DF_BUF_TEMP)
            s->f->origin[i] += df_plan_region_offset(s->plan, s->slots, buf->index);
    }
    TRY(df_cuda_run_layout_build(s->f, s->d, &s->c, s->gpu, s->plan, &s->t, s->slots, false));
    if (s->f->align > DF_GPU_EXPORT_ALIGN)
        TRY(df_fail(s->d, DEFT_E_INTERNAL, "export: arrays are to begin at multiples of %u bytes",
                    s->f->align));
done:
    return st;
}

/* ---- words ---- */

/* The origins are the inputs of the trace, its roots, and the workspace. */
static uint32_t count_origins(const shipment *s)
{
    return s->t.n_inputs + s->t.n_roots + 1;
}

static df_gpu_origin export_origin(const shipment *s, uint32_t i)
{
    if (i < s->t.n_inputs) return (df_gpu_origin){ DF_GPU_ORIGIN_INPUT, i };
    i -= s->t.n_inputs;
    if (i < s->t.n_roots) return (df_gpu_origin){ DF_GPU_ORIGIN_ROOT, i };
    return (df_gpu_origin){ DF_GPU_ORIGIN_WORKSPACE, 0 };
}

static uint64_t export_delta(uint32_t origin)
{
    return EXPORT_DELTA * (origin + 1);
}

static uint64_t export_address(uint32_t origin, bool again)
{
    return EXPORT_BASE * (origin + 1) + (again ? export_delta(origin) : 0);
}

/* The root that has buffer buf: the first one. */
static uint32_t root_of_buf(const shipment *s, uint32_t buf)
{
    uint32_t r = 0;
    while (r < s->t.n_roots && s->plan->root_buf[r].i != buf) r++;
    df_assert(r < s->t.n_roots);
    return r;
}

/* The bits that stand for number k of the options. */
static int64_t export_mark(uint32_t k, bool again)
{
    const uint64_t bits = UINT64_C(0x9E3779B97F4A7C15) * (k + 1);
    return (int64_t)(again ? ~bits : bits);
}

/* Fills in the words with addresses and numbers of the first or the second time, and copies them:
 * the table, then the parameters. */
static deft_status export_fill(shipment *s, bool again, uint64_t *out)
{
    df_cuda_run_layout *const f = s->f;
    df_cuda_call call = {
        .c = &s->c, .d = s->d, .plan = s->plan, .t = &s->t, .slots = s->slots, .f = f
    };
    for (uint32_t i = 0; i < s->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &s->plan->bufs[i];
        if (buf->kind == DF_BUF_TEMP) continue; /* within the workspace */
        const uint32_t origin =
            buf->kind == DF_BUF_ROOT ? s->t.n_inputs + root_of_buf(s, i) : buf->index;
        f->origin[i] = (char *)(uintptr_t)export_address(origin, again);
    }
    for (uint32_t k = 0; k < s->o->n_numbers; k++) s->args[s->o->number[k]] = export_mark(k, again);
    const uint32_t workspace = count_origins(s) - 1;
    const deft_status st =
        df_cuda_call_fill(&call, (char *)(uintptr_t)export_address(workspace, again));
    if (st != DEFT_OK) return st;
    s->out->workspace_bytes = df_cuda_call_least_bytes(&call);
    if (f->table.word.n > 0) memcpy(out, f->table.word.at, f->table.word.n * sizeof *out);
    if (f->params.word.n > 0)
        memcpy(out + f->table.word.n, f->params.word.at, f->params.word.n * sizeof *out);
    return DEFT_OK;
}

/* The dtype of number slot i of a kernel. */
static deft_dtype dtype_of_slot(const df_kernel *k, uint32_t i)
{
    for (uint32_t x = 0; x < k->n_ins; x++)
        if (k->ins[x].op == DF_K_num && k->ins[x].imm == i) return (deft_dtype)k->ins[x].dtype;
    return DEFT_I64;
}

/* The dtype as which the kernels read an argument of the trace. */
static deft_dtype dtype_of_arg(const shipment *s, uint32_t arg)
{
    for (uint32_t i = 0; i < s->plan->n_segs; i++) {
        const df_seg *const seg = &s->plan->segs[i];
        if (seg->kernel.i == DF_NONE) continue;
        const df_kernel *const k = &s->plan->kernels[seg->kernel.i];
        for (uint32_t x = 0; x < k->n_num; x++)
            if (seg->num[x] == arg) return dtype_of_slot(k, x);
    }
    return DEFT_I64;
}

/* Says what word i is, which was `a` the first time and `b` the second. */
static deft_status export_word(shipment *s, uint32_t i, uint64_t a, uint64_t b)
{
    df_gpu_export *const out = s->out;
    if (a == b) return DEFT_OK;
    for (uint32_t k = 0; k < s->o->n_numbers; k++)
        if (a == (uint64_t)export_mark(k, false) && b == (uint64_t)export_mark(k, true)) {
            const uint32_t arg = s->o->number[k];
            out->number[out->n_numbers++] = (df_gpu_number){ i, arg, dtype_of_arg(s, arg) };
            return DEFT_OK;
        }
    for (uint32_t k = 0; k < count_origins(s); k++)
        if (b - a == export_delta(k)) {
            out->fix[out->n_fixes++] =
                (df_gpu_fix){ i, export_origin(s, k), (int64_t)(a - export_address(k, false)) };
            return DEFT_OK;
        }
    return df_fail(s->d, DEFT_E_INTERNAL, "export: word %u is neither an address nor a number", i);
}

static deft_status export_words(shipment *s)
{
    deft_status st = DEFT_OK;
    df_gpu_export *const out = s->out;
    out->n_table = (uint32_t)s->f->table.word.n;
    out->n_words = out->n_table + (uint32_t)s->f->params.word.n;
    out->has_checks = s->plan->n_checked > 0 || s->plan->checks_first;
    out->word = TAKE(s, uint64_t, out->n_words);
    out->fix = TAKE(s, df_gpu_fix, out->n_words);
    out->number = TAKE(s, df_gpu_number, out->n_words);
    uint64_t *const again = TAKE(s, uint64_t, out->n_words);
    if (!out->word || !out->fix || !out->number || !again) return DEFT_E_MEMORY;
    TRY(export_fill(s, false, out->word));
    TRY(export_fill(s, true, again));
    for (uint32_t i = 0; i < out->n_words; i++) {
        TRY(export_word(s, i, out->word[i], again[i]));
        if (out->word[i] != again[i]) out->word[i] = 0;
    }
done:
    return st;
}

/* ---- copies, donors ---- */

static void export_add_copy(shipment *s, uint32_t root, df_gpu_origin from, uint32_t buf,
                            bool is_last, bool may_be)
{
    df_gpu_export *const out = s->out;
    const int64_t bytes = df_bind_bytes(&s->plan->bufs[buf], s->slots);
    if (bytes > 0) out->copy[out->n_copies++] = (df_gpu_copy){ root, from, bytes, is_last, may_be };
}

/* Finds the memory of each root: its own, that of an input which is passed on, or that of an
 * earlier root. */
static deft_status export_roots(shipment *s)
{
    df_gpu_export *const out = s->out;
    const uint32_t n = s->t.n_roots;
    out->copy = TAKE(s, df_gpu_copy, n);
    out->may_be = TAKE(s, uint32_t, n);
    if (!out->copy || !out->may_be) return DEFT_E_MEMORY;
    for (uint32_t r = 0; r < n; r++) out->may_be[r] = DF_NONE;
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t i = s->plan->root_buf[r].i;
        const df_plan_buf *const buf = i == DF_NONE ? NULL : &s->plan->bufs[i];
        if (s->t.roots[r].kind == DF_ROOT_INTO) continue;
        if (!buf)
            return df_fail(s->d, DEFT_E_ARG,
                           "export: output %u is a value that the program does not compute", r);
        if (buf->kind != DF_BUF_ROOT) {
            export_add_copy(s, r, (df_gpu_origin){ DF_GPU_ORIGIN_INPUT, buf->index }, i, false,
                            false);
        } else if (root_of_buf(s, i) != r) {
            export_add_copy(s, r, (df_gpu_origin){ DF_GPU_ORIGIN_ROOT, root_of_buf(s, i) }, i, true,
                            false);
        } else {
            out->may_be[r] = buf->donor;
            if (buf->keep)
                export_add_copy(s, r, (df_gpu_origin){ DF_GPU_ORIGIN_INPUT, buf->donor }, i, false,
                                true);
        }
    }
    return DEFT_OK;
}

/* ---- programs ---- */

static deft_status export_add_text(shipment *s, uint32_t *program)
{
    size_t n;
    const char *const prelude = df_cuda_prelude(&n);
    df_str *const text = &s->text[s->n_texts];
    df_str_init(text, s->mem);
    df_str_putn(text, prelude, n);
    *program = s->n_texts++;
    return text->ok ? DEFT_OK : df_fail_mem(s->d, "export", n);
}

static void add_function(shipment *s, uint32_t program, const char *name, uint32_t *out)
{
    df_gpu_export *const e = s->out;
    uint32_t i = 0;
    while (i < e->n_functions &&
           (e->function[i].program != program || strcmp(e->function[i].name, name) != 0))
        i++;
    *out = i;
    if (i < e->n_functions) return;
    df_gpu_function *const f = &e->function[e->n_functions++];
    f->program = program;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
}

/* Whether step i runs: the others only check the indices of inputs that a run could overwrite. */
static bool runs(const shipment *s, uint32_t i)
{
    return i >= s->f->n_first;
}

/* Adds the entries of kernel k that steps use to its program, and sets their functions. */
static deft_status export_kernel(shipment *s, uint32_t k, uint32_t program)
{
    deft_status st = DEFT_OK;
    df_cuda_entry entry[DF_CUDA_ENTRIES];
    uint32_t n = 0;
    char name[16], full[DF_GPU_EXPORT_NAME];
    bool has[DF_CUDA_ENTRIES] = { false };
    (void)snprintf(name, sizeof name, "k%u", k);
    for (uint32_t i = 0; i < s->f->steps.n; i++) {
        const df_cuda_step *const step = &s->f->steps.at[i];
        if (step->kernel.i != k || !runs(s, i)) continue;
        if (!has[df_cuda_entry_number(step->entry)]) entry[n++] = step->entry;
        has[df_cuda_entry_number(step->entry)] = true;
        df_cuda_entry_name(name, step->entry, full, sizeof full);
        add_function(s, program, full, &s->out->step[i - s->f->n_first].function);
    }
    if (n > 0)
        TRY(df_cuda_text(s->d, &s->plan->kernels[k], name, entry, n, s->mem, &s->text[program]));
done:
    return st;
}

static bool has_steps(const shipment *s, uint32_t kernel)
{
    for (uint32_t i = s->f->n_first; i < s->f->steps.n; i++)
        if (s->f->steps.at[i].kernel.i == kernel) return true;
    return false;
}

static deft_status export_kernels(shipment *s)
{
    deft_status st = DEFT_OK;
    uint32_t program = 0, n = 0;
    for (uint32_t k = 0; k < s->plan->n_kernels; k++) {
        if (!has_steps(s, k)) continue;
        if (n++ % KERNELS == 0) TRY(export_add_text(s, &program));
        TRY(export_kernel(s, k, program));
    }
done:
    return st;
}

/* Adds the program of job j, or finds the one that has the same text. */
static deft_status export_job_text(shipment *s, const df_cuda_job *j, uint32_t *program)
{
    deft_status st = DEFT_OK;
    TRY(export_add_text(s, program));
    df_str *const text = &s->text[*program];
    TRY(df_cuda_job_write(j, s->d, s->mem, text));
    if (!text->ok) TRY(df_fail_mem(s->d, "export", text->n));
    for (uint32_t i = 0; i < *program; i++) {
        if (s->text[i].n != text->n || memcmp(s->text[i].at, text->at, text->n) != 0) continue;
        df_str_finish(text);
        s->n_texts--;
        *program = i;
        break;
    }
done:
    return st;
}

static deft_status export_jobs(shipment *s)
{
    deft_status st = DEFT_OK;
    for (uint32_t k = 0; k < s->f->jobs.n; k++) {
        const df_cuda_job *const j = &s->f->jobs.at[k];
        uint32_t program = DF_NONE;
        for (uint32_t i = s->f->n_first; i < s->f->steps.n; i++) {
            const df_cuda_step *const step = &s->f->steps.at[i];
            if (step->job != k || step->kernel.i != DF_NONE) continue;
            df_assert(step->of_job != DF_NONE); /* no cuBLASLt: the trace is strict */
            if (program == DF_NONE) TRY(export_job_text(s, j, &program));
            add_function(s, program, df_cuda_job_entry(j, step),
                         &s->out->step[i - s->f->n_first].function);
        }
    }
done:
    return st;
}

static deft_status export_steps(shipment *s)
{
    deft_status st = DEFT_OK;
    df_gpu_export *const out = s->out;
    const size_t n_texts = s->plan->n_kernels / KERNELS + 2 + s->f->jobs.n;
    out->n_steps = (uint32_t)s->f->steps.n - s->f->n_first;
    out->step = TAKE(s, df_gpu_step, out->n_steps);
    out->function = TAKE(s, df_gpu_function, out->n_steps);
    s->text = TAKE(s, df_str, n_texts);
    if (!out->step || !out->function || !s->text) return DEFT_E_MEMORY;
    for (uint32_t i = 0; i < out->n_steps; i++) {
        const df_cuda_step *const from = &s->f->steps.at[s->f->n_first + i];
        out->step[i] = (df_gpu_step){ .n_blocks = from->n_blocks,
                                      .n_threads = from->n_threads,
                                      .shared = from->shared,
                                      .first = out->n_table + from->param,
                                      .n_words = from->n_words };
    }
    TRY(export_kernels(s));
    TRY(export_jobs(s));
    out->n_programs = s->n_texts;
    for (uint32_t i = 0; i < s->n_texts; i++)
        if (!s->text[i].ok) TRY(df_fail_mem(s->d, "export", s->text[i].n));
done:
    return st;
}

/* ---- architectures ---- */

static deft_status add_arch(shipment *s, int arch)
{
    df_gpu_export *const out = s->out;
    uint32_t at = out->n_archs;
    if (out->n_archs == MOST_ARCHS)
        return df_fail(s->d, DEFT_E_ARG, "export: at most %d architectures", MOST_ARCHS);
    for (; at > 0 && out->arch[at - 1] > arch; at--) out->arch[at] = out->arch[at - 1];
    out->arch[at] = arch;
    out->n_archs++;
    return DEFT_OK;
}

static deft_status export_archs(shipment *s)
{
    static const int usual[] = { 80, 86, 89, 90, 100 };
    deft_status st = DEFT_OK;
    df_gpu_export *const out = s->out;
    const int version = df_nvrtc_version(s->nvrtc);
    out->arch = TAKE(s, int, MOST_ARCHS + 1);
    if (!out->arch) return DEFT_E_MEMORY;
    for (uint32_t i = 0; !s->o->architectures && i < DF_LEN(usual); i++)
        if (df_nvrtc_has(s->nvrtc, usual[i])) TRY(add_arch(s, usual[i]));
    for (const char *at = s->o->architectures; at && *at;) {
        char *end;
        const long arch = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || arch < 75 || arch > 999)
            TRY(df_fail(s->d, DEFT_E_ARG,
                        "export: '%.60s' is no list of architectures, as \"80,90\"",
                        s->o->architectures));
        if (!df_nvrtc_has(s->nvrtc, (int)arch))
            TRY(df_fail(s->d, DEFT_E_ARG, "export: NVRTC of CUDA %d.%d knows no sm_%ld",
                        version / 100, version % 100, arch));
        TRY(add_arch(s, (int)arch));
        at = end + (*end == ',');
    }
    if (out->n_archs == 0)
        TRY(df_fail(s->d, DEFT_E_ARG, "export: no architecture is left to compile for"));
    out->arch[out->n_archs++] = out->arch[0]; /* PTX, which later GPUs compile */
done:
    return st;
}

/* ---- compiling ---- */

typedef struct workshop {
    const shipment *s;
    df_cubin *code; /* [arch][program] */
    df_diag *diag;  /* the same */
    deft_status *st;
    uint32_t n;
    _Atomic uint32_t next;
} workshop;

static void *workshop_compile(void *user)
{
    workshop *const w = user;
    const df_gpu_export *const out = w->s->out;
    uint32_t i;
    while ((i = atomic_fetch_add(&w->next, 1)) < w->n) {
        const uint32_t arch = i / out->n_programs;
        const bool is_ptx = arch + 1 == out->n_archs;
        w->st[i] = (is_ptx ? df_nvrtc_ptx : df_nvrtc_compile)(w->s->nvrtc, &w->diag[i],
                                                              w->s->text[i % out->n_programs].at,
                                                              out->arch[arch], false, &w->code[i]);
    }
    return NULL;
}

static void compile_all(workshop *w)
{
    pthread_t thread[MOST_THREADS];
    uint32_t n = 0, wanted = df_os_n_cpus();
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    if (wanted > w->n) wanted = w->n;
    while (n + 1 < wanted && df_os_thread(&thread[n], workshop_compile, w, -1)) n++;
    (void)workshop_compile(w);
    for (uint32_t i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

static deft_status export_compile(shipment *s)
{
    deft_status st = DEFT_OK;
    df_gpu_export *const out = s->out;
    workshop w = { .s = s, .n = out->n_archs * out->n_programs };
    w.code = TAKE(s, df_cubin, w.n);
    w.diag = TAKE(s, df_diag, w.n);
    w.st = TAKE(s, deft_status, w.n);
    out->code = TAKE(s, df_gpu_code, w.n);
    if (!w.code || !w.diag || !w.st || !out->code) return DEFT_E_MEMORY;
    compile_all(&w);
    for (uint32_t i = 0; i < w.n && st == DEFT_OK; i++) {
        if ((st = w.st[i]) != DEFT_OK) {
            if (s->d) *s->d = w.diag[i];
            break;
        }
        out->code[i].size = w.code[i].size;
        out->code[i].at = df_arena_copy(&out->arena, w.code[i].at, w.code[i].size, 8);
        if (!out->code[i].at) st = df_fail_mem(s->d, "export", w.code[i].size);
    }
    for (uint32_t i = 0; i < w.n; i++) df_cubin_finish(s->nvrtc, &w.code[i]);
    return st;
}

/* ---- exported ---- */

df_gpu_properties df_cuda_export_gpu(int n_sms)
{
    return (df_gpu_properties){ .name = "a GPU",
                                .arch = 90,
                                .n_sms = n_sms > 0 ? n_sms : 132,
                                .threads_per_sm = 2048,
                                .shared_per_block = 48 << 10,
                                .shared_per_block_optin = 227 << 10,
                                .shared_per_sm = 228 << 10,
                                .bytes = UINT64_C(80) << 30,
                                .l2_bytes = UINT64_C(50) << 20 };
}

static deft_status export_begin(shipment *s, const df_trace *t)
{
    uint32_t n = 0; /* of arguments: no node says how many there are */
    for (uint32_t i = 0; i < s->o->n_numbers; i++)
        if (s->o->number[i] >= n) n = s->o->number[i] + 1;
    if (t->n_args > n) n = t->n_args;
    s->t = *t;
    s->t.flags &= ~(uint32_t)DF_TRACE_FAST;
    s->args = TAKE(s, int64_t, n);
    if (!s->args) return DEFT_E_MEMORY;
    if (t->n_args > 0) memcpy(s->args, t->args, t->n_args * sizeof *s->args);
    s->t.args = s->args;
    return DEFT_OK;
}

deft_status df_cuda_export(df_diag *d, const df_mem *mem, const df_log *log, const df_trace *t,
                           const df_gpu_properties *gpu, const df_gpu_export_options *o,
                           df_gpu_export *out)
{
    deft_status st = DEFT_OK;
    shipment s = { .d = d, .mem = mem, .log = log, .gpu = gpu, .o = o, .out = out };
    s.c = (df_cuda_device){ .mem = mem, .log = log };
    *out = (df_gpu_export){ 0 };
    df_arena_init(&out->arena, mem);
    TRY(export_begin(&s, t));
    TRY(export_make_plan(&s));
    TRY(export_lay_out(&s));
    TRY(export_words(&s));
    TRY(export_roots(&s));
    TRY(export_steps(&s));
    TRY(df_nvrtc_open(d, mem, NULL, &s.nvrtc));
    TRY(export_archs(&s));
    TRY(export_compile(&s));
done:
    for (uint32_t i = 0; i < s.n_texts; i++) df_str_finish(&s.text[i]);
    df_nvrtc_close(&s.nvrtc);
    df_cuda_run_layout_destroy(mem, &s.f);
    df_plan_destroy(&s.plan, mem);
    if (st != DEFT_OK) {
        df_arena_finish(&out->arena);
        *out = (df_gpu_export){ 0 };
    }
    return st;
}
