/* SPDX-License-Identifier: Apache-2.0
 *
 * Routines' CUDA text on the CPU (shim.h) against runtime/routine.h, bit for bit: argsort and which
 * of all dtypes and of awkward operands, scatters over random boxes in every way that there is to
 * add, indices outside. Operands, results and work space end at an inaccessible page; work space
 * and results hold noise before.
 *
 *   routine_cases COMPILER FOLDER-OF-SHIM [--quick]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "support/int_ref.h"
#include "batch.h"
#include "jit_cuda/kernels/routine.h"
#include "support/budget.h"

enum { PAGE = 4096, NOISE = 0xA5, CHECK_ID = 6 };

static long n_faults, n_jobs, n_launched[DF_CUDA_N_ROUTINES];
static batch library;
static df_pool *pool;
static bool is_quick;

static void fault(const char *what)
{
    printf("%s\n", what);
    if (++n_faults < 20) return;
    printf("and no further\n");
    exit(1);
}

static void expect(bool holds, const char *what)
{
    if (!holds) fault(what);
}
#define EXPECT(x) expect(x, "does not hold: " #x)

/* ---- draws ---- */

static uint64_t state = 1;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

static int64_t below(int64_t n)
{
    return (int64_t)(draw() >> 11) % n;
}

static bool chance(int one_in)
{
    return below(one_in) == 0;
}

/* ---- memory ---- */

typedef struct area {
    char *map, *at;
    size_t size, mapped;
} area;

/* size bytes at `at`, a multiple of align, and less than align from an inaccessible page. */
static area area_of(size_t size, size_t align)
{
    const size_t room = (size + align + PAGE - 1) / PAGE * PAGE;
    area a = { .size = size, .mapped = room + PAGE };
    a.map = mmap(NULL, a.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a.map == MAP_FAILED || mprotect(a.map + room, PAGE, PROT_NONE) != 0) abort();
    a.at = a.map + (room - size) / align * align;
    memset(a.map, NOISE, room);
    return a;
}

/* What stands around it is as it was. */
static void area_close(area *a)
{
    const char *const end = a->map + a->mapped - PAGE;
    bool clean = true;
    for (const char *p = a->at + a->size; p < end; p++) clean &= (unsigned char)*p == NOISE;
    for (const char *p = a->map; p < a->at; p++) clean &= (unsigned char)*p == NOISE;
    if (!clean) fault("something was written beside its place");
    munmap(a->map, a->mapped);
}

/* ---- launches ---- */

static void build(const batch_tools *t)
{
#define ENTRY(kernel, parameter)                                                                   \
    "{ \"routine_" #kernel "\", shim_call<" #parameter ", routine_" #kernel "> },\n"
    static const char table[] = "extern \"C\" const shim_entry shim_entries[] = {\n" //
        DF_CUDA_ROUTINES(ENTRY) "{ nullptr, nullptr } };\n";
#undef ENTRY
    df_str s;
    size_t n;
    df_str_init(&s, &df_mem_system);
    df_str_put(&s, "#include \"shim.h\"\n");
    const char *const prelude = df_cuda_prelude(&n);
    df_str_putn(&s, prelude, n);
    df_cuda_routine_text(((uint64_t)1 << DF_CUDA_N_ROUTINES) - 1, &s);
    df_str_put(&s, table);
    if (!batch_build_text(&library, t, &s, 0)) exit(1);
    df_str_finish(&s);
}

/* Now and then by fewer thread blocks, which have to stride. */
static void launch(const df_cuda_launches *list, const char *where)
{
    uint64_t set = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const df_cuda_launch *const l = &list->at[i];
        set |= (uint64_t)1 << l->kernel;
        n_launched[l->kernel]++;
        const int64_t n_blocks = chance(3) ? 1 + below(l->n_blocks) : l->n_blocks;
        if (!batch_call(&library, where, df_cuda_routine_name(l->kernel), l->params, n_blocks,
                        df_cuda_routine_threads(l->kernel)))
            n_faults++;
    }
    EXPECT(set == list->kernels);
}

/* ---- operands ---- */

typedef enum pattern { BITS, FEW, AWKWARD, UP, DOWN, SAME, SPARSE, N_PATTERNS } pattern;

static void put(deft_dtype t, char *at, uint64_t v)
{
    memcpy(at, &v, deft_dtype_size(t)); /* little-endian */
}

