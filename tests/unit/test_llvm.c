/* SPDX-License-Identifier: Apache-2.0
 *
 * The LLVM plug-in against a naive evaluation of kernels, element by element, written from
 * fuser/plan.h, ops/kops.def and base/limits.h alone: bits must agree (all NaNs are equal) at both
 * levels and at every vector width that the machine can be made to use, for every op and dtype, and
 * for random kernels of every mode over random shapes and strides. Buffers end at an inaccessible
 * page, so that a lane read or written too much is a crash. DEFT_TEST_SEED=n starts the random
 * kernels elsewhere.
 *
 * size: the naive evaluation and the random kernels are one piece, used nowhere else.
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
#include "runtime/interp.h"
#include "runtime/variant.h"
#include "support/half_ref.h"
#include "support/part.h"

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

/* ---- bits ---- */

static bool is_half(uint8_t t)
{
    return half_is((deft_dtype)t);
}
static uint32_t size_of(uint8_t t)
{
    return t <= DEFT_U8 ? 1 : is_half(t) ? 2 : t == DEFT_I32 || t == DEFT_F32 ? 4 : 8;
}
static bool is_float(uint8_t t)
{
    return t == DEFT_F32 || t == DEFT_F64;
}
static bool is_real(uint8_t t)
{
    return is_float(t) || is_half(t);
}

static float f32_of(uint64_t b)
{
    const uint32_t w = (uint32_t)b;
    float f;
    memcpy(&f, &w, 4);
    return f;
}

static double f64_of(uint64_t b)
{
    double f;
    memcpy(&f, &b, 8);
    return f;
}

static uint64_t of_f32(float f)
{
    uint32_t w;
    memcpy(&w, &f, 4);
    return w;
}

static uint64_t of_f64(double f)
{
    uint64_t w;
    memcpy(&w, &f, 8);
    return w;
}

/* A float of either size, exactly. */
static double real_of(uint8_t t, uint64_t b)
{
    if (is_half(t)) return half_value((deft_dtype)t, (uint16_t)b);
    return t == DEFT_F32 ? (double)f32_of(b) : f64_of(b);
}
static uint64_t of_real(uint8_t t, double v)
{
    if (is_half(t)) return half_bits((deft_dtype)t, v);
    return t == DEFT_F32 ? of_f32((float)v) : of_f64(v);
}

static int64_t int_of(uint8_t t, uint64_t b)
{
    return t == DEFT_I32 ? (int32_t)b : t == DEFT_I64 ? (int64_t)b : (int64_t)(b & 0xff);
}

static uint64_t of_int(uint8_t t, uint64_t v)
{
    return t == DEFT_BOOL ? v & 1 : t == DEFT_U8 ? v & 0xff : t == DEFT_I32 ? v & 0xffffffffu : v;
}

static uint64_t load_bits(const char *p, uint8_t t)
{
    uint64_t b = 0;
    memcpy(&b, p, size_of(t));
    return b;
}

static bool same_bits(uint8_t t, uint64_t a, uint64_t b)
{
    return a == b || (is_real(t) && isnan(real_of(t, a)) && isnan(real_of(t, b)));
}

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
    const int64_t least = t == DEFT_I32 ? INT32_MIN : INT64_MIN;
    const bool in_range = y >= 0 && uy < width, over = y == -1 && x == least;
    const uint64_t low = of_int(t, ux);
    switch ((int)op) {
    case DF_K_add: return of_int(t, ux + uy);
    case DF_K_sub: return of_int(t, ux - uy);
    case DF_K_mul: return of_int(t, ux * uy);
    case DF_K_div: return y == 0 ? 0 : over ? of_int(t, ux) : of_int(t, (uint64_t)(x / y));
    case DF_K_rem: return y == 0 ? of_int(t, ux) : y == -1 ? 0 : of_int(t, (uint64_t)(x % y));
    case DF_K_neg: return of_int(t, 0 - ux);
    case DF_K_abs: return of_int(t, x < 0 ? 0 - ux : ux);
    case DF_K_min: return x < y ? a : b;
    case DF_K_max: return x > y ? a : b;
    case DF_K_and: return a & b;
    case DF_K_or: return a | b;
    case DF_K_xor: return a ^ b;
    case DF_K_not: return of_int(t, ~ux);
    case DF_K_shl: return in_range ? of_int(t, ux << y) : 0;
    case DF_K_shr:
        if (t == DEFT_U8) return in_range ? ux >> y : 0;
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
        if (to == DEFT_BOOL) return v != 0;
        if (isnan(v)) return 0;
        const double low = to == DEFT_U8 ? 0 : to == DEFT_I32 ? -0x1p31 : -0x1p63;
        const double high = to == DEFT_U8 ? 256 : to == DEFT_I32 ? 0x1p31 : 0x1p63;
        const uint64_t most = to == DEFT_U8 ? 255 : to == DEFT_I32 ? INT32_MAX : INT64_MAX;
        if (v >= high) return most;
        return of_int(to, (uint64_t)(v < low ? (int64_t)low : (int64_t)v));
    }
    const int64_t v = int_of(from, a);
    if (to == DEFT_F32) return of_f32((float)v);
    if (to == DEFT_F64) return of_f64((double)v);
    return to == DEFT_BOOL ? v != 0 : of_int(to, (uint64_t)v);
}

