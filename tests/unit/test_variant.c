/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants: when they are made, for which launches they are taken, when they are given up, and what
 * bounds them. The compiler here makes nothing that could run; code is told by its address.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>

#include "deft/deft.h"
#include "runtime/tier.h"
#include "support/fail_mem.h"
#include "unit/hand_kernels.h"

#define eq(a, b) cr_assert_eq((a), (b), "%s is %lld", #a, (long long)(a))

/* ---- a compiler, a kernel, launches ---- */

enum { MOST = 64 };

static int n_special, n_released;
static bool refuse, refuse_all;                          /* variants; all code */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* taken and given by each compilation */
static df_facts made[MOST];                              /* by code.owner */

static void nothing(const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    (void)a, (void)o0, (void)o1, (void)i0, (void)i1;
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    (void)self, (void)k, (void)level;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    if (refuse_all) return df_fail(d, DEFT_E_COMPILE, "refused");
    for (uint32_t i = 0; i < n; i++) out[i] = (df_code){ .main = nothing, .bytes = 100 };
    return DEFT_OK;
}

static deft_status specialize(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out)
{
    (void)self, (void)k;
    if (refuse) return df_fail(d, DEFT_E_COMPILE, "refused");
    cr_assert(n_special < MOST);
    made[n_special] = *facts;
    *out = (df_code){ .main = nothing, .bytes = 100, .owner = &made[n_special++] };
    return DEFT_OK;
}

static void release(void *self, df_code *code)
{
    (void)self;
    n_released += code->owner != NULL;
    code->owner = NULL;
}

static const df_compiler compiler = {
    .vector_bytes = 64, .compile = compile, .specialize = specialize, .release = release
};

typedef struct rig {
    df_tiers *t;
    df_kernel k;
    df_plan plan;
    kb built;
} rig;

/* y = x / number 0, of axes [OUTER, INNER]; `constant` tells kernels apart. */
static void build(kb *b, uint64_t constant)
{
    kb_init(b, DF_MODE_MAP, "oi", 1);
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "s1"));
    const uint32_t d = kb_ins(b, DF_K_num, DEFT_F32, 0, 0, 0, 0);
    const uint32_t y = kb_ins(b, DF_K_div, DEFT_F32, x, d, 0, 0);
    kb_ins(b, DF_K_store, DEFT_F32, y, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "s1"));
    kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, constant);
    b->k.n_num = 1;
    kb_seal(b);
}

static void attach(rig *r, df_plan *plan, kb *b)
{
    df_diag d = { 0 };
    *plan = (df_plan){ .kernels = &b->k, .n_kernels = 1 };
    cr_assert(df_tiers_attach(r->t, &d, plan, NULL) == DEFT_OK, "%s", d.text);
}

static void open_with(rig *r, df_tier tier, uint64_t max_bytes, const df_mem *mem)
{
    memset(r, 0, sizeof *r);
    n_special = n_released = 0;
    refuse = false;
    cr_assert(df_tiers_create(NULL, mem, NULL, &compiler, tier, max_bytes, 64, &r->t) == DEFT_OK);
    build(&r->built, 0);
    attach(r, &r->plan, &r->built);
}

static void open_rig(rig *r)
{
    open_with(r, DF_TIER_O2, 1 << 20, &df_mem_system);
}

static void close_rig(rig *r)
{
    df_tiers_detach(r->t, &r->plan);
    df_tiers_destroy(&r->t);
    eq(n_released, n_special);
}