/* Both zeros, infinities, NaNs of both signs, the least and the greatest. */
static uint64_t awkward(deft_dtype t)
{
    static const uint64_t half[] = { 0,      0x8000, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7FFF,
                                     0xFFFF, 1,      0x8001, 0x3C00, 0x7C01, 0xFC01, 0x7F81 };
    static const uint64_t single[] = { 0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000,
                                       0xFFC00001, 0x7F800001, 0xFFFFFFFF, 1,          0x80000001,
                                       0x3F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7FFFFFFF };
    static const uint64_t twice[] = { 0,
                                      0x8000000000000000,
                                      0x7FF0000000000000,
                                      0xFFF0000000000000,
                                      0x7FF8000000000000,
                                      0xFFF8000000000001,
                                      0x7FF0000000000001,
                                      0xFFFFFFFFFFFFFFFF,
                                      1,
                                      0x8000000000000001,
                                      0x3FF0000000000000,
                                      0x7FEFFFFFFFFFFFFF,
                                      0x00000001FFFFFFFF,
                                      0x7FFFFFFFFFFFFFFF };
    switch (deft_dtype_size(t)) {
    case 1: return t == DEFT_BOOL ? draw() & 1 : (uint64_t[]){ 0, 1, 127, 128, 255 }[below(5)];
    case 2: return half[below(DF_LEN(half))];
    case 4: return single[below(DF_LEN(single))];
    }
    return twice[below(DF_LEN(twice))];
}

static uint64_t element(deft_dtype t, pattern p, int64_t i, int64_t n)
{
    const uint64_t rising = (uint64_t)(p == DOWN ? n - i : i) * 3;
    uint64_t v = 0;
    switch (p) {
    case BITS: v = draw(); break;
    case FEW: v = 0x4000400040004000u + (draw() % 5) * 0x0001010100010101u; break;
    case AWKWARD: return awkward(t);
    case UP:
    case DOWN: v = deft_dtype_size(t) == 1 ? rising * 255 / (uint64_t)(3 * n + 1) : rising; break;
    case SAME: v = 0x3F803F803F803F80u; break;
    case SPARSE: v = chance(37) ? draw() | 1 : 0; break;
    case N_PATTERNS: break;
    }
    return t == DEFT_BOOL ? v & 1 : v;
}

/* ---- argsort, which, compress ---- */

static void describe(const df_routine_job *j, pattern p, char text[160])
{
    snprintf(text, 160,
             "%s of %s: %" PRId64 " rows of %" PRId64 ", step %" PRId64 ", result %" PRId64
             ", attr %u, pattern %d",
             df_op_infos[j->op].name, deft_dtype_name(j->dtype), j->n_batch, j->n, j->in_step, j->m,
             j->attr, (int)p);
}

/* j: all but addresses and strides along batch axes, whose order is drawn. */
static void check_routine(df_routine_job j, pattern p)
{
    char where[160];
    const int64_t size = (int64_t)deft_dtype_size(j.dtype), span = j.n ? j.n : 1;
    const bool finds = j.op == DF_OP_which || j.op == DF_OP_compress;
    const int64_t out_n = j.m * (finds ? 1 : j.n_batch);
    int64_t row = span * (j.in_step > 0 ? j.in_step : -j.in_step) + below(3), total = row;
    if (j.in_step == 0) row = total = 1;
    const bool turned = chance(2); /* the last batch axis is the outermost in memory */
    for (uint32_t k = 0; k < j.batch_rank; k++) {
        const uint32_t axis = turned ? k : j.batch_rank - 1 - k;
        j.in_batch[axis] = total;
        total = total * (j.batch_extent[axis] ? j.batch_extent[axis] : 1) + below(2);
    }
    area in = area_of((size_t)(total * size), (size_t)size);
    for (int64_t i = 0; i < total; i++)
        put(j.dtype, in.at + i * size, element(j.dtype, p, i, total));
    const int64_t mask_step = j.op == DF_OP_compress ? j.mask_step : 0;
    const int64_t mask_size = (int64_t)deft_dtype_size(j.mask_dtype);
    const int64_t mask_n = (span - 1) * (mask_step > 0 ? mask_step : -mask_step) + 1;
    area mask = area_of((size_t)(mask_n * mask_size), (size_t)mask_size);
    for (int64_t i = 0; i < mask_n; i++)
        put(j.mask_dtype, mask.at + i * mask_size, element(j.mask_dtype, p, i, mask_n));
    j.mask = mask.at + (mask_step < 0 ? (mask_n - 1) * mask_size : 0);
    area mine = area_of((size_t)out_n * 8, 8), theirs = area_of((size_t)out_n * 8, 8);
    area work = area_of(df_cuda_routine_work_size(&j), 256);
    void *const cpu_work = malloc(df_routine_work_size(&j, df_pool_threads(pool)) + 8);
    df_cuda_launches list;
    df_diag d = { 0 };
    j.in = in.at + (j.in_step < 0 ? (span - 1) * -j.in_step * size : 0);
    j.out = (int64_t *)(void *)theirs.at;
    describe(&j, p, where);
    df_routine_run(&j, pool, cpu_work);
    j.out = (int64_t *)(void *)mine.at;
    if (df_cuda_routine_plan(&d, &j, (uintptr_t)work.at, &list) != DEFT_OK) fault(d.text);
    launch(&list, where);
    n_jobs++;
    if (memcmp(mine.at, theirs.at, (size_t)out_n * 8) != 0) fault(where);
    free(cpu_work);
    area_close(&work);
    area_close(&theirs);
    area_close(&mine);
    area_close(&mask);
    area_close(&in);
}

