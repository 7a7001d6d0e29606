/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack, and memory with a release function: what is exported keeps its bytes whatever deft does
 * afterwards, and is given back once; what is imported is where it was, and is given back once;
 * what cannot be imported stays the caller's, with a sentence.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/fail_mem.h"
#include "support/harness.h"

#define S DEFT_SHAPE
#define LEN(a) (sizeof(a) / sizeof *(a))

/* The structs of the standard, as a program declares them that includes dlpack.h after deft. */
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#define SAME(theirs, member, ours, name)                                                           \
    _Static_assert(offsetof(theirs, member) == offsetof(ours, name), #name)
SAME(DLTensor, device.device_type, deft_dlpack_tensor, device_type);
SAME(DLTensor, device.device_id, deft_dlpack_tensor, device_id);
SAME(DLTensor, ndim, deft_dlpack_tensor, ndim);
SAME(DLTensor, dtype.code, deft_dlpack_tensor, code);
SAME(DLTensor, dtype.bits, deft_dlpack_tensor, bits);
SAME(DLTensor, dtype.lanes, deft_dlpack_tensor, lanes);
SAME(DLTensor, shape, deft_dlpack_tensor, shape);
SAME(DLTensor, strides, deft_dlpack_tensor, strides);
SAME(DLTensor, byte_offset, deft_dlpack_tensor, byte_offset);
SAME(DLManagedTensor, dl_tensor, deft_dlpack_old, tensor);
SAME(DLManagedTensor, manager_ctx, deft_dlpack_old, manager_ctx);
SAME(DLManagedTensor, deleter, deft_dlpack_old, deleter);
SAME(DLManagedTensorVersioned, version.minor, deft_dlpack_versioned, minor);
SAME(DLManagedTensorVersioned, manager_ctx, deft_dlpack_versioned, manager_ctx);
SAME(DLManagedTensorVersioned, deleter, deft_dlpack_versioned, deleter);
SAME(DLManagedTensorVersioned, flags, deft_dlpack_versioned, flags);
SAME(DLManagedTensorVersioned, dl_tensor, deft_dlpack_versioned, tensor);

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(dlpack, .init = set_up, .fini = tear_down);

/* ---- a producer ---- */

typedef struct producer {
    DLManagedTensorVersioned m;
    int64_t shape[DEFT_MAX_RANK + 1], strides[DEFT_MAX_RANK + 1];
    int n_deleted;
} producer;

static void delete_theirs(DLManagedTensorVersioned *self)
{
    producer *const p = self->manager_ctx;
    cr_assert_eq(self->deleter, delete_theirs, "the struct is as it was");
    p->n_deleted++;
}

/* A float array; strides NULL: none are given. It lives as long as the process, because deft may
 * have it until the context ends. */
static producer *produce(void *data, int32_t rank, const int64_t *shape, const int64_t *strides)
{
    static producer all[64];
    static size_t n;
    cr_assert_lt(n, LEN(all));
    producer *const p = &all[n++];
    p->m = (DLManagedTensorVersioned){ .version = { 1, 0 },
                                       .manager_ctx = p,
                                       .deleter = delete_theirs,
                                       .dl_tensor = { .data = data,
                                                      .device = { 1, 0 },
                                                      .ndim = rank,
                                                      .dtype = { 2, 32, 1 },
                                                      .shape = p->shape } };
    for (int32_t i = 0; i < rank; i++) p->shape[i] = shape[i];
    for (int32_t i = 0; strides && i < rank; i++) p->strides[i] = strides[i];
    if (strides) p->m.dl_tensor.strides = p->strides;
    return p;
}
#define DIMS(...) ((const int64_t[]){ __VA_ARGS__ })

static DLManagedTensorVersioned *lend(deft_tensor *t, uint32_t flags)
{
    DLManagedTensorVersioned *m = NULL;
    OK(&r, deft_to_dlpack(t, flags, &m));
    cr_assert_eq(m->version.major, 1u);
    return m;
}

static void *where_is(deft_tensor *t)
{
    deft_mapped m;
    OK(&r, deft_map(t, &m));
    void *const at = (void *)(uintptr_t)m.data;
    deft_unmap(&m);
    return at;
}

static void delete (DLManagedTensorVersioned *m)
{
    m->deleter(m);
}

/* ---- export ---- */

Test(dlpack, each_dtype_leaves_and_comes_back_where_it_is)
{
    static const DLDataType want[] = {
        [DEFT_BOOL] = { 6, 8, 1 }, [DEFT_U8] = { 1, 8, 1 },    [DEFT_I32] = { 0, 32, 1 },
        [DEFT_I64] = { 0, 64, 1 }, [DEFT_F32] = { 2, 32, 1 },  [DEFT_F64] = { 2, 64, 1 },
        [DEFT_F16] = { 2, 16, 1 }, [DEFT_BF16] = { 4, 16, 1 }, [DEFT_I8] = { 0, 8, 1 },
        [DEFT_I16] = { 0, 16, 1 }, [DEFT_U16] = { 1, 16, 1 },  [DEFT_U32] = { 1, 32, 1 },
        [DEFT_U64] = { 1, 64, 1 }, [DEFT_C64] = { 5, 64, 1 },  [DEFT_C128] = { 5, 128, 1 },
    };
    for (deft_dtype t = 0; t < LEN(want); t++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const x = deft_ones(r.cx, S(2, 3), t);
        DLManagedTensorVersioned *const m = lend(x, 0);
        const DLTensor *const dl = &m->dl_tensor;
        cr_assert_eq(dl->data, where_is(x));
        cr_assert(dl->device.device_type == 1 && dl->device.device_id == 0 && !dl->byte_offset);
        cr_assert(memcmp(&dl->dtype, &want[t], sizeof want[t]) == 0, "%s", deft_dtype_name(t));
        cr_assert(dl->ndim == 2 && dl->shape[0] == 2 && dl->shape[1] == 3);
        cr_assert(dl->strides[0] == 3 && dl->strides[1] == 1);
        cr_assert_eq(m->flags, 1u, "read only");
        deft_tensor *const y = deft_from_dlpack(r.cx, m, 0);
        cr_assert(y && deft_dtype_of(y) == t);
        cr_assert_eq(where_is(y), where_is(x));
        RIG_EXPECT(&r, deft_eq(y, deft_ones_like(y)), 1, 1, 1, 1, 1, 1);
        OK(&r, deft_scope_end(s));
    }
}

Test(dlpack, numbers_and_empty_arrays)
{
    DLManagedTensorVersioned *m = lend(deft_num(r.cx, 2.5), 0);
    cr_assert(m->dl_tensor.ndim == 0 && *(float *)m->dl_tensor.data == 2.5f);
    delete (m);
    m = lend(deft_zeros(r.cx, S(3, 0), DEFT_F64), 0);
    cr_assert(!m->dl_tensor.data && m->dl_tensor.shape[0] == 3 && m->dl_tensor.shape[1] == 0);
    deft_tensor *const t = deft_from_dlpack(r.cx, m, 0);
    cr_assert(t && deft_dim(t, 0) == 3 && deft_dim(t, 1) == 0 && deft_dtype_of(t) == DEFT_F64);
}

static void gives_nothing_back(void *user)
{
    (void)user;
}

/* Reals of the caller that are shown as complex numbers may have gaps between the parts. */
Test(dlpack, parts_that_are_not_adjacent_are_copied)
{
    static float a[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    static const struct {
        int64_t strides[2];
        bool fits;
        float want[4];
    } rows[] = {
        { { 2, 1 }, true, { 1, 2, 3, 4 } },
        { { 6, 1 }, true, { 1, 2, 7, 8 } },
        { { 3, 1 }, false, { 1, 2, 4, 5 } },
        { { 4, 2 }, false, { 1, 3, 5, 7 } },
    };
    for (size_t i = 0; i < LEN(rows); i++) {
        const deft_wrap_options o = { .size = sizeof o,
                                      .strides = rows[i].strides,
                                      .release = gives_nothing_back };
        deft_tensor *const z =
            deft_view_as_complex(deft_wrap_with(r.cx, S(2, 2), DEFT_F32, a, sizeof a, &o));
        DLManagedTensorVersioned *m = NULL;
        const deft_status st = deft_to_dlpack(z, DEFT_DLPACK_NO_COPY, &m);
        cr_assert_eq(st, rows[i].fits ? DEFT_OK : DEFT_E_ARG, "%zu", i);
        if (!rows[i].fits)
            cr_assert(strstr(deft_message(r.cx), "the parts of an element are not adjacent"), "%s",
                      deft_message(r.cx));
        if (!m) m = lend(z, 0);
        const float *const at = m->dl_tensor.data;
        cr_assert_eq(at == a, rows[i].fits, "%zu", i);
        cr_assert_eq(m->flags, rows[i].fits ? 1u : 2u, "%zu", i);
        cr_assert(m->dl_tensor.ndim == 1 && m->dl_tensor.shape[0] == 2, "%zu", i);
        for (int k = 0; k < 4; k++)
            cr_assert_eq(at[2 * (k / 2) * m->dl_tensor.strides[0] + k % 2], rows[i].want[k],
                         "%zu %d", i, k);
        delete (m);
    }
}

Test(dlpack, the_old_struct)
{
    deft_tensor *const x = rig_range(&r, 3, 1);
    DLManagedTensor *m = NULL;
    OK(&r, deft_to_dlpack_old(x, 0, &m));
    cr_assert_eq(m->dl_tensor.data, where_is(x));
    deft_tensor *const y = deft_from_dlpack_old(r.cx, m, DEFT_DLPACK_NO_COPY);
    rig_expect_error(&r, deft_from_dlpack_old(r.cx, m, 0), DEFT_E_STATE, "only once");
    m->deleter(m); /* does nothing: deft has it */
    RIG_EXPECT(&r, y, 1, 2, 3);
}

static void *delete_there(void *m)
{
    delete (m);
    return NULL;
}

Test(dlpack, memory_outlives_context_and_runtime)
{
    fail_mem *mem = fail_mem_create();
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = fail_mem_get(mem)->resize,
                                     .resize_user = fail_mem_get(mem)->user };
    rig other;
    DLManagedTensorVersioned *m = NULL;
    rig_open(&other, &o, NULL);
    OK(&other, deft_to_dlpack(rig_range(&other, 4, 7), 0, &m));
    rig_close(&other);
    cr_assert_gt(fail_mem_count(mem).live_blocks, 0u);
    cr_assert_eq(((float *)m->dl_tensor.data)[3], 10.f);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, delete_there, m), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(fail_mem_count(mem).live_blocks, 0u);
    cr_assert_eq(fail_mem_count(mem).faults, 0u, "%s", fail_mem_fault(mem));
    fail_mem_destroy(&mem);
}