static uint64_t eval_compare(df_kop op, uint8_t t, uint64_t a, uint64_t b)
{
    const double x = is_float(t) ? real_of(t, a) : 0, y = is_float(t) ? real_of(t, b) : 0;
    const int64_t i = is_float(t) ? 0 : int_of(t, a), j = is_float(t) ? 0 : int_of(t, b);
    switch ((int)op) {
    case DF_K_eq: return is_float(t) ? x == y : i == j;
    case DF_K_ne: return is_float(t) ? x != y : i != j;
    case DF_K_lt: return is_float(t) ? x < y : i < j;
    default: return is_float(t) ? x <= y : i <= j;
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
    static const uint64_t most[] = { 1, 255, INT32_MAX, INT64_MAX };
    switch ((int)op) {
    case DF_K_sum: return is_float(t) ? of_real(t, -0.0) : 0;
    case DF_K_prod: return is_float(t) ? of_real(t, 1) : 1;
    case DF_K_rmin: return is_float(t) ? of_real(t, INFINITY) : most[t];
    case DF_K_rmax:
        if (is_float(t)) return of_real(t, -INFINITY);
        return t == DEFT_I32 ? 0x80000000u : t == DEFT_I64 ? (uint64_t)INT64_MIN : 0;
    case DF_K_all: return 1;
    default: return 0;
    }
}

static uint64_t join(df_kop op, uint8_t t, uint64_t a, uint64_t b)
{
    static const df_kop as_map[DF_N_KOPS] = {
        [DF_K_sum] = DF_K_add,  [DF_K_cumsum] = DF_K_add, [DF_K_prod] = DF_K_mul,
        [DF_K_rmin] = DF_K_min, [DF_K_rmax] = DF_K_max,   [DF_K_any] = DF_K_or,
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
    case DF_K_store:
        memcpy(x->a->ptr[ins->imm] + offset_of(x, (uint32_t)ins->imm) * size_of(ins->dtype), &s[0],
               size_of(ins->dtype));
        break;
    case DF_K_check:
        x->val[i] = (int64_t)s[0] >= 0 && (int64_t)s[0] < (int64_t)s[1] ? s[0] : 0;
        if (x->val[i] != s[0]) x->a->fault[0] = (int64_t)ins->imm + 1;
        break;
    case DF_K_carry: break;
    case DF_K_next: x->val[i] = s[1]; break;
    case DF_K_proceed: x->leaves = !s[0]; break;
    case DF_K_cumsum: {
        uint64_t *run = &x->seen[x->red_of[i]][0];
        *run = x->r == 0 ? s[0] : join(DF_K_cumsum, ins->dtype, *run, s[0]);
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

static int64_t extent_of(const df_kernel *k, const df_kargs *a, df_role role)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < k->n_axes; i++)
        if (k->role[i] == role) n *= a->extent[i];
    return n;
}

static void ref_row(ref *x)
{
    const int64_t length = extent_of(x->k, x->a, DF_AXIS_RED);
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
    const int64_t length = extent_of(x->k, x->a, DF_AXIS_RED);
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
    const int64_t length = extent_of(k, a, DF_AXIS_RED);
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce ||
            df_kop_infos[k->ins[i].op].kind == DF_KOP_scan) {
            x.red_of[i] = n;
            x.seen[n++] = calloc((size_t)length + 1, 8);
        }
    const int64_t n_outer = extent_of(k, a, DF_AXIS_OUTER),
                  n_inner = extent_of(k, a, DF_AXIS_INNER);
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

/* ---- memory that ends at a wall ---- */

typedef struct block {
    char *map;
    size_t mapped;
    char *at; /* bytes before the wall */
    size_t bytes;
} block;

static block take_block(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page) / page * page;
    block b = { .mapped = room + page, .bytes = bytes };
    b.map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(b.map != MAP_FAILED);
    mprotect(b.map + room, page, PROT_NONE);
    b.at = b.map + room - bytes;
    return b;
}

/* ---- random kernels ---- */

enum { MAX_INS = 200, MAX_ACC = 40, MAX_NUM = 4 };

typedef struct gen {
    uint64_t seed;
    df_kernel k;
    df_ins ins[MAX_INS];
    df_access access[MAX_ACC];
    bool is_out[MAX_ACC];
    uint32_t row_vals[MAX_INS], n_row, elem_vals[MAX_INS], n_elem;
    uint8_t stage, level;
    bool runs; /* ROW with several reduced axes */
    bool wild; /* NaN, infinities, huge numbers among the data */
} gen;

static uint32_t pick(gen *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static uint32_t put(gen *g, df_kop op, uint8_t t, uint32_t a, uint32_t b, uint32_t c, uint64_t imm)
{
    const uint32_t i = g->k.n_ins++;
    cr_assert(i < MAX_INS);
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

/* dense: moves along every axis that values of this level have. */
static uint32_t put_access(gen *g, df_access_kind kind, uint8_t t, bool dense)
{
    const uint32_t i = g->k.n_access++;
    cr_assert(i < MAX_ACC);
    df_access *a = &g->access[i];
    *a = (df_access){ .kind = (uint8_t)kind, .dtype = t, .same_as = i };
    for (uint32_t x = 0; x < g->k.n_axes; x++) {
        const uint8_t role = g->k.role[x];
        const bool is_vec = x + 1u == g->k.n_axes;
        if (role == DF_AXIS_RED && g->level == DF_LEVEL_ROW) continue;
        if (!dense && pick(g, 4) == 0) continue;
        a->step[x] = is_vec && pick(g, 3) ? DF_STEP_UNIT : DF_STEP_ANY;
    }
    g->is_out[i] = kind == DF_ACCESS_STORE;
    return i;
}

static uint32_t any_value(gen *g)
{
    const uint32_t n_elem = g->level == DF_LEVEL_ELEM ? g->n_elem : 0;
    const uint32_t i = pick(g, g->n_row + n_elem);
    return i < n_elem ? g->elem_vals[i] : g->row_vals[i - n_elem];
}

/* Some value, converted to t. */
static uint32_t value_of(gen *g, uint8_t t)
{
    uint32_t v = any_value(g);
    for (int tries = 0; tries < 4 && g->ins[v].dtype != t; tries++) v = any_value(g);
    const uint8_t from = g->ins[v].dtype;
    if (from == t) return v;
    if ((is_half(from) && t != DEFT_F32) || (is_half(t) && from != DEFT_F32))
        v = put(g, DF_K_cast, DEFT_F32, v, 0, 0, 0);
    return g->ins[v].dtype == t ? v : put(g, DF_K_cast, t, v, 0, 0, 0);
}

static uint8_t any_dtype(gen *g)
{
    static const uint8_t often[] = { 0, 1, 2, 3, 4, 5, 4, 4, 5, 4 };
    return often[pick(g, 10)];
}

/* One that may be in memory and be selected. */
static uint8_t any_stored(gen *g)
{
    return pick(g, 6) == 0 ? (uint8_t)(DEFT_F16 + pick(g, 2)) : any_dtype(g);
}

static void put_random_op(gen *g)
{
    static const df_kop floats[] = { DF_K_add,   DF_K_sub,  DF_K_mul,   DF_K_div,  DF_K_fma,
                                     DF_K_neg,   DF_K_abs,  DF_K_sqrt,  DF_K_min,  DF_K_max,
                                     DF_K_floor, DF_K_ceil, DF_K_trunc, DF_K_rint, DF_K_rem };
    static const df_kop ints[] = { DF_K_add, DF_K_sub, DF_K_mul, DF_K_div, DF_K_rem, DF_K_neg,
                                   DF_K_abs, DF_K_min, DF_K_max, DF_K_and, DF_K_or,  DF_K_xor,
                                   DF_K_not, DF_K_shl, DF_K_shr, DF_K_lshr };
    const uint32_t how = pick(g, 10);
    const uint8_t t = how == 1 ? any_stored(g) : any_dtype(g);
    if (how == 0) {
        const uint32_t a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_eq + pick(g, 4), DEFT_BOOL, a, b, 0, 0);
    } else if (how == 1) {
        const uint32_t c = value_of(g, DEFT_BOOL), a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_select, t, c, a, b, 0);
    } else if (t == DEFT_BOOL) {
        const uint32_t a = value_of(g, t), b = value_of(g, t);
        put(g, DF_K_and + pick(g, 4), t, a, b, 0, 0);
    } else {
        const df_kop op = is_float(t) ? floats[pick(g, 15)] : ints[pick(g, 16)];
        const uint32_t a = value_of(g, t), b = value_of(g, t), c = value_of(g, t);
        put(g, op, t, a, b, c, 0);
    }
}

static void put_leaf(gen *g)
{
    const uint8_t t = any_stored(g);
    const uint32_t how = pick(g, 8);
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
    } else
        put(g, DF_K_load, t, 0, 0, 0, put_access(g, DF_ACCESS_LOAD, t, false));
}

