/* SPDX-License-Identifier: Apache-2.0 */
#include "mixed_loaded.h"

#include "../support/oracle.h"

#include <stdio.h>
#include <unistd.h>

/* Three functions, one for each rank, are a family. The first half of them is exact. */
enum { RANKS = 3, EXACT = N_MIXED_LOADED / 2 };

/* One function that is being recorded. */
typedef struct making {
    deft_ctx *cx;
    uint64_t random;
    bool is_exact;
    bool has_branches; /* branches are recorded as such */
    deft_tensor *outside;
} making;

static unsigned pick(making *m, unsigned n)
{
    return (unsigned)(oracle_next(&m->random) % n);
}

static deft_tensor *number(const making *m, double v)
{
    return deft_const_f(m->cx, v);
}

static deft_tensor *small(deft_tensor *t)
{
    return deft_clamp(t, -4, 4);
}

#define FN(name)                                                                                   \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

/* ---- loops and branches ---- */

FN(turn)
{
    UNUSED;
    const making *const m = user;
    out[0] = small(deft_sub(deft_mul(in[0], number(m, 2)), n_in > 1 ? in[1] : m->outside));
    if (n_out > 1) out[1] = deft_neg(in[0]);
    return DEFT_OK;
}

FN(nested_turn)
{
    UNUSED;
    deft_tensor *x = in[0];
    if (!deft_scan(cx, turn, user, &x, 1, NULL, 0, 2, 0, &x)) return deft_error(cx);
    out[0] = small(deft_add(x, in[0]));
    return DEFT_OK;
}

FN(is_below)
{
    UNUSED;
    const making *const m = user;
    out[0] = deft_logical_and(
        deft_lt(in[1], number(m, 3)),
        deft_lt(deft_rank(in[0]) ? deft_max(in[0], DEFT_ALL_AXES, 0) : in[0], number(m, 4)));
    return DEFT_OK;
}

FN(counted_turn)
{
    UNUSED;
    const making *const m = user;
    out[0] = small(deft_add(in[0], m->outside));
    out[1] = deft_add(in[1], number(m, 1));
    return DEFT_OK;
}

FN(one_side)
{
    UNUSED;
    const making *const m = user;
    out[0] = small(deft_sub(deft_mul(in[0], in[0]), m->outside));
    return DEFT_OK;
}

FN(other_side)
{
    UNUSED;
    const making *const m = user;
    out[0] = small(deft_add(deft_neg(in[0]), deft_mul(m->outside, number(m, 2))));
    return DEFT_OK;
}

static deft_tensor *branch(making *m, deft_tensor *a)
{
    deft_tensor *sum = deft_rank(a) ? deft_sum(a, DEFT_ALL_AXES, 0) : a, *out = NULL, *other;
    deft_tensor *const test = deft_gt(sum, number(m, 1));
    if (m->has_branches) {
        (void)deft_cond(test, one_side, other_side, m, &a, 1, &out, 1);
        return out;
    }
    (void)one_side(m->cx, &a, 1, &out, 1, m);
    (void)other_side(m->cx, &a, 1, &other, 1, m);
    return deft_where(test, out, other);
}

static deft_tensor *loop(making *m, unsigned how, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *out[2] = { NULL }, *in[2] = { a, NULL };
    m->outside = b;
    switch (how) {
    case 0: (void)deft_scan(m->cx, turn, m, &a, 1, NULL, 0, 3, 0, out); return out[0];
    case 1: /* all states of before are used, too */
        if (!deft_scan(m->cx, turn, m, &a, 1, NULL, 0, 3, 1, out)) return NULL;
        return small(deft_add(out[0], deft_sum(out[1], DEFT_AXES(0), 0)));
    case 2: /* over rows */
        if (deft_rank(a) < 2) return branch(m, a);
        in[0] = deft_slice(a, DEFT_AT(0));
        if (!deft_scan(m->cx, turn, m, in, 1, &b, 1, deft_dim(b, 0), 1, out)) return NULL;
        return out[1];
    case 3:
        in[1] = deft_mul(deft_rank(a) ? deft_sum(a, DEFT_ALL_AXES, 0) : a, number(m, 0));
        (void)deft_while(m->cx, is_below, counted_turn, m, in, 2, 5, out);
        return out[0];
    case 4: (void)deft_scan(m->cx, nested_turn, m, &a, 1, NULL, 0, 2, 0, out); return out[0];
    default: return branch(m, a);
    }
}

/* ---- work without loops ---- */

/* Work that needs an axis. */
static deft_tensor *of_axes(making *m, unsigned how, deft_tensor *a, deft_tensor *b)
{
    const int64_t n = deft_dim(a, -1);
    switch (how) {
    case 0: return small(deft_sub(a, deft_sum(small(b), DEFT_ALL_AXES, 0)));
    case 1: return deft_add(deft_flip(a, DEFT_AXES(0)), small(b));
    case 2: return deft_roll(a, 1, -1);
    case 3: return small(deft_cumsum(small(a), -1));
    case 4: return deft_sort(a, -1, false);
    case 5: /* joined of parts */
        return deft_concat(
            (deft_tensor *[]){ deft_slice(a, DEFT_R(0, 1)), deft_slice(b, DEFT_R(1, DEFT_END)) }, 2,
            0);
    case 6:
        return deft_take(
            a, deft_cast(deft_clamp(deft_slice(deft_flatten(b), DEFT_R(0, 2)), 0, 2), DEFT_I64), 0);
    case 7: {
        deft_tensor *const rows = deft_reshape(small(a), DEFT_SHAPE(-1, n));
        deft_tensor *const square = deft_matmul(deft_t(rows), rows);
        return deft_reshape(small(deft_matmul(rows, square)), deft_shape_get(a));
    }
    default: { /* an update of a part of it */
        deft_tensor *const copy = deft_mul(a, number(m, 1));
        deft_tensor *const part = deft_slice(copy, DEFT_R(0, 2));
        deft_assign(part, deft_neg(deft_slice(b, DEFT_R(1, 3))));
        return copy;
    }
    }
}