static deft_status doubles(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)in, (void)n_in, (void)out, (void)n_out;
    deft_tensor *const x = user;
    return deft_assign(x, deft_mul(x, deft_const_f(cx, 2))) ? DEFT_OK : deft_error(cx);
}

/* One step that doubles x; how: plain, submitted, captured. */
static void double_it(int how, deft_tensor *x, deft_capture *c)
{
    if (how == 2) {
        OK(&r, deft_capture_call(c, NULL, 0, NULL, 0));
        return;
    }
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_mul(x, 2));
    OK(&r, how ? deft_step_submit(s) : deft_step_end(s));
    OK(&r, deft_wait(r.cx));
}

/* A step that replaces x reuses its memory, but not while somebody has it. */
Test(dlpack, what_was_exported_is_never_overwritten)
{
    for (int how = 0; how < 3; how++) {
        deft_tensor *const x = rig_range(&r, 4, 1);
        deft_capture *c = deft_capture_create(r.cx, doubles, x);
        for (int i = 0; i < 3; i++) double_it(how, x, c);
        const uint64_t before = rig_stats(&r).donated;
        double_it(how, x, c);
        cr_assert_eq(rig_stats(&r).donated, before + 1, "%d: reused while nobody has it", how);
        DLManagedTensorVersioned *const m = lend(x, 0);
        const float *const at = m->dl_tensor.data;
        for (int i = 0; i < 2; i++) double_it(how, x, c);
        for (int i = 0; i < 4; i++) cr_assert_eq(at[i], 16.f * (float)(i + 1), "%d", how);
        RIG_EXPECT(&r, x, 64, 128, 192, 256);
        delete (m);
        deft_capture_destroy(&c);
        if (how == 2) deft_drop(&(deft_tensor *){ x });
    }
}

