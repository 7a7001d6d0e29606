/* SPDX-License-Identifier: Apache-2.0
 *
 * The LLVM plug-in against a naive evaluation of kernels, element by element, written from
 * fuser/plan.h, ops/kops.def and base/limits.h alone: bits must agree (all NaNs are equal) at both
 * levels and at every vector width that the machine can be made to use, for every op and dtype, and
 * for random kernels of every mode over random shapes and strides. Buffers end at an inaccessible
 * page, so that a lane read or written too much is a crash. DEFT_TEST_SEED=n starts the random
 * kernels elsewhere.
 *
 * Why this file is long: the naive evaluation is one piece, used nowhere else.
 */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/limits.h"
#include "runtime/device.h"
#include "runtime/interp/interp.h"
#include "runtime/variant.h"
#include "support/budget.h"
#include "support/hand_kernel.h"
#include "support/random_kernel.h"

/* ---- the plug-in ---- */

static df_plugin_cpu_fn open_plugin(void)
{
    char path[4096];
    const char *dir = getenv("DEFT_PLUGIN_DIR");
    cr_assert(dir, "DEFT_PLUGIN_DIR is not set");
    snprintf(path, sizeof path, "%.*s/deft-llvm.so", (int)strcspn(dir, ":"), dir);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(lib, "%s", dlerror());
    df_plugin_cpu_fn fn;
    void *p = dlsym(lib, DF_PLUGIN_CPU_SYMBOL);
    cr_assert(p);
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static df_host make_host(uint32_t max_vector_bytes)
{
    return (df_host){ .size = sizeof(df_host),
                      .build_id = DF_BUILD_ID,
                      .mem = &df_mem_system,
                      .fail = df_fail,
                      .str_putn = df_str_putn,
                      .kops = df_kop_infos,
                      .max_vector_bytes = max_vector_bytes };
}

static df_compiler open_compiler(uint32_t max_vector_bytes)
{
    df_compiler c = { 0 };
    df_diag d = { 0 };
    const df_host host = make_host(max_vector_bytes);
    const deft_status st = open_plugin()(&host, DF_BUILD_ID, &d, &c);
    cr_assert(st == DEFT_OK, "%s", d.text);
    return c;
}

static void compile_all(const df_compiler *c, const df_kernel *const *k, uint32_t n, df_opt level,
                        df_code *out)
{
    df_diag d = { 0 };
    const deft_status st = c->compile(c->self, &d, k, n, level, out);
    cr_assert(st == DEFT_OK, "%s", d.text);
}

static const uint32_t widths[] = { 16, 32, 64 };

/* ---- map ops, naively ---- */

static uint64_t eval_float(df_kop op, uint8_t t, uint64_t a, uint64_t b, uint64_t c)
{
    const bool single = t == DEFT_F32;
    const float x = f32_of(a), y = f32_of(b), z = f32_of(c);
    const double p = f64_of(a), q = f64_of(b), r = f64_of(c);
#define BOTH(f, g) (single ? of_f32(f) : of_f64(g))
    switch ((int)op) {
    case DF_K_add: return BOTH(x + y, p + q);
    case DF_K_sub: return BOTH(x - y, p - q);
    case DF_K_mul: return BOTH(x * y, p * q);
    case DF_K_div: return BOTH(x / y, p / q);
    case DF_K_rem: return BOTH(fmodf(x, y), fmod(p, q));
    case DF_K_fma: return BOTH(fmaf(x, y, z), fma(p, q, r));
    case DF_K_scale: return BOTH(y != y ? y : ldexpf(x, (int)y), q != q ? q : ldexp(p, (int)q));
    case DF_K_neg: return BOTH(-x, -p);
    case DF_K_abs: return BOTH(fabsf(x), fabs(p));
    case DF_K_sqrt: return BOTH(sqrtf(x), sqrt(p));
    case DF_K_min: return BOTH(x < y || x != x ? x : y, p < q || p != p ? p : q);
    case DF_K_max: return BOTH(x > y || x != x ? x : y, p > q || p != p ? p : q);
    case DF_K_floor: return BOTH(floorf(x), floor(p));
    case DF_K_ceil: return BOTH(ceilf(x), ceil(p));
    case DF_K_trunc: return BOTH(truncf(x), trunc(p));
    case DF_K_rint: return BOTH(rintf(x), rint(p));
    default: cr_assert_fail("op %d of a float", op);
    }
#undef BOTH
    return 0;
}

static uint64_t eval_int(df_kop op, uint8_t t, uint64_t a, uint64_t b)
{
    const int64_t x = int_of(t, a), y = int_of(t, b);
    const uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
    const uint64_t width = size_of(t) * 8u;
    const bool sign = int_ref_is_signed((deft_dtype)t);
    const bool in_range = (y >= 0 || !sign) && uy < width, over = sign && y == -1;
    const bool less = int_ref_less((deft_dtype)t, x, y), more = int_ref_less((deft_dtype)t, y, x);
    const uint64_t low = of_int(t, ux);
    switch ((int)op) {
    case DF_K_add: return of_int(t, ux + uy);
    case DF_K_sub: return of_int(t, ux - uy);
    case DF_K_mul: return of_int(t, ux * uy);
    case DF_K_div:
        if (y == 0 || over) return y == 0 ? 0 : of_int(t, 0 - ux);
        return of_int(t, sign ? (uint64_t)(x / y) : ux / uy);
    case DF_K_rem:
        if (y == 0 || over) return y == 0 ? of_int(t, ux) : 0;
        return of_int(t, sign ? (uint64_t)(x % y) : ux % uy);
    case DF_K_neg: return of_int(t, 0 - ux);
    case DF_K_abs: return of_int(t, sign && x < 0 ? 0 - ux : ux);
    case DF_K_min: return less ? a : b;
    case DF_K_max: return more ? a : b;
    case DF_K_and: return a & b;
    case DF_K_or: return a | b;
    case DF_K_xor: return a ^ b;
    case DF_K_not: return of_int(t, ~ux);
    case DF_K_shl: return in_range ? of_int(t, ux << y) : 0;
    case DF_K_shr:
        if (!sign) return in_range ? ux >> y : 0;
        return of_int(t, (uint64_t)(x >> (in_range ? y : (int64_t)width - 1)));
    case DF_K_lshr: return in_range ? low >> y : 0;
    default: cr_assert_fail("op %d of an integer", op);
    }
    return 0;
}

static uint64_t eval_cast(uint8_t to, uint8_t from, uint64_t a)
{
    if (is_real(from)) {
        const double v = real_of(from, a);
        if (is_real(to)) return to == from ? a : of_real(to, v);
        return of_int(to, (uint64_t)int_ref_of_double((deft_dtype)to, v));
    }
    const int64_t v = int_of(from, a);
    if (to == DEFT_F32) return of_f32(int_ref_float((deft_dtype)from, v));
    if (to == DEFT_F64) return of_f64(int_ref_double((deft_dtype)from, v));
    return to == DEFT_BOOL ? v != 0 : of_int(to, (uint64_t)v);
}

static uint64_t eval_compare(df_kop op, uint8_t t, uint64_t a, uint64_t b)
{
    const double x = is_float(t) ? real_of(t, a) : 0, y = is_float(t) ? real_of(t, b) : 0;
    const int64_t i = is_float(t) ? 0 : int_of(t, a), j = is_float(t) ? 0 : int_of(t, b);
    switch ((int)op) {
    case DF_K_eq: return is_float(t) ? x == y : i == j;
    case DF_K_ne: return is_float(t) ? x != y : i != j;
    case DF_K_lt: return is_float(t) ? x < y : int_ref_less((deft_dtype)t, i, j);
    default: return is_float(t) ? x <= y : !int_ref_less((deft_dtype)t, j, i);
    }
}

static uint64_t eval_op(df_kop op, uint8_t t, uint8_t src, const uint64_t s[3])
{
    if (op >= DF_K_eq && op <= DF_K_le) return eval_compare(op, src, s[0], s[1]);
    if (op == DF_K_select) return s[0] ? s[1] : s[2];
    if (op == DF_K_cast) return eval_cast(t, src, s[0]);
    if (op == DF_K_bitcast) return s[0];
    return is_float(t) ? eval_float(op, t, s[0], s[1], s[2]) : eval_int(op, t, s[0], s[1]);
}

/* ---- reductions, naively ---- */

static uint64_t identity(df_kop op, uint8_t t)
{
    const uint64_t low = int_ref_is_signed((deft_dtype)t) ? UINT64_C(1) << (8 * size_of(t) - 1) : 0;
    switch ((int)op) {
    case DF_K_sum: return is_float(t) ? of_real(t, -0.0) : 0;
    case DF_K_prod: return is_float(t) ? of_real(t, 1) : 1;
    case DF_K_rmin: return is_float(t) ? of_real(t, INFINITY) : of_int(t, ~low);
    case DF_K_rmax: return is_float(t) ? of_real(t, -INFINITY) : low;
    case DF_K_all: return 1;
    default: return 0;
    }
}

static uint64_t join(df_kop op, uint8_t t, uint64_t a, uint64_t b)
{
    static const df_kop as_map[DF_N_KOPS] = {
        [DF_K_sum] = DF_K_add,     [DF_K_cumsum] = DF_K_add, [DF_K_prod] = DF_K_mul,
        [DF_K_cumprod] = DF_K_mul, [DF_K_rmin] = DF_K_min,   [DF_K_cummin] = DF_K_min,
        [DF_K_rmax] = DF_K_max,    [DF_K_cummax] = DF_K_max, [DF_K_any] = DF_K_or,
        [DF_K_all] = DF_K_and
    };
    const uint64_t s[3] = { a, b, 0 };
    return eval_op(as_map[op], t, t, s);
}

static uint64_t fold_block(df_kop op, uint8_t t, const uint64_t *x, int64_t n)
{
    uint64_t acc[DF_LANES];
    for (int j = 0; j < DF_LANES; j++) acc[j] = identity(op, t);
    for (int64_t r = 0; r < n; r++) acc[r % DF_LANES] = join(op, t, acc[r % DF_LANES], x[r]);
    for (int h = DF_LANES / 2; h >= 1; h /= 2)
        for (int j = 0; j < h; j++) acc[j] = join(op, t, acc[j], acc[j + h]);
    return acc[0];
}

/* The binary counter's shape, said from above: the greatest power of two below n on the left. */
static uint64_t join_blocks(df_kop op, uint8_t t, const uint64_t *x, int64_t length, int64_t b,
                            int64_t n)
{
    if (n == 1)
        return fold_block(op, t, x + b * DF_BLOCK, df_min_i64(DF_BLOCK, length - b * DF_BLOCK));
    int64_t p = 1;
    while (p * 2 < n) p *= 2;
    return join(op, t, join_blocks(op, t, x, length, b, p),
                join_blocks(op, t, x, length, b + p, n - p));
}

static uint64_t reduce(df_kop op, uint8_t t, const uint64_t *x, int64_t n)
{
    if (op == DF_K_argmin || op == DF_K_argmax) {
        int64_t best = 0;
        for (int64_t r = 1; r < n; r++) {
            const bool nan_x = is_float(t) && isnan(real_of(t, x[r]));
            const bool nan_b = is_float(t) && isnan(real_of(t, x[best]));
            const bool wins = op == DF_K_argmin ? eval_compare(DF_K_lt, t, x[r], x[best])
                                                : eval_compare(DF_K_lt, t, x[best], x[r]);
            if (!nan_b && (nan_x || wins)) best = r;
        }
        return (uint64_t)best;
    }
    if (n == 0) return op == DF_K_sum ? 0 : identity(op, t);
    return join_blocks(op, t, x, n, 0, (n + DF_BLOCK - 1) / DF_BLOCK);
}

/* ---- kernels, naively ---- */

typedef struct ref {
    const df_kernel *k;
    const df_kargs *a;
    uint64_t *val;      /* per instruction */
    uint64_t *seen[16]; /* per reduce or scan: its elements */
    uint32_t red_of[256];
    int64_t idx[DF_MAX_AXES];
    int64_t r;
    bool leaves;
} ref;

static int64_t offset_of(const ref *x, uint32_t access)
{
    const df_access *a = &x->k->access[access];
    if (a->kind == DF_ACCESS_SCRATCH) return x->r;
    if (a->kind == DF_ACCESS_AT) return 0;
    int64_t at = 0;
    for (uint32_t i = 0; i < x->k->n_axes; i++) {
        const int64_t by = x->a->stride[access * x->k->n_axes + i];
        if (a->step[i] != DF_STEP_ZERO) at += x->idx[i] * (a->step[i] == DF_STEP_UNIT ? 1 : by);
    }
    return at;
}

static void ref_ins(ref *x, uint32_t i)
{
    const df_ins *ins = &x->k->ins[i];
    uint64_t s[3] = { 0, 0, 0 };
    for (uint32_t n = 0; n < df_kop_infos[ins->op].n_src; n++) s[n] = x->val[ins->src[n]];
    const uint8_t src = df_kop_infos[ins->op].n_src ? x->k->ins[ins->src[0]].dtype : 0;
    switch ((int)ins->op) {
    case DF_K_const: x->val[i] = ins->imm; break;
    case DF_K_num: x->val[i] = x->a->num[ins->imm]; break;
    case DF_K_index:
        x->val[i] = (uint64_t)(x->a->base[ins->imm] + offset_of(x, (uint32_t)ins->imm));
        break;
    case DF_K_load:
    case DF_K_load_at: {
        const int64_t at = offset_of(x, (uint32_t)ins->imm) + (int64_t)s[0];
        x->val[i] = load_bits(x->a->ptr[ins->imm] + at * size_of(ins->dtype), ins->dtype);
        break;
    }
    case DF_K_load_if:
        x->val[i] = s[1];
        if (s[0])
            x->val[i] = load_bits(x->a->ptr[ins->imm] +
                                      offset_of(x, (uint32_t)ins->imm) * size_of(ins->dtype),
                                  ins->dtype);
        break;
    case DF_K_store:
        memcpy(x->a->ptr[ins->imm] + offset_of(x, (uint32_t)ins->imm) * size_of(ins->dtype), &s[0],
               size_of(ins->dtype));
        break;
    case DF_K_check:
        s[0] += (int64_t)s[0] < 0 ? s[1] : 0;
        x->val[i] = s[0] < s[1] ? s[0] : 0;
        if (x->val[i] != s[0]) x->a->fault[0] = (int64_t)ins->imm + 1;
        break;
    case DF_K_carry: break;
    case DF_K_next: x->val[i] = s[1]; break;
    case DF_K_proceed: x->leaves = !s[0]; break;
    case DF_K_cumsum:
    case DF_K_cumprod:
    case DF_K_cummin:
    case DF_K_cummax: {
        uint64_t *run = &x->seen[x->red_of[i]][0];
        *run = x->r == 0 ? s[0] : join((df_kop)ins->op, ins->dtype, *run, s[0]);
        x->val[i] = *run;
        break;
    }
    default:
        if (df_kop_infos[ins->op].kind == DF_KOP_reduce)
            x->seen[x->red_of[i]][x->r] = s[0];
        else
            x->val[i] = eval_op((df_kop)ins->op, ins->dtype, src, s);
    }
}

static void ref_level(ref *x, uint32_t stage, df_level level)
{
    for (uint32_t i = 0; i < x->k->n_ins && !x->leaves; i++)
        if (x->k->ins[i].stage == stage && x->k->ins[i].level == level) ref_ins(x, i);
}

static void set_index(ref *x, df_role role, int64_t linear)
{
    for (uint32_t i = x->k->n_axes; i-- > 0;) {
        if (x->k->role[i] != role) continue;
        x->idx[i] = linear % x->a->extent[i];
        linear /= x->a->extent[i];
    }
}

static void ref_row(ref *x)
{
    const int64_t length = role_extent(x->k, x->a, DF_AXIS_RED);
    for (uint32_t s = 0; s < x->k->n_stages; s++) {
        ref_level(x, s, DF_LEVEL_ROW);
        for (x->r = 0; x->r < length; x->r++) {
            set_index(x, DF_AXIS_RED, x->r);
            ref_level(x, s, DF_LEVEL_ELEM);
        }
        for (uint32_t i = 0; i < x->k->n_ins; i++) {
            const df_ins *ins = &x->k->ins[i];
            if (ins->stage == s && df_kop_infos[ins->op].kind == DF_KOP_reduce)
                x->val[i] = reduce((df_kop)ins->op, x->k->ins[ins->src[0]].dtype,
                                   x->seen[x->red_of[i]], length);
        }
        for (uint32_t i = 0; i < x->k->n_axes; i++)
            if (x->k->role[i] == DF_AXIS_RED) x->idx[i] = 0;
    }
}

/* From the value of each next to its state, or back. */
static void ref_states(ref *x, bool back)
{
    for (uint32_t i = 0; i < x->k->n_ins; i++) {
        if (x->k->ins[i].op != DF_K_next) continue;
        uint64_t *state = &x->val[x->k->ins[i].src[0]], *next = &x->val[i];
        *(back ? next : state) = *(back ? state : next);
    }
}

static void ref_loop(ref *x)
{
    const int64_t length = role_extent(x->k, x->a, DF_AXIS_RED);
    ref_level(x, 0, DF_LEVEL_ROW);
    for (uint32_t i = 0; i < x->k->n_ins; i++)
        if (x->k->ins[i].op == DF_K_carry) x->val[i] = x->val[x->k->ins[i].src[0]];
    for (x->r = 0; x->r < length; x->r++) {
        set_index(x, DF_AXIS_RED, x->r);
        ref_level(x, 0, DF_LEVEL_ELEM);
        if (x->leaves) break;
        ref_states(x, false);
    }
    x->leaves = false;
    ref_states(x, true);
    if (length > 0) set_index(x, DF_AXIS_RED, 0);
    ref_level(x, 1, DF_LEVEL_ROW);
}

static void ref_run(const df_kernel *k, const df_kargs *a)
{
    ref x = { .k = k, .a = a, .val = calloc(k->n_ins, 8) };
    const int64_t length = role_extent(k, a, DF_AXIS_RED);
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce ||
            df_kop_infos[k->ins[i].op].kind == DF_KOP_scan) {
            x.red_of[i] = n;
            x.seen[n++] = calloc((size_t)length + 1, 8);
        }
    const int64_t n_outer = role_extent(k, a, DF_AXIS_OUTER),
                  n_inner = role_extent(k, a, DF_AXIS_INNER);
    for (int64_t o = 0; o < n_outer; o++) {
        set_index(&x, DF_AXIS_OUTER, o);
        for (int64_t i = 0; i < n_inner; i++) {
            set_index(&x, DF_AXIS_INNER, i);
            if (k->mode == DF_MODE_MAP)
                ref_level(&x, 0, DF_LEVEL_ELEM);
            else if (k->mode == DF_MODE_LOOP)
                ref_loop(&x);
            else
                ref_row(&x);
        }
    }
    while (n-- > 0) free(x.seen[n]);
    free(x.val);
}