static df_routine_job rows(df_op op, deft_dtype t, int64_t n, int64_t n_rows)
{
    return (df_routine_job){ .op = op,
                             .dtype = t,
                             .n = n,
                             .m = n,
                             .in_step = 1,
                             .n_batch = n_rows,
                             .batch_rank = n_rows != 1,
                             .batch_extent = { n_rows } };
}

/* Splits the rows over more axes, of which some are 1. */
static void split_rows(df_routine_job *j)
{
    j->batch_extent[0] = 1 + below(3);
    j->batch_extent[1] = j->n_batch;
    j->batch_extent[2] = 1 + below(2);
    j->batch_rank = 3;
    j->n_batch *= j->batch_extent[0] * j->batch_extent[2];
}

static const deft_dtype dtypes[] = { DEFT_BOOL, DEFT_U8,  DEFT_I32,  DEFT_I64, DEFT_F32,
                                     DEFT_F64,  DEFT_F16, DEFT_BF16, DEFT_I8,  DEFT_I16,
                                     DEFT_U16,  DEFT_U32, DEFT_U64 };
_Static_assert(DF_LEN(dtypes) == DF_N_RECORDED, "a dtype is missing");
static const int64_t lengths[] = { 0,   1,   2,    3,    31,   32,   33,   64,  255,
                                   256, 257, 1000, 2047, 2048, 2049, 4096, 5003 };

static void check_argsort(void)
{
    for (size_t t = 0; t < DF_LEN(dtypes); t++)
        for (size_t n = 0; n < DF_LEN(lengths); n++)
            for (pattern p = 0; p < N_PATTERNS; p++) {
                if (is_quick && lengths[n] > 300 && !chance(test_size(6, 24))) continue;
                const int64_t most = lengths[n] > 1000 ? 3 : 40;
                df_routine_job j =
                    rows(DF_OP_argsort, dtypes[t], lengths[n], chance(2) ? 1 : below(most));
                j.attr = draw() & DF_ORDER_DESCENDING;
                j.in_step = (int64_t[]){ 1, 1, 2, 3, -1, 0 }[below(6)];
                if (chance(3)) split_rows(&j);
                check_routine(j, p);
                j.op = DF_OP_sort;
                check_routine(j, p);
                j.op = DF_OP_topk;
                j.m = below(j.n + 1);
                j.first = chance(2) ? 0 : below(j.n - j.m + 1);
                check_routine(j, p);
            }
    for (int i = 0; i < (is_quick ? 1 : 4); i++) {
        check_routine(rows(DF_OP_argsort, dtypes[2 + i], is_quick ? 80000 : 200000, 1), BITS);
        check_routine(rows(DF_OP_sort, dtypes[2 + i], is_quick ? 80000 : 200000, 1), BITS);
    }
    check_routine(rows(DF_OP_argsort, DEFT_F32, 7, 10001), AWKWARD); /* a grid of whole tiles */
    check_routine(rows(DF_OP_argsort, DEFT_U8, 2100, 513), BITS);    /* pieces of two tiles */
    if (is_quick) return;
    check_routine(rows(DF_OP_argsort, DEFT_F16, 12188, 260), BITS);
}