static void count(void *user)
{
    ++*(int *)user;
}

Test(dlpack, memory_of_the_caller_is_copied_unless_it_has_an_end)
{
    float a[3] = { 1, 2, 3 };
    int n = 0;
    DLManagedTensorVersioned *m = lend(deft_wrap(r.cx, S(3), DEFT_F32, a, sizeof a, NULL), 0);
    cr_assert(m->dl_tensor.data != a && m->flags == 2u, "a copy, which may be written");
    delete (m);
    deft_tensor *w = deft_wrap_mut(r.cx, S(3), DEFT_F32, a, sizeof a, NULL);
    m = lend(w, 0);
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(w, 9);
    OK(&r, deft_step_end(s));
    cr_assert(a[0] == 9 && m->dl_tensor.data != a && ((float *)m->dl_tensor.data)[0] == 1);
    delete (m);
    cr_assert_eq(deft_to_dlpack(w, DEFT_DLPACK_NO_COPY, &m), DEFT_E_ARG);
    cr_assert(!m && strstr(deft_message(r.cx), "NO_COPY forbids"), "%s", deft_message(r.cx));
    const deft_wrap_options o = { .size = sizeof o, .release = count, .release_user = &n };
    s = deft_scope_begin(r.cx);
    w = deft_wrap_with(r.cx, S(3), DEFT_F32, a, sizeof a, &o);
    m = lend(w, DEFT_DLPACK_NO_COPY);
    OK(&r, deft_scope_end(s));
    cr_assert(m->dl_tensor.data == a && n == 0);
    delete (m);
    cr_assert_eq(n, 1);
    m = lend(rig_range(&r, 2, 0), DEFT_DLPACK_COPY);
    cr_assert_eq(m->flags, 2u);
    delete (m);
}