static void put_store(gen *g)
{
    const uint8_t t = any_stored(g);
    const uint32_t v = value_of(g, t);
    put(g, DF_K_store, t, v, 0, 0, put_access(g, DF_ACCESS_STORE, t, true));
}

static void put_reduce(gen *g)
{
    static const df_kop ops[] = { DF_K_sum,    DF_K_sum,    DF_K_prod, DF_K_rmin, DF_K_rmax,
                                  DF_K_argmin, DF_K_argmax, DF_K_any,  DF_K_all };
    const df_kop op = ops[pick(g, 9)];
    uint8_t t = any_dtype(g);
    if (op == DF_K_any || op == DF_K_all)
        t = DEFT_BOOL;
    else if (t == DEFT_BOOL)
        t = DEFT_F32;
    const bool is_arg = op == DF_K_argmin || op == DF_K_argmax;
    put(g, op, is_arg ? DEFT_I64 : t, value_of(g, t), 0, 0, 0);
}

static void put_scan(gen *g)
{
    static const uint8_t t[] = { DEFT_F32, DEFT_F64, DEFT_I32, DEFT_I64 };
    const uint8_t d = t[pick(g, 4)];
    put(g, DF_K_cumsum, d, value_of(g, d), 0, 0, 0);
}

static void make_axes(gen *g, df_mode mode)
{
    const uint32_t n_outer = pick(g, 4);
    const uint32_t n_red = g->runs ? 2 + pick(g, 2) : mode == DF_MODE_COL ? 1 + pick(g, 2) : 1;
    g->k.mode = (uint8_t)mode;
    for (uint32_t i = 0; i < n_outer; i++) g->k.role[g->k.n_axes++] = DF_AXIS_OUTER;
    if (mode != DF_MODE_MAP)
        for (uint32_t i = 0; i < n_red; i++) g->k.role[g->k.n_axes++] = DF_AXIS_RED;
    if (mode != DF_MODE_ROW) g->k.role[g->k.n_axes++] = DF_AXIS_INNER;
}

static void make_body(gen *g, df_level level, uint32_t n_leaves, uint32_t n_ops)
{
    g->level = (uint8_t)level;
    for (uint32_t i = 0; i < n_leaves; i++) put_leaf(g);
    for (uint32_t i = 0; i < n_ops; i++) put_random_op(g);
}