/* As launch_of. Access 0 moves by `step` elements along INNER. */
static const df_facts *launch_steps(rig *r, const df_plan *plan, int64_t rows, int64_t n,
                                    int64_t step, float number, double ns)
{
    bool is_inside = false;
    const int64_t extent[] = { rows, n }, stride[] = { n * step, step, n, 1 };
    const uint64_t num[] = { F(number) };
    const df_kargs args = { .extent = extent, .stride = stride, .num = num };
    const df_call c = { .args = &args, .rows = true, .all = true, .n_rows = rows, .ns = ns };
    const df_code *const general =
        df_tiers_code(r->t, plan, (df_kern){ 0 }, (double)(rows * n), NULL);
    const df_code *code = NULL;
    if (general)
        code = df_tiers_choose(r->t, plan->execs[0], general, &c, &is_inside);
    else
        df_tiers_watch(r->t, plan->execs[0], &c, &is_inside);
    if (is_inside) df_tiers_leave(r->t);
    return code ? code->owner : NULL;
}

/* The facts of the code that a launch gets; NULL: the general code. */
static const df_facts *launch_of(rig *r, const df_plan *plan, int64_t rows, int64_t n, float number,
                                 double ns)
{
    return launch_steps(r, plan, rows, n, 1, number, ns);
}

static const df_facts *launch(rig *r, int64_t rows, int64_t n, float number)
{
    return launch_of(r, &r->plan, rows, n, number, 100);
}

static void launch_all(rig *r, int times, int64_t rows, int64_t n, float number)
{
    for (int i = 0; i < times; i++) (void)launch(r, rows, n, number);
}

/* ---- extents ---- */

Test(variant, the_64th_launch_alike_has_one)
{
    rig r;
    open_rig(&r);
    for (int i = 0; i < 63; i++) cr_assert_null(launch(&r, 3, 7, 3));
    const df_facts *const f = launch(&r, 3, 7, 3);
    cr_assert(f && f->all && f->rows && f->extent[0] == 3 && f->extent[1] == 7 && !f->num_mask);
    cr_assert_null(launch(&r, 3, 8, 3));
    cr_assert_null(launch(&r, 4, 7, 3));
    cr_assert_eq(launch(&r, 3, 7, 5), f);
    eq(n_special, 1);
    eq(df_tiers_read(r.t).variants, 1);
    eq(df_tiers_read(r.t).compiled, 2);
    close_rig(&r);
}

/* However long the rows are. A launch with other steps gets the general code. */
Test(variant, each_second_element_is_worth_one)
{
    rig r;
    kb b;
    df_plan plan;
    char text[64];
    open_rig(&r);
    kb_init(&b, DF_MODE_MAP, "oi", 1);
    const uint32_t x =
        kb_ins(&b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_F32, "ss"));
    kb_ins(&b, DF_K_store, DEFT_F32, x, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "s1"));
    kb_seal(&b);
    attach(&r, &plan, &b);
    for (int i = 0; i < 100; i++) cr_assert_null(launch_steps(&r, &plan, 3, 70, 3, 0, 1e6));
    const df_facts *f = NULL;
    for (int i = 0; i < 64; i++) f = launch_steps(&r, &plan, 3, 70, 2, 0, 1e6);
    cr_assert(f && f->seconds == 1 && f->rows && f->extent[1] == 70);
    df_facts_print(f, &b.k, text, sizeof text);
    cr_expect_str_eq(text, "rows of [70], each second element");
    cr_assert_null(launch_steps(&r, &plan, 3, 70, 3, 0, 1e6));
    cr_assert_eq(launch_steps(&r, &plan, 5, 70, 2, 0, 1e6), f);
    df_tiers_detach(r.t, &plan);
    close_rig(&r);
}