Test(dlpack, exports_that_are_refused)
{
    deft_tensor *const x = rig_range(&r, 2, 0);
    DLManagedTensorVersioned *m = (void *)x;
    cr_assert_eq(deft_to_dlpack(x, 0, NULL), DEFT_E_ARG);
    cr_assert_eq(deft_to_dlpack(NULL, 0, &m), DEFT_E_ARG);
    cr_assert_null(m);
    cr_assert_eq(deft_to_dlpack(x, 8, &m), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "flags are 0x8"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_to_dlpack(x, DEFT_DLPACK_WRITE, &m), DEFT_E_ARG);
    cr_assert_eq(deft_to_dlpack(x, 3, &m), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "together"), "%s", deft_message(r.cx));
}

/* ---- import ---- */

Test(dlpack, any_layout_is_read_where_it_is)
{
    static float a[16];
    static char odd[20];
    for (int i = 0; i < 16; i++) a[i] = (float)i;
    memcpy(odd + 1, a, 16);
    producer *p = produce(a, 2, DIMS(2, 3), NULL);
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 0, 1, 2, 3, 4, 5);
    p = produce(a, 2, DIMS(2, 3), DIMS(1, 4));
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 0, 4, 8, 1, 5, 9);
    p = produce(a, 2, DIMS(2, 3), DIMS(-4, -1));
    p->m.dl_tensor.byte_offset = 15 * sizeof *a;
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, DEFT_DLPACK_NO_COPY), 15, 14, 13, 11, 10, 9);
    p = produce(a + 2, 2, DIMS(2, 2), DIMS(-2, 1));
    deft_tensor *t = deft_from_dlpack(r.cx, &p->m, 0);
    RIG_EXPECT(&r, deft_mul(t, deft_t(t)), 4, 0, 0, 1);
    RIG_EXPECT(&r, deft_matmul(t, t), 4, 9, 0, 1);
    p = produce(a + 3, 2, DIMS(2, 3), DIMS(0, 0));
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 3, 3, 3, 3, 3, 3);
    p = produce(odd + 1, 1, DIMS(4), DIMS(1));
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 0, 1, 2, 3);
    p = produce(a + 5, 0, NULL, NULL);
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 5);
    p = produce(NULL, 2, DIMS(4, 0), DIMS(INT64_MAX, INT64_MIN));
    t = deft_from_dlpack(r.cx, &p->m, 0);
    cr_assert(t && deft_numel(t) == 0);
    RIG_EXPECT(&r, deft_sum(t, DEFT_ALL_AXES, 0), 0);
    p = produce(a, 1, DIMS(2), NULL);
    p->m.dl_tensor.device.device_type = 3; /* pinned memory of the host */
    RIG_EXPECT(&r, deft_from_dlpack(r.cx, &p->m, 0), 0, 1);
}