/* One to four states, some of which may stay scalars; sometimes a counter that ends the loop. */
static void make_loop(gen *g)
{
    uint32_t from[5], state[5], n = 1 + pick(g, 4);
    const bool counts = pick(g, 2);
    make_body(g, DF_LEVEL_ROW, pick(g, 3), pick(g, 4));
    for (uint32_t i = 0; i < n; i++) from[i] = value_of(g, any_dtype(g));
    if (counts) from[n++] = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 3);
    const uint32_t end = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 3 + pick(g, 70));
    const uint32_t one = put(g, DF_K_const, DEFT_I64, 0, 0, 0, 1);
    g->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < n; i++)
        state[i] = put(g, DF_K_carry, g->ins[from[i]].dtype, from[i], 0, 0, 0);
    if (counts)
        put(g, DF_K_proceed, DEFT_BOOL, put(g, DF_K_lt, DEFT_BOOL, state[n - 1], end, 0, 0), 0, 0,
            0);
    make_body(g, DF_LEVEL_ELEM, pick(g, 3), pick(g, pick(g, 3) ? 6 : 30));
    for (uint32_t i = pick(g, 3); i > 0; i--) put_store(g);
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
    make_body(g, DF_LEVEL_ROW, pick(g, 2), pick(g, 4));
    put_store(g);
    g->k.n_stages = 2;
}

