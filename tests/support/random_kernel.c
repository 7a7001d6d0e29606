/* SPDX-License-Identifier: Apache-2.0
 *
 * Random kernels and shapes. Draws go on from the kernel's seed one after the other, so that a
 * kernel and its shapes follow from it.
 */
#include "support/random_kernel.h"

#include "base/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/facts.h"

static void must(bool holds)
{
    if (holds) return;
    fprintf(stderr, "random kernel: out of its own bounds, or of memory\n");
    abort();
}

/* ---- memory that ends at a wall ---- */

walled walled_take(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page) / page * page;
    walled b = { .mapped = room + page, .bytes = bytes };
    b.map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(b.map != MAP_FAILED);
    mprotect(b.map + room, page, PROT_NONE);
    b.at = b.map + room - bytes;
    return b;
}

/* ---- random kernels ---- */

uint32_t random_pick(random_kernel *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static uint32_t put(random_kernel *g, df_kop op, uint8_t t, uint32_t a, uint32_t b, uint32_t c,
                    uint64_t imm)
{
    const uint32_t i = g->k.n_ins++;
    must(i < RANDOM_INS);
    g->ins[i] = (df_ins){ .op = (uint8_t)op,
                          .dtype = t,
                          .stage = g->stage,
                          .level = g->level,
                          .src = { a, b, c },
                          .imm = imm };
    if (op == DF_K_store || df_kop_infos[op].kind == DF_KOP_reduce) return i;
    if (op == DF_K_next || op == DF_K_proceed) return i;
    if (g->level == DF_LEVEL_ROW)
        g->row_vals[g->n_row++] = i;
    else
        g->elem_vals[g->n_elem++] = i;
    return i;
}

/* Sometimes, in a MAP kernel: makes a move by one element along the last outer axis, and by more
 * along the lanes. */
static void cross(random_kernel *g, df_access *a)
{
    const uint32_t n = g->k.n_axes;
    if (g->k.mode != DF_MODE_MAP || n < 2 || random_pick(g, 3)) return;
    if (a->kind != DF_ACCESS_LOAD && a->kind != DF_ACCESS_STORE) return;
    if (a->step[n - 1] == DF_STEP_ZERO || a->step[n - 2] == DF_STEP_ZERO) return;
    a->step[n - 1] = DF_STEP_ANY;
    a->step[n - 2] = DF_STEP_UNIT;
}

/* dense: moves along every axis that values of this level have. */
static uint32_t put_access(random_kernel *g, df_access_kind kind, uint8_t t, bool dense)
{
    const uint32_t i = g->k.n_access++;
    must(i < RANDOM_ACCESSES);
    df_access *a = &g->access[i];
    *a = (df_access){ .kind = (uint8_t)kind, .dtype = t, .same_as = i };
    for (uint32_t x = 0; x < g->k.n_axes; x++) {
        const uint8_t role = g->k.role[x];
        const bool is_vec = x + 1u == g->k.n_axes;
        if (role == DF_AXIS_RED && g->level == DF_LEVEL_ROW) continue;
        if (!dense && random_pick(g, 4) == 0) continue;
        a->step[x] = is_vec && random_pick(g, 3) ? DF_STEP_UNIT : DF_STEP_ANY;
    }
    cross(g, a);
    g->is_out[i] = kind == DF_ACCESS_STORE;
    return i;
}

static uint32_t any_value(random_kernel *g)
{
    const uint32_t n_elem = g->level == DF_LEVEL_ELEM ? g->n_elem : 0;
    const uint32_t i = random_pick(g, g->n_row + n_elem);
    return i < n_elem ? g->elem_vals[i] : g->row_vals[i - n_elem];
}

/* Some value, converted to t. */
static uint32_t value_of(random_kernel *g, uint8_t t)
{
    uint32_t v = any_value(g);
    for (int tries = 0; tries < 4 && g->ins[v].dtype != t; tries++) v = any_value(g);
    const uint8_t from = g->ins[v].dtype;
    if (from == t) return v;
    if ((is_half(from) && t != DEFT_F32) || (is_half(t) && from != DEFT_F32))
        v = put(g, DF_K_cast, DEFT_F32, v, 0, 0, 0);
    return g->ins[v].dtype == t ? v : put(g, DF_K_cast, t, v, 0, 0, 0);
}

static uint8_t any_dtype(random_kernel *g)
{
    static const uint8_t often[] = { 0, 1, 2, 3, 4, 5, 4, 4, 5, 4 };
    return often[random_pick(g, 10)];
}

/* One that may be in memory and be selected. */
static uint8_t any_stored(random_kernel *g)
{
    return random_pick(g, 6) == 0 ? (uint8_t)(DEFT_F16 + random_pick(g, 2)) : any_dtype(g);
}

static void put_random_op(random_kernel *g)
{
    static const df_kop floats[] = { DF_K_add,   DF_K_sub,  DF_K_mul,   DF_K_div,  DF_K_fma,
                                     DF_K_neg,   DF_K_abs,  DF_K_sqrt,  DF_K_min,  DF_K_max,
                                     DF_K_floor, DF_K_ceil, DF_K_trunc, DF_K_rint, DF_K_rem };
    static const df_kop ints[] = { DF_K_add, DF_K_sub, DF_K_mul, DF_K_div, DF_K_rem, DF_K_neg,
                                   DF_K_abs, DF_K_min, DF_K_max, DF_K_and, DF_K_or,  DF_K_xor,
                                   DF_K_not, DF_K_shl, DF_K_shr, DF_K_lshr };
    const uint32_t how = random_pick(g, 10);
    const uint8_t t = how == 1 ? any_stored(g) : any_dtype(g);
    if (how == 0) {
        const uint32_t a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_eq + random_pick(g, 4), DEFT_BOOL, a, b, 0, 0);
    } else if (how == 1) {
        const uint32_t c = value_of(g, DEFT_BOOL), a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_select, t, c, a, b, 0);
    } else if (t == DEFT_BOOL) {
        const uint32_t a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_and + random_pick(g, 4), t, a, b, 0, 0);
    } else {
        const df_kop op = is_float(t) ? floats[random_pick(g, 15)] : ints[random_pick(g, 16)];
        const uint32_t a = value_of(g, t), b = value_of(g, t), c = value_of(g, t);
        put(g, op, t, a, b, c, 0);
    }
}