/* Sums of quotients, in rows of up to one block, take long. Sums of sums do not get a variant. */
Test(variant, divided_rows_of_one_block_are_worth_one)
{
    rig r;
    open_rig(&r);
    for (int divides = 0; divides < 2; divides++) {
        kb b;
        df_plan plan;
        kb_init(&b, DF_MODE_ROW, "or", 2);
        const uint32_t x =
            kb_ins(&b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_F32, "s1"));
        const uint32_t y = kb_ins(&b, divides ? DF_K_div : DF_K_add, DEFT_F32, x, x, 0, 0);
        const uint32_t s = kb_ins(&b, DF_K_sum, DEFT_F32, y, 0, 0, 0);
        kb_at(&b, 1, DF_LEVEL_ROW, DF_K_store, DEFT_F32, s, 0, 0,
              kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "s0"));
        kb_seal(&b);
        attach(&r, &plan, &b);
        for (int i = 0; i < 100; i++) cr_assert_null(launch_of(&r, &plan, 3, DF_BLOCK + 1, 0, 1e6));
        const df_facts *f = NULL;
        for (int i = 0; i < 64; i++) f = launch_of(&r, &plan, 3, DF_BLOCK, 0, 1e6);
        cr_assert((f != NULL) == divides);
        cr_assert(!f || (f->rows && f->extent[1] == DF_BLOCK));
        df_tiers_detach(r.t, &plan);
    }
    close_rig(&r);
}

Test(variant, parts_of_a_launch_do_not_get_it)
{
    rig r;
    open_rig(&r);
    launch_all(&r, 64, 3, 7, 3);
    bool is_inside = false;
    const int64_t extent[] = { 3, 7 };
    const uint64_t num[] = { F(3) };
    const df_kargs args = { .extent = extent, .num = num };
    const df_call c = { .args = &args, .rows = true, .n_rows = 3, .ns = 100 };
    const df_code *const general = df_tiers_code(r.t, &r.plan, (df_kern){ 0 }, 21, NULL);
    cr_assert_eq(df_tiers_choose(r.t, r.plan.execs[0], general, &c, &is_inside), general);
    if (is_inside) df_tiers_leave(r.t);
    close_rig(&r);
}

Test(variant, two_extents_in_turn_each_get_their_own)
{
    rig r;
    open_rig(&r);
    launch_all(&r, 64, 3, 7, 3);
    launch_all(&r, 128, 5, 9, 3);
    eq(n_special, 2);
    for (int i = 0; i < 5000; i++) {
        const df_facts *const f = i % 2 ? launch(&r, 3, 7, 3) : launch(&r, 5, 9, 3);
        cr_assert(f && f->extent[1] == (i % 2 ? 7 : 9));
    }
    cr_assert_null(launch(&r, 3, 9, 3));
    eq(n_special, 2);
    eq(df_tiers_read(r.t).variants_dropped, 0);
    close_rig(&r);
}

Test(variant, random_sizes_make_none)
{
    rig r;
    uint64_t random = 1;
    open_rig(&r);
    for (int i = 0; i < 10000; i++)
        cr_assert_null(launch(&r, 3, 1 + (int64_t)(random_next(&random) % 64), 3));
    eq(n_special, 0);
    close_rig(&r);
}

Test(variant, rows_alike_in_random_number_make_one)
{
    rig r;
    uint64_t random = 1;
    const df_facts *f = NULL;
    open_rig(&r);
    for (int i = 0; i < 10000; i++)
        f = launch(&r, 1 + (int64_t)(random_next(&random) % 64), 100, 3);
    cr_assert(f && !f->all && f->rows && f->extent[0] == DF_ANY && f->extent[1] == 100);
    eq(n_special, 1);
    eq(df_tiers_read(r.t).compiled, 2);
    close_rig(&r);
}

Test(variant, random_multiples_make_one)
{
    rig r;
    uint64_t random = 1;
    const df_facts *f = NULL;
    open_rig(&r);
    for (int i = 0; i < 10000; i++)
        f = launch(&r, 3, 64 * (1 + (int64_t)(random_next(&random) % 64)), 3);
    cr_assert(f && f->multiple && f->extent[0] == DF_ANY && f->extent[1] == DF_ANY);
    cr_assert_null(launch(&r, 3, 65, 3));
    eq(n_special, 1);
    close_rig(&r);
}

Test(variant, launches_that_stream_make_none)
{
    rig r;
    open_rig(&r);
    for (int i = 0; i < 1000; i++) cr_assert_null(launch_of(&r, &r.plan, 1, 1 << 24, 0.5f, 1e7));
    eq(n_special, 0);
    close_rig(&r);
}