static void make_kernel(gen *g, uint64_t seed, df_mode mode, bool runs)
{
    memset(g, 0, sizeof *g);
    g->runs = runs;
    g->seed = seed * 977 + 12345;
    g->wild = pick(g, 2);
    make_axes(g, mode);
    g->k.n_num = MAX_NUM;
    g->level = mode == DF_MODE_MAP ? DF_LEVEL_ELEM : DF_LEVEL_ROW;
    put(g, DF_K_const, DEFT_I64, 0, 0, 0, 7);
    put(g, DF_K_load, DEFT_F32, 0, 0, 0, put_access(g, DF_ACCESS_LOAD, DEFT_F32, true));
    if (mode == DF_MODE_MAP) {
        make_body(g, DF_LEVEL_ELEM, 1 + pick(g, 4), pick(g, pick(g, 3) ? 6 : 30));
        for (uint32_t n = 1 + pick(g, 3); n > 0; n--) put_store(g);
        g->k.n_stages = 1;
    } else if (mode == DF_MODE_LOOP) {
        make_loop(g);
    } else {
        const uint32_t n_reducing = pick(g, 3);
        for (uint32_t s = 0; s < n_reducing; s++) {
            make_body(g, DF_LEVEL_ROW, pick(g, 2), pick(g, 3));
            g->n_elem = 0;
            make_body(g, DF_LEVEL_ELEM, 1 + pick(g, 3), pick(g, pick(g, 3) ? 4 : 16));
            const uint32_t first = g->k.n_ins, n = 1 + pick(g, 2);
            for (uint32_t i = 0; i < n; i++) put_reduce(g);
            if (pick(g, 4) == 0) put_store(g);
            g->stage++;
            for (uint32_t i = first; i < g->k.n_ins; i++)
                if (df_kop_infos[g->ins[i].op].kind == DF_KOP_reduce) g->row_vals[g->n_row++] = i;
        }
        make_body(g, DF_LEVEL_ROW, pick(g, 2), pick(g, 4));
        g->n_elem = 0;
        if (n_reducing > 0)
            for (uint32_t i = 0; i < g->k.n_ins; i++) /* every reduction is looked at */
                if (df_kop_infos[g->ins[i].op].kind == DF_KOP_reduce)
                    put(g, DF_K_store, g->ins[i].dtype, i, 0, 0,
                        put_access(g, DF_ACCESS_STORE, g->ins[i].dtype, true));
        put_store(g);
        const bool has_elem = n_reducing == 0 || pick(g, 2);
        if (has_elem) {
            make_body(g, DF_LEVEL_ELEM, 1 + pick(g, 2), pick(g, 6));
            if (pick(g, 3) == 0 && !runs) {
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

/* ---- random shapes ---- */

typedef struct run {
    df_kargs a;
    char *ptr[MAX_ACC];
    int64_t stride[MAX_ACC * DF_MAX_AXES], base[MAX_ACC], extent[DF_MAX_AXES], fault[3];
    uint64_t num[MAX_NUM];
    block mem[MAX_ACC];
    char *first[MAX_ACC]; /* contents of outputs before */
    char *want[MAX_ACC];
    int64_t n_outer, n_inner, length;
} run;

static uint64_t random_bits(gen *g, uint8_t t)
{
    static const double odd[] = { NAN,     INFINITY, -INFINITY, -0.0,         1e300,         -1e300,
                                  1e-310,  3e9,      -3e9,      2147483648.0, -2147483649.0, 0x1p63,
                                  -0x1p63, 255.5,    1e-42,     0.0 };
    static const uint64_t odd_int[] = {
        0,  ~0ull, 1ull << 31, 1ull << 63,         0x7fffffff,
        63, 64,    31,         0x7fffffffffffffff, 0xfffffffffffffffe
    };
    if (t == DEFT_BOOL) return pick(g, 2);
    const bool is_odd = pick(g, g->wild ? 12 : 2000) == 0;
    if (is_real(t))
        return of_real(t, is_odd ? odd[pick(g, 16)] : ((double)pick(g, 4001) - 2000) / 128);
    if (is_odd) return of_int(t, odd_int[pick(g, 10)]);
    return of_int(t, (uint64_t)((int64_t)pick(g, 41) - 20));
}

static int64_t pick_extent(gen *g, df_role role)
{
    static const int64_t lengths[] = {
        0, 1, 3, 15, 16, 17, 63, 64, 65, 100, 4095, 4096, 4097, 10000
    };
    if (role == DF_AXIS_OUTER) return pick(g, 12) ? 1 + pick(g, 3) : 0;
    if (role == DF_AXIS_INNER) return lengths[pick(g, g->k.mode >= DF_MODE_COL ? 9 : 14)];
    if (g->k.mode == DF_MODE_ROW && !g->runs) return lengths[pick(g, 14)];
    static const int64_t columns[] = { 0, 1, 2, 5, 33, 64, 65, 130, 4097, 8200 };
    return columns[pick(g, 10)];
}

/* Strides of one access: packed, in some order of the axes, possibly with gaps or backwards. */
static void lay_out(gen *g, run *r, uint32_t access)
{
    const df_access *a = &g->access[access];
    int64_t span = 1, low = 0;
    int64_t *stride = &r->stride[access * g->k.n_axes];
    for (int pass = 0; pass < 2; pass++) /* the unit axis is the innermost */
        for (uint32_t x = g->k.n_axes; x-- > 0;) {
            if (a->step[x] == DF_STEP_ZERO || (a->step[x] == DF_STEP_UNIT) != (pass == 0)) continue;
            const int64_t n = r->extent[x] ? r->extent[x] : 1;
            int64_t by = span;
            if (a->step[x] == DF_STEP_ANY && pick(g, 3) == 0) by *= 2;
            const bool is_back = a->step[x] == DF_STEP_ANY && pick(g, 4) == 0;
            stride[x] = is_back ? -by : by;
            if (is_back) low += by * (n - 1);
            span = by * n;
        }
    if (a->kind == DF_ACCESS_INDEX) {
        r->base[access] = (int64_t)pick(g, 100) - 50;
        return;
    }
    if (a->kind == DF_ACCESS_AT) {
        span = 16;
        low = 0;
    }
    const size_t bytes = (size_t)span * size_of(a->dtype);
    r->mem[access] = take_block(bytes);
    for (int64_t i = 0; i < span; i++) {
        const uint64_t b = random_bits(g, a->dtype);
        memcpy(r->mem[access].at + i * size_of(a->dtype), &b, size_of(a->dtype));
    }
    r->ptr[access] = r->mem[access].at + low * size_of(a->dtype);
    if (!g->is_out[access]) return;
    r->first[access] = malloc(bytes);
    r->want[access] = malloc(bytes);
    memcpy(r->first[access], r->mem[access].at, bytes);
}

/* numbers: of f64 and f32. is_multiple: the last axis' extent is, of DF_FACT_MULTIPLE. */
static void make_run_with(gen *g, run *r, double f64, float f32, bool is_multiple)
{
    memset(r, 0, sizeof *r);
    int64_t total;
    do {
        total = 1;
        for (uint32_t x = 0; x < g->k.n_axes; x++) {
            r->extent[x] = pick_extent(g, (df_role)g->k.role[x]);
            if (is_multiple && x + 1u == g->k.n_axes)
                r->extent[x] = DF_FACT_MULTIPLE * (1 + r->extent[x] % 5);
            total *= r->extent[x] ? r->extent[x] : 1;
        }
    } while (total > 60000);
    for (uint32_t i = 0; i < g->k.n_access; i++) lay_out(g, r, i);
    r->num[0] = 1;
    r->num[1] = of_f64(f64); /* u8, i64 and f64 see what they see */
    r->num[2] = 0xfffffff0u;
    r->num[3] = of_f32(f32);
    r->a = (df_kargs){ .ptr = r->ptr,
                       .stride = r->stride,
                       .base = r->base,
                       .extent = r->extent,
                       .num = r->num,
                       .fault = r->fault };
    r->n_outer = extent_of(&g->k, &r->a, DF_AXIS_OUTER);
    r->n_inner = extent_of(&g->k, &r->a, DF_AXIS_INNER);
    r->length = extent_of(&g->k, &r->a, DF_AXIS_RED);
    ref_run(&g->k, &r->a);
    for (uint32_t i = 0; i < g->k.n_access; i++)
        if (g->is_out[i]) memcpy(r->want[i], r->mem[i].at, r->mem[i].bytes);
}

static void make_run(gen *g, run *r)
{
    make_run_with(g, r, 2.5, 0.75f, false);
}

static void end_run(gen *g, run *r)
{
    for (uint32_t i = 0; i < g->k.n_access; i++) {
        if (r->mem[i].map) munmap(r->mem[i].map, r->mem[i].mapped);
        free(r->first[i]);
        free(r->want[i]);
    }
}

static void reset_outputs(gen *g, run *r)
{
    for (uint32_t i = 0; i < g->k.n_access; i++)
        if (g->is_out[i]) memcpy(r->mem[i].at, r->first[i], r->mem[i].bytes);
}

static void expect_outputs(gen *g, run *r, const char *what, uint64_t seed)
{
    for (uint32_t i = 0; i < g->k.n_access; i++) {
        if (!g->is_out[i]) continue;
        const uint8_t t = g->access[i].dtype;
        const size_t size = size_of(t);
        for (size_t n = 0; n < r->mem[i].bytes / size; n++) {
            const uint64_t got = load_bits(r->mem[i].at + n * size, t);
            const uint64_t want = load_bits(r->want[i] + n * size, t);
            cr_assert(same_bits(t, got, want),
                      "seed %llu, %s: access %u (%s) element %zu is %llx, not %llx",
                      (unsigned long long)seed, what, i, deft_dtype_name((deft_dtype)t), n,
                      (unsigned long long)got, (unsigned long long)want);
        }
    }
}

/* main over ranges cut at random. */
static void run_main(gen *g, run *r, const df_code *code)
{
    if (r->n_outer == 0) return;
    const int64_t om = pick(g, (uint32_t)r->n_outer + 1), im = pick(g, (uint32_t)r->n_inner + 1);
    code->main(&r->a, 0, om, 0, im);
    if (g->k.mode == DF_MODE_ROW) {
        code->main(&r->a, 0, om, 0, 1);
        code->main(&r->a, om, r->n_outer, 0, 1);
        return;
    }
    code->main(&r->a, 0, om, im, r->n_inner);
    code->main(&r->a, om, r->n_outer, 0, r->n_inner);
}

static void run_split(gen *g, run *r, const df_code *code)
{
    const int64_t n_blocks = (r->length + DF_BLOCK - 1) / DF_BLOCK;
    uint64_t *partial = malloc((size_t)(16 * n_blocks * r->n_inner + 1) * 8);
    r->a.partial = partial;
    for (int64_t o = 0; o < r->n_outer; o++) {
        const int64_t cut = n_blocks / 2, im = pick(g, (uint32_t)r->n_inner + 1);
        code->part(&r->a, o, o + 1, cut, n_blocks);
        code->part(&r->a, o, o + 1, 0, cut);
        code->fin(&r->a, o, o + 1, 0, g->k.mode == DF_MODE_ROW ? 1 : im);
        if (g->k.mode != DF_MODE_ROW) code->fin(&r->a, o, o + 1, im, r->n_inner);
    }
    free(partial);
}

/* The interpreter, the oracle of everything else, agrees too. */
static void run_interp(gen *g, run *r)
{
    void *work = aligned_alloc(64, (df_interp_work_size(&g->k) + 127) & ~(size_t)63);
    reset_outputs(g, r);
    df_interp_main(&g->k, work, &r->a, 0, r->n_outer, 0, g->k.mode == DF_MODE_ROW ? 1 : r->n_inner);
    free(work);
}

/* runs: ROW with several reduced axes */
static void fuzz(df_mode mode, bool runs, uint32_t most, uint32_t n_shapes)
{
    const uint32_t n_kernels = test_some(most);
    gen *g = malloc(sizeof *g * n_kernels);
    const df_kernel **k = malloc(sizeof *k * n_kernels);
    df_code *code = malloc(sizeof *code * n_kernels * 6);
    df_compiler c[3];
    const char *env = getenv("DEFT_TEST_SEED");
    const uint64_t seed0 = env ? strtoull(env, NULL, 0) : 1;
    for (uint32_t i = 0; i < n_kernels; i++) {
        make_kernel(&g[i], seed0 + i, mode, runs);
        k[i] = &g[i].k;
    }
    for (int v = 0; v < 6; v++) {
        if (v % 2 == 0) c[v / 2] = open_compiler(widths[v / 2]);
        compile_all(&c[v / 2], k, n_kernels, v % 2 ? DF_OPT_O2 : DF_OPT_O0,
                    code + (uint32_t)v * n_kernels);
    }
    for (uint32_t i = 0; i < n_kernels; i++)
        for (uint32_t s = 0; s < n_shapes; s++) {
            run r;
            make_run(&g[i], &r);
            run_interp(&g[i], &r);
            expect_outputs(&g[i], &r, "interpreter", seed0 + i);
            for (uint32_t v = 0; v < 6; v++) {
                char what[80];
                df_code *kc = &code[v * n_kernels + i];
                snprintf(what, sizeof what, "%s, O%d", c[v / 2].name, v % 2 ? 2 : 0);
                reset_outputs(&g[i], &r);
                run_main(&g[i], &r, kc);
                expect_outputs(&g[i], &r, what, seed0 + i);
                if (!(g[i].k.flags & DF_KERNEL_SPLIT)) continue;
                reset_outputs(&g[i], &r);
                run_split(&g[i], &r, kc);
                expect_outputs(&g[i], &r, what, seed0 + i);
            }
            end_run(&g[i], &r);
        }
    for (uint32_t v = 0; v < 6; v++)
        for (uint32_t i = 0; i < n_kernels; i++)
            c[v / 2].release(c[v / 2].self, &code[v * n_kernels + i]);
    for (int v = 0; v < 3; v++) c[v].destroy(c[v].self);
    free(code);
    free(k);
    free(g);
}

/* ---- facts ---- */

/* Every kind of fact that holds of r's launch. */
static df_facts facts_of(const gen *g, const run *r, df_variant_kind kind)
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
static void run_under(gen *g, run *r, const df_facts *f, const df_code *code)
{
    const int64_t i1 = g->k.mode == DF_MODE_ROW ? 1 : r->n_inner;
    if (r->n_outer == 0 || r->n_inner == 0) return; /* the executor launches nothing */
    if (f->rows || f->all) {
        const int64_t om = f->all ? 0 : pick(g, (uint32_t)r->n_outer + 1);
        if (om > 0) code->main(&r->a, 0, om, 0, i1);
        code->main(&r->a, om, r->n_outer, 0, i1);
    } else if (f->multiple && g->k.mode != DF_MODE_ROW) {
        const int64_t im = pick(g, (uint32_t)(i1 / DF_FACT_MULTIPLE) + 1) * DF_FACT_MULTIPLE;
        code->main(&r->a, 0, r->n_outer, 0, im);
        code->main(&r->a, 0, r->n_outer, im, i1);
    } else {
        run_main(g, r, code);
    }
}

static void fuzz_facts(df_mode mode, bool runs)
{
    enum { N_SHAPES = 3 };
    const uint32_t n_kernels = test_some(5);
    static const struct {
        double f64;
        float f32;
    } numbers[N_SHAPES] = { { 0.5, -4 }, { -0x1p1022, 0x1p-126f }, { 3, 0.1f } };
    df_compiler c[3];
    gen *g = malloc(sizeof *g);
    for (int v = 0; v < 3; v++) c[v] = open_compiler(widths[v]);
    for (uint32_t i = 0; i < n_kernels * N_SHAPES; i++) {
        const uint64_t seed = 1000 + i / N_SHAPES;
        run r;
        make_kernel(g, seed, mode, runs);
        for (uint32_t s = 0; s < i % N_SHAPES; s++) (void)pick(g, 2);
        make_run_with(g, &r, numbers[i % N_SHAPES].f64, numbers[i % N_SHAPES].f32, i % 2);
        for (int v = 0; v < 3; v++)
            for (int kind = DF_VARIANT_MULTIPLE; kind <= DF_VARIANT_NUMBERS; kind++) {
                if (kind == DF_VARIANT_MULTIPLE && i % 2 == 0) continue;
                const df_facts f = facts_of(g, &r, (df_variant_kind)kind);
                char what[80];
                df_diag d = { 0 };
                df_code code = { 0 };
                cr_assert(c[v].specialize(c[v].self, &d, &g->k, &f, &code) == DEFT_OK, "%s",
                          d.text);
                snprintf(what, sizeof what, "%s, facts %d", c[v].name, kind);
                reset_outputs(g, &r);
                run_under(g, &r, &f, &code);
                expect_outputs(g, &r, what, seed);
                c[v].release(c[v].self, &code);
            }
        end_run(g, &r);
    }
    for (int v = 0; v < 3; v++) c[v].destroy(c[v].self);
    free(g);
}

Test(llvm, random_map_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_MAP, false);
}
Test(llvm, random_row_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, false);
}
Test(llvm, random_rows_of_runs_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_ROW, true);
}
Test(llvm, random_col_kernels_under_facts, .timeout = 300)
{
    fuzz_facts(DF_MODE_COL, false);
}

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

/* ---- every op and dtype on awkward values ---- */

typedef struct one_op {
    df_kernel k;
    df_ins ins[5];
    df_access access[4];
    uint8_t src, mid; /* dtypes of operand 0, of operands 1 and 2 */
} one_op;

static bool is_known(df_kop op, uint8_t t, uint8_t src)
{
    const bool f = is_float(t), b = t == DEFT_BOOL;
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
    if (op == DF_K_bitcast) return t != src && !b && src != DEFT_BOOL && size_of(t) == size_of(src);
    const bool is_simple = !is_half(t) && !is_half(src);
    return op == DF_K_cast && (is_simple || (is_half(t) ? src : t) == DEFT_F32);
}

static void make_one_op(one_op *x, df_kop op, uint8_t t, uint8_t src)
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

static uint64_t awkward(uint8_t t, uint64_t i)
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

static void check_one_op(const one_op *x, const df_code *code, const char *what)
{
    enum { N = 1024 + 13 };
    static char in[3][N * 8], out[N * 8];
    const uint32_t n = x->k.n_access - 1;
    const df_ins *ins = &x->ins[n];
    char *ptr[4];
    const uint8_t dtypes[3] = { x->src, x->mid, x->mid };
    for (uint32_t i = 0; i < n; i++) {
        ptr[i] = in[i];
        for (uint64_t e = 0; e < N; e++) {
            const uint64_t pick_of[3] = { e, e / 32, e * 7 + e / 32 };
            const uint64_t b = awkward(dtypes[i], pick_of[i]);
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
    enum { MOST = 400 };
    one_op *x = malloc(sizeof *x * MOST);
    const df_kernel *k[MOST];
    static df_code code[MOST];
    uint32_t n = 0;
    for (int op = DF_K_add; op <= DF_K_bitcast; op++)
        for (uint8_t t = 0; t < DEFT_N_DTYPES; t++)
            for (uint8_t src = 0; src < DEFT_N_DTYPES; src++)
                if (is_known((df_kop)op, t, src)) {
                    cr_assert(n < MOST);
                    make_one_op(&x[n], (df_kop)op, t, src);
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

static df_ins ins(df_kop op, uint8_t t, uint8_t stage, df_level level, uint32_t a, uint32_t b,
                  uint64_t imm)
{
    return (df_ins){ .op = (uint8_t)op,
                     .dtype = t,
                     .stage = stage,
                     .level = (uint8_t)level,
                     .src = { a, b },
                     .imm = imm };
}

/* Softmax but for its exp: three stages, the second keeps its elements in scratch. */
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
    for (uint64_t i = 0; i < N; i++) x[i] = f32_of(i < 1000 ? awkward(DEFT_F32, i) : i * 2093021);
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
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD,
          .dtype = DEFT_F32,
          .same_as = 0,
          .step = { DF_STEP_ANY, DF_STEP_UNIT } },
        { .kind = DF_ACCESS_SCRATCH, .dtype = DEFT_F32, .same_as = 1 },
        { .kind = DF_ACCESS_STORE,
          .dtype = DEFT_F32,
          .same_as = 0,
          .step = { DF_STEP_ANY, DF_STEP_UNIT } },
    };
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_rmax, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_load, DEFT_F32, 1, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_sub, DEFT_F32, 1, DF_LEVEL_ELEM, 2, 1, 0),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ELEM, 3, 0, 1),
        ins(DF_K_sum, DEFT_F32, 1, DF_LEVEL_ELEM, 3, 0, 0),
        ins(DF_K_load, DEFT_F32, 2, DF_LEVEL_ELEM, 0, 0, 1),
        ins(DF_K_div, DEFT_F32, 2, DF_LEVEL_ELEM, 6, 5, 0),
        ins(DF_K_store, DEFT_F32, 2, DF_LEVEL_ELEM, 7, 0, 2),
    };
    const df_kernel kernel = { .mode = DF_MODE_ROW,
                               .n_axes = 2,
                               .n_stages = 3,
                               .role = { DF_AXIS_OUTER, DF_AXIS_RED },
                               .n_access = 3,
                               .n_ins = DF_LEN(body),
                               .access = access,
                               .ins = body };
    const df_kernel *k = &kernel;
    float *x = malloc(3 * 4100 * 4), *y = malloc(3 * 4100 * 4), *scratch = malloc(4100 * 4);
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        df_code code;
        compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
        for (size_t n = 0; n < DF_LEN(lengths); n++) {
            const int64_t l = lengths[n], extent[] = { 3, l }, stride[] = { l, 1, 0, 0, l, 1 };
            for (int64_t i = 0; i < 3 * l; i++) x[i] = y[i] = (float)((i * 37) % 101) / 8;
            char *px[] = { (char *)x, (char *)scratch, (char *)x };
            char *py[] = { (char *)y, (char *)scratch, (char *)y };
            const df_kargs ax = { .ptr = px, .stride = stride, .extent = extent };
            const df_kargs ay = { .ptr = py, .stride = stride, .extent = extent };
            code.main(&ax, 0, 3, 0, 1); /* in place */
            ref_run(k, &ay);
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
Test(llvm, a_failing_check_is_recorded_and_reads_element_0)
{
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_I64, .same_as = 0, .step = { DF_STEP_UNIT } },
        { .kind = DF_ACCESS_AT, .dtype = DEFT_F32, .same_as = 1 },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 2, .step = { DF_STEP_UNIT } },
    };
    const df_ins body[] = {
        ins(DF_K_load, DEFT_I64, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_num, DEFT_I64, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_check, DEFT_I64, 0, DF_LEVEL_ELEM, 0, 1, 41),
        ins(DF_K_load_at, DEFT_F32, 0, DF_LEVEL_ELEM, 2, 0, 1),
        ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, 3, 0, 2),
    };
    const df_kernel kernel = { .mode = DF_MODE_MAP,
                               .n_axes = 1,
                               .n_stages = 1,
                               .flags = DF_KERNEL_CHECKS,
                               .role = { DF_AXIS_INNER },
                               .n_access = 3,
                               .n_num = 1,
                               .n_ins = DF_LEN(body),
                               .access = access,
                               .ins = body };
    const df_kernel *k = &kernel;
    for (int v = 0; v < 6; v++) {
        df_compiler c = open_compiler(widths[v / 2]);
        df_code code;
        compile_all(&c, &k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &code);
        for (int64_t n = 1; n <= 40; n++)
            for (int64_t bad = -1; bad < n; bad += 3) {
                int64_t index[40];
                const float table[4] = { 10, 11, 12, 13 };
                float out[40];
                int64_t fault[3] = { 0, 0, 0 };
                const uint64_t num[1] = { 4 };
                for (int64_t i = 0; i < n; i++) index[i] = i % 4;
                if (bad >= 0) index[bad] = bad % 2 ? 4 : -7;
                char *ptr[] = { (char *)index, (char *)(uintptr_t)table, (char *)out };
                const int64_t stride[] = { 1, 0, 1 };
                const df_kargs a = {
                    .ptr = ptr, .stride = stride, .extent = &n, .num = num, .fault = fault
                };
                code.main(&a, 0, 1, 0, n);
                cr_assert(fault[0] == (bad < 0 ? 0 : 42), "n %lld", (long long)n);
                if (bad >= 0) cr_assert(fault[1] == index[bad] && fault[2] == 4);
                for (int64_t i = 0; i < n; i++)
                    cr_assert(out[i] == (i == bad ? 10.0f : table[i % 4]));
            }
        c.release(c.self, &code);
        c.destroy(c.self);
    }
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

/* ---- text, refusals, threads ---- */

Test(llvm, shows_named_targets_the_same_every_time)
{
    static const char *const targets[] = { "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4",
                                           "aarch64" };
    df_compiler c = open_compiler(0);
    df_diag d = { 0 };
    for (uint64_t seed = 0; seed < 12; seed++) {
        gen *g = malloc(sizeof *g);
        make_kernel(g, 900 + seed, (df_mode)(seed % 3), false);
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
    gen *g = malloc(sizeof *g);
    make_kernel(g, 1, DF_MODE_MAP, false);
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
    make_one_op(&x, DF_K_sqrt, DEFT_I32, DEFT_I32);
    cr_assert(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code) == DEFT_E_COMPILE);
    cr_assert(strstr(d.text, "sqrt"), "%s", d.text);
    make_one_op(&x, DF_K_add, DEFT_F32, DEFT_F64);
    cr_assert(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code) == DEFT_E_COMPILE);
    make_one_op(&x, DF_K_add, DEFT_F32, DEFT_F32);
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
        make_one_op(&x, i % 2 ? DF_K_mul : DF_K_sqrt, DEFT_F32, DEFT_F32);
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
        make_one_op(&x, DF_K_add, DEFT_F64, DEFT_F64);
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