/* A load with a condition: any bool, or one that never holds. No memory exists for the latter. */
static void put_load_if(random_kernel *g, uint8_t t)
{
    const uint32_t other = random_pick(g, 2) ? value_of(g, t) : put(g, DF_K_const, t, 0, 0, 0, 0);
    const bool never = random_pick(g, 2);
    uint32_t is;
    if (never) {
        const uint32_t index = put_access(g, DF_ACCESS_INDEX, DEFT_I64, false);
        if (random_pick(g, 2)) g->access[index].step[g->k.n_axes - 1u] = DF_STEP_ZERO;
        const uint32_t at = put(g, DF_K_index, DEFT_I64, 0, 0, 0, index);
        const uint32_t least = put(g, DF_K_const, DEFT_I64, 0, 0, 0, (uint64_t)(INT64_MIN / 2));
        is = put(g, DF_K_lt, DEFT_BOOL, at, least, 0, 0);
    } else {
        is = value_of(g, DEFT_BOOL);
    }
    if (random_pick(g, 2)) {
        const uint32_t a = value_of(g, DEFT_BOOL);
        is = put(g, DF_K_and, DEFT_BOOL, a, is, 0, 0);
    }
    const uint32_t from = put_access(g, DF_ACCESS_PART, t, false);
    g->is_missing[from] = never;
    put(g, DF_K_load_if, t, is, other, 0, from);
}

static void put_leaf(random_kernel *g)
{
    const uint8_t t = any_stored(g);
    const uint32_t how = random_pick(g, 8);
    if (how < 2 && is_half(t))
        put(g, DF_K_const, t, 0, 0, 0, of_real(t, -2.5));
    else if (how == 0)
        put(g, DF_K_const, t, 0, 0, 0, t == DEFT_BOOL ? 1 : is_float(t) ? of_real(t, 1.5) : 3);
    else if (how == 1)
        put(g, DF_K_num, t, 0, 0, 0, t % 2 ? 1 : t == 0 ? 0 : t == 2 ? 2 : 3);
    else if (how == 2)
        put(g, DF_K_index, DEFT_I64, 0, 0, 0, put_access(g, DF_ACCESS_INDEX, DEFT_I64, false));
    else if (how == 3) { /* a table of 16 */
        const uint32_t mask = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 15);
        const uint32_t at = put(g, DF_K_and, DEFT_I64, value_of(g, DEFT_I64), mask, 0, 0);
        put(g, DF_K_load_at, t, at, 0, 0, put_access(g, DF_ACCESS_AT, t, false));
    } else if (how == 4) {
        put_load_if(g, t);
    } else
        put(g, DF_K_load, t, 0, 0, 0, put_access(g, DF_ACCESS_LOAD, t, false));
}