Test(variant, one_that_is_not_used_is_given_up)
{
    rig r;
    open_rig(&r);
    launch_all(&r, 64, 3, 7, 3);
    for (int i = 0; i < 64 * DF_MISSED_FACTOR; i++) cr_assert_null(launch(&r, 3, 10 + i % 2, 3));
    eq(df_tiers_read(r.t).variants_dropped, 0);
    cr_assert_null(launch(&r, 3, 10, 3));
    eq(df_tiers_read(r.t).variants_dropped, 1);
    cr_assert_null(launch(&r, 3, 7, 3));
    df_tiers_detach(r.t, &r.plan);
    eq(n_released, 1);
    attach(&r, &r.plan, &r.built);
    close_rig(&r);
}

Test(variant, four_in_the_life_of_a_kernel)
{
    rig r;
    open_rig(&r);
    for (int i = 0; i < 10; i++) launch_all(&r, 64 << 5, 3, 10 + i, 3);
    eq(n_special, DF_MAX_VARIANTS);
    close_rig(&r);
}

/* ---- rows that share loads ---- */

/* The facts of the code for a launch of a difference of rows: row 0 - row 1, at this distance in
 * elements. */
static const df_facts *launch_rows(rig *r, const df_plan *plan, int64_t pitch, int64_t distance)
{
    static float in[64];
    bool is_inside = false;
    char *const ptr[] = { (char *)in, (char *)(in + distance), (char *)in };
    const int64_t extent[] = { 3, 5 }, stride[] = { pitch, 1, pitch, 1, 5, 1 };
    const df_kargs args = { .ptr = ptr, .stride = stride, .extent = extent };
    const df_call c = { .args = &args, .rows = true, .n_rows = 3, .ns = 1e5 };
    const df_code *const general = df_tiers_code(r->t, plan, (df_kern){ 0 }, 15, NULL);
    const df_code *const code = df_tiers_choose(r->t, plan->execs[0], general, &c, &is_inside);
    if (is_inside) df_tiers_leave(r->t);
    return code->owner;
}

static void build_difference(kb *b, const char *steps)
{
    kb_init(b, DF_MODE_MAP, "oi", 1);
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, steps));
    const uint32_t y =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, steps));
    const uint32_t d = kb_ins(b, DF_K_sub, DEFT_F32, x, y, 0, 0);
    kb_ins(b, DF_K_store, DEFT_F32, d, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "s1"));
    kb_seal(b);
}

Test(variant, rows_that_share_loads_have_one)
{
    rig r;
    kb built;
    df_plan plan;
    char text[64];
    open_rig(&r);
    build_difference(&built, "s1");
    attach(&r, &plan, &built);
    for (int i = 0; i < 63; i++) cr_assert_null(launch_rows(&r, &plan, 8, 8));
    const df_facts *const f = launch_rows(&r, &plan, 8, 8);
    cr_assert(f && f->shares && f->below[0] == 2 && f->below[1] == 0 && f->extent[0] == DF_ANY);
    df_facts_print(f, &built.k, text, sizeof text);
    cr_assert_str_eq(text, "shared rows");
    cr_assert_eq(launch_rows(&r, &plan, 9, 9), f); /* another pitch */
    cr_assert_null(launch_rows(&r, &plan, 8, 9));  /* another place */
    eq(n_special, 1);
    df_tiers_detach(r.t, &plan);
    close_rig(&r);
}

Test(variant, rows_apart_have_none)
{
    rig r;
    kb built;
    df_plan plan;
    open_rig(&r);
    build_difference(&built, "s1");
    attach(&r, &plan, &built);
    for (int i = 0; i < 1000; i++) cr_assert_null(launch_rows(&r, &plan, 8, 1));
    df_tiers_detach(r.t, &plan);
    build_difference(&built, "ss"); /* no rows of neighbouring elements */
    attach(&r, &plan, &built);
    for (int i = 0; i < 1000; i++) cr_assert_null(launch_rows(&r, &plan, 8, 8));
    df_tiers_detach(r.t, &plan);
    close_rig(&r);
}