static void check_which(void)
{
    for (size_t t = 0; t < DF_LEN(dtypes); t++)
        for (size_t n = 0; n < DF_LEN(lengths); n++)
            for (pattern p = 0; p < N_PATTERNS; p++) {
                if (is_quick && lengths[n] > 300 && !chance(test_size(3, 12))) continue;
                df_routine_job j = rows(DF_OP_which, dtypes[t], lengths[n], 1);
                j.attr = draw() & DF_WHICH_ZEROS;
                j.in_step = (int64_t[]){ 1, 1, 2, -3, 0 }[below(5)];
                if (chance(2)) j.m = below(lengths[n] + 40);
                check_routine(j, p);
            }
    df_routine_job j = rows(DF_OP_which, DEFT_F32, 200003, 1);
    check_routine(j, SPARSE);
    check_routine(j, AWKWARD);
    j = rows(DF_OP_which, DEFT_U8, 2048 * 1024 + 4077, 1); /* pieces of two tiles */
    j.m = 400000;
    check_routine(j, SPARSE);
}

static void check_compress(void)
{
    for (size_t t = 0; t < DF_LEN(dtypes); t++)
        for (size_t n = 0; n < DF_LEN(lengths); n++)
            for (pattern p = 0; p < N_PATTERNS; p++) {
                if (is_quick && lengths[n] > 300 && !chance(test_size(3, 12))) continue;
                df_routine_job j = rows(DF_OP_compress, dtypes[t], lengths[n], 1);
                j.in_step = (int64_t[]){ 1, 1, 2, -3, 0 }[below(5)];
                j.mask_dtype = dtypes[chance(2) ? 0 : below((int64_t)DF_LEN(dtypes))];
                j.mask_step = (int64_t[]){ 1, 1, 2, -3, 0 }[below(5)];
                if (chance(2)) j.m = below(lengths[n] + 40);
                check_routine(j, p);
            }
    df_routine_job j = rows(DF_OP_compress, DEFT_U8, 2048 * 1024 + 4077, 1);
    j.mask_step = 1;
    check_routine(j, SPARSE);
    check_routine(j, BITS);
}

/* ---- scatters ---- */

/* A result with room between its elements along some axes, values, indices. */
typedef struct scatter {
    df_scatter_job j;
    int64_t n_out, n_index, n_value;
} scatter;

/* Places the axes with extent > 0 in a random order, the first one near. Returns how many elements
 * that takes. */
static int64_t layout(const int64_t *extent, const bool *has, int64_t **step, uint32_t n)
{
    int64_t total = chance(3) ? 2 : 1;
    uint32_t order[DEFT_MAX_RANK + 1];
    for (uint32_t i = 0; i < n; i++) order[i] = n - 1 - i;
    for (uint32_t i = n; i-- > 1 && chance(2);) {
        const uint32_t k = (uint32_t)below(i + 1), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t axis = order[i];
        *step[axis] = has[axis] ? total : 0;
        if (has[axis]) total = total * extent[axis] + (chance(4) ? 1 : 0);
    }
    return total;
}

/* kept, indexed: of each axis. */
static scatter scatter_of(deft_dtype t, int64_t n, uint32_t rank, const int64_t *extent,
                          const bool *kept, const bool *indexed)
{
    scatter s = { .j = { .how = (df_scatter_how)(chance(2) ? 0 : below(DF_SCATTER_MAX + 1)),
                         .dtype = t,
                         .n = n,
                         .rank = rank } };
    bool in_out[DEFT_MAX_RANK + 1], has[DEFT_MAX_RANK];
    int64_t out_extent[DEFT_MAX_RANK + 1], *out[DEFT_MAX_RANK + 1], *index[DEFT_MAX_RANK],
        *value[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) {
        s.j.extent[i] = out_extent[i] = extent[i];
        in_out[i] = kept[i];
        has[i] = !chance(12);
        out[i] = &s.j.out_step[i];
        index[i] = &s.j.index_step[i];
        value[i] = &s.j.value_step[i];
    }
    out_extent[rank] = n;
    in_out[rank] = true;
    out[rank] = &s.j.step;
    s.n_out = layout(out_extent, in_out, out, rank + 1);
    s.n_index = layout(extent, indexed, index, rank);
    s.n_value = layout(extent, has, value, rank);
    return s;
}