/* With what the naive evaluation wants. */
static void make_run_with(random_kernel *g, random_run *r, double f64, float f32, bool is_multiple)
{
    random_run_make(g, r, f64, f32, is_multiple);
    ref_run(&g->k, &r->a);
    random_run_keep(g, r);
}

static void make_run(random_kernel *g, random_run *r)
{
    make_run_with(g, r, 2.5, 0.75f, false);
}

static void expect_outputs(random_kernel *g, random_run *r, const char *what, uint64_t seed)
{
    char text[160];
    if (random_run_differs(g, r, text, sizeof text))
        cr_assert_fail("seed %llu, %s: %s", (unsigned long long)seed, what, text);
}

/* main over ranges cut at random. */
static void run_main(random_kernel *g, random_run *r, const df_code *code)
{
    if (r->n_outer == 0) return;
    const int64_t om = random_pick(g, (uint32_t)r->n_outer + 1),
                  im = random_pick(g, (uint32_t)r->n_inner + 1);
    code->main(&r->a, 0, om, 0, im);
    if (g->k.mode == DF_MODE_ROW) {
        code->main(&r->a, 0, om, 0, 1);
        code->main(&r->a, om, r->n_outer, 0, 1);
        return;
    }
    code->main(&r->a, 0, om, im, r->n_inner);
    code->main(&r->a, om, r->n_outer, 0, r->n_inner);
}

static void run_split(random_kernel *g, random_run *r, const df_code *code)
{
    const int64_t n_blocks = (r->length + DF_BLOCK - 1) / DF_BLOCK;
    uint64_t *partial = malloc((size_t)(16 * n_blocks * r->n_inner + 1) * 8);
    r->a.partial = partial;
    for (int64_t o = 0; o < r->n_outer; o++) {
        const int64_t cut = n_blocks / 2, im = random_pick(g, (uint32_t)r->n_inner + 1);
        code->part(&r->a, o, o + 1, cut, n_blocks);
        code->part(&r->a, o, o + 1, 0, cut);
        code->fin(&r->a, o, o + 1, 0, g->k.mode == DF_MODE_ROW ? 1 : im);
        if (g->k.mode != DF_MODE_ROW) code->fin(&r->a, o, o + 1, im, r->n_inner);
    }
    free(partial);
}

/* The interpreter, the oracle of everything else, agrees too. */
static void run_interp(random_kernel *g, random_run *r)
{
    void *work = aligned_alloc(64, (df_interp_work_size(&g->k) + 127) & ~(size_t)63);
    random_run_reset(g, r);
    df_interp_main(&g->k, work, &r->a, 0, r->n_outer, 0, g->k.mode == DF_MODE_ROW ? 1 : r->n_inner);
    free(work);
}