/* ---- numbers ---- */

Test(variant, a_divisor_that_stays_and_then_changes)
{
    rig r;
    open_rig(&r);
    launch_all(&r, 64, 3, 7, 0.5f);
    const df_facts *const extents = launch(&r, 3, 7, 0.5f);
    cr_assert(extents && !extents->num_mask);
    launch_all(&r, 64 * DF_NUMBERS_FACTOR * 2, 3, 7, 0.5f);
    const df_facts *f = launch(&r, 3, 7, 0.5f);
    cr_assert(f && f->num_mask == 1 && f->num[0] == F(0.5f) && f->extent[1] == 7);
    eq(n_special, 2);
    eq(df_tiers_read(r.t).variants_dropped, 0);
    cr_assert_eq(launch(&r, 3, 7, 0.25f), extents);
    eq(df_tiers_read(r.t).variants_dropped, 1);
    cr_assert_eq(launch(&r, 3, 7, 0.5f), extents);
    launch_all(&r, 20000, 3, 7, 0.5f);
    eq(n_special, 2);
    close_rig(&r);
}

Test(variant, a_divisor_without_an_exact_inverse_makes_none)
{
    rig r;
    open_rig(&r);
    launch_all(&r, 20000, 3, 7, 0.3f);
    eq(n_special, 1);
    cr_assert(made[0].num_mask == 0);
    close_rig(&r);
}

Test(variant, inverses_that_are_exact)
{
    const float no[] = { 0, -0.0f, 3, 0.1f, 0x1p-127f, 0x1p127f, inf, nan_f };
    for (int e = -126; e <= 126; e++) {
        const float d = ldexpf(e % 2 ? -1 : 1, e), inverse = 1 / d;
        cr_assert(df_facts_is_exact_divisor(DEFT_F32, F(d)), "2^%d", e);
        cr_assert(1 / inverse == d && isnormal(inverse));
        for (uint32_t b = 1; b < 1u << 31; b += 0x10123) {
            float x;
            memcpy(&x, &b, 4);
            if (isnan(x)) continue;
            cr_assert(F(x / d) == F(x * inverse), "%a / %a", (double)x, (double)d);
        }
    }
    for (size_t i = 0; i < LEN(no); i++) cr_assert(!df_facts_is_exact_divisor(DEFT_F32, F(no[i])));
    cr_assert(df_facts_is_exact_divisor(DEFT_F64, D(-0x1p1022)));
    cr_assert(!df_facts_is_exact_divisor(DEFT_F64, D(0x1p1023)));
    cr_assert(!df_facts_is_exact_divisor(DEFT_I32, I(2)));
}

/* ---- bounds and failures ---- */

Test(variant, kernels_push_variants_out)
{
    rig r;
    static kb more[8];
    df_plan plans[8];
    open_with(&r, DF_TIER_O2, 30000, &df_mem_system);
    launch_all(&r, 64, 3, 7, 3);
    cr_assert_not_null(launch(&r, 3, 7, 3));
    for (uint32_t i = 0; i < 8; i++) {
        build(&more[i], 1 + i);
        attach(&r, &plans[i], &more[i]);
    }
    cr_assert_null(launch(&r, 3, 7, 3));
    eq(n_released, 1);
    for (uint32_t i = 0; i < 8; i++) df_tiers_detach(r.t, &plans[i]);
    close_rig(&r);
}

/* Three kernels, variants of the first two, within max_bytes. Bit i: the i-th has one at the end.
 */