/* Numbers whose sum depends on the order. */
static void fill_values(deft_dtype t, char *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = ((double)below(1 << 20) - 500000.0) / (double)(1 << below(20));
        const float f = (float)v;
        if (t == DEFT_F64)
            memcpy(at + i * 8, &(double){ v / 3 }, 8);
        else if (t == DEFT_F32)
            memcpy(at + i * 4, &f, 4);
        else
            put(t, at + i * (int64_t)deft_dtype_size(t), draw());
    }
}

static void describe_scatter(const df_scatter_job *j, char text[400])
{
    int n = snprintf(text, 400, "scatter %d of %s: n %" PRId64 " step %" PRId64 ":", (int)j->how,
                     deft_dtype_name(j->dtype), j->n, j->step);
    for (uint32_t i = 0; i < j->rank && n < 320; i++)
        n += snprintf(text + n, (size_t)(400 - n),
                      " [%" PRId64 " out %" PRId64 " index %" PRId64 " value %" PRId64 "]",
                      j->extent[i], j->out_step[i], j->index_step[i], j->value_step[i]);
}

/* Another job's, for all one knows. */
static void soil(const area *work)
{
    memset(work->at, NOISE, work->size);
}

static void expect_fault(const int64_t *got, bool good, int64_t bad, int64_t n, const char *where)
{
    const int64_t want[3] = { good ? 0 : CHECK_ID + 1,
                              good      ? 0
                              : bad < 0 ? bad + n
                                        : bad,
                              good ? 0 : n };
    if (memcmp(got, want, sizeof want) == 0) return;
    printf("fault {%" PRId64 ", %" PRId64 ", %" PRId64 "}, not {%" PRId64 ", %" PRId64 ", %" PRId64
           "}\n",
           got[0], got[1], got[2], want[0], want[1], want[2]);
    fault(where);
}

static bool fits(const int64_t *at, int64_t n, deft_dtype t)
{
    bool all = true;
    for (int64_t i = 0; i < n; i++) all &= at[i] == int_ref_wrap(t, at[i]);
    return all;
}

/* n_bad: of the indices, some. is_told: whether there are fault words. */
static void check_scatter(const scatter *s, int64_t n_bad, bool is_told)
{
    char where[400];
    df_scatter_job j = s->j;
    const size_t size = deft_dtype_size(j.dtype);
    const size_t out_size = (size_t)s->n_out * size;
    area index = area_of((size_t)s->n_index * 8, 8),
         value = area_of((size_t)s->n_value * size, size);
    area before = area_of(out_size, size), mine = area_of(out_size, size);
    area theirs = area_of(out_size, size);
    area work = area_of(df_cuda_scatter_work_size(&j), 256), told = area_of(24, 8);
    int64_t *const at = (int64_t *)(void *)index.at, bad = 0;
    int64_t *const words = (int64_t *)(void *)told.at;
    const int64_t spread = chance(3) ? 3 : j.n; /* collisions */
    df_cuda_launches list;
    describe_scatter(&j, where);
    for (int64_t i = 0; i < s->n_index; i++)
        at[i] = j.n == 0 ? 0 : below(j.n < spread ? j.n : spread) - (chance(2) ? j.n : 0);
    static const int64_t outside[] = { INT64_MIN, INT64_MAX, -1, 0, 1, -70000, 70000 };
    for (int64_t i = 0; i < n_bad && s->n_index > 0; i++) {
        const int64_t by = outside[below(DF_LEN(outside))];
        at[below(s->n_index)] = by >= 0 ? (by > INT64_MAX - j.n ? by : by + j.n)
                                        : (by < INT64_MIN + j.n ? by : by - j.n);
    }
    fill_values(j.dtype, value.at, s->n_value);
    fill_values(j.dtype, before.at, s->n_out);
    memcpy(mine.at, before.at, out_size);
    memcpy(theirs.at, before.at, out_size);
    static const deft_dtype narrows[] = {
        DEFT_I32, DEFT_U8, DEFT_I8, DEFT_I16, DEFT_U16, DEFT_U32
    };
    const deft_dtype narrow = narrows[below(DF_LEN(narrows))];
    j.index_dtype = DEFT_I64;
    if (chance(2) && fits(at, s->n_index, narrow)) {
        j.index_dtype = narrow;
        for (int64_t i = 0; i < s->n_index; i++)
            memcpy(index.at + i * (int64_t)deft_dtype_size(narrow), &at[i],
                   deft_dtype_size(narrow));
    }
    j.index = index.at;
    j.value = value.at;
    j.out = theirs.at;
    void *const cpu_work = malloc(df_scatter_work_size(&j, df_pool_threads(pool)) + 64);
    const bool good = df_scatter(&j, pool, cpu_work, &bad);
    free(cpu_work);
    j.out = mine.at;
    memset(words, 0, 24);
    soil(&work);
    df_cuda_scatter_check_plan(&j, CHECK_ID, (uintptr_t)words, (uintptr_t)work.at, &list);
    launch(&list, where);
    expect_fault(words, good, bad, j.n, where);
    soil(&work);
    df_cuda_scatter_plan(&j, CHECK_ID + 1, (uintptr_t)words, (uintptr_t)work.at, &list);
    if (!good && chance(2)) {
        launch(&list, where); /* an earlier fault stays */
        expect_fault(words, good, bad, j.n, where);
        memcpy(mine.at, before.at, out_size);
    }
    memset(words, 0, 24);
    soil(&work);
    df_cuda_scatter_plan(&j, CHECK_ID, is_told ? (uintptr_t)words : 0, (uintptr_t)work.at, &list);
    launch(&list, where);
    expect_fault(words, good || !is_told, bad, j.n, where);
    n_jobs++;
    if (memcmp(mine.at, theirs.at, out_size) != 0) fault(where);
    area_close(&told);
    area_close(&work);
    area_close(&theirs);
    area_close(&mine);
    area_close(&before);
    area_close(&value);
    area_close(&index);
}

