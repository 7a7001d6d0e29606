/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides when a variant is worth its compilation, from measurements (docs/replay.md, "Variants").
 *
 * A variant saves work that does not grow with the number of elements: tails, loops of few
 * iterations, the joining of blocks, the division of indices. So to know all extents helps only a
 * short launch, and to know the extents of a row helps only short rows. A launch that streams
 * through memory gains nothing. Where each second element is loaded, as in pools that halve an
 * image, code that knows this needs no branch for each vector. Where elements of a row of one block
 * are divided, code that knows its length computes the quotients ahead. A division that becomes an
 * exact multiplication saves time per element, as long as the launch does not wait for memory.
 */
#include "runtime/variant.h"

#include "base/half.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

/* Bounds on estimated times. The executor makes the estimates, by counting instructions. */
#define SHORT_LAUNCH_NS 25e3
#define SHORT_ROW_NS 2e3
#define IN_CACHE_NS 400e3

/* ---- numbers ---- */

static bool may_share(const df_kernel *k); /* below */

static bool has_slow_rows(const df_kernel *k)
{
    for (uint32_t i = 0; i < k->n_ins && k->mode == DF_MODE_ROW; i++) {
        const df_ins *const ins = &k->ins[i];
        const bool is_slow = ins->op == DF_K_div || ins->op == DF_K_sqrt;
        if (is_slow && ins->level == DF_LEVEL_ELEM && ins->dtype == DEFT_F32) return true;
    }
    return false;
}

df_number_slots df_variant_slots(const df_kernel *k)
{
    df_number_slots slots = { .may_share = may_share(k), .divides_rows = has_slow_rows(k) };
    /* A division by a number is a product in FAST code, whatever the number. */
    if (k->flags & DF_KERNEL_FAST) return slots;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const uint32_t slot = df_facts_useful_slot(k, &k->ins[i]);
        if (slot == DF_NONE) continue;
        *(k->ins[i].dtype == DEFT_F32 ? &slots.f32 : &slots.f64) |= UINT64_C(1) << slot;
    }
    return slots;
}

static uint32_t lowest(uint64_t set)
{
    return (uint32_t)__builtin_ctzll(set);
}

static uint64_t exact(const df_call *c, deft_dtype t, uint64_t slots)
{
    uint64_t out = 0;
    for (uint64_t rest = slots; rest; rest &= rest - 1)
        if (df_facts_is_exact_divisor(t, c->args->num[lowest(rest)])) out |= rest & -rest;
    return out;
}

/* Returns the slots whose current value would make a variant faster. */
static uint64_t useful(const df_call *c, df_number_slots slots)
{
    return exact(c, DEFT_F32, slots.f32) | exact(c, DEFT_F64, slots.f64);
}

uint64_t df_facts_other_numbers(const df_facts *f, const df_call *c)
{
    uint64_t other = 0;
    for (uint64_t rest = f->num_mask; rest; rest &= rest - 1)
        if (c->args->num[lowest(rest)] != f->num[lowest(rest)]) other |= rest & -rest;
    return other;
}

/* ---- shared rows ----
 *
 * A stencil reads three rows for each row that it writes, through an access for each neighbour. Two
 * rows together need four rows instead of six. Which accesses read the same elements follows from
 * their addresses, which no kernel knows. A blur of 3 x 3 elements then loads 12 vectors for two
 * results instead of 18, and two of three vectors cross cache lines. */

/* Whether access a reads rows, element after element. */
static bool reads_rows(const df_kernel *k, uint32_t a)
{
    const df_access *x = &k->access[a];
    return x->kind == DF_ACCESS_LOAD && x->step[df_facts_vector_axis(k)] == DF_STEP_UNIT &&
           x->step[df_facts_row_axis(k)] != DF_STEP_ZERO;
}

/* The fewest accesses that must share, of n that read rows: a third. With fewer, two rows at a time
 * take as long as one after the other. */
static bool shares_enough(uint32_t n_shared, uint32_t n)
{
    return n_shared > 0 && 3 * n_shared >= n;
}