static int left_of_two(uint64_t max_bytes)
{
    rig r;
    static kb more[2];
    df_plan plans[2];
    open_with(&r, DF_TIER_O2, max_bytes, &df_mem_system);
    for (uint32_t i = 0; i < 2; i++) build(&more[i], 1 + i);
    attach(&r, &plans[0], &more[0]);
    launch_all(&r, 64, 3, 7, 3);
    for (int i = 0; i < 64; i++) (void)launch_of(&r, &plans[0], 3, 7, 3, 100);
    (void)launch(&r, 3, 7, 3); /* the first is used last, though made first */
    attach(&r, &plans[1], &more[1]);
    const int left =
        (launch(&r, 3, 7, 3) != NULL) | (launch_of(&r, &plans[0], 3, 7, 3, 100) != NULL) << 1;
    for (int i = 0; i < 2; i++) df_tiers_detach(r.t, &plans[i]);
    close_rig(&r);
    return left;
}

Test(variant, the_one_used_least_recently_leaves_first)
{
    int seen = 0;
    for (uint64_t max_bytes = 14000; max_bytes < 24000; max_bytes += 100) {
        const int left = left_of_two(max_bytes);
        cr_assert(left != 2, "within %llu bytes", (unsigned long long)max_bytes);
        seen |= 1 << left;
    }
    eq(seen, 1 << 0 | 1 << 1 | 1 << 3);
}

Test(variant, no_room_or_a_refusal_leave_the_general_code)
{
    rig r;
    open_with(&r, DF_TIER_O2, 6500, &df_mem_system);
    launch_all(&r, 1000, 3, 7, 3);
    cr_assert_null(launch(&r, 3, 7, 3));
    eq(n_special, 1);
    eq(n_released, 1);
    eq(df_tiers_read(r.t).variants, 0);
    close_rig(&r);
    open_rig(&r);
    refuse = true;
    launch_all(&r, 1000, 3, 7, 3);
    eq(df_tiers_read(r.t).failed, 1); /* and not again */
    cr_assert_null(launch(&r, 3, 7, 3));
    close_rig(&r);
}

Test(variant, without_memory_the_general_code_goes_on)
{
    rig r;
    fail_mem *m = fail_mem_create();
    open_with(&r, DF_TIER_O2, 1 << 20, fail_mem_get(m));
    launch_all(&r, 63, 3, 7, 3);
    fail_mem_at(m, 1, true);
    cr_assert_null(launch(&r, 3, 7, 3));
    fail_mem_at(m, 0, false);
    launch_all(&r, 63, 3, 7, 3);
    cr_assert_not_null(launch(&r, 3, 7, 3));
    close_rig(&r);
    eq(fail_mem_count(m).live_blocks, 0);
    fail_mem_destroy(&m);
}

Test(variant, auto_makes_them_behind_the_back)
{
    rig r;
    open_with(&r, DF_TIER_AUTO, 1 << 20, &df_mem_system);
    df_tiers_wait_idle(r.t);
    launch_all(&r, 2, 3, 7, 3);
    df_tiers_wait_idle(r.t);
    for (int i = 0; i < 61; i++) cr_assert_null(launch(&r, 3, 7, 3));
    eq(n_special, 0);
    launch_all(&r, 1, 3, 7, 3);
    df_tiers_wait_idle(r.t);
    cr_assert_not_null(launch(&r, 3, 7, 3));
    close_rig(&r);
}

Test(variant, interpreted_launches_count)
{
    rig r;
    pthread_mutex_lock(&gate); /* so nothing is compiled */
    open_with(&r, DF_TIER_AUTO, 1 << 20, &df_mem_system);
    launch_all(&r, 64, 3, 7, 3);
    pthread_mutex_unlock(&gate);
    df_tiers_wait_idle(r.t);
    eq(n_special, 1);
    cr_assert_not_null(launch(&r, 3, 7, 3));
    close_rig(&r);
}