static void put_store(random_kernel *g)
{
    const uint8_t t = any_stored(g);
    const uint32_t v = value_of(g, t);
    put(g, DF_K_store, t, v, 0, 0, put_access(g, DF_ACCESS_STORE, t, true));
}

static void put_reduce(random_kernel *g)
{
    static const df_kop ops[] = { DF_K_sum,    DF_K_sum,    DF_K_prod, DF_K_rmin, DF_K_rmax,
                                  DF_K_argmin, DF_K_argmax, DF_K_any,  DF_K_all };
    const df_kop op = ops[random_pick(g, 9)];
    uint8_t t = any_dtype(g);
    if (op == DF_K_any || op == DF_K_all)
        t = DEFT_BOOL;
    else if (t == DEFT_BOOL)
        t = DEFT_F32;
    const bool is_arg = op == DF_K_argmin || op == DF_K_argmax;
    put(g, op, is_arg ? DEFT_I64 : t, value_of(g, t), 0, 0, 0);
}

static void put_scan(random_kernel *g)
{
    static const uint8_t t[] = { DEFT_F32, DEFT_F64, DEFT_I32, DEFT_I64 };
    static const df_kop op[] = { DF_K_cumsum, DF_K_cumprod, DF_K_cummin, DF_K_cummax };
    const uint8_t d = t[random_pick(g, 4)];
    put(g, op[random_pick(g, 4)], d, value_of(g, d), 0, 0, 0);
}

static void make_axes(random_kernel *g, df_mode mode)
{
    const uint32_t n_outer = random_pick(g, 4);
    const uint32_t n_red = g->runs               ? 2 + random_pick(g, 2)
                           : mode == DF_MODE_COL ? 1 + random_pick(g, 2)
                                                 : 1;
    g->k.mode = (uint8_t)mode;
    for (uint32_t i = 0; i < n_outer; i++) g->k.role[g->k.n_axes++] = DF_AXIS_OUTER;
    if (mode != DF_MODE_MAP)
        for (uint32_t i = 0; i < n_red; i++) g->k.role[g->k.n_axes++] = DF_AXIS_RED;
    if (mode != DF_MODE_ROW) g->k.role[g->k.n_axes++] = DF_AXIS_INNER;
}

static void make_body(random_kernel *g, df_level level, uint32_t n_leaves, uint32_t n_ops)
{
    g->level = (uint8_t)level;
    for (uint32_t i = 0; i < n_leaves; i++) put_leaf(g);
    for (uint32_t i = 0; i < n_ops; i++) put_random_op(g);
}

/* One to four states, some of which may stay scalars; sometimes a counter that ends the loop. */
static void make_loop(random_kernel *g)
{
    uint32_t from[5], state[5], n = 1 + random_pick(g, 4);
    const bool counts = random_pick(g, 2);
    make_body(g, DF_LEVEL_ROW, random_pick(g, 3), random_pick(g, 4));
    for (uint32_t i = 0; i < n; i++) from[i] = value_of(g, any_dtype(g));
    if (counts) from[n++] = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 3);
    const uint32_t end = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 3 + random_pick(g, 70));
    const uint32_t one = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 1);
    g->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < n; i++)
        state[i] = put(g, DF_K_carry, g->ins[from[i]].dtype, from[i], 0, 0, 0);
    if (counts)
        put(g, DF_K_proceed, DEFT_BOOL, put(g, DF_K_lt, DEFT_BOOL, state[n - 1], end, 0, 0), 0, 0,
            0);
    make_body(g, DF_LEVEL_ELEM, random_pick(g, 3), random_pick(g, random_pick(g, 3) ? 6 : 30));
    for (uint32_t i = random_pick(g, 3); i > 0; i--) put_store(g);
    if (counts)
        put(g, DF_K_next, DEFT_I64, state[n - 1],
            put(g, DF_K_add, DEFT_I64, state[n - 1], one, 0, 0), 0, 0);
    for (uint32_t i = 0; i < n - counts; i++) {
        const uint8_t t = g->ins[state[i]].dtype;
        put(g, DF_K_next, t, state[i], value_of(g, t), 0, 0);
    }
    const uint32_t end_of_loop = g->k.n_ins;
    g->stage = 1;
    g->level = DF_LEVEL_ROW;
    g->n_elem = 0;
    for (uint32_t i = 0; i < end_of_loop; i++) /* every state is looked at */
        if (g->ins[i].op == DF_K_next) {
            g->row_vals[g->n_row++] = i;
            put(g, DF_K_store, g->ins[i].dtype, i, 0, 0,
                put_access(g, DF_ACCESS_STORE, g->ins[i].dtype, true));
        }
    make_body(g, DF_LEVEL_ROW, random_pick(g, 2), random_pick(g, 4));
    put_store(g);
    g->k.n_stages = 2;
}