/* The kernels of n_kernels seeds from seed0 on, compiled together. */
static void fuzz_some(df_mode mode, bool runs, uint64_t seed0, uint32_t n_kernels,
                      uint32_t n_shapes)
{
    random_kernel *g = malloc(sizeof *g * n_kernels);
    const df_kernel **k = malloc(sizeof *k * n_kernels);
    df_code *code = malloc(sizeof *code * n_kernels * 6);
    df_compiler c[3];
    for (uint32_t i = 0; i < n_kernels; i++) {
        random_kernel_make(&g[i], seed0 + i, mode, runs);
        k[i] = &g[i].k;
    }
    for (int v = 0; v < 6; v++) {
        if (v % 2 == 0) c[v / 2] = open_compiler(widths[v / 2]);
        compile_all(&c[v / 2], k, n_kernels, v % 2 ? DF_OPT_O2 : DF_OPT_O0,
                    code + (uint32_t)v * n_kernels);
    }
    for (uint32_t i = 0; i < n_kernels; i++)
        for (uint32_t s = 0; s < n_shapes; s++) {
            random_run r;
            make_run(&g[i], &r);
            run_interp(&g[i], &r);
            expect_outputs(&g[i], &r, "interpreter", seed0 + i);
            for (uint32_t v = 0; v < 6; v++) {
                char what[80];
                df_code *kc = &code[v * n_kernels + i];
                snprintf(what, sizeof what, "%s, O%d", c[v / 2].name, v % 2 ? 2 : 0);
                random_run_reset(&g[i], &r);
                run_main(&g[i], &r, kc);
                expect_outputs(&g[i], &r, what, seed0 + i);
                if (!(g[i].k.flags & DF_KERNEL_SPLIT)) continue;
                random_run_reset(&g[i], &r);
                run_split(&g[i], &r, kc);
                expect_outputs(&g[i], &r, what, seed0 + i);
            }
            random_run_end(&g[i], &r);
        }
    for (uint32_t v = 0; v < 6; v++)
        for (uint32_t i = 0; i < n_kernels; i++)
            c[v / 2].release(c[v / 2].self, &code[v * n_kernels + i]);
    for (int v = 0; v < 3; v++) c[v].destroy(c[v].self);
    free(code);
    free(k);
    free(g);
}

static bool only_scans(const df_kernel *k)
{
    bool any = false;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce) return false;
        any |= df_kop_infos[k->ins[i].op].kind == DF_KOP_scan;
    }
    return any;
}

/* Columns in chunks of whole rows, of which a row has several and a rest. */
Test(llvm, scans_of_long_rows, .timeout = 300)
{
    enum { WANTED = 12 };
    random_kernel *g = malloc(sizeof *g);
    df_compiler c[4]; /* the last one is for this machine as it is */
    uint32_t n = 0;
    for (int v = 0; v < 4; v++) c[v] = open_compiler(v < 3 ? widths[v] : 0);
    for (uint64_t seed = 1; n < WANTED && (n < 4 || test_time_left(1)); seed++) {
        random_kernel_make(g, seed, DF_MODE_COL, false);
        const df_kernel *const k = &g->k;
        if (!only_scans(k)) continue;
        int64_t extents[DF_MAX_AXES];
        for (uint32_t x = 0; x < k->n_axes; x++)
            extents[x] = k->role[x] == DF_AXIS_INNER ? 4700 + 13 * (int64_t)n : 2 + (int64_t)x % 3;
        g->given = extents;
        random_run r;
        make_run(g, &r);
        for (int v = 0; v < 4; v++) {
            df_code code;
            compile_all(&c[v], &k, 1, DF_OPT_O2, &code);
            random_run_reset(g, &r);
            run_main(g, &r, &code);
            expect_outputs(g, &r, c[v].name, seed);
            c[v].release(c[v].self, &code);
        }
        random_run_end(g, &r);
        n++;
    }
    cr_assert_geq(n, 4);
    for (int v = 0; v < 4; v++) c[v].destroy(c[v].self);
    free(g);
}

/* runs: ROW with several reduced axes */
static void fuzz(df_mode mode, bool runs, uint32_t n_kernels, uint32_t n_shapes)
{
    enum { AT_ONCE = 5 };
    const char *env = getenv("DEFT_TEST_SEED");
    const uint64_t seed0 = env ? strtoull(env, NULL, 0) : 1;
    for (uint32_t i = 0; i < n_kernels && (i == 0 || test_time_left(0.4)); i += AT_ONCE)
        fuzz_some(mode, runs, seed0 + i, AT_ONCE, n_shapes);
}

/* ---- facts ---- */

/* Every kind of fact that holds of r's launch. */
static df_facts facts_of(const random_kernel *g, const random_run *r, df_variant_kind kind)
{
    df_facts f = { .rows = kind == DF_VARIANT_ROWS || kind == DF_VARIANT_ALL,
                   .all = kind == DF_VARIANT_ALL,
                   .multiple = kind == DF_VARIANT_MULTIPLE };
    for (uint32_t x = 0; x < DF_MAX_AXES; x++) f.extent[x] = DF_ANY;
    for (uint32_t x = 0; x < g->k.n_axes; x++)
        if (f.all || (f.rows && g->k.role[x] != DF_AXIS_OUTER)) f.extent[x] = r->extent[x];
    if (kind == DF_VARIANT_NUMBERS) f.num_mask = 0xF;
    memcpy(f.num, r->num, sizeof r->num);
    return f;
}

/* main as facts allow it to be called. */
static void run_under(random_kernel *g, random_run *r, const df_facts *f, const df_code *code)
{
    const int64_t i1 = g->k.mode == DF_MODE_ROW ? 1 : r->n_inner;
    if (r->n_outer == 0 || r->n_inner == 0) return; /* the executor launches nothing */
    if (f->rows || f->all) {
        const int64_t om = f->all ? 0 : random_pick(g, (uint32_t)r->n_outer + 1);
        if (om > 0) code->main(&r->a, 0, om, 0, i1);
        code->main(&r->a, om, r->n_outer, 0, i1);
    } else if (f->multiple && g->k.mode != DF_MODE_ROW) {
        const int64_t im = random_pick(g, (uint32_t)(i1 / DF_FACT_MULTIPLE) + 1) * DF_FACT_MULTIPLE;
        code->main(&r->a, 0, r->n_outer, 0, im);
        code->main(&r->a, 0, r->n_outer, im, i1);
    } else {
        run_main(g, r, code);
    }
}

/* From here on, the outputs of the general code are wanted. */
static void want_general(random_kernel *g, random_run *r, df_compiler *c)
{
    const df_kernel *const k = &g->k;
    df_code code;
    compile_all(c, &k, 1, DF_OPT_O2, &code);
    random_run_reset(g, r);
    run_main(g, r, &code);
    random_run_keep(g, r);
    c->release(c->self, &code);
}

/* fast: FAST kernels, whose variants must give the bits of their general code. */
static void fuzz_facts(df_mode mode, bool runs, bool fast)
{
    enum { N_SHAPES = 3 };
    enum { N_KERNELS = 5 };
    static const struct {
        double f64;
        float f32;
    } numbers[N_SHAPES] = { { 0.5, -4 }, { -0x1p1022, 0x1p-126f }, { 3, 0.1f } };
    df_compiler c[4]; /* the last one is for this machine as it is */
    random_kernel *g = malloc(sizeof *g);
    for (int v = 0; v < 4; v++) c[v] = open_compiler(v < 3 ? widths[v] : 0);
    for (uint32_t i = 0; i < N_KERNELS * N_SHAPES && (i < N_SHAPES || test_time_left(0.4)); i++) {
        const uint64_t seed = 1000 + i / N_SHAPES;
        random_run r;
        random_kernel_make(g, seed, mode, runs);
        if (fast) g->k.flags |= DF_KERNEL_FAST;
        for (uint32_t s = 0; s < i % N_SHAPES; s++) (void)random_pick(g, 2);
        make_run_with(g, &r, numbers[i % N_SHAPES].f64, numbers[i % N_SHAPES].f32, i % 2);
        for (int v = 0; v < 4; v++) {
            if (fast) want_general(g, &r, &c[v]);
            for (int kind = DF_VARIANT_MULTIPLE; kind <= DF_VARIANT_NUMBERS; kind++) {
                if (kind == DF_VARIANT_MULTIPLE && i % 2 == 0) continue;
                const df_facts f = facts_of(g, &r, (df_variant_kind)kind);
                char what[80];
                df_diag d = { 0 };
                df_code code = { 0 };
                cr_assert(c[v].specialize(c[v].self, &d, &g->k, &f, &code) == DEFT_OK, "%s",
                          d.text);
                snprintf(what, sizeof what, "%s, facts %d", c[v].name, kind);
                random_run_reset(g, &r);
                run_under(g, &r, &f, &code);
                expect_outputs(g, &r, what, seed);
                c[v].release(c[v].self, &code);
            }
        }
        random_run_end(g, &r);
    }
    for (int v = 0; v < 4; v++) c[v].destroy(c[v].self);
    free(g);
}

Test(llvm, random_map_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_MAP, false, false);
}
Test(llvm, random_row_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, false, false);
}
Test(llvm, random_rows_of_runs_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, true, false);
}
Test(llvm, random_col_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_COL, false, false);
}
Test(llvm, random_fast_map_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_MAP, false, true);
}
Test(llvm, random_fast_row_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, false, true);
}
Test(llvm, random_fast_rows_of_runs_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, true, true);
}
Test(llvm, random_fast_col_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_COL, false, true);
}

#if defined(__x86_64__)

/* The number of prefetch instructions in the softmax of rows of n elements. */
static uint32_t n_prefetches(const df_compiler *c, int64_t n)
{
    const df_kernel *const k = &hand_softmax;
    const df_facts f = { .rows = true, .all = true, .extent = { 100, n } };
    uint32_t count = 0;
    df_diag d = { 0 };
    df_code code = { 0 };
    unsigned char bytes[1 << 14];
    cr_assert(c->specialize(c->self, &d, k, &f, &code) == DEFT_OK, "%s", d.text);
    cr_assert(code.size[0] > 0 && code.size[0] <= sizeof bytes);
    memcpy(bytes, (const void *)(uintptr_t)code.main, code.size[0]);
    for (uint32_t i = 0; i + 1 < code.size[0]; i++)
        count += bytes[i] == 0x0f && (bytes[i + 1] == 0x18 || bytes[i + 1] == 0x0d);
    c->release(c->self, &code);
    return count;
}