Test(dlpack, given_back_once_when_nothing_uses_it)
{
    static float a[4] = { 1, 2, 3, 4 };
    producer *p = produce(a, 1, DIMS(4), NULL);
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *t = deft_from_dlpack(r.cx, &p->m, 0);
    deft_tensor *const sum = deft_keep(deft_sum(t, DEFT_ALL_AXES, 0));
    p->m.deleter(&p->m);
    cr_assert_eq(p->n_deleted, 0, "deft has it");
    OK(&r, deft_scope_end(s));
    RIG_EXPECT(&r, sum, 10);
    cr_assert_eq(p->n_deleted, 1);

    p = produce(a, 1, DIMS(4), NULL);
    t = deft_from_dlpack(r.cx, &p->m, DEFT_DLPACK_COPY);
    cr_assert(p->n_deleted == 1, "a copy needs it no longer");
    a[0] = 7;
    RIG_EXPECT(&r, t, 1, 2, 3, 4);

    p = produce(a, 1, DIMS(4), NULL);
    p->m.deleter = NULL; /* nobody is to be told */
    s = deft_scope_begin(r.cx);
    t = deft_from_dlpack(r.cx, &p->m, 0);
    rig_expect_error(&r, deft_from_dlpack(r.cx, &p->m, 0), DEFT_E_STATE, "only once");
    RIG_EXPECT(&r, t, 7, 2, 3, 4);
    OK(&r, deft_scope_end(s));
}

Test(dlpack, assignments_write_it_when_asked_for)
{
    static float a[6] = { 0, 1, 2, 3, 4, 5 };
    producer *p = produce(a + 5, 2, DIMS(2, 3), DIMS(-3, -1));
    deft_tensor *const t = deft_from_dlpack(r.cx, &p->m, DEFT_DLPACK_WRITE);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(t, deft_add(deft_mul(t, 10), deft_iota(r.cx, S(2, 3), 1)));
    OK(&r, deft_step_end(s));
    const float want[6] = { 2, 11, 20, 32, 41, 50 };
    cr_assert(memcmp(a, want, sizeof a) == 0, "%g %g %g %g", a[0], a[1], a[2], a[3]);
    RIG_EXPECT(&r, t, 50, 41, 32, 20, 11, 2);
}

typedef struct refusal {
    deft_status st;
    const char *part;
    void (*spoil)(producer *p);
    uint32_t flags;
} refusal;

#define SPOIL(name, ...)                                                                           \
    static void name(producer *p)                                                                  \
    {                                                                                              \
        DLTensor *const dl = &p->m.dl_tensor;                                                      \
        (void)dl;                                                                                  \
        __VA_ARGS__                                                                                \
    }