void random_kernel_make(random_kernel *g, uint64_t seed, df_mode mode, bool runs)
{
    memset(g, 0, sizeof *g);
    g->runs = runs;
    g->seed = seed * 977 + 12345;
    g->wild = random_pick(g, 2);
    make_axes(g, mode);
    g->k.n_num = 4;
    g->level = mode == DF_MODE_MAP ? DF_LEVEL_ELEM : DF_LEVEL_ROW;
    put(g, DF_K_const, DEFT_I64, 0, 0, 0, 7);
    put(g, DF_K_load, DEFT_F32, 0, 0, 0, put_access(g, DF_ACCESS_LOAD, DEFT_F32, true));
    if (mode == DF_MODE_MAP) {
        make_body(g, DF_LEVEL_ELEM, 1 + random_pick(g, 4),
                  random_pick(g, random_pick(g, 3) ? 6 : 30));
        for (uint32_t n = 1 + random_pick(g, 3); n > 0; n--) put_store(g);
        g->k.n_stages = 1;
    } else if (mode == DF_MODE_LOOP) {
        make_loop(g);
    } else {
        const uint32_t n_reducing = random_pick(g, 3);
        for (uint32_t s = 0; s < n_reducing; s++) {
            make_body(g, DF_LEVEL_ROW, random_pick(g, 2), random_pick(g, 3));
            g->n_elem = 0;
            make_body(g, DF_LEVEL_ELEM, 1 + random_pick(g, 3),
                      random_pick(g, random_pick(g, 3) ? 4 : 16));
            const uint32_t first = g->k.n_ins, n = 1 + random_pick(g, 2);
            for (uint32_t i = 0; i < n; i++) put_reduce(g);
            if (random_pick(g, 4) == 0) put_store(g);
            g->stage++;
            for (uint32_t i = first; i < g->k.n_ins; i++)
                if (df_kop_infos[g->ins[i].op].kind == DF_KOP_reduce) g->row_vals[g->n_row++] = i;
        }
        make_body(g, DF_LEVEL_ROW, random_pick(g, 2), random_pick(g, 4));
        g->n_elem = 0;
        if (n_reducing > 0)
            for (uint32_t i = 0; i < g->k.n_ins; i++) /* every reduction is looked at */
                if (df_kop_infos[g->ins[i].op].kind == DF_KOP_reduce)
                    put(g, DF_K_store, g->ins[i].dtype, i, 0, 0,
                        put_access(g, DF_ACCESS_STORE, g->ins[i].dtype, true));
        put_store(g);
        const bool has_elem = n_reducing == 0 || random_pick(g, 2);
        if (has_elem) {
            make_body(g, DF_LEVEL_ELEM, 1 + random_pick(g, 2), random_pick(g, 6));
            if (random_pick(g, 3) == 0 && !runs) {
                put_scan(g);
                g->k.flags |= DF_KERNEL_SCAN;
            }
            put_store(g);
        }
        g->k.n_stages = (uint8_t)(g->stage + 1);
        if (n_reducing == 1 && !has_elem) g->k.flags |= DF_KERNEL_SPLIT;
    }
    g->k.ins = g->ins;
    g->k.access = g->access;
}