/* On processors with AVX-512 that are not AMD's. */
Test(llvm, rows_of_one_to_eight_kib_prefetch_the_next)
{
    static const int64_t lengths[] = { 8, 255, 256, 500, 2048, 2049, 5000 };
    const bool fetches = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl") && !__builtin_cpu_is("amd");
    df_compiler c = open_compiler(0);
    for (size_t i = 0; i < DF_LEN(lengths); i++) {
        const bool is_long = lengths[i] * 4 >= 1024 && lengths[i] * 4 <= 8192;
        cr_expect_eq(n_prefetches(&c, lengths[i]) > 0, is_long && fetches, "%d", (int)lengths[i]);
    }
    c.destroy(c.self);
}

#endif

Test(llvm, random_map_kernels_give_the_naive_bits, .timeout = 300)
{
    fuzz(DF_MODE_MAP, false, 30, 3);
}
Test(llvm, random_row_kernels_give_the_naive_bits, .timeout = 300)
{
    fuzz(DF_MODE_ROW, false, 30, 3);
}
Test(llvm, random_rows_of_runs_give_the_naive_bits, .timeout = 300)
{
    fuzz(DF_MODE_ROW, true, 30, 3);
}
Test(llvm, random_col_kernels_give_the_naive_bits, .timeout = 300)
{
    fuzz(DF_MODE_COL, false, 30, 3);
}

Test(llvm, random_loops_give_the_naive_bits, .timeout = 300)
{
    fuzz(DF_MODE_LOOP, false, 40, 3);
}

/* Kernels whose wide chunks have fewer groups than their narrow ones, and row-level values. */
Test(llvm, wide_and_narrow_chunks_share_slots)
{
    fuzz_some(DF_MODE_COL, false, 6, 10, 3);
}

/* Kernel 31 loads each second element where a condition holds, else a value of the same lane. */
Test(llvm, elements_two_apart_have_other_values_of_their_own_lane)
{
    fuzz_some(DF_MODE_LOOP, false, 31, 1, 3);
}

/* ---- every op and dtype on awkward_bits values ---- */

/* Several threads may check at once, so nothing here is static. */
static void check_one_op(const one_op *x, const df_code *code, const char *what)
{
    enum { N = 1024 + 13 };
    char in[3][N * 8], out[N * 8];
    const uint32_t n = x->k.n_access - 1;
    const df_ins *ins = &x->ins[n];
    char *ptr[4];
    const uint8_t dtypes[3] = { x->src, x->mid, x->mid };
    for (uint32_t i = 0; i < n; i++) {
        ptr[i] = in[i];
        for (uint64_t e = 0; e < N; e++) {
            const uint64_t pick_of[3] = { e, e / 32, e * 7 + e / 32 };
            const uint64_t b = awkward_bits(dtypes[i], pick_of[i]);
            memcpy(in[i] + e * size_of(dtypes[i]), &b, size_of(dtypes[i]));
        }
    }
    ptr[n] = out;
    const int64_t stride[4] = { 1, 1, 1, 1 }, extent[1] = { N };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
    code->main(&a, 0, 1, 0, N);
    for (uint64_t e = 0; e < N; e++) {
        uint64_t s[3] = { 0, 0, 0 };
        for (uint32_t i = 0; i < n; i++)
            s[i] = load_bits(in[i] + e * size_of(dtypes[i]), dtypes[i]);
        const uint64_t want = eval_op((df_kop)ins->op, ins->dtype, x->src, s);
        const uint64_t got = load_bits(out + e * size_of(ins->dtype), ins->dtype);
        cr_assert(same_bits(ins->dtype, got, want),
                  "%s: %s %s <- %s: (%llx, %llx, %llx) gives %llx, not %llx", what,
                  df_kop_infos[ins->op].name, deft_dtype_name((deft_dtype)ins->dtype),
                  deft_dtype_name((deft_dtype)x->src), (unsigned long long)s[0],
                  (unsigned long long)s[1], (unsigned long long)s[2], (unsigned long long)got,
                  (unsigned long long)want);
    }
}

Test(llvm, every_op_and_dtype_on_awkward_values, .timeout = 300)
{
    enum { MOST = 700 };
    one_op *x = malloc(sizeof *x * MOST);
    const df_kernel *k[MOST];
    static df_code code[MOST];
    uint32_t n = 0;
    for (int op = DF_K_add; op <= DF_K_bitcast; op++)
        for (uint8_t t = 0; t < DF_N_RECORDED; t++)
            for (uint8_t src = 0; src < DF_N_RECORDED; src++)
                if (one_op_is_known((df_kop)op, t, src)) {
                    cr_assert(n < MOST);
                    one_op_make(&x[n], (df_kop)op, t, src);
                    k[n] = &x[n].k;
                    n++;
                }
    for (int v = 0; v < 6; v++) {
        char what[200];
        df_compiler c = open_compiler(widths[v / 2]);
        compile_all(&c, k, n, v % 2 ? DF_OPT_O2 : DF_OPT_O0, code);
        snprintf(what, sizeof what, "%s, O%d", c.name, v % 2 ? 2 : 0);
        for (uint32_t i = 0; i < n; i++) {
            check_one_op(&x[i], &code[i], what);
            c.release(c.self, &code[i]);
        }
        c.destroy(c.self);
    }
    free(x);
}

/* ---- what random kernels do not reach ---- */

/* A kernel with more numbers than registers keeps no vector of a number on the stack. */
Test(llvm, many_numbers_are_read_where_they_are_used)
{
    enum { N = 37, NUMBERS = 48, INS = 2 * NUMBERS + 2 };
    df_ins body[INS] = { ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0) };
    uint16_t last = 0;
    for (uint16_t i = 0; i < NUMBERS; i++) {
        body[1 + 2 * i] = ins(DF_K_num, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, i);
        body[2 + 2 * i] = ins(i % 2 ? DF_K_add : DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, last,
                              (uint16_t)(1 + 2 * i), 0);
        last = (uint16_t)(2 + 2 * i);
    }
    body[INS - 1] = ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, last, 0, 1);
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 1, .step = { DF_STEP_UNIT } }
    };
    const df_kernel k = { .mode = DF_MODE_MAP,
                          .n_axes = 1,
                          .n_stages = 1,
                          .role = { DF_AXIS_INNER },
                          .n_access = 2,
                          .n_num = NUMBERS,
                          .n_ins = INS,
                          .access = access,
                          .ins = body };
    float x[N], y[N];
    uint64_t num[NUMBERS];
    for (int i = 0; i < N; i++) x[i] = (float)i / 3;
    for (int i = 0; i < NUMBERS; i++) {
        const float number = 0.75f + (float)i / 64;
        num[i] = 0;
        memcpy(&num[i], &number, sizeof number);
    }
    char *ptr[2] = { (char *)x, (char *)y };
    const int64_t stride[2] = { 1, 1 }, extent[1] = { N };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent, .num = num };
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        const df_kernel *const one = &k;
        df_code code;
        compile_all(&c, &one, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
        memset(y, 0, sizeof y);
        code.main(&a, 0, 1, 0, N);
        for (int i = 0; i < N; i++) {
            float want = x[i];
            for (int j = 0; j < NUMBERS; j++)
                want = j % 2 ? want + f32_of(num[j]) : want * f32_of(num[j]);
            cr_assert(y[i] == want, "%s, element %d: %g, not %g", c.name, i, (double)y[i],
                      (double)want);
        }
        c.release(c.self, &code);
        c.destroy(c.self);
    }
    df_compiler c = open_compiler(0);
    df_diag d = { 0 };
    df_str s;
    df_str_init(&s, &df_mem_system);
    cr_assert(c.show(c.self, &d, &k, "x86-64-v4", true, &s) == DEFT_OK, "%s", d.text);
    cr_assert(strstr(s.at, "{1to") && !strstr(s.at, "(%rsp), %zmm"), "%s", s.at);
    df_str_finish(&s);
    c.destroy(c.self);
}

/* n + (x < y), with the condition on either side, is an addition under a mask where there are
 * masks. */
Test(llvm, conditions_are_counted_in_every_integer_dtype)
{
    enum { N = 300 };
    static const deft_dtype dtypes[] = { DEFT_I8,  DEFT_U8,  DEFT_I16, DEFT_U16,
                                         DEFT_I32, DEFT_U32, DEFT_I64, DEFT_U64 };
    for (uint32_t i_case = 0; i_case < 2 * DF_LEN(dtypes); i_case++) {
        const uint8_t t = (uint8_t)dtypes[i_case / 2];
        const bool is_first = i_case % 2; /* the condition is the first operand */
        const df_ins body[] = { ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                                ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 1),
                                ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 2),
                                ins(DF_K_lt, DEFT_BOOL, 0, DF_LEVEL_ELEM, 0, 1, 0),
                                ins(DF_K_cast, t, 0, DF_LEVEL_ELEM, 3, 0, 0),
                                ins(DF_K_add, t, 0, DF_LEVEL_ELEM, is_first ? 4 : 2,
                                    is_first ? 2 : 4, 0),
                                ins(DF_K_store, t, 0, DF_LEVEL_ELEM, 5, 0, 3) };
        const df_access access[] = {
            { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_UNIT } },
            { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .same_as = 1, .step = { DF_STEP_UNIT } },
            { .kind = DF_ACCESS_LOAD, .dtype = t, .same_as = 2, .step = { DF_STEP_UNIT } },
            { .kind = DF_ACCESS_STORE, .dtype = t, .same_as = 3, .step = { DF_STEP_UNIT } }
        };
        const df_kernel k = { .mode = DF_MODE_MAP,
                              .n_axes = 1,
                              .n_stages = 1,
                              .role = { DF_AXIS_INNER },
                              .n_access = 4,
                              .n_ins = DF_LEN(body),
                              .access = access,
                              .ins = body };
        float x[N], y[N];
        uint64_t n[N], out[N]; /* of which the first bytes are used */
        const uint32_t size = size_of(t);
        for (uint64_t i = 0; i < N; i++) {
            const uint64_t bits = awkward_bits(t, i);
            x[i] = i % 7 ? (float)(i * 37 % 11) : NAN;
            y[i] = (float)(i * 53 % 13);
            memcpy((char *)n + i * size, &bits, size);
        }
        char *ptr[4] = { (char *)x, (char *)y, (char *)n, (char *)out };
        const int64_t stride[4] = { 1, 1, 1, 1 }, extent[1] = { N };
        const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
        for (int v = 0; v < 6; v++) {
            df_compiler c = open_compiler(widths[v / 2]);
            const df_kernel *const one = &k;
            df_code code;
            compile_all(&c, &one, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
            code.main(&a, 0, 1, 0, N);
            for (uint64_t i = 0; i < N; i++) {
                uint64_t want = load_bits((char *)n + i * size, t) + (x[i] < y[i]);
                want &= size < 8 ? ((uint64_t)1 << size * 8) - 1 : UINT64_MAX;
                const uint64_t got = load_bits((char *)out + i * size, t);
                cr_assert_eq(got, want, "%s, %s, element %llu", c.name,
                             deft_dtype_name((deft_dtype)t), (unsigned long long)i);
            }
            c.release(c.self, &code);
            c.destroy(c.self);
        }
        if (t != DEFT_I32) continue;
        df_compiler c = open_compiler(0);
        df_diag d = { 0 };
        df_str s;
        df_str_init(&s, &df_mem_system);
        cr_assert(c.show(c.self, &d, &k, "x86-64-v4", true, &s) == DEFT_OK, "%s", d.text);
        cr_assert(!strstr(s.at, "vpmovm2d"), "%s", s.at);
        df_str_finish(&s);
        c.destroy(c.self);
    }
}