static const deft_dtype added[] = { DEFT_U8, DEFT_I32, DEFT_I64, DEFT_F32, DEFT_F64,
                                    DEFT_I8, DEFT_I16, DEFT_U16, DEFT_U32, DEFT_U64 };

/* Boxes of up to five axes of any roles; `most` bounds the extent of one of them. */
static void check_random(int64_t most)
{
    const uint32_t rank = (uint32_t)below(6);
    int64_t extent[DEFT_MAX_RANK], n = chance(20) ? 0 : 1 + below(chance(2) ? 5 : 400);
    bool kept[DEFT_MAX_RANK], indexed[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) {
        extent[i] = chance(40) ? 0 : 1 + below(4);
        kept[i] = chance(2);
        indexed[i] = !chance(3);
    }
    if (rank > 0) extent[below(rank)] = 1 + below(most);
    const scatter s = scatter_of(added[below(DF_LEN(added))], n, rank, extent, kept, indexed);
    check_scatter(&s, chance(3) ? 1 + below(4) : 0, !chance(3));
}

static void check_scatters(void)
{
    const bool first[] = { false, true }, both[] = { true, true }, one[] = { true, false };
    const unsigned n_random = is_quick ? 400 : 4000;
    for (unsigned i = 0; i < n_random && (i < 60 || test_time_left(1)); i++)
        check_random(chance(2) ? 12 : 900);
    for (size_t t = 0; t < DF_LEN(added); t++) {
        /* index_add and scatter_add as networks have them */
        const scatter rows_of = scatter_of(added[t], 300, 2, (int64_t[]){ 2500, 9 }, first, one);
        const scatter each = scatter_of(added[t], 70, 2, (int64_t[]){ 400, 33 }, first, both);
        const scatter apart =
            scatter_of(added[t], 5, 3, (int64_t[]){ 3, 400, 4 }, (bool[]){ true, false, true },
                       (bool[]){ true, true, true });
        const scatter bins = scatter_of(added[t], 11, 1, (int64_t[]){ 30000 }, first, one);
        const scatter wide = scatter_of(added[t], 7, 2, (int64_t[]){ 3, 30000 }, first, one);
        for (int64_t bad = 0; bad < 3; bad += 2) {
            check_scatter(&rows_of, bad, true);
            check_scatter(&each, bad, true);
            check_scatter(&apart, bad, true);
            check_scatter(&bins, bad, true);
            check_scatter(&wide, bad, true);
        }
    }
    /* passes over three and four digits, and the last slot of a digit */
    for (int64_t n = 255; n <= 257; n++) {
        const scatter s = scatter_of(DEFT_F32, n, 1, (int64_t[]){ 500 }, first, one);
        check_scatter(&s, 1, true);
    }
    const scatter three = scatter_of(DEFT_F32, 70000, 1, (int64_t[]){ 5000 }, first, one);
    const scatter four = scatter_of(DEFT_U8, 17000000, 1, (int64_t[]){ 5000 }, first, one);
    check_scatter(&three, 1, true);
    check_scatter(&four, 1, true);
}