bool random_kernel_of(random_kernel *g, const df_kernel *k, uint64_t seed)
{
    if (k->n_access > RANDOM_ACCESSES || k->n_num > RANDOM_NUMS) return false;
    memset(g, 0, sizeof *g);
    g->k = *k;
    g->seed = seed * 977 + 12345;
    g->wild = random_pick(g, 2);
    for (uint32_t i = 0; i < k->n_access; i++) {
        g->access[i] = k->access[i];
        g->is_out[i] = k->access[i].kind == DF_ACCESS_STORE;
    }
    g->k.access = g->access;
    for (uint32_t x = 0; x < k->n_axes; x++)
        g->runs |= x > 0 && k->mode == DF_MODE_ROW && k->role[x] == DF_AXIS_RED &&
                   k->role[x - 1] == DF_AXIS_RED;
    return true;
}

/* ---- random shapes ---- */

static uint64_t random_bits(random_kernel *g, uint8_t t)
{
    static const double odd[] = { NAN,     INFINITY, -INFINITY, -0.0,         1e300,         -1e300,
                                  1e-310,  3e9,      -3e9,      2147483648.0, -2147483649.0, 0x1p63,
                                  -0x1p63, 255.5,    1e-42,     0.0 };
    static const uint64_t odd_int[] = {
        0,  ~0ull, 1ull << 31, 1ull << 63,         0x7fffffff,
        63, 64,    31,         0x7fffffffffffffff, 0xfffffffffffffffe,
        15, 0x80,  0x8000,     0xffffff7fffffffff, 0x8000000000000401
    };
    if (t == DEFT_BOOL) return random_pick(g, 2);
    const bool is_odd = random_pick(g, g->wild ? 12 : 2000) == 0;
    if (is_real(t))
        return of_real(t, is_odd ? odd[random_pick(g, 16)]
                                 : ((double)random_pick(g, 4001) - 2000) / 128);
    if (is_odd) return of_int(t, odd_int[random_pick(g, 15)]);
    return of_int(t, (uint64_t)((int64_t)random_pick(g, 41) - 20));
}

static int64_t pick_extent(random_kernel *g, df_role role)
{
    static const int64_t lengths[] = {
        0, 1, 3, 15, 16, 17, 63, 64, 65, 100, 4095, 4096, 4097, 10000
    };
    if (role == DF_AXIS_OUTER && g->k.mode == DF_MODE_MAP && random_pick(g, 3) == 0) {
        static const int64_t sides[] = { 7, 8, 9, 15, 16, 17, 33, 65, 100 };
        return sides[random_pick(g, 9)];
    }
    if (role == DF_AXIS_OUTER) return random_pick(g, 12) ? 1 + random_pick(g, 3) : 0;
    if (role == DF_AXIS_INNER) return lengths[random_pick(g, g->k.mode >= DF_MODE_COL ? 9 : 14)];
    if (g->k.mode == DF_MODE_ROW && !g->runs) return lengths[random_pick(g, 14)];
    static const int64_t columns[] = { 0, 1, 2, 5, 33, 64, 65, 130, 4097, 8200 };
    return columns[random_pick(g, 10)];
}