Test(llvm, a_known_divisor_gives_the_bits_of_a_division)
{
    enum { N = 2048 + 5 };
    const df_ins body[] = { ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_num, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_div, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 1, 0),
                            ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, 2, 0, 1) };
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 1, .step = { DF_STEP_UNIT } }
    };
    const df_kernel k = { .mode = DF_MODE_MAP,
                          .n_axes = 1,
                          .n_stages = 1,
                          .role = { DF_AXIS_INNER },
                          .n_access = 2,
                          .n_num = 1,
                          .n_ins = 4,
                          .access = access,
                          .ins = body };
    static const float divisors[] = { 0.5f, -4,   0x1p-126f, 0x1p126f, 0x1p127f, 0x1p-127f,
                                      3,    0.1f, 0x1p-149f, 0,        INFINITY, NAN };
    static float x[N], y[N];
    for (uint64_t i = 0; i < N; i++)
        x[i] = f32_of(i < 1000 ? awkward_bits(DEFT_F32, i) : i * 2093021);
    char *ptr[2] = { (char *)x, (char *)y };
    const int64_t stride[2] = { 1, 1 }, extent[1] = { N };
    df_compiler c = open_compiler(64);
    for (size_t n = 0; n < sizeof divisors / sizeof *divisors; n++) {
        const uint64_t num[1] = { of_f32(divisors[n]) };
        const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent, .num = num };
        const df_facts f = { .extent = { DF_ANY }, .num_mask = 1, .num = { num[0] } };
        df_code code = { 0 };
        df_diag d = { 0 };
        cr_assert(c.specialize(c.self, &d, &k, &f, &code) == DEFT_OK, "%s", d.text);
        code.main(&a, 0, 1, 0, N);
        for (int i = 0; i < N; i++) {
            const float want = x[i] / divisors[n];
            cr_assert(same_bits(DEFT_F32, of_f32(y[i]), of_f32(want)), "%a / %a is %a, not %a",
                      (double)x[i], (double)divisors[n], (double)y[i], (double)want);
        }
        c.release(c.self, &code);
    }
    c.destroy(c.self);
}

Test(llvm, stages_share_a_row_through_scratch)
{
    static const int64_t lengths[] = { 0, 1, 15, 16, 17, 63, 64, 65, 1000, 4097 };
    const df_kernel *const k = &hand_softmax;
    float *x = malloc(3 * 4100 * 4), *y = malloc(3 * 4100 * 4), *scratch = malloc(4100 * 4);
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        df_code code;
        compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
        for (size_t n = 0; n < DF_LEN(lengths); n++) {
            const int64_t l = lengths[n];
            hand_softmax_run of_x, of_y;
            hand_softmax_init(&of_x, x, scratch, 3, l);
            hand_softmax_init(&of_y, y, scratch, 3, l);
            code.main(&of_x.args, 0, 3, 0, 1); /* in place */
            ref_run(k, &of_y.args);
            cr_assert(memcmp(x, y, (size_t)(3 * l) * 4) == 0, "%s: length %lld", c.name,
                      (long long)l);
        }
        c.release(c.self, &code);
        c.destroy(c.self);
    }
    free(x);
    free(y);
    free(scratch);
}

/* Lanes past the end must not report; one of the failing ones does, whole. */
static void check_gathers(const df_kernel *k, bool is_short)
{
    static hand_gather_run r;
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        df_code code;
        compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
        for (int64_t n = 1; n <= 40; n++)
            for (int64_t bad = -1; bad < n; bad += 3)
                for (int is_long = 0; is_long <= (is_short && bad < 0); is_long++) {
                    hand_gather_init(&r, n, bad);
                    if (is_short) hand_gather_shorten(&r, is_long);
                    code.main(&r.args, 0, 1, 0, n);
                    cr_assert(hand_gather_holds(&r), "%s: %lld elements, %lld bad, long %d", c.name,
                              (long long)n, (long long)bad, is_long);
                }
        c.release(c.self, &code);
        c.destroy(c.self);
    }
}

Test(llvm, a_failing_check_is_recorded_and_reads_element_0)
{
    check_gathers(&hand_gather, false);
}

Test(llvm, indices_of_32_bits_are_checked_against_any_extent)
{
    check_gathers(&hand_short_gather, true);
}

Test(llvm, sums_keep_the_sign_of_zero)
{
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .same_as = 0, .step = { DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 1 },
    };
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_sum, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ROW, 1, 0, 1),
    };
    const df_kernel kernel = { .mode = DF_MODE_ROW,
                               .n_axes = 1,
                               .n_stages = 2,
                               .role = { DF_AXIS_RED },
                               .n_access = 2,
                               .n_ins = 3,
                               .access = access,
                               .ins = body };
    const df_kernel *k = &kernel;
    df_compiler c = open_compiler(0);
    df_code code;
    compile_all(&c, &k, 1, DF_OPT_O2, &code);
    float x[200], y;
    for (int i = 0; i < 200; i++) x[i] = -0.0f;
    char *ptr[] = { (char *)x, (char *)&y };
    const int64_t stride[] = { 1, 0 };
    for (int64_t n = 0; n <= 200; n += 25) {
        const df_kargs a = { .ptr = ptr, .stride = stride, .extent = &n };
        code.main(&a, 0, 1, 0, 1);
        cr_assert(y == 0 && !!signbit(y) == (n > 0), "sum of %lld times -0", (long long)n);
    }
    c.release(c.self, &code);
    c.destroy(c.self);
}

/* The op over n elements of t at x, by main, or by two calls of part and one of fin. */
static uint64_t reduce_by_code(const df_code *code, uint8_t t, char *x, int64_t n, bool splits)
{
    const int64_t stride[] = { 1, 0 }, n_blocks = (n + DF_BLOCK - 1) / DF_BLOCK;
    uint64_t out = 0, partial[8];
    char *ptr[] = { x, (char *)&out };
    memset(partial, 0x55, sizeof partial);
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = &n, .partial = partial };
    cr_assert(n_blocks < (int64_t)DF_LEN(partial));
    if (splits) {
        code->part(&a, 0, 1, n_blocks / 2, n_blocks);
        code->part(&a, 0, 1, 0, n_blocks / 2);
        code->fin(&a, 0, 1, 0, 1);
        cr_assert_eq(partial[n_blocks], 0x5555555555555555u);
    } else {
        code->main(&a, 0, 1, 0, 1);
    }
    return load_bits((char *)&out, t);
}

/* All blocks of integers are folded at once, with more accumulators than the order names. */
Test(llvm, reductions_of_integers_alone)
{
    enum { MOST = 20011 };
    static const uint8_t dtypes[] = { DEFT_I8, DEFT_U16, DEFT_I32, DEFT_U64 };
    static const df_kop ops[] = { DF_K_sum, DF_K_prod, DF_K_rmin, DF_K_rmax };
    static const int64_t lengths[] = { 0,   1,    63,   64,   65,    255,   256,
                                       257, 1000, 4096, 4097, 12288, 16191, MOST };
    static uint64_t bits[MOST];
    for (size_t i = 0; i < DF_LEN(dtypes) * DF_LEN(ops); i++) {
        const uint8_t t = dtypes[i / DF_LEN(ops)];
        const df_kop op = ops[i % DF_LEN(ops)];
        const df_access access[] = {
            { .kind = DF_ACCESS_LOAD, .dtype = t, .same_as = 0, .step = { DF_STEP_UNIT } },
            { .kind = DF_ACCESS_STORE, .dtype = t, .same_as = 1 },
        };
        const df_ins body[] = {
            ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
            ins(op, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
            ins(DF_K_store, t, 1, DF_LEVEL_ROW, 1, 0, 1),
        };
        const df_kernel kernel = { .mode = DF_MODE_ROW,
                                   .n_axes = 1,
                                   .n_stages = 2,
                                   .flags = DF_KERNEL_SPLIT,
                                   .role = { DF_AXIS_RED },
                                   .n_access = 2,
                                   .n_ins = DF_LEN(body),
                                   .access = access,
                                   .ins = body };
        const df_kernel *k = &kernel;
        for (int v = 0; v < 6; v++) {
            df_compiler c = open_compiler(widths[v / 2]);
            df_code code;
            compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
            for (size_t l = 0; l < DF_LEN(lengths); l++) {
                const int64_t n = lengths[l];
                char *const x = malloc((size_t)n * size_of(t) + 1);
                for (int64_t r = 0; r < n; r++) { /* odd, so that a product keeps all of them */
                    const uint64_t value = ((uint64_t)r * 0x9E3779B97F4A7C15u >> 20) | 1;
                    memcpy(x + r * size_of(t), &value, size_of(t));
                    bits[r] = load_bits(x + r * size_of(t), t);
                }
                const uint64_t expected = reduce(op, t, bits, n);
                for (int splits = 0; splits < 2; splits++)
                    cr_expect_eq(reduce_by_code(&code, t, x, n, splits), expected,
                                 "%s of %lld %s, %u bytes, O%d, %s", df_kop_infos[op].name,
                                 (long long)n, deft_dtype_name((deft_dtype)t), widths[v / 2],
                                 v % 2 ? 2 : 0, splits ? "in parts" : "at once");
                free(x);
            }
            c.release(c.self, &code);
            c.destroy(c.self);
        }
    }
}

/* ---- elements that alternate ---- */

/* A kernel of two loads, which the plan takes for twins. MAP exchanges and adds up two parts; ROW
 * sums them up, and stores them in a second stage. */
static void make_twins(df_kernel *k, df_access *access, df_ins *body, df_mode mode, uint8_t t)
{
    const bool is_row = mode == DF_MODE_ROW;
    for (uint32_t i = 0; i < 6; i++)
        access[i] = (df_access){ .kind = i < 2 ? DF_ACCESS_LOAD : DF_ACCESS_STORE,
                                 .dtype = t,
                                 .twin = i == 1,
                                 .same_as = i == 3 ? 2 : i,
                                 .step = { i < 4 ? DF_STEP_ANY : DF_STEP_ZERO } };
    const df_ins map[] = {
        ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_add, t, 0, DF_LEVEL_ELEM, 0, 1, 0),
        ins(DF_K_store, t, 0, DF_LEVEL_ELEM, 2, 0, 2),
        ins(DF_K_store, t, 0, DF_LEVEL_ELEM, 0, 0, 3),
    };
    const df_ins row[] = {
        ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_sum, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_sum, t, 0, DF_LEVEL_ELEM, 1, 0, 0),
        ins(DF_K_store, t, 1, DF_LEVEL_ROW, 2, 0, 4),
        ins(DF_K_store, t, 1, DF_LEVEL_ROW, 3, 0, 5),
        ins(DF_K_store, t, 1, DF_LEVEL_ELEM, 1, 0, 2),
        ins(DF_K_store, t, 1, DF_LEVEL_ELEM, 0, 0, 3),
    };
    memcpy(body, is_row ? row : map, is_row ? sizeof row : sizeof map);
    *k = (df_kernel){ .mode = (uint8_t)mode,
                      .n_axes = 1,
                      .n_stages = is_row ? 2 : 1,
                      .role = { is_row ? DF_AXIS_RED : DF_AXIS_INNER },
                      .n_access = is_row ? 6 : 4,
                      .n_ins = is_row ? DF_LEN(row) : DF_LEN(map),
                      .access = access,
                      .ins = body };
}