static bool may_share(const df_kernel *k)
{
    uint32_t n = 0;
    if (k->mode != DF_MODE_MAP || k->n_access > DF_FACT_ACCESSES) return false;
    if (df_facts_row_axis(k) < 0 || df_facts_vector_axis(k) < 0) return false;
    for (uint32_t a = 0; a < k->n_access; a++) n += reads_rows(k, a);
    return n > 1;
}

/* Whether access a reads in the next row what access b reads in this one. */
static bool reads_below(const df_kernel *k, const df_kargs *args, uint32_t a, uint32_t b)
{
    const deft_dtype t = (deft_dtype)k->access[a].dtype;
    const int64_t *const s = args->stride;
    if (k->access[b].dtype != t || !reads_rows(k, b)) return false;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (s[a * k->n_axes + x] != s[b * k->n_axes + x]) return false;
    const int64_t pitch = s[(int64_t)a * k->n_axes + df_facts_row_axis(k)] * df_bytes_of(t);
    return (uintptr_t)args->ptr[b] - (uintptr_t)args->ptr[a] == (uintptr_t)pitch;
}

static void take_below(df_facts *out, const df_kernel *k, const df_kargs *args)
{
    uint32_t n = 0, n_shared = 0;
    for (uint32_t a = 0; a < k->n_access; a++) {
        if (!reads_rows(k, a)) continue;
        n++;
        for (uint32_t b = 0; b < k->n_access && !out->below[a]; b++)
            if (b != a && reads_below(k, args, a, b)) out->below[a] = (uint8_t)(b + 1);
        n_shared += out->below[a] != 0;
    }
    out->shares = shares_enough(n_shared, n);
    if (!out->shares) memset(out->below, 0, sizeof out->below);
}

static bool shares_as_before(const df_facts *f, const df_kernel *k, const df_call *c)
{
    for (uint32_t a = 0; a < k->n_access; a++)
        if (f->below[a] && !reads_below(k, c->args, a, f->below[a] - 1u)) return false;
    return true;
}

/* ---- facts ---- */

static bool is_multiple(const df_kernel *k, const df_call *c)
{
    const int axis = df_facts_vector_axis(k);
    return axis >= 0 && c->args->extent[axis] % DF_FACT_MULTIPLE == 0;
}

/* Returns the accesses that move by two elements along the vectorized axis, bit i for access i. */
static uint64_t seconds_of(const df_kernel *k, const df_call *c)
{
    const int axis = df_facts_vector_axis(k);
    uint64_t set = 0;
    if (k->mode != DF_MODE_MAP || axis < 0) return 0;
    for (uint32_t i = 0; i < k->n_access && i < 64; i++)
        if (k->access[i].step[axis] == DF_STEP_ANY && df_access_is_strided(k->access[i].kind) &&
            c->args->stride[i * k->n_axes + (uint32_t)axis] == 2)
            set |= UINT64_C(1) << i;
    return set;
}

bool df_facts_hold(const df_facts *f, const df_kernel *k, const df_call *c)
{
    if ((f->rows && !c->rows) || (f->all && !c->all)) return false;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (f->extent[x] != DF_ANY && f->extent[x] != c->args->extent[x]) return false;
    if (f->multiple && !is_multiple(k, c)) return false;
    if (f->seconds & ~seconds_of(k, c)) return false;
    if (f->shares && !shares_as_before(f, k, c)) return false;
    return !f->num_mask || df_facts_other_numbers(f, c) == 0;
}

static df_variant_kind known_extents(const df_watch *w, uint32_t after)
{
    if (atomic_load_explicit(&w->n_all, memory_order_relaxed) >= after) return DF_VARIANT_ALL;
    if (atomic_load_explicit(&w->n_rows, memory_order_relaxed) >= after) return DF_VARIANT_ROWS;
    return atomic_load_explicit(&w->n_multiple, memory_order_relaxed) >= after ? DF_VARIANT_MULTIPLE
                                                                               : DF_VARIANT_NONE;
}