/* Strides of one access: packed, in some order of the axes, possibly with gaps or backwards. */
static void lay_out(random_kernel *g, random_run *r, uint32_t access)
{
    const df_access *a = &g->access[access];
    int64_t span = 1, low = 0;
    int64_t *stride = &r->stride[access * g->k.n_axes];
    for (int pass = 0; pass < 2; pass++) /* the unit axis is the innermost */
        for (uint32_t x = g->k.n_axes; x-- > 0;) {
            if (a->step[x] == DF_STEP_ZERO || (a->step[x] == DF_STEP_UNIT) != (pass == 0)) continue;
            const int64_t n = r->extent[x] ? r->extent[x] : 1;
            int64_t by = span;
            if (a->step[x] == DF_STEP_ANY && random_pick(g, 3) == 0) by *= 2;
            const bool is_back = a->step[x] == DF_STEP_ANY && random_pick(g, 4) == 0;
            stride[x] = is_back ? -by : by;
            if (is_back) low += by * (n - 1);
            span = by * n;
        }
    if (a->kind == DF_ACCESS_INDEX) {
        r->base[access] = (int64_t)random_pick(g, 100) - 50;
        return;
    }
    if (a->kind == DF_ACCESS_SCRATCH && a->same_as != access) {
        r->ptr[access] = r->ptr[a->same_as];
        return;
    }
    if (g->is_missing[access]) {
        r->ptr[access] = NULL;
        return;
    }
    if (a->kind == DF_ACCESS_AT) {
        span = 16;
        low = 0;
    } else if (a->kind == DF_ACCESS_SCRATCH) {
        const int64_t n = role_extent(&g->k, &r->a, DF_AXIS_RED);
        span = RANDOM_TEAMS * (n + n % 2);
    }
    const size_t bytes = (size_t)span * size_of(a->dtype);
    r->mem[access] = walled_take(bytes);
    for (int64_t i = 0; i < span; i++) {
        const uint64_t b = random_bits(g, a->dtype);
        df_bits_store(r->mem[access].at + i * size_of(a->dtype), b, size_of(a->dtype));
    }
    r->ptr[access] = r->mem[access].at + low * size_of(a->dtype);
    if (!g->is_out[access]) return;
    r->first[access] = malloc(bytes);
    r->want[access] = malloc(bytes);
    memcpy(r->first[access], r->mem[access].at, bytes);
}

/* Stores around the caches, where the contract of df_kargs.streams is easily kept. */
static uint64_t pick_streams(random_kernel *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k.n_access; i++) n += df_access_may_stream(&g->k, i);
    return n == 1 && random_pick(g, 2);
}

void random_run_make(random_kernel *g, random_run *r, double f64, float f32, bool is_multiple)
{
    memset(r, 0, sizeof *r);
    int64_t total;
    do {
        total = 1;
        for (uint32_t x = 0; x < g->k.n_axes; x++) {
            r->extent[x] = pick_extent(g, (df_role)g->k.role[x]);
            if (g->given) r->extent[x] = g->given[x];
            if (is_multiple && x + 1u == g->k.n_axes)
                r->extent[x] = DF_FACT_MULTIPLE * (1 + r->extent[x] % 5);
            total *= r->extent[x] ? r->extent[x] : 1;
        }
    } while (total > 60000 && !g->given);
    r->a = (df_kargs){ .ptr = r->ptr,
                       .stride = r->stride,
                       .base = r->base,
                       .extent = r->extent,
                       .num = r->num,
                       .fault = r->fault,
                       .work = r->work };
    for (uint32_t i = 0; i < g->k.n_access; i++) lay_out(g, r, i);
    r->num[0] = 1;
    r->num[1] = of_f64(f64); /* u8, i64 and f64 see what they see */
    r->num[2] = 0xfffffff0u;
    r->num[3] = of_f32(f32);
    r->n_outer = role_extent(&g->k, &r->a, DF_AXIS_OUTER);
    r->n_inner = role_extent(&g->k, &r->a, DF_AXIS_INNER);
    r->length = role_extent(&g->k, &r->a, DF_AXIS_RED);
    r->a.streams = pick_streams(g);
}

void random_run_keep(random_kernel *g, random_run *r)
{
    for (uint32_t i = 0; i < g->k.n_access; i++)
        if (g->is_out[i]) memcpy(r->want[i], r->mem[i].at, r->mem[i].bytes);
}

void random_run_end(random_kernel *g, random_run *r)
{
    for (uint32_t i = 0; i < g->k.n_access; i++) {
        if (r->mem[i].map) munmap(r->mem[i].map, r->mem[i].mapped);
        free(r->first[i]);
        free(r->want[i]);
    }
}

void random_run_reset(random_kernel *g, random_run *r)
{
    for (uint32_t i = 0; i < g->k.n_access; i++)
        if (g->is_out[i]) memcpy(r->mem[i].at, r->first[i], r->mem[i].bytes);
}

bool random_run_differs(random_kernel *g, random_run *r, char *text, size_t text_size)
{
    for (uint32_t i = 0; i < g->k.n_access; i++) {
        if (!g->is_out[i]) continue;
        const uint8_t t = g->access[i].dtype;
        const size_t size = size_of(t);
        for (size_t n = 0; n < r->mem[i].bytes / size; n++) {
            const uint64_t got = load_bits(r->mem[i].at + n * size, t);
            const uint64_t want = load_bits(r->want[i] + n * size, t);
            if (same_bits(t, got, want)) continue;
            snprintf(text, text_size, "access %u (%s) element %zu is %llx, not %llx", i,
                     deft_dtype_name((deft_dtype)t), n, (unsigned long long)got,
                     (unsigned long long)want);
            return true;
        }
    }
    return false;
}