/* Runs the code for n elements, of which loads and stores step by step[0] and step[1], and the
 * second parts lie by[0] and by[1] elements behind the first. Memory ends with the last element. */
static void run_twins(const df_kernel *k, const df_code *code, int64_t n, const int64_t step[2],
                      const int64_t by[2], const char *what)
{
    const uint8_t t = k->access[0].dtype;
    const bool is_row = k->mode == DF_MODE_ROW;
    const int64_t size = size_of(t);
    walled at[2];
    char *ptr[6];
    uint64_t sums[2] = { 0, 0 }, *part[2];
    for (int m = 0; m < 2; m++) {
        const int64_t span = (n - 1) * llabs(step[m]) + llabs(by[m]) + 1;
        at[m] = walled_take((size_t)(span * size));
        for (int64_t i = 0; i < span * size; i++) at[m].at[i] = (char)(i * 89 % 61);
        ptr[2 * m] = at[m].at + (step[m] < 0 ? (1 - n) * step[m] * size : 0);
        if (by[m] < 0) ptr[2 * m] -= by[m] * size;
        ptr[2 * m + 1] = ptr[2 * m] + by[m] * size;
    }
    const size_t bytes = at[1].bytes;
    char *const expected = malloc(bytes);
    memcpy(expected, at[1].at, bytes);
    for (int m = 0; m < 2; m++) part[m] = malloc((size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        for (int m = 0; m < 2; m++) part[m][i] = load_bits(ptr[m] + i * step[0] * size, t);
        const uint64_t s[3] = { part[1][i], part[0][i], 0 };
        const uint64_t out[2] = { is_row ? part[1][i] : eval_op(DF_K_add, t, t, s),
                                  is_row ? part[0][i] : part[1][i] };
        for (int m = 0; m < 2; m++)
            memcpy(expected + (ptr[2 + m] - at[1].at) + i * step[1] * size, &out[m], (size_t)size);
    }
    ptr[4] = (char *)&sums[0];
    ptr[5] = (char *)&sums[1];
    const int64_t stride[6] = { step[0], step[0], step[1], step[1], 0, 0 };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = &n };
    code->main(&a, 0, 1, 0, is_row ? 1 : n);
    cr_expect(memcmp(expected, at[1].at, bytes) == 0, "%s: stores", what);
    for (int m = 0; m < 2 && is_row; m++)
        cr_expect_eq(load_bits(ptr[4 + m], t), reduce(DF_K_sum, t, part[m], n), "%s: sum", what);
    for (int m = 0; m < 2; m++) {
        munmap(at[m].map, at[m].mapped);
        free(part[m]);
    }
    free(expected);
}

Test(llvm, loads_and_stores_that_may_alternate)
{
    static const uint8_t dtypes[] = { DEFT_U8, DEFT_I16, DEFT_F32, DEFT_F64 };
    static const int64_t lengths[] = { 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 200, 5000 };
    static const int64_t layouts[][4] = { /* steps, then distances of the parts */
                                          { 2, 2, 1, 1 },  { 2, 2, -1, 1 }, { 2, 2, 1, -1 },
                                          { 3, 2, 1, 1 },  { 2, 3, 1, 1 },  { -2, 2, 1, 1 },
                                          { 2, -2, 1, 1 }, { 2, 2, 3, 1 },  { 2, 2, 0, 1 }
    };
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        for (size_t i = 0; i < 2 * DF_LEN(dtypes); i++) {
            df_kernel kernel;
            df_access access[6];
            df_ins body[8];
            const df_kernel *k = &kernel;
            df_code code;
            make_twins(&kernel, access, body, i % 2 ? DF_MODE_ROW : DF_MODE_MAP, dtypes[i / 2]);
            compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
            for (size_t l = 0; l < DF_LEN(lengths) * DF_LEN(layouts); l++) {
                const int64_t n = lengths[l / DF_LEN(layouts)];
                const int64_t *const how = layouts[l % DF_LEN(layouts)];
                char what[96];
                snprintf(what, sizeof what, "%s of %lld %s, layout %zu, %u bytes, O%d",
                         i % 2 ? "row" : "map", (long long)n,
                         deft_dtype_name((deft_dtype)dtypes[i / 2]), l % DF_LEN(layouts),
                         widths[v / 2], v % 2 ? 2 : 0);
                run_twins(k, &code, n, how, how + 2, what);
            }
            c.release(c.self, &code);
        }
        c.destroy(c.self);
    }
}

/* ---- text, refusals, threads ---- */

Test(llvm, shows_named_targets_the_same_every_time)
{
    static const char *const targets[] = { "x86-64",        "x86-64-v2", "x86-64-v3",
                                           "x86-64-v4",     "aarch64",   "aarch64-sve256",
                                           "aarch64-sve512" };
    df_compiler c = open_compiler(0);
    df_diag d = { 0 };
    for (uint64_t seed = 0; seed < 12 && (seed < 3 || test_time_left(0.4)); seed++) {
        random_kernel *g = malloc(sizeof *g);
        random_kernel_make(g, 900 + seed, (df_mode)(seed % 3), false);
        for (size_t t = 0; t < DF_LEN(targets); t++)
            for (int assembly = 0; assembly < 2; assembly++) {
                df_str s[2];
                for (int i = 0; i < 2; i++) {
                    df_str_init(&s[i], &df_mem_system);
                    const deft_status st = c.show(c.self, &d, &g->k, targets[t], assembly, &s[i]);
                    cr_assert(st == DEFT_OK, "%s: %s", targets[t], d.text);
                }
                cr_assert(s[0].n > 100 && strcmp(s[0].at, s[1].at) == 0);
                cr_assert(strstr(s[0].at, "df_k0"));
                df_str_finish(&s[0]);
                df_str_finish(&s[1]);
            }
        free(g);
    }
    df_str s;
    df_str_init(&s, &df_mem_system);
    random_kernel *g = malloc(sizeof *g);
    random_kernel_make(g, 1, DF_MODE_MAP, false);
    cr_assert(c.show(c.self, &d, &g->k, "z80", false, &s) == DEFT_E_ARG);
    cr_assert(strstr(d.text, "z80"));
    free(g);
    df_str_finish(&s);
    c.destroy(c.self);
}

/* a * b + c: one rounding only where FAST allows it. */
Test(llvm, contracts_in_fast_kernels_only)
{
    df_access access[4];
    for (uint32_t i = 0; i < 4; i++)
        access[i] = (df_access){ .kind = i == 3 ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                 .dtype = DEFT_F32,
                                 .same_as = i,
                                 .step = { DF_STEP_UNIT } };
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 2),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 1, 0),
        ins(DF_K_add, DEFT_F32, 0, DF_LEVEL_ELEM, 3, 2, 0),
        ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, 4, 0, 3),
    };
    df_compiler c = open_compiler(0);
    for (uint8_t fast = 0; fast < 2; fast++) {
        const df_kernel k = { .mode = DF_MODE_MAP,
                              .n_axes = 1,
                              .n_stages = 1,
                              .flags = fast ? DF_KERNEL_FAST : 0,
                              .role = { DF_AXIS_INNER },
                              .n_access = 4,
                              .n_ins = DF_LEN(body),
                              .access = access,
                              .ins = body };
        df_diag d = { 0 };
        df_str s;
        df_str_init(&s, &df_mem_system);
        cr_assert(c.show(c.self, &d, &k, "x86-64-v4", true, &s) == DEFT_OK, "%s", d.text);
        cr_assert((strstr(s.at, "vfm") != NULL) == (fast == 1));
        df_str_finish(&s);
    }
    c.destroy(c.self);
}

/* Whether the assembly of out = in + in, with these axes, has stores around the caches. */
static bool has_streams(const df_compiler *c, df_mode mode, df_step step, const char *target)
{
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .same_as = 0, .step = { DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 0, .step = { (uint8_t)step } },
    };
    const bool is_row = mode == DF_MODE_ROW;
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(is_row ? DF_K_sum : DF_K_add, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_store, DEFT_F32, is_row, is_row ? DF_LEVEL_ROW : DF_LEVEL_ELEM, 1, 0, 1),
    };
    const df_kernel k = { .mode = (uint8_t)mode,
                          .n_axes = 1,
                          .n_stages = is_row ? 2 : 1,
                          .role = { is_row ? DF_AXIS_RED : DF_AXIS_INNER },
                          .n_access = 2,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    df_diag d = { 0 };
    df_str s;
    df_str_init(&s, &df_mem_system);
    cr_assert(c->show(c->self, &d, &k, target, true, &s) == DEFT_OK, "%s", d.text);
    const bool stores = strstr(s.at, "movnt") != NULL, fences = strstr(s.at, "sfence") != NULL;
    cr_assert_eq(stores, fences);
    df_str_finish(&s);
    return stores;
}

Test(llvm, stores_around_caches_where_a_launch_may_ask_for_it)
{
    df_compiler c = open_compiler(0);
    static const char *const x86[] = { "x86-64", "x86-64-v3", "x86-64-v4" };
    for (size_t i = 0; i < DF_LEN(x86); i++)
        cr_expect(has_streams(&c, DF_MODE_MAP, DF_STEP_UNIT, x86[i]), "%s", x86[i]);
    cr_expect(!has_streams(&c, DF_MODE_MAP, DF_STEP_UNIT, "aarch64"));
    cr_expect(!has_streams(&c, DF_MODE_MAP, DF_STEP_ANY, "x86-64-v4"));
    cr_expect(!has_streams(&c, DF_MODE_ROW, DF_STEP_ZERO, "x86-64-v4"));
    c.destroy(c.self);
}

/* The assembly of a copy of n arrays into one, in which their elements are in turn where the run
 * says so. The caller finishes *s. */