void df_facts_take(df_facts *out, const df_watch *w, const df_kernel *k, const df_call *c,
                   df_variant_kind kind, df_number_slots slots, uint32_t after)
{
    memset(out, 0, sizeof *out);
    if (kind == DF_VARIANT_NUMBERS) {
        out->num_mask = useful(c, slots);
        for (uint64_t rest = out->num_mask; rest; rest &= rest - 1)
            out->num[lowest(rest)] = c->args->num[lowest(rest)];
        kind = known_extents(w, after);
    }
    for (uint32_t x = 0; x < DF_MAX_AXES; x++) out->extent[x] = DF_ANY;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (kind == DF_VARIANT_ALL || (kind == DF_VARIANT_ROWS && k->role[x] != DF_AXIS_OUTER))
            out->extent[x] = c->args->extent[x];
    out->rows = (kind == DF_VARIANT_ALL || kind == DF_VARIANT_ROWS) && c->rows;
    out->all = kind == DF_VARIANT_ALL && c->all;
    out->multiple = kind == DF_VARIANT_MULTIPLE && is_multiple(k, c);
    if (kind == DF_VARIANT_ALL || kind == DF_VARIANT_ROWS) out->seconds = seconds_of(k, c);
    if (slots.may_share) take_below(out, k, c->args);
}

static double as_double(uint64_t bits, deft_dtype t)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return t == DEFT_F32 ? (double)df_f32_of_bits((uint32_t)bits) : d;
}

static void add_numbers(uint64_t slots, const uint64_t *num, const df_kernel *k, char *out,
                        size_t n)
{
    size_t at = strlen(out);
    uint64_t rest = slots;
    for (uint32_t i = 0; i < k->n_ins && rest; i++) {
        const df_ins *const ins = &k->ins[i];
        if (ins->op != DF_K_num || ins->imm >= DF_FACT_NUMS || !(rest >> ins->imm & 1)) continue;
        rest &= ~(UINT64_C(1) << ins->imm);
        if (at >= n) return;
        snprintf(out + at, n - at, "%sdivisor %g", at ? ", " : "",
                 as_double(num[ins->imm], (deft_dtype)ins->dtype));
        at = strlen(out);
    }
}

void df_facts_print_numbers(uint64_t slots, const uint64_t *num, const df_kernel *k, char *out,
                            size_t n)
{
    out[0] = 0;
    add_numbers(slots, num, k, out, n);
}

void df_facts_print(const df_facts *f, const df_kernel *k, char *out, size_t n)
{
    char list[96] = "";
    size_t at = 0;
    for (uint32_t x = 0; x < k->n_axes && at < sizeof list; x++)
        if (f->extent[x] != DF_ANY)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%lld", at ? "," : "",
                                   (long long)f->extent[x]);
    out[0] = 0;
    if (at)
        snprintf(out, n, "%s [%s]", f->all ? "extents" : "rows of", list);
    else if (f->multiple)
        snprintf(out, n, "rows of a multiple of %d", DF_FACT_MULTIPLE);
    at = strlen(out);
    if (f->seconds && at < n) snprintf(out + at, n - at, "%seach second element", at ? ", " : "");
    at = strlen(out);
    if (f->shares && at < n) snprintf(out + at, n - at, "%sshared rows", at ? ", " : "");
    add_numbers(f->num_mask, f->num, k, out, n);
}

/* ---- watching ---- */

static uint64_t watch_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

/* Counts how many launches in a row had this hash, including the current one. */
static uint32_t watch_count(_Atomic uint64_t *latest, _Atomic uint32_t *n, uint64_t hash)
{
    const bool is_same = atomic_load_explicit(latest, memory_order_relaxed) == hash;
    const uint32_t before = atomic_load_explicit(n, memory_order_relaxed);
    const uint32_t now = is_same ? before + (before < UINT32_MAX) : 1;
    if (!is_same) atomic_store_explicit(latest, hash, memory_order_relaxed);
    atomic_store_explicit(n, now, memory_order_relaxed);
    return now;
}