SPOIL(version_2, p->m.version.major = 2; p->m.version.minor = 7; dl->ndim = -5;)
SPOIL(version_0, p->m.version.major = 0;)
SPOIL(nothing, (void)p;)
SPOIL(on_vulkan, dl->device.device_type = 7;)
SPOIL(on_gpu_99, dl->device.device_type = 2; dl->device.device_id = 99;)
SPOIL(on_gpu_minus, dl->device.device_type = 2; dl->device.device_id = -1;)
SPOIL(four_lanes, dl->dtype.lanes = 4;)
SPOIL(no_lane, dl->dtype.lanes = 0;)
SPOIL(complex32, dl->dtype.code = 5; dl->dtype.bits = 32;)
SPOIL(float8, dl->dtype.code = 11; dl->dtype.bits = 8;)
SPOIL(code_200, dl->dtype.code = 200;)
SPOIL(float_24, dl->dtype.bits = 24;)
SPOIL(bool_1, dl->dtype.code = 6; dl->dtype.bits = 1;)
SPOIL(nine_axes, dl->ndim = 9; for (int i = 0; i < 9; i++) p->shape[i] = 1;)
SPOIL(minus_axes, dl->ndim = INT32_MIN;)
SPOIL(minus_extent, p->shape[1] = -1;)
SPOIL(huge, p->shape[0] = p->shape[1] = INT64_MAX / 2;)
SPOIL(huge_bytes, p->shape[0] = 1; p->shape[1] = INT64_MAX / 2;)
SPOIL(no_shape, dl->shape = NULL;)
SPOIL(no_data, dl->data = NULL;)
SPOIL(far_strides, dl->strides = p->strides; p->strides[0] = INT64_MAX / 2; p->strides[1] = 9;)
SPOIL(far_back, dl->strides = p->strides; p->strides[0] = INT64_MIN; p->strides[1] = -1;)
SPOIL(far_offset, dl->byte_offset = UINT64_MAX;)
SPOIL(read_only, p->m.flags = 1;)
SPOIL(overlapping, dl->strides = p->strides; p->strides[0] = 1; p->strides[1] = 1;)

static const refusal refusals[] = {
    { DEFT_E_FORMAT, "version 2.7, and deft reads 1.x", version_2, 0 },
    { DEFT_E_FORMAT, "version 0.0", version_0, 0 },
    { DEFT_E_ARG, "flags are 0x10, known are 0x7", nothing, 16 },
    { DEFT_E_ARG, "COPY and DEFT_DLPACK_NO_COPY together", nothing, 3 },
    { DEFT_E_ARG, "WRITE of a copy", nothing, 5 },
    { DEFT_E_BACKEND, "on device 0 of type 7", on_vulkan, 0 },
    { DEFT_E_BACKEND, "on device 99 of type 2", on_gpu_99, 0 },
    { DEFT_E_BACKEND, "on device -1 of type 2", on_gpu_minus, 0 },
    { DEFT_E_DTYPE, "4 lanes", four_lanes, 0 },
    { DEFT_E_DTYPE, "0 lanes", no_lane, 0 },
    { DEFT_E_DTYPE, "float of 24 bits (code 2)", float_24, 0 },
    { DEFT_E_DTYPE, "complex of 32 bits (code 5)", complex32, 0 },
    { DEFT_E_DTYPE, "8 bits (code 11)", float8, 0 },
    { DEFT_E_DTYPE, "unknown here of 32 bits (code 200)", code_200, 0 },
    { DEFT_E_DTYPE, "bool of 1 bits", bool_1, 0 },
    { DEFT_E_SHAPE, "9 axes, and deft takes 0 to 8", nine_axes, 0 },
    { DEFT_E_SHAPE, "-2147483648 axes", minus_axes, 0 },
    { DEFT_E_SHAPE, "extent -1 of axis 1", minus_extent, 0 },
    { DEFT_E_SHAPE, "more elements than can be counted", huge, 0 },
    { DEFT_E_SHAPE, "more elements than can be counted", huge_bytes, 0 },
    { DEFT_E_ARG, "its shape is NULL", no_shape, 0 },
    { DEFT_E_ARG, "its data is NULL", no_data, 0 },
    { DEFT_E_RANGE, "strides or its offset overflow", far_strides, 0 },
    { DEFT_E_RANGE, "strides or its offset overflow", far_back, 0 },
    { DEFT_E_RANGE, "strides or its offset overflow", far_offset, 0 },
    { DEFT_E_ARG, "read only", read_only, DEFT_DLPACK_WRITE },
    { DEFT_E_ARG, "two elements would share memory", overlapping, DEFT_DLPACK_WRITE },
};