/* The compiler refused the kernel, and would refuse its variant. */
Test(variant, kernels_that_cannot_be_compiled_have_none)
{
    rig r;
    refuse_all = true;
    open_with(&r, DF_TIER_AUTO, 1 << 20, &df_mem_system);
    df_tiers_wait_idle(r.t);
    launch_all(&r, 200, 3, 7, 3);
    df_tiers_wait_idle(r.t);
    eq(df_tiers_read(r.t).failed, 1);
    close_rig(&r);
}

Test(variant, none_where_nobody_asked)
{
    static const struct {
        df_tier tier;
        uint32_t after;
    } cases[] = { { DF_TIER_O2, 0 },
                  { DF_TIER_O2, UINT32_MAX },
                  { DF_TIER_O0, 64 },
                  { DF_TIER_AUTO, UINT32_MAX } };
    for (size_t i = 0; i < LEN(cases); i++) {
        rig r = { 0 };
        n_special = n_released = 0;
        cr_assert(df_tiers_create(NULL, &df_mem_system, NULL, &compiler, cases[i].tier, 1 << 20,
                                  cases[i].after, &r.t) == DEFT_OK);
        build(&r.built, 0);
        attach(&r, &r.plan, &r.built);
        launch_all(&r, 200, 3, 7, 3);
        df_tiers_wait_idle(r.t);
        launch_all(&r, 200, 3, 7, 3);
        eq(n_special, 0);
        close_rig(&r);
    }
}

/* A division by a number is a product in fast code, so that no number is worth a variant. */
Test(variant, fast_kernels_have_them_for_extents_alone)
{
    rig r;
    open_rig(&r);
    static kb fast;
    df_plan plan;
    build(&fast, 1);
    fast.k.flags |= DF_KERNEL_FAST;
    kb_seal(&fast);
    attach(&r, &plan, &fast);
    for (int i = 0; i < 63; i++) cr_assert_null(launch_of(&r, &plan, 3, 7, 4, 100));
    for (int i = 0; i < 2000; i++) {
        const df_facts *const f = launch_of(&r, &plan, 3, 7, 4, 100);
        cr_assert(f && f->all && f->extent[1] == 7 && !f->num_mask);
    }
    eq(n_special, 1);
    df_tiers_detach(r.t, &plan);
    close_rig(&r);
}

/* ---- through the front door ---- */

Test(variant, they_are_told_and_change_no_bit)
{
    static char text[1 << 14];
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    deft_stats s;
    float v[100], first[100], out[100];
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_FULL, .variant_launches = 2
    };
    for (int i = 0; i < 100; i++) v[i] = (float)i / 7;
    cr_assert(deft_runtime_create(&o, &rt) == DEFT_OK && deft_ctx_create(rt, NULL, &cx) == DEFT_OK);
    for (int i = 0; i < 300; i++) {
        const deft_scope scope = deft_scope_begin(cx);
        deft_tensor *x = deft_from(cx, DEFT_SHAPE(100), DEFT_F32, v, sizeof v);
        deft_tensor *y = deft_exp(deft_div(x, i < 290 ? 0.5 : 0.25));
        cr_assert(deft_read(y, DEFT_F32, i == 0 ? first : out, sizeof out) == DEFT_OK);
        cr_assert(i == 0 || i >= 290 || memcmp(out, first, sizeof out) == 0, "launch %d", i);
        cr_assert(deft_scope_end(scope) == DEFT_OK);
    }
    deft_stats_read(cx, &s, sizeof s);
    if (strncmp(deft_runtime_compiler(rt), "interp", 6) != 0) {
        eq(s.variants_made, 2);
        eq(s.variants_dropped, 1);
        eq(s.kernels_compiled, 3);
        (void)deft_explain(cx, text, sizeof text);
        cr_assert(strstr(text, "note variant_new: ") &&
                      strstr(text, "extents [100] in 2 launches in a row; took "),
                  "%s", text);
        cr_assert(strstr(text, "extents [100], divisor 0.5 in 64 launches in a row; took "), "%s",
                  text);
        cr_assert(strstr(text, "wanted extents [100], divisor 0.5, found divisor 0.25"), "%s",
                  text);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