static bool is_due(uint32_t n, uint64_t after)
{
    return n >= after && n % after == 0;
}

static bool numbers_are_due(df_watch *w, const df_call *c, df_number_slots slots, uint32_t after)
{
    const uint64_t now = c->ns <= IN_CACHE_NS ? useful(c, slots) : 0;
    if (!now) return false;
    uint64_t hash = watch_mix(1, now);
    for (uint64_t rest = now; rest; rest &= rest - 1)
        hash = watch_mix(hash, c->args->num[lowest(rest)]);
    return is_due(watch_count(&w->nums, &w->n_nums, hash), (uint64_t)after * DF_NUMBERS_FACTOR);
}

/* Whether the reduced elements of a row are one block. */
static bool is_block(const df_kernel *k, const df_call *c)
{
    int64_t n = 1;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] == DF_AXIS_RED && n <= DF_BLOCK) n *= c->args->extent[x];
    return n <= DF_BLOCK;
}

/* The kind of variant that is due for numbers or extents. */
static df_variant_kind sizes_are_due(df_watch *w, const df_kernel *k, const df_call *c,
                                     df_number_slots slots, uint32_t after)
{
    const bool is_short = c->ns <= SHORT_LAUNCH_NS;
    const bool has_short_rows = c->ns <= SHORT_ROW_NS * (double)c->n_rows;
    const uint64_t seconds = seconds_of(k, c);
    uint64_t rows = watch_mix(1 + c->rows, seconds), all = watch_mix(1 + c->all, seconds);
    for (uint32_t x = 0; x < k->n_axes; x++) {
        const uint64_t extent = (uint64_t)c->args->extent[x];
        all = watch_mix(all, extent);
        if (k->role[x] != DF_AXIS_OUTER) rows = watch_mix(rows, extent);
    }
    const uint32_t n_rows = watch_count(&w->rows, &w->n_rows, rows);
    const uint32_t n_all = watch_count(&w->all, &w->n_all, all);
    uint32_t n_multiple = atomic_load_explicit(&w->n_multiple, memory_order_relaxed);
    n_multiple = is_multiple(k, c) ? n_multiple + (n_multiple < UINT32_MAX) : 0;
    atomic_store_explicit(&w->n_multiple, n_multiple, memory_order_relaxed);
    if (numbers_are_due(w, c, slots, after)) return DF_VARIANT_NUMBERS;
    if (is_short && c->all && is_due(n_all, after)) return DF_VARIANT_ALL;
    const bool gains = seconds || (slots.divides_rows && is_block(k, c));
    if (!is_short && !has_short_rows && !gains) return DF_VARIANT_NONE;
    if (n_all >= after && is_short && c->all) return DF_VARIANT_NONE; /* wait for ALL to be due */
    if (df_facts_vector_axis(k) < 0) return DF_VARIANT_NONE;
    if (c->rows && is_due(n_rows, after)) return DF_VARIANT_ROWS;
    const bool is_multiple_due = n_rows < after && is_due(n_multiple, after);
    return is_multiple_due ? DF_VARIANT_MULTIPLE : DF_VARIANT_NONE;
}

/* Whether every launch shares rows is not counted: the search takes longer than the rest of this
 * file. The launch at which the variant is due is taken for all. */
static bool sharing_is_due(df_watch *w, const df_kernel *k, const df_call *c, uint32_t after)
{
    df_facts f = { .shares = false };
    const uint32_t n = atomic_load_explicit(&w->n_launches, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->n_launches, n, memory_order_relaxed);
    if (!is_due(n, after)) return false;
    take_below(&f, k, c->args);
    return f.shares;
}

df_variant_kind df_watch_launch(df_watch *w, const df_kernel *k, const df_call *c,
                                df_number_slots slots, uint32_t after)
{
    const df_variant_kind kind = sizes_are_due(w, k, c, slots, after);
    const bool shares = slots.may_share && sharing_is_due(w, k, c, after);
    return shares && kind < DF_VARIANT_SHARED ? DF_VARIANT_SHARED : kind;
}