static void show_stack(const df_compiler *c, uint32_t n, const char *target, df_str *s)
{
    enum { MOST = 8 };
    df_access access[2 * MOST];
    df_ins body[2 * MOST];
    cr_assert_leq(n, MOST);
    for (uint32_t i = 0; i < n; i++) {
        access[i] = (df_access){
            .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .same_as = i, .step = { DF_STEP_UNIT }
        };
        access[n + i] = (df_access){
            .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = n, .step = { DF_STEP_ANY }
        };
        body[i] = ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, i);
        body[n + i] = ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, i, 0, n + i);
    }
    const df_kernel k = { .mode = DF_MODE_MAP,
                          .n_axes = 1,
                          .n_stages = 1,
                          .role = { DF_AXIS_INNER },
                          .n_access = 2 * n,
                          .n_ins = 2 * n,
                          .access = access,
                          .ins = body };
    df_diag d = { 0 };
    df_str_init(s, &df_mem_system);
    cr_assert(c->show(c->self, &d, &k, target, true, s) == DEFT_OK, "%s", d.text);
}

static bool has_any(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i])) return true;
    return false;
}

/* Vectors of results in turn are interleaved by instructions that take lanes of two vectors. */
Test(llvm, results_in_turn_are_interleaved)
{
    static const char *const x86[] = { "vpermt2ps", "vpermi2ps" };
    static const char *const arm[] = { "zip1", "trn1", "uzp1", "st3", "st4" };
    df_compiler c = open_compiler(0);
    for (uint32_t n = 3; n <= 8; n++) {
        df_str s;
        show_stack(&c, n, "x86-64-v4", &s);
        cr_expect(has_any(s.at, x86, DF_LEN(x86)), "%u", n);
        df_str_finish(&s);
        show_stack(&c, n, "aarch64", &s);
        cr_expect(has_any(s.at, arm, DF_LEN(arm)), "%u", n);
        df_str_finish(&s);
    }
    c.destroy(c.self);
}

/* Three accesses are loaded as a, b and c; a * b + c, or the sum of a * b and c in rows. */
static void run_contraction(bool sums, const df_compiler *c, uint8_t flags, bool knows, float *out)
{
    enum { N = 203, ROWS = 3 };
    df_access access[4];
    for (uint32_t i = 0; i < 4; i++)
        access[i] = (df_access){ .kind = i == 3 ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                 .dtype = DEFT_F32,
                                 .same_as = i,
                                 .step = { DF_STEP_ANY, DF_STEP_UNIT } };
    if (sums) access[3].step[1] = DF_STEP_ZERO;
    const uint8_t level = sums ? DF_LEVEL_ROW : DF_LEVEL_ELEM;
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 2),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 1, 0),
        ins(sums ? DF_K_sum : DF_K_sub, DEFT_F32, 0, DF_LEVEL_ELEM, sums ? 3 : 2, 3, 0),
        ins(DF_K_store, DEFT_F32, sums, level, 4, 0, 3),
    };
    const df_kernel k = { .mode = sums ? DF_MODE_ROW : DF_MODE_MAP,
                          .n_axes = 2,
                          .n_stages = sums ? 2 : 1,
                          .flags = flags,
                          .role = { DF_AXIS_OUTER, sums ? DF_AXIS_RED : DF_AXIS_INNER },
                          .n_access = 4,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    static float in[3 * ROWS * N];
    for (int i = 0; i < 3 * ROWS * N; i++) in[i] = 1 + (float)(i * 7919 % 10007) / 30011;
    char *ptr[4] = { (char *)in, (char *)(in + ROWS * N), (char *)(in + 2 * ROWS * N),
                     (char *)out };
    int64_t stride[8];
    for (int i = 0; i < 4; i++) {
        stride[2 * i] = N;
        stride[2 * i + 1] = 1;
    }
    if (sums) stride[6] = 1;
    const int64_t extent[2] = { ROWS, N };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
    const df_facts facts = { .rows = true, .all = true, .extent = { ROWS, N } };
    const df_kernel *const one = &k;
    df_diag d = { 0 };
    df_code code = { 0 };
    if (knows)
        cr_assert(c->specialize(c->self, &d, &k, &facts, &code) == DEFT_OK, "%s", d.text);
    else
        compile_all(c, &one, 1, DF_OPT_O2, &code);
    memset(out, 0, sizeof(float) * ROWS * N);
    code.main(&a, 0, ROWS, 0, sums ? 1 : N);
    c->release(c->self, &code);
}

Test(llvm, variants_contract_as_the_general_code_does)
{
    static float strict[1024], fast[1024], variant[1024];
    for (int v = 0; v < 3; v++) {
        df_compiler c = open_compiler(widths[v]);
        for (int sums = 0; sums < 2; sums++) {
            run_contraction(sums, &c, 0, false, strict);
            run_contraction(sums, &c, DF_KERNEL_FAST, false, fast);
            run_contraction(sums, &c, DF_KERNEL_FAST, true, variant);
            cr_assert(memcmp(strict, fast, sizeof fast) != 0, "%s, %d", c.name, sums);
            cr_assert(memcmp(variant, fast, sizeof fast) == 0, "%s, %d", c.name, sums);
        }
        c.destroy(c.self);
    }
}

/* ---- rows whose divisions are computed ahead ---- */

enum { AHEAD_ROWS = 3, AHEAD_MOST = 4200 };

/* out[0][i], out[1][i]: the sums over j of (x[j] - x[i]) w[i][j] and of w[i][j], with w[i][j] being
 * m[j] / sqrt((x[j] - x[i])^2 + 0.01)^3, for n elements. knows: compiled for n. */
static void run_attraction(const df_compiler *c, uint8_t flags, bool knows, int64_t n, float *out)
{
    static float x[AHEAD_MOST], m[AHEAD_MOST];
    const df_step along[5] = { DF_STEP_UNIT, DF_STEP_UNIT, DF_STEP_ZERO, DF_STEP_ZERO,
                               DF_STEP_ZERO };
    df_access access[5];
    int64_t stride[10];
    char *ptr[5] = { (char *)x, (char *)m, (char *)x, (char *)out, (char *)(out + AHEAD_ROWS) };
    for (uint32_t a = 0; a < 5; a++) {
        access[a] =
            (df_access){ .kind = a < 3 ? DF_ACCESS_LOAD : DF_ACCESS_STORE,
                         .dtype = DEFT_F32,
                         .same_as = a,
                         .step = { a < 2 ? DF_STEP_ZERO : DF_STEP_ANY, (uint8_t)along[a] } };
        stride[2 * a] = a >= 2;
        stride[2 * a + 1] = a < 2;
    }
    for (int i = 0; i < AHEAD_MOST; i++) {
        x[i] = (float)(i * 7919 % 10007) / 1001;
        m[i] = 1 + (float)(i * 104729 % 5003) / 30011;
    }
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 2),
        ins(DF_K_const, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, of_f32(0.01f)),
        ins(DF_K_const, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, of_f32(1)),
        ins(DF_K_sub, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 2, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 5, 5, 0),
        ins(DF_K_add, DEFT_F32, 0, DF_LEVEL_ELEM, 6, 3, 0),
        ins(DF_K_sqrt, DEFT_F32, 0, DF_LEVEL_ELEM, 7, 0, 0),
        ins(DF_K_div, DEFT_F32, 0, DF_LEVEL_ELEM, 4, 8, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 9, 9, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 10, 9, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 11, 1, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 5, 12, 0),
        ins(DF_K_sum, DEFT_F32, 0, DF_LEVEL_ELEM, 13, 0, 0),
        ins(DF_K_sum, DEFT_F32, 0, DF_LEVEL_ELEM, 12, 0, 0),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ROW, 14, 0, 3),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ROW, 15, 0, 4),
    };
    const df_kernel k = { .mode = DF_MODE_ROW,
                          .n_axes = 2,
                          .n_stages = 2,
                          .flags = flags,
                          .role = { DF_AXIS_OUTER, DF_AXIS_RED },
                          .n_access = 5,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    const int64_t extent[2] = { AHEAD_ROWS, n };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
    const df_facts facts = { .rows = true, .all = true, .extent = { AHEAD_ROWS, n } };
    const df_kernel *const one = &k;
    df_diag d = { 0 };
    df_code code = { 0 };
    if (knows)
        cr_assert(c->specialize(c->self, &d, &k, &facts, &code) == DEFT_OK, "%s", d.text);
    else
        compile_all(c, &one, 1, DF_OPT_O2, &code);
    memset(out, 0, sizeof(float) * 2 * AHEAD_ROWS);
    code.main(&a, 0, AHEAD_ROWS, 0, 1);
    c->release(c->self, &code);
}

Test(llvm, divisions_ahead_change_no_bit, .timeout = 300)
{
    static const int64_t lengths[] = { 64, 255, 256, 320, 333, 1000, 1024, 4096, AHEAD_MOST };
    float general[2 * AHEAD_ROWS], variant[2 * AHEAD_ROWS];
    for (int v = 0; v < 3; v++) {
        df_compiler c = open_compiler(widths[v]);
        for (uint32_t i = 0; i < DF_LEN(lengths); i++)
            for (int fast = 0; fast < 2; fast++) {
                const uint8_t flags = fast ? DF_KERNEL_FAST : 0;
                run_attraction(&c, flags, false, lengths[i], general);
                run_attraction(&c, flags, true, lengths[i], variant);
                cr_assert(memcmp(general, variant, sizeof variant) == 0,
                          "%s, %lld elements, fast %d", c.name, (long long)lengths[i], fast);
            }
        c.destroy(c.self);
    }
}

/* ---- rows that share loads ---- */

enum { SHARED_PLANES = 2, SHARED_MOST_ROWS = 5, SHARED_MOST_LANES = 600 };

/* s = s / 2 + x for each x of the 3 x 3 elements around each element of every plane, in this order
 * of rows. Rows of `out` are `pitch` elements apart. below: the facts. Computes rows in two calls,
 * [0, cut) and the others, and each of them in two parts of lanes. */