static deft_tensor *of_elements(making *m, unsigned how, deft_tensor *a, deft_tensor *b)
{
    switch (how) {
    case 0: return small(deft_sub(deft_mul(a, number(m, 3)), b));
    case 1: return deft_mul(small(a), small(b));
    case 2: return deft_where(deft_lt(a, b), deft_neg(b), a);
    case 3:
        return deft_cast(
            deft_bitwise_xor(deft_cast(small(a), DEFT_I32), deft_cast(small(b), DEFT_I32)),
            DEFT_F32);
    case 4: return m->is_exact ? deft_abs(a) : deft_tanh(deft_mul(a, number(m, 1.25)));
    case 5: return m->is_exact ? deft_neg(a) : deft_sin(deft_add(a, b));
    default: return deft_maximum(deft_minimum(a, b), deft_neg(b));
    }
}

static deft_tensor *one_more(making *m, unsigned which, unsigned at, deft_tensor *a, deft_tensor *b)
{
    const bool has_control = which / RANKS % 2;
    const bool has_axes = which % RANKS > 0;
    if (has_control && at % 3 == 1) return loop(m, (which / (2 * RANKS) + at / 3) % 6, a, b);
    if (!has_axes || pick(m, 2)) return of_elements(m, pick(m, 7), a, b);
    deft_tensor *const t = of_axes(m, pick(m, 9), a, b);
    /* Some elements of it: what they come to. */
    const bool is_whole = t && deft_numel(t) == deft_numel(a);
    return is_whole ? t : small(deft_sub(a, deft_sum(t, DEFT_ALL_AXES, 0)));
}

static void record(deft_ctx *cx, unsigned which, deft_tensor *const *in, deft_tensor **out,
                   bool has_branches)
{
    making m = { .cx = cx,
                 .random = oracle_mix(which, 0x6c6f61646564),
                 .is_exact = which < EXACT,
                 .has_branches = has_branches };
    deft_tensor *list[9] = { in[0], in[1] };
    unsigned n = 2;
    const unsigned last = 5 + which % 4;
    while (n < last) {
        deft_tensor *const a = list[pick(&m, n)], *const b = list[n - 1];
        list[n] = one_more(&m, which, n, a, b);
        if (!list[n]) return;
        n++;
    }
    /* A trace has each operand that is used, and each result once. */
    out[0] = small(deft_sub(list[n - 1], in[1]));
    out[1] = which % 5 == 0 ? deft_neg(in[0]) : list[2 + pick(&m, n - 2)];
    deft_tensor *const some = deft_sub(list[pick(&m, n)], in[0]);
    out[2] = deft_rank(some) ? deft_sum(small(some), DEFT_ALL_AXES, 0) : some;
}

unsigned mixed_loaded_pick(unsigned p, uint32_t rank, bool is_exact)
{
    const unsigned families = (is_exact ? EXACT : N_MIXED_LOADED) / RANKS;
    return p % families * RANKS + rank;
}

void mixed_loaded_record(deft_ctx *cx, unsigned which, deft_tensor *const *in, deft_tensor **out)
{
    record(cx, which, in, out, false);
}

/* ---- files ---- */

FN(captured)
{
    UNUSED;
    record(cx, *(const unsigned *)user, in, out, true);
    return deft_error(cx);
}

static bool write_one(deft_ctx *cx, const char *folder, unsigned which, deft_shape shape)
{
    char path[128];
    deft_tensor *out[MIXED_LOADED_RESULTS];
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *const x = deft_full(cx, shape, DEFT_F32, 1);
    deft_tensor *const in[2] = { x, deft_neg(x) };
    deft_capture *c = deft_capture_create(cx, captured, &which);
    (void)snprintf(path, sizeof path, "%.80s/loaded%u", folder, which);
    deft_status st = deft_capture_call(c, in, 2, out, MIXED_LOADED_RESULTS);
    if (st == DEFT_OK) st = deft_export(c, path, DEFT_EXPORT(.as_trace = true));
    if (st != DEFT_OK) printf("FAIL: function %u: %s\n", which, deft_message(cx));
    deft_capture_destroy(&c);
    const deft_status end = deft_scope_end(scope);
    return st == DEFT_OK && end == DEFT_OK;
}

bool mixed_loaded_write(deft_ctx *cx, const char *folder, const deft_shape *shape)
{
    for (unsigned i = 0; i < N_MIXED_LOADED; i++)
        if (!write_one(cx, folder, i, shape[i % RANKS])) return false;
    return true;
}

deft_program *mixed_loaded_load(deft_ctx *cx, const char *folder, unsigned which)
{
    char path[128];
    deft_program *p = NULL;
    (void)snprintf(path, sizeof path, "%.80s/loaded%u.trace", folder, which);
    return deft_program_load(cx, path, &p) == DEFT_OK ? p : NULL;
}

void mixed_loaded_remove(const char *folder)
{
    char path[128];
    for (unsigned i = 0; i < N_MIXED_LOADED; i++) {
        (void)snprintf(path, sizeof path, "%.80s/loaded%u.trace", folder, i);
        (void)unlink(path);
    }
}