Test(dlpack, what_is_refused_stays_the_callers)
{
    float a[6] = { 0, 1, 2, 3, 4, 5 };
    for (size_t i = 0; i < LEN(refusals); i++) {
        const refusal *const f = &refusals[i];
        producer *const p = produce(a, 2, DIMS(2, 3), NULL);
        f->spoil(p);
        const producer before = *p;
        rig_expect_error(&r, deft_from_dlpack(r.cx, &p->m, f->flags), f->st, f->part);
        cr_assert(memcmp(p, &before, sizeof *p) == 0, "%zu", i);
    }
    rig_expect_error(&r, deft_from_dlpack(r.cx, NULL, 0), DEFT_E_ARG, "the struct is NULL");
    cr_assert_null(deft_from_dlpack(NULL, NULL, 0));
}

/* ---- deft_wrap_with ---- */

Test(dlpack, memory_is_released_once)
{
    float a[4] = { 1, 2, 3, 4 };
    int n = 0;
    deft_wrap_options o = { .size = sizeof o, .release = count, .release_user = &n };
    rig_expect_error(&r, deft_wrap_with(r.cx, S(5), DEFT_F32, a, sizeof a, &o), DEFT_E_RANGE,
                     "needs 20 bytes");
    rig_expect_error(&r, deft_wrap_with(r.cx, S(4), 99, a, sizeof a, &o), DEFT_E_DTYPE, "99");
    rig_expect_error(
        &r,
        deft_wrap_with(r.cx, S(4), DEFT_F32, a, sizeof a, &(deft_wrap_options){ .release = count }),
        DEFT_E_ARG, "size of deft_wrap_options is 0");
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *t = deft_wrap_with(r.cx, S(4), DEFT_F32, a, sizeof a, &o);
    deft_mapped m;
    OK(&r, deft_map(t, &m));
    cr_assert_eq(m.data, a);
    OK(&r, deft_scope_end(s));
    cr_assert_eq(n, 0, "a map has it");
    deft_unmap(&m);
    cr_assert_eq(n, 1);
    o.is_mutable = true;
    s = deft_step_begin(r.cx);
    t = deft_wrap_with(r.cx, S(4), DEFT_F32, a, sizeof a, &o);
    deft_assign(t, deft_neg(t));
    OK(&r, deft_step_end(s));
    cr_assert(a[3] == -4 && n == 2, "%g, %d", a[3], n);
    (void)deft_keep(deft_wrap_with(r.cx, S(0), DEFT_F32, NULL, 0, &o));
    deft_ctx_destroy(&r.cx);
    cr_assert_eq(n, 3);
    cr_assert_eq(deft_ctx_create(r.rt, NULL, &r.cx), DEFT_OK);
}

/* data is the lowest address, whatever the strides. */
Test(dlpack, negative_strides)
{
    float a[6] = { 0, 1, 2, 3, 4, 5 }, b[4] = { 0 };
    deft_tensor *const t = deft_wrap(r.cx, S(2, 3), DEFT_F32, a, sizeof a, DIMS(3, -1));
    RIG_EXPECT(&r, t, 2, 1, 0, 5, 4, 3);
    RIG_EXPECT(&r, deft_sum(deft_slice(t, DEFT_FULL, DEFT_R(0, 2)), DEFT_AXES(1), 0), 3, 9);
    rig_expect_error(&r, deft_wrap(r.cx, S(2, 3), DEFT_F32, a, sizeof a - 1, DIMS(-3, -1)),
                     DEFT_E_RANGE, "needs 24 bytes, 23 were given");
    deft_tensor *const w = deft_wrap_mut(r.cx, S(2), DEFT_F32, b, sizeof b, DIMS(-3));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(w, deft_slice(t, DEFT_AT(0), DEFT_R(0, 2)));
    OK(&r, deft_step_end(s));
    cr_assert(b[3] == 2 && b[0] == 1 && b[1] == 0 && b[2] == 0);
    rig_expect_error(&r, deft_wrap_mut(r.cx, S(2, 2), DEFT_F32, a, sizeof a, DIMS(1, -1)),
                     DEFT_E_ARG, "share memory");
}