static void run_stencil(const df_compiler *c, const int order[3], bool knows, int64_t rows,
                        int64_t lanes, int64_t pitch, int64_t cut, float *out)
{
    enum { N = 9, PITCH = SHARED_MOST_LANES + 2, PLANE = PITCH * (SHARED_MOST_ROWS + 2) };
    static float in[SHARED_PLANES * PLANE];
    df_access access[N + 1];
    df_ins body[4 * N];
    char *ptr[N + 1];
    int64_t stride[3 * (N + 1)];
    uint32_t n = 0, sum = 0;
    df_facts facts = { .shares = knows, .extent = { DF_ANY, DF_ANY, DF_ANY } };
    for (int i = 0; i < SHARED_PLANES * PLANE; i++) in[i] = (float)(i * 7919 % 10007) / 30011;
    body[n++] = ins(DF_K_const, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, of_f32(0.5f));
    for (uint32_t a = 0; a < N + 1; a++) {
        access[a] = (df_access){ .kind = a == N ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                 .dtype = DEFT_F32,
                                 .same_as = a,
                                 .step = { DF_STEP_ANY, DF_STEP_ANY, DF_STEP_UNIT } };
        stride[3 * a] = a == N ? rows * pitch : PLANE;
        stride[3 * a + 1] = a == N ? pitch : PITCH;
        stride[3 * a + 2] = 1;
        ptr[a] = a == N ? (char *)out : (char *)(in + order[a / 3] * PITCH + a % 3);
        for (uint32_t b = 0; b < N && a < N && knows; b++)
            if (b % 3 == a % 3 && order[b / 3] == order[a / 3] + 1)
                facts.below[a] = (uint8_t)(b + 1);
        body[n] = a == N ? ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, sum, 0, a)
                         : ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, a);
        const uint32_t x = n++;
        if (a > 0 && a < N) {
            body[n] = ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, sum, 0, 0);
            body[n + 1] = ins(DF_K_add, DEFT_F32, 0, DF_LEVEL_ELEM, n, x, 0);
            n += 2;
        }
        sum = n - 1;
    }
    const df_kernel k = { .mode = DF_MODE_MAP,
                          .n_axes = 3,
                          .n_stages = 1,
                          .role = { DF_AXIS_OUTER, DF_AXIS_OUTER, DF_AXIS_INNER },
                          .n_access = N + 1,
                          .n_ins = n,
                          .access = access,
                          .ins = body };
    const int64_t extent[3] = { SHARED_PLANES, rows, lanes };
    const df_kargs args = { .ptr = ptr, .stride = stride, .extent = extent };
    const df_kernel *const one = &k;
    df_diag d = { 0 };
    df_code code = { 0 };
    if (knows)
        cr_assert(c->specialize(c->self, &d, &k, &facts, &code) == DEFT_OK, "%s", d.text);
    else
        compile_all(c, &one, 1, DF_OPT_O2, &code);
    for (int part = 0; part < 2; part++) {
        const int64_t from = part ? lanes / 3 : 0, to = part ? lanes : lanes / 3;
        if (from == to) continue;
        if (cut > 0) code.main(&args, 0, cut, from, to);
        code.main(&args, cut, SHARED_PLANES * rows, from, to);
    }
    c->release(c->self, &code);
}

/* One comparison of pairs with single rows: rows begin `past` elements behind a cache line. */
static void compare_stencils(const df_compiler *c, int64_t rows, int64_t lanes, int64_t pitch,
                             int64_t past, uint32_t salt)
{
    static const int orders[][3] = { { 0, 1, 2 }, { 1, 0, 2 }, { 2, 1, 0 } };
    enum { MOST_PITCH = SHARED_MOST_LANES + 40 };
    static _Alignas(64) float want[SHARED_PLANES * SHARED_MOST_ROWS * MOST_PITCH + 32];
    static _Alignas(64) float got[DF_LEN(want)];
    const int64_t cut = (rows * 7 + salt) % (SHARED_PLANES * rows);
    const int *const order = orders[(rows + salt) % 3];
    cr_assert(pitch <= MOST_PITCH && past <= 32);
    memset(want, 0, sizeof want);
    memset(got, 0, sizeof got);
    run_stencil(c, order, false, rows, lanes, pitch, 0, want + past);
    run_stencil(c, order, true, rows, lanes, pitch, cut, got + past);
    cr_assert(memcmp(want, got, sizeof want) == 0, "%s, %d x %d from %d, pitch %d, past %d",
              c->name, (int)rows, (int)lanes, (int)cut, (int)pitch, (int)past);
}

Test(llvm, rows_in_pairs_are_equal_to_single_rows, .timeout = 300)
{
    static const int64_t n_lanes[] = { 1, 17, 64, 200 };
    for (int v = 0; v < 3; v++) {
        df_compiler c = open_compiler(widths[v]);
        for (int64_t rows = 1; rows <= SHARED_MOST_ROWS; rows++)
            for (uint32_t i = 0; i < DF_LEN(n_lanes); i++)
                compare_stencils(&c, rows, n_lanes[i], n_lanes[i], 0, i);
        c.destroy(c.self);
    }
}

/* Long rows that begin behind a cache line are divided at cache lines, where all rows begin equally
 * far behind one. A part of lanes of run_stencil begins somewhere else than the row. */
Test(llvm, pairs_of_rows_that_begin_behind_a_line_are_equal_to_single_rows, .timeout = 300)
{
    static const int64_t n_lanes[] = { 384, 401, 575, SHARED_MOST_LANES };
    for (int v = 0; v < 3; v++) {
        df_compiler c = open_compiler(widths[v]);
        for (uint32_t i = 0; i < DF_LEN(n_lanes); i++)
            for (int64_t past = 0; past < 17; past += past < 2 ? 1 : 7) {
                const int64_t even = (n_lanes[i] + past + 15) / 16 * 16;
                compare_stencils(&c, 2 + i % 4, n_lanes[i], even, past, i);
                compare_stencils(&c, 3, n_lanes[i], n_lanes[i] + 1, past, i);
            }
        c.destroy(c.self);
    }
}

Test(llvm, refuses_other_builds_and_kernels_it_does_not_know)
{
    df_compiler c = { 0 };
    df_diag d = { 0 };
    df_host host = make_host(0);
    cr_assert(open_plugin()(&host, "another", &d, &c) == DEFT_E_BACKEND);
    host.build_id = "another";
    cr_assert(open_plugin()(&host, DF_BUILD_ID, &d, &c) == DEFT_E_BACKEND);
    host = make_host(0);
    host.size = 8;
    cr_assert(open_plugin()(&host, DF_BUILD_ID, &d, &c) == DEFT_E_BACKEND);

    c = open_compiler(0);
    one_op x;
    df_code code;
    const df_kernel *k = &x.k;
    one_op_make(&x, DF_K_sqrt, DEFT_I32, DEFT_I32);
    cr_assert(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code) == DEFT_E_COMPILE);
    cr_assert(strstr(d.text, "sqrt"), "%s", d.text);
    one_op_make(&x, DF_K_add, DEFT_F32, DEFT_F64);
    cr_assert(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code) == DEFT_E_COMPILE);
    one_op_make(&x, DF_K_add, DEFT_F32, DEFT_F32);
    x.ins[2].src[1] = 7;
    cr_assert(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code) == DEFT_E_COMPILE);
    c.destroy(c.self);
}

static void *compile_often(void *arg)
{
    df_compiler *c = arg;
    for (int i = 0; i < 20; i++) {
        one_op x;
        df_code code;
        const df_kernel *k = &x.k;
        one_op_make(&x, i % 2 ? DF_K_mul : DF_K_sqrt, DEFT_F32, DEFT_F32);
        compile_all(c, &k, 1, i % 3 ? DF_OPT_O0 : DF_OPT_O2, &code);
        check_one_op(&x, &code, "thread");
        c->release(c->self, &code);
    }
    return NULL;
}

static void *only_compile(void *arg)
{
    df_compiler *c = arg;
    for (int i = 0; i < 20; i++) {
        one_op x;
        df_code code;
        const df_kernel *k = &x.k;
        one_op_make(&x, DF_K_add, DEFT_F64, DEFT_F64);
        compile_all(c, &k, 1, i % 2 ? DF_OPT_O0 : DF_OPT_O2, &code);
        c->release(c->self, &code);
    }
    return NULL;
}

Test(llvm, compiles_from_several_threads)
{
    df_compiler c = open_compiler(0);
    pthread_t other[2];
    for (int i = 0; i < 2; i++) pthread_create(&other[i], NULL, only_compile, &c);
    compile_often(&c);
    for (int i = 0; i < 2; i++) pthread_join(other[i], NULL);
    c.destroy(c.self);
}

/* KiB of libLLVM's code and constants that are in the memory of this process. */
static long resident_code(void)
{
    char line[4096];
    long kib = 0;
    bool is_code = false;
    FILE *const f = fopen("/proc/self/smaps", "r");
    cr_assert(f);
    while (fgets(line, sizeof line, f)) {
        char rights[8];
        if (sscanf(line, "%*x-%*x %7s", rights) == 1)
            is_code = strstr(line, "libLLVM") && !strchr(rights, 'w') && strchr(rights, 'x');
        else if (is_code && !strncmp(line, "Rss:", 4))
            kib += atol(line + 4);
    }
    fclose(f);
    return kib;
}

Test(llvm, pages_of_the_compiler_are_given_back)
{
    df_compiler c = open_compiler(0);
    compile_often(&c);
    const long before = resident_code();
    cr_assert_gt(before, 4096, "of %ld KiB", before);
    c.give_back(c.self);
    cr_expect_lt(resident_code(), before / 8);
    compile_often(&c);
    cr_expect_gt(resident_code(), before / 8, "they are mapped again");
    c.destroy(c.self);
}

/* A page of libLLVM that was written to is in no file. The last byte of e_ident has no meaning, so
 * that it may be changed. */
Test(llvm, pages_that_differ_from_the_file_are_kept)
{
    df_compiler c = open_compiler(0);
    compile_often(&c);
    char line[4096];
    unsigned long start = 0;
    FILE *const f = fopen("/proc/self/maps", "r");
    cr_assert(f);
    while (!start && fgets(line, sizeof line, f))
        if (strstr(line, "/libLLVM")) sscanf(line, "%lx-", &start);
    fclose(f);
    unsigned char *const head = (unsigned char *)start;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    cr_assert(start && !memcmp(head, "\177ELF", 4));
    cr_assert_eq(mprotect(head, page, PROT_READ | PROT_WRITE), 0);
    head[15] = 0x5a;
    cr_assert_eq(mprotect(head, page, PROT_READ | PROT_EXEC), 0);
    c.give_back(c.self);
    cr_expect_eq(head[15], 0x5a);
    c.destroy(c.self);
}

Test(llvm, opening_the_compiler_leaves_few_pages)
{
    df_compiler c = open_compiler(0);
    df_diag d = { 0 };
    cr_assert(c.start(c.self, &d) == DEFT_OK, "%s", d.text);
    const long started = resident_code();
    compile_often(&c);
    cr_expect_lt(started, resident_code() * 3 / 4, "symbols and relocations are not kept");
    c.destroy(c.self);
}

Test(llvm, memory_is_given_back_while_other_threads_compile)
{
    df_compiler c = open_compiler(0);
    pthread_t other[2];
    for (int i = 0; i < 2; i++) pthread_create(&other[i], NULL, compile_often, &c);
    for (int i = 0; i < 50; i++) c.give_back(c.self);
    for (int i = 0; i < 2; i++) pthread_join(other[i], NULL);
    c.destroy(c.self);
}