/* ---- one op ---- */

bool one_op_is_known(df_kop op, uint8_t t, uint8_t src)
{
    const bool f = is_float(t), b = t == DEFT_BOOL;
    if (op == DF_K_bitcast) return size_of(t) == size_of(src) && !b && src != DEFT_BOOL;
    if ((is_half(t) || is_half(src)) && op != DF_K_select && op != DF_K_cast) return false;
    if (op >= DF_K_add && op <= DF_K_rem) return src == t && !b;
    if (op == DF_K_neg || op == DF_K_abs) return src == t && !b;
    if (op == DF_K_fma || op == DF_K_sqrt || (op >= DF_K_floor && op <= DF_K_rint))
        return src == t && f;
    if (op == DF_K_min || op == DF_K_max) return src == t;
    if (op >= DF_K_and && op <= DF_K_not) return src == t && !f;
    if (op >= DF_K_shl && op <= DF_K_lshr) return src == t && !f && !b;
    if (op >= DF_K_eq && op <= DF_K_le) return b;
    if (op == DF_K_select) return src == DEFT_BOOL;
    const bool is_simple = !is_half(t) && !is_half(src);
    return op == DF_K_cast && (is_simple || (is_half(t) ? src : t) == DEFT_F32);
}

void one_op_make(one_op *x, df_kop op, uint8_t t, uint8_t src)
{
    memset(x, 0, sizeof *x);
    const uint32_t n = df_kop_infos[op].n_src;
    x->src = src;
    x->mid = op == DF_K_select ? t : src;
    x->k = (df_kernel){ .mode = DF_MODE_MAP,
                        .n_axes = 1,
                        .n_stages = 1,
                        .role = { DF_AXIS_INNER },
                        .n_access = n + 1,
                        .n_ins = n + 2,
                        .access = x->access,
                        .ins = x->ins };
    for (uint32_t i = 0; i <= n; i++) {
        const uint8_t d = i == n ? t : i == 0 ? src : x->mid;
        x->access[i] = (df_access){ .kind = i == n ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                    .dtype = d,
                                    .same_as = i,
                                    .step = { DF_STEP_UNIT } };
        if (i < n)
            x->ins[i] = (df_ins){ .op = DF_K_load, .dtype = d, .level = DF_LEVEL_ELEM, .imm = i };
    }
    x->ins[n] =
        (df_ins){ .op = (uint8_t)op, .dtype = t, .level = DF_LEVEL_ELEM, .src = { 0, 1, 2 } };
    x->ins[n + 1] =
        (df_ins){ .op = DF_K_store, .dtype = t, .level = DF_LEVEL_ELEM, .src = { n }, .imm = n };
}

uint64_t awkward_bits(uint8_t t, uint64_t i)
{
    static const double f[] = { 0.0,           -0.0,          1,         -1,           0.5,
                                -0.5,          1.5,           2.5,       -2.5,         3.7,
                                NAN,           INFINITY,      -INFINITY, 2147483647.0, 2147483648.0,
                                -2147483648.0, -2147483904.0, 9.2e18,    0x1p63,       -0x1p63,
                                255,           256,           -1e-40,    1e-310,       1e30,
                                -3e38,         0.1,           7,         -7,           1e15,
                                8388609,       0.49999997 };
    static const int64_t n[] = { 0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 3,
                                 7,
                                 -7,
                                 8,
                                 31,
                                 32,
                                 63,
                                 64,
                                 65,
                                 100,
                                 -100,
                                 127,
                                 128,
                                 255,
                                 1000003,
                                 INT32_MAX,
                                 INT32_MIN,
                                 INT64_MAX,
                                 INT64_MIN,
                                 16777217,
                                 -16777217,
                                 (1ll << 53) + 1,
                                 (1ll << 62) + 12345,
                                 5,
                                 6,
                                 1ll << 31,
                                 -(1ll << 33) };
    return is_real(t) ? of_real(t, f[i % 32]) : of_int(t, (uint64_t)n[i % 32]);
}