/* ---- plans of what no machine here holds ---- */

static void check_plans(void)
{
    df_cuda_launches list;
    df_diag d = { 0 };
    df_routine_job j = rows(DF_OP_argsort, DEFT_F32, UINT32_MAX, 1);
    EXPECT(df_cuda_routine_plan(&d, &j, 0, &list) == DEFT_E_LIMIT);
    EXPECT(strstr(d.text, "4294967295") != NULL);
    j.m = --j.n;
    EXPECT(df_cuda_routine_plan(&d, &j, 0, &list) == DEFT_OK && list.n == 12);
    EXPECT(df_cuda_routine_work_size(&j) >= (size_t)j.n * 8);
    EXPECT(df_cuda_routine_work_size(&j) < (size_t)j.n * 8 + ((size_t)4 << 20));
    j = rows(DF_OP_argsort, DEFT_F64, 100000, 1000000);
    EXPECT(df_cuda_routine_plan(&d, &j, 0, &list) == DEFT_OK && list.n == 24);
    for (uint32_t i = 0; i < list.n; i++) EXPECT(list.at[i].n_blocks <= 4096);
    j = rows(DF_OP_which, DEFT_F64, 10000000000, 1);
    EXPECT(df_cuda_routine_plan(&d, &j, 0, &list) == DEFT_OK && list.n == 2);
    EXPECT(df_cuda_routine_work_size(&j) <= 1024 * 8);
    /* more words than are sorted, and more slots: walks */
    const df_scatter_job many = { .dtype = DEFT_F32,
                                  .n = 10,
                                  .step = 1,
                                  .rank = 1,
                                  .extent = { (int64_t)5 << 30 },
                                  .index_step = { 1 },
                                  .value_step = { 1 } };
    df_scatter_job far = many;
    far.extent[0] = 1000;
    far.n = (int64_t)5 << 30;
    EXPECT(df_cuda_scatter_work_size(&many) == 8 && df_cuda_scatter_work_size(&far) == 8);
    df_cuda_scatter_plan(&many, 0, 0, 0, &list);
    EXPECT(list.n == 1 && list.at[0].kernel == DF_CUDA_R_scatter_walk_f32);
    df_cuda_scatter_plan(&far, 0, 4096, 0, &list);
    EXPECT(list.n == 4 && list.at[3].kernel == DF_CUDA_R_scatter_walk_f32);
}

/* A program has the entries of its set and no other. */
static void check_text(void)
{
    const uint64_t set = (uint64_t)1 << DF_CUDA_R_sort_scan | (uint64_t)1 << DF_CUDA_R_which_count;
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_cuda_routine_text(set, &s);
    EXPECT(s.ok);
    for (uint32_t k = 0; s.ok && k < DF_CUDA_N_ROUTINES; k++) {
        char entry[64];
        snprintf(entry, sizeof entry, " %s(const ", df_cuda_routine_name((df_cuda_routine)k));
        EXPECT((strstr(s.at, entry) != NULL) == (set >> k & 1));
    }
    df_str_finish(&s);
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    batch_tools tools = { .compiler = argv[1], .shim = argv[2], .folder = "/tmp/deft-shim-XXXXXX" };
    df_diag d = { 0 };
    is_quick = argc > 3 && strcmp(argv[3], "--quick") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(tools.folder) || df_pool_create(&d, &df_mem_system, 2, &pool) != DEFT_OK) return 2;
    build(&tools);
    check_text();
    check_plans();
    check_argsort();
    check_which();
    check_compress();
    check_scatters();
    for (uint32_t k = 0; k < DF_CUDA_N_ROUTINES; k++)
        if (n_launched[k] == 0) fault(df_cuda_routine_name((df_cuda_routine)k));
    batch_close(&library);
    df_pool_destroy(&pool);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n_faults == 0 && system(command) != 0) n_faults++;
    printf("%ld jobs, %ld faults\n", n_jobs, n_faults);
    return n_faults == 0 ? 0 : 1;
}
