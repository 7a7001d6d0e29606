/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of DLPack: each field is read from the bytes. The array is imported, or refused with a
 * sentence and left to the caller. Where an honest producer would have memory, there is memory: the
 * elements that shape, strides and offset reach lie in `room`, or the fields say nonsense that deft
 * must see. What was imported is read, and exported and imported once more.
 */
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "deft/dlpack.h"
#include "fuzz.h"
#include "source.h"

enum { ROOM = 1 << 16, MIDDLE = ROOM / 2, AXES = 10, MOST_ELEMENTS = 1 << 12 };

static void must(bool ok)
{
    if (!ok) abort();
}

static int n_released;
static unsigned char room[ROOM];

static void release(struct DLManagedTensorVersioned *self)
{
    (void)self;
    n_released++;
}

static void release_old(struct DLManagedTensor *self)
{
    (void)self;
    n_released++;
}

/* A small number, with a sign, or one from the ends. */
static int64_t number(source *s)
{
    const unsigned v = next(s);
    if (v == 255) return INT64_MAX;
    if (v == 254) return INT64_MIN;
    if (v == 253) return (int64_t)1 << 62;
    if (v == 252) return INT64_MIN + 1;
    if (v == 251) return (int64_t)1 << 32;
    return (int64_t)(v % 12) - (v & 64 ? 6 : 0);
}

/* Whether all elements lie in the room, whose middle has the first one, or deft must see that they
 * cannot: a number overflows, or there are no elements. Other structs lie, which nobody sees.
 * Arrays that repeat few elements so often that copies take long are left out, too. */
static bool is_honest(const deft_dlpack_tensor *t)
{
    int64_t low = 0, high = 0, n = 1, all;
    if (t->ndim < 0 || t->ndim > DEFT_MAX_RANK || (t->ndim && !t->shape)) return true; /* refused */
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] <= 0) return true; /* no element, or refused */
    for (int32_t i = t->ndim; i-- > 0;) {
        const int64_t stride = t->strides ? t->strides[i] : n;
        int64_t span;
        if (__builtin_mul_overflow(t->shape[i] - 1, stride, &span)) return true;
        if (__builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high))
            return true;
        if (__builtin_mul_overflow(n, t->shape[i], &n)) return true; /* too many elements */
    }
    if (__builtin_sub_overflow(high, low, &all) || t->byte_offset > INT64_MAX) return true;
    if (n > MOST_ELEMENTS) return false;
    return low > -MIDDLE / 32 && high < MIDDLE / 32 && t->byte_offset < MIDDLE / 2;
}

static void fill(deft_dlpack_tensor *t, int64_t *shape, int64_t *strides, source *s)
{
    static const uint8_t widths[] = { 8, 16, 32, 64, 4, 128, 1, 0 };
    const unsigned what = next(s), form = next(s);
    for (int i = 0; i < AXES; i++) shape[i] = number(s);
    for (int i = 0; i < AXES; i++) strides[i] = number(s);
    *t = (deft_dlpack_tensor){ .data = what & 1 ? NULL : room + MIDDLE + (what >> 1 & 1),
                               .device_type = what & 4 ? (int32_t)next(s) : 1,
                               .device_id = what & 8 ? (int32_t)number(s) : 0,
                               .ndim = (int32_t)(next(s) % (AXES + 2)) - 1,
                               .code = (uint8_t)(next(s) % 20),
                               .bits = widths[form & 7],
                               .lanes = (uint16_t)(what & 16 ? next(s) : 1),
                               .shape = what & 32 ? NULL : shape,
                               .strides = what & 64 ? NULL : strides,
                               .byte_offset = what & 128 ? (uint64_t)number(s) : 0 };
}

static deft_ctx *make_context(void)
{
    deft_ctx *cx = NULL;
    deft_runtime *rt = NULL;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    must(deft_runtime_create(&o, &rt) == DEFT_OK && deft_ctx_create(rt, NULL, &cx) == DEFT_OK);
    deft_runtime_destroy(&rt);
    return cx;
}

/* The elements of t are read, and the tensor goes out and comes back. */
static void check_imported(deft_ctx *cx, deft_tensor *t, const deft_dlpack_tensor *from)
{
    deft_mapped m;
    deft_tensor *const flat = deft_flatten(t);
    struct DLManagedTensorVersioned *out = NULL;
    must(deft_rank(t) == (uint32_t)from->ndim && deft_numel(t) >= 0);
    must(deft_eval(&t, 1) == DEFT_OK);
    if (flat && deft_map(flat, &m) == DEFT_OK) deft_unmap(&m);
    deft_clear(cx); /* rows that end within a byte are not flattened */
    if (deft_to_dlpack(t, 0, &out) == DEFT_OK) {
        deft_tensor *const back = deft_from_dlpack(cx, out, 0);
        must(back && deft_dtype_of(back) == deft_dtype_of(t) && deft_numel(back) == deft_numel(t));
    } else {
        must(deft_message(cx)[0]);
        deft_clear(cx);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static deft_ctx *cx;
    int64_t shape[AXES], strides[AXES];
    source s = { bytes, n };
    if (!cx) cx = make_context();
    const unsigned how = next(&s), flags = next(&s) % 16;
    deft_dlpack_versioned m = { .major = how & 2 ? next(&s) : 1,
                                .minor = next(&s),
                                .deleter = how & 4 ? NULL : release,
                                .flags = how & 8 ? next(&s) : 0 };
    deft_dlpack_old old = { .deleter = how & 4 ? NULL : release_old };
    fill(&m.tensor, shape, strides, &s);
    old.tensor = m.tensor;
    if (!is_honest(&m.tensor)) return 0;
    n_released = 0;
    memset(room, 1, sizeof room); /* bools are 0 or 1 */
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *const t = how & 1 ? deft_from_dlpack_old(cx, (void *)&old, flags)
                                   : deft_from_dlpack(cx, (void *)&m, flags);
    if (t) {
        must(m.tensor.device_type != 2); /* this process has no GPU */
        check_imported(cx, t, &m.tensor);
        if (!(flags & DEFT_DLPACK_COPY)) /* a copy gives the struct back; else it is taken once */
            must(!(how & 1 ? deft_from_dlpack_old(cx, (void *)&old, flags)
                           : deft_from_dlpack(cx, (void *)&m, flags)));
        deft_clear(cx);
    } else {
        must(n_released == 0 && deft_error(cx) != DEFT_OK && deft_message(cx)[0]);
        must(how & 1 ? old.deleter == (how & 4 ? NULL : release_old)
                     : m.deleter == (how & 4 ? NULL : release));
        deft_clear(cx);
    }
    must(deft_scope_end(scope) == DEFT_OK);
    must(n_released == (t && !(how & 4)));
    return 0;
}
