/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that every generated program begins with. It is CUDA C++ without includes: NVRTC
 * compiles it, and tests/cuda/shim.h gives the same text to a C++ compiler for the CPU. It
 * is embedded in the generator as a string, without its comments.
 *
 * What must hold: each op has one function here, op_dtype, where dtype is that of the
 * operand. The function means what ops/kops.def says. Strict arithmetic uses __fadd_rn and
 * the like, which no option contracts or flushes; fast_ functions are left to the compiler.
 * Each function with PTX has a twin for the shim beside it.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef u8 b8; /* 0 or 1 */
typedef u16 f16;
typedef u16 bf16;

#define DEV static __device__ __forceinline__
#define EACH _Pragma("unroll") for (int l = 0; l < V; l++)
#define EACH_GROUP _Pragma("unroll") for (int u = 0; u < U; u++)
#define EACH_COLUMN _Pragma("unroll") for (int j = 0; j < C; j++)
#define EACH_ROW _Pragma("unroll") for (int u = 0; u < V / C; u++)
#define ALL_LANES 0xFFFFFFFFu

template <u32 N> struct one { u64 w[N]; };
struct many {
    const u64 *table;
    const u32 *first;
    u32 n, n_blocks;
};

/* The segment that thread block b works on. */
DEV u32 segment_of(const many &a, u32 b)
{
    u32 low = 0, high = a.n;
    while (high - low > 1) {
        const u32 mid = (low + high) / 2;
        if (a.first[mid] <= b)
            low = mid;
        else
            high = mid;
    }
    return low;
}

DEV u32 end_of(const many &a, u32 segment)
{
    return segment + 1 < a.n ? a.first[segment + 1] : a.n_blocks;
}

/* ---- words and bits ---- */

DEV f32 f32_of(u32 bits) { return __uint_as_float(bits); }
DEV f64 f64_of(u64 bits) { return __longlong_as_double((i64)bits); }

template <typename T> DEV T of_word(u64 w) { return (T)w; }
template <> __device__ __forceinline__ f32 of_word<f32>(u64 w) { return f32_of((u32)w); }
template <> __device__ __forceinline__ f64 of_word<f64>(u64 w) { return f64_of(w); }
template <typename T> DEV u64 to_word(T v) { return (u64)v; }
template <> __device__ __forceinline__ u64 to_word<f32>(f32 v) { return __float_as_uint(v); }
template <> __device__ __forceinline__ u64 to_word<f64>(f64 v) { return (u64)__double_as_longlong(v); }

/* Division of positions, which are never negative. */
DEV i32 divide(i32 a, i32 b) { return (i32)((u32)a / (u32)b); }
DEV i64 divide(i64 a, i64 b) { return (i64)((u64)a / (u64)b); }

/* ---- memory ---- */

struct alignas(16) b16 { u64 x, y; };
template <int N> struct chunk;
template <> struct chunk<1> { typedef u8 t; };
template <> struct chunk<2> { typedef u16 t; };
template <> struct chunk<4> { typedef u32 t; };
template <> struct chunk<8> { typedef u64 t; };
template <> struct chunk<16> { typedef b16 t; };

template <int V, typename T> DEV void load_near(T *v, const T *p, const bool *on)
{
    if (V > 1 && on[V - 1]) {
        union { typename chunk<V * sizeof(T)>::t all; T one[V]; } u;
        u.all = *(const typename chunk<V * sizeof(T)>::t *)p;
        EACH v[l] = u.one[l];
    } else {
        EACH v[l] = on[l] ? p[l] : T();
    }
}

template <int V, typename T> DEV void store_near(T *p, const T *v, const bool *on)
{
    if (V > 1 && on[V - 1]) {
        union { typename chunk<V * sizeof(T)>::t all; T one[V]; } u;
        EACH u.one[l] = v[l];
        *(typename chunk<V * sizeof(T)>::t *)p = u.all;
    } else {
        EACH if (on[l]) p[l] = v[l];
    }
}

DEV i64 check_index(bool on, i64 at, i64 extent, i64 *fault, u32 id)
{
    if (at < 0) at += extent;
    if (0 <= at && at < extent) return at;
    if (on && atomicCAS((u64 *)fault, 0ull, (u64)id + 1) == 0) {
        fault[1] = at;
        fault[2] = extent;
    }
    return 0;
}

/* ---- integers ---- */

#define ONES(U, W) ((U)~(U)0 >> (sizeof(U) * 8 - W))
#define INT_OPS(t, U, W)                                                                           \
    DEV t add_##t(t x, t y) { return (t)((U)x + (U)y); }                                           \
    DEV t sub_##t(t x, t y) { return (t)((U)x - (U)y); }                                           \
    DEV t mul_##t(t x, t y) { return (t)((U)x * (U)y); }                                           \
    DEV t neg_##t(t x) { return (t)(0 - (U)x); }                                                   \
    DEV t not_##t(t x) { return (t)~(U)x; }                                                        \
    DEV t and_##t(t x, t y) { return x & y; }                                                      \
    DEV t or_##t(t x, t y) { return x | y; }                                                       \
    DEV t xor_##t(t x, t y) { return x ^ y; }                                                      \
    DEV t shl_##t(t x, t y) { return (t)((U)y < W ? (U)x << ((U)y & (W - 1)) : 0); }               \
    DEV t lshr_##t(t x, t y)                                                                       \
    {                                                                                              \
        return (t)((U)y < W ? ((U)x & ONES(U, W)) >> ((U)y & (W - 1)) : 0);                        \
    }
#define SIGNED_OPS(t, U, W)                                                                        \
    DEV t div_##t(t x, t y) { return y == 0 ? 0 : y == -1 ? (t)(0 - (U)x) : x / y; }               \
    DEV t rem_##t(t x, t y) { return y == 0 ? x : y == -1 ? 0 : x % y; }                           \
    DEV t abs_##t(t x) { return x < 0 ? (t)(0 - (U)x) : x; }                                       \
    DEV t shr_##t(t x, t y) { return x >> ((U)y < W ? (U)y & (W - 1) : W - 1); }
#define ORDER_OPS(t)                                                                               \
    DEV b8 eq_##t(t x, t y) { return x == y; }                                                     \
    DEV b8 ne_##t(t x, t y) { return x != y; }                                                     \
    DEV b8 lt_##t(t x, t y) { return x < y; }                                                      \
    DEV b8 le_##t(t x, t y) { return x <= y; }                                                     \
    DEV t min_##t(t x, t y) { return x < y || x != x ? x : y; }                                    \
    DEV t max_##t(t x, t y) { return x > y || x != x ? x : y; }

#define UNSIGNED_OPS(t)                                                                            \
    DEV t div_##t(t x, t y) { return y == 0 ? 0 : x / y; }                                         \
    DEV t rem_##t(t x, t y) { return y == 0 ? x : x % y; }                                         \
    DEV t abs_##t(t x) { return x; }                                                               \
    DEV t shr_##t(t x, t y) { return lshr_##t(x, y); }

/* embed.py replaces @lists@ by macros that apply a macro to each dtype of a kind in
 * ops/dtypes.def, with its type and its bits, and @casts@ by the casts between all of them. */
@lists@
#define WORD_8 u32
#define WORD_16 u32
#define WORD_32 u32
#define WORD_64 u64
#define EACH_INT(t, W)                                                                             \
    INT_OPS(t, WORD_##W, W)                                                                        \
    ORDER_OPS(t)
#define EACH_NATURAL(t, W) EACH_INT(t, W) UNSIGNED_OPS(t)
#define EACH_INTEGER(t, W) EACH_INT(t, W) SIGNED_OPS(t, WORD_##W, W)
#define EACH_REAL(t, W) ORDER_OPS(t)
ORDER_OPS(b8)
NATURALS(EACH_NATURAL)
INTEGERS(EACH_INTEGER)
REALS(EACH_REAL)
DEV b8 and_b8(b8 x, b8 y) { return x & y; }
DEV b8 or_b8(b8 x, b8 y) { return x | y; }
DEV b8 xor_b8(b8 x, b8 y) { return x ^ y; }
DEV b8 not_b8(b8 x) { return x == 0; }

/* ---- floats ---- */

DEV f32 add_f32(f32 x, f32 y) { return __fadd_rn(x, y); }
DEV f32 sub_f32(f32 x, f32 y) { return __fsub_rn(x, y); }
DEV f32 mul_f32(f32 x, f32 y) { return __fmul_rn(x, y); }
DEV f32 div_f32(f32 x, f32 y) { return __fdiv_rn(x, y); }
DEV f32 sqrt_f32(f32 x) { return __fsqrt_rn(x); }
DEV f32 fma_f32(f32 x, f32 y, f32 z) { return __fmaf_rn(x, y, z); }
DEV f32 scale_f32(f32 p, f32, f32 sum)
{
    const u32 bits = __float_as_uint(sum), half = bits >> 1;
    return __fmul_rn(__fmul_rn(p, f32_of(half << 23)), f32_of((bits - half) << 23));
}
DEV f32 rem_f32(f32 x, f32 y) { return fmodf(x, y); }
DEV f32 neg_f32(f32 x) { return f32_of(__float_as_uint(x) ^ 0x80000000u); }
DEV f32 abs_f32(f32 x) { return f32_of(__float_as_uint(x) & 0x7FFFFFFFu); }
DEV f32 floor_f32(f32 x) { return floorf(x); }
DEV f32 ceil_f32(f32 x) { return ceilf(x); }
DEV f32 trunc_f32(f32 x) { return truncf(x); }
DEV f32 rint_f32(f32 x) { return rintf(x); }
DEV f64 add_f64(f64 x, f64 y) { return __dadd_rn(x, y); }
DEV f64 sub_f64(f64 x, f64 y) { return __dsub_rn(x, y); }
DEV f64 mul_f64(f64 x, f64 y) { return __dmul_rn(x, y); }
DEV f64 div_f64(f64 x, f64 y) { return __ddiv_rn(x, y); }
DEV f64 sqrt_f64(f64 x) { return __dsqrt_rn(x); }
DEV f64 fma_f64(f64 x, f64 y, f64 z) { return __fma_rn(x, y, z); }
DEV f64 scale_f64(f64 p, f64, f64 sum)
{
    const u64 bits = (u64)__double_as_longlong(sum), half = bits >> 1;
    return __dmul_rn(__dmul_rn(p, f64_of(half << 52)), f64_of((bits - half) << 52));
}
DEV f64 rem_f64(f64 x, f64 y) { return fmod(x, y); }
DEV f64 neg_f64(f64 x) { return f64_of((u64)__double_as_longlong(x) ^ 0x8000000000000000ull); }
DEV f64 abs_f64(f64 x) { return f64_of((u64)__double_as_longlong(x) & 0x7FFFFFFFFFFFFFFFull); }
DEV f64 floor_f64(f64 x) { return floor(x); }
DEV f64 ceil_f64(f64 x) { return ceil(x); }
DEV f64 trunc_f64(f64 x) { return trunc(x); }
DEV f64 rint_f64(f64 x) { return rint(x); }

DEV f32 fast_add_f32(f32 x, f32 y) { return x + y; }
DEV f32 fast_sub_f32(f32 x, f32 y) { return x - y; }
DEV f32 fast_mul_f32(f32 x, f32 y) { return x * y; }
DEV f64 fast_add_f64(f64 x, f64 y) { return x + y; }
DEV f64 fast_sub_f64(f64 x, f64 y) { return x - y; }
DEV f64 fast_mul_f64(f64 x, f64 y) { return x * y; }

DEV i32 bitcast_f32_i32(f32 x) { return (i32)__float_as_uint(x); }
DEV f32 bitcast_i32_f32(i32 x) { return f32_of((u32)x); }
DEV i64 bitcast_f64_i64(f64 x) { return __double_as_longlong(x); }
DEV f64 bitcast_i64_f64(i64 x) { return f64_of((u64)x); }
DEV u32 bitcast_f32_u32(f32 x) { return __float_as_uint(x); }
DEV f32 bitcast_u32_f32(u32 x) { return f32_of(x); }
DEV u64 bitcast_f64_u64(f64 x) { return (u64)__double_as_longlong(x); }
DEV f64 bitcast_u64_f64(u64 x) { return f64_of(x); }
DEV f32 bitcast_f32_f32(f32 x) { return x; }
DEV f64 bitcast_f64_f64(f64 x) { return x; }

/* ---- conversions ---- */

/* hi: the first float beyond the range; lo: the least float of the range. Values outside
 * are replaced before the conversion, because it has no defined result for them. */
#define SATURATE(D, x, lo, hi, least, most)                                                        \
    ((x) >= (hi) ? (most) : (x) < (lo) ? (least) : (D)((x) >= (lo) && (x) < (hi) ? (x) : 0))
#define TOP(W) (1ull << ((W) - 1))
#define CAST_BOOL(S, D) DEV D cast_##S##_##D(S x) { return x != 0; }
#define CAST_VALUE(S, D) DEV D cast_##S##_##D(S x) { return (D)x; }
#define CAST_NATURAL(S, D, W)                                                                      \
    DEV D cast_##S##_##D(S x) { return SATURATE(D, x, 0, (S)2 * (S)TOP(W), 0, (D)~(D)0); }
#define CAST_INTEGER(S, D, W)                                                                      \
    DEV D cast_##S##_##D(S x)                                                                      \
    {                                                                                              \
        return SATURATE(D, x, -(S)TOP(W), (S)TOP(W), (D)TOP(W), (D)(TOP(W) - 1));                  \
    }
@casts@

DEV f32 cast_bf16_f32(bf16 h) { return f32_of((u32)h << 16); }
DEV bf16 bf16_of_bits(u32 x)
{
    const u32 rounded = (x + 0x7FFFu + (x >> 16 & 1)) >> 16;
    return (bf16)((x & 0x7FFFFFFFu) > 0x7F800000u ? x >> 16 | 0x40u : rounded);
}

#ifdef DF_SHIM
DEV f32 cast_f16_f32(f16 h)
{
    const u32 sign = (u32)(h & 0x8000u) << 16, rest = h & 0x7FFFu;
    const u32 e = rest >> 10, m = rest & 0x3FFu;
    if (e == 31) return f32_of(sign | 0x7F800000u | m << 13 | (m ? 0x400000u : 0));
    if (e > 0) return f32_of(sign | ((e + 112) << 23 | m << 13));
    return f32_of(sign | __float_as_uint(__fmul_rn((f32)m, f32_of(0x33800000u)))); /* m 2^-24 */
}
DEV f16 cast_f32_f16(f32 v)
{
    const u32 x = __float_as_uint(v), a = x & 0x7FFFFFFFu, sign = x >> 16 & 0x8000u;
    if (a > 0x7F800000u) return (f16)(sign | 0x7E00u);
    if (a >= 0x47800000u) return (f16)(sign | 0x7C00u);
    if (a >= 0x38800000u) return (f16)(sign | (a + 0xFFFu + (a >> 13 & 1) - 0x38000000u) >> 13);
    if (a < 0x33000000u) return (f16)sign;
    const u32 shift = 126 - (a >> 23), m = (a & 0x7FFFFFu) | 0x800000u;
    return (f16)(sign | (m + (1u << (shift - 1)) - 1 + (m >> shift & 1)) >> shift);
}
DEV bf16 cast_f32_bf16(f32 v) { return bf16_of_bits(__float_as_uint(v)); }
#else
/* cvt gives a NaN without its sign, which signbit promises. */
DEV f32 cast_f16_f32(f16 h)
{
    f32 v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return f32_of((__float_as_uint(v) & 0x7FFFFFFFu) | (u32)(h & 0x8000u) << 16);
}
DEV f16 cast_f32_f16(f32 v)
{
    f16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
#if __CUDA_ARCH__ >= 800
DEV bf16 cast_f32_bf16(f32 v)
{
    bf16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
#else
DEV bf16 cast_f32_bf16(f32 v) { return bf16_of_bits(__float_as_uint(v)); }
#endif
#endif

/* ---- structs of reductions ---- */

/* t: an accumulator. of(): the accumulator of an element at a position. join(): joins an
 * older and a newer accumulator. value() and empty(): the result, and the result of no
 * elements. slots: words of `partial` per accumulator, a plane apart. */
#define REDUCTION(name, T, joined, start, nothing)                                                 \
    struct name {                                                                                  \
        typedef T t;                                                                               \
        typedef T result;                                                                          \
        DEV T identity() { return start; }                                                         \
        DEV T empty() { return nothing; }                                                          \
        DEV T of(T v, i64) { return v; }                                                           \
        DEV T join(T x, T y) { return joined(x, y); }                                              \
        DEV T value(T x) { return x; }                                                             \
        DEV void put(u64 *p, i64, T x) { *p = to_word<T>(x); }                                     \
        DEV T get(const u64 *p, i64) { return of_word<T>(*p); }                                    \
    };
#define SUMS(T, zero) REDUCTION(sum_##T, T, add_##T, zero, 0)
#define REDUCTIONS(T, one, least, most)                                                            \
    REDUCTION(prod_##T, T, mul_##T, one, one)                                                      \
    EXTREMES(T, least, most)
#define EXTREMES(T, least, most)                                                                   \
    REDUCTION(rmin_##T, T, min_##T, most, most)                                                    \
    REDUCTION(rmax_##T, T, max_##T, least, least)

#define NATURAL_REDUCTIONS(t, W) SUMS(t, 0) REDUCTIONS(t, 1, 0, (t)~(t)0)
#define INTEGER_REDUCTIONS(t, W) SUMS(t, 0) REDUCTIONS(t, 1, (t)TOP(W), (t)(TOP(W) - 1))
NATURALS(NATURAL_REDUCTIONS)
INTEGERS(INTEGER_REDUCTIONS)
SUMS(f32, -0.0f)
SUMS(f64, -0.0)
REDUCTION(fast_sum_f32, f32, fast_add_f32, -0.0f, 0)
REDUCTION(fast_sum_f64, f64, fast_add_f64, -0.0, 0)
REDUCTION(fast_prod_f32, f32, fast_mul_f32, 1, 1)
REDUCTION(fast_prod_f64, f64, fast_mul_f64, 1, 1)
EXTREMES(b8, 0, 1)
REDUCTIONS(f32, 1, f32_of(0xFF800000u), f32_of(0x7F800000u))
REDUCTIONS(f64, 1, f64_of(0xFFF0000000000000ull), f64_of(0x7FF0000000000000ull))
REDUCTION(any_b8, b8, or_b8, 0, 0)
REDUCTION(all_b8, b8, and_b8, 1, 1)

/* A value and its position; -1: none so far. */
template <typename T> struct placed {
    T v;
    i64 at;
};
template <typename T> DEV bool is_before_min(T x, T y) { return x < y || (x != x && y == y); }
template <typename T> DEV bool is_before_max(T x, T y) { return x > y || (x != x && y == y); }

/* The order of joining does not matter, because of equal values the first in position is
 * kept. */
#define ARG(name, before)                                                                          \
    template <typename T> struct name {                                                            \
        typedef placed<T> t;                                                                       \
        typedef i64 result;                                                                        \
        DEV t identity() { const t x = { T(), -1 }; return x; }                                    \
        DEV i64 empty() { return 0; }                                                              \
        DEV t of(T v, i64 at) { const t x = { v, at }; return x; }                                 \
        DEV t join(t x, t y)                                                                       \
        {                                                                                          \
            if (x.at < 0 || y.at < 0) return x.at < 0 ? y : x;                                     \
            if (before(x.v, y.v)) return x;                                                        \
            if (before(y.v, x.v)) return y;                                                        \
            return x.at <= y.at ? x : y;                                                           \
        }                                                                                          \
        DEV i64 value(t x) { return x.at; }                                                        \
        DEV void put(u64 *p, i64 plane, t x) { *p = to_word<T>(x.v); p[plane] = (u64)x.at; }       \
        DEV t get(const u64 *p, i64 plane)                                                         \
        {                                                                                          \
            const t x = { of_word<T>(*p), (i64)p[plane] };                                         \
            return x;                                                                              \
        }                                                                                          \
    };
ARG(argmin, is_before_min)
ARG(argmax, is_before_max)

/* ---- threads that reduce together ---- */

/* All lanes of a warp must call these functions. */
template <typename T> DEV T shuffle_down(T v, u32 by)
{
    union { T v; u32 w[(sizeof(T) + 3) / 4]; } u;
    for (u32 i = 0; i < sizeof u.w / 4; i++) u.w[i] = 0;
    u.v = v;
    _Pragma("unroll") for (u32 i = 0; i < sizeof u.w / 4; i++)
        u.w[i] = __shfl_down_sync(ALL_LANES, u.w[i], by);
    return u.v;
}
template <typename T> DEV T shuffle_from(T v, u32 lane)
{
    union { T v; u32 w[(sizeof(T) + 3) / 4]; } u;
    for (u32 i = 0; i < sizeof u.w / 4; i++) u.w[i] = 0;
    u.v = v;
    _Pragma("unroll") for (u32 i = 0; i < sizeof u.w / 4; i++)
        u.w[i] = __shfl_sync(ALL_LANES, u.w[i], lane);
    return u.v;
}

/* Folds 64 accumulators, of which lane t holds 2t and 2t + 1, to the result of the block.
 * The result is in lane 0. */
template <typename O> DEV typename O::t fold_warp(typename O::t a, typename O::t b)
{
    _Pragma("unroll") for (u32 by = 16; by >= 1; by /= 2) {
        a = O::join(a, shuffle_down(a, by));
        b = O::join(b, shuffle_down(b, by));
    }
    return O::join(a, b);
}

/* For 64 accumulators of one thread: set_all() sets them to the identity. fold_alone()
 * folds them to the result of the block, and sets them to the identity again. */
template <typename O> DEV void set_all(typename O::t *all)
{
    for (u32 i = 0; i < 64; i++) all[i] = O::identity();
}
template <typename O> DEV typename O::t fold_alone(typename O::t *all)
{
    for (u32 h = 32; h >= 1; h /= 2)
        for (u32 i = 0; i < h; i++) all[i] = O::join(all[i], all[i + h]);
    const typename O::t x = all[0];
    set_all<O>(all);
    return x;
}

/* Pushes the result of block b on a stack whose entries are `by` apart. The stack has as
 * many entries as b has bits set, so its depth need not be stored. */
template <typename O> DEV void push(typename O::t *stack, u32 by, i64 b, typename O::t x)
{
    u32 depth = (u32)__popcll((u64)b);
    for (u64 n = (u64)b; n & 1; n >>= 1) x = O::join(stack[--depth * by], x);
    stack[depth * by] = x;
}
/* The result of n blocks on a stack. */
template <typename O> DEV typename O::result finish(const typename O::t *stack, u32 by, i64 n)
{
    if (n == 0) return O::empty();
    u32 depth = (u32)__popcll((u64)n) - 1;
    typename O::t x = stack[depth * by];
    while (depth > 0) x = O::join(stack[--depth * by], x);
    return O::value(x);
}

/* Joins n blocks in `partial`, whose entries are `by` words apart, to their result, in
 * place. Neighbours are joined, then those results, and an odd one is kept as it is. This
 * gives the shape of the binary counter. */
template <typename O> DEV typename O::result join_column(u64 *p, i64 n, i64 by, i64 plane)
{
    if (n == 0) return O::empty();
    for (; n > 1; n = (n + 1) / 2)
        for (i64 k = 0; 2 * k < n; k++) {
            typename O::t x = O::get(p + 2 * k * by, plane);
            if (2 * k + 1 < n) x = O::join(x, O::get(p + (2 * k + 1) * by, plane));
            O::put(p + k * by, plane, x);
        }
    return O::value(O::get(p, plane));
}
/* The same for entries `at` to at + N - 1, by one thread, whose loads are in flight together. N: a
 * power of two that divides `at`. */
template <typename O, int N> DEV typename O::t join_near(const u64 *p, i64 at, i64 n, i64 plane)
{
    typename O::t x[N];
    _Pragma("unroll") for (int k = 0; k < N; k++)
        x[k] = at + k < n ? O::get(p + at + k, plane) : O::identity();
    _Pragma("unroll") for (int h = 1; h < N; h *= 2)
        _Pragma("unroll") for (int k = 0; k < N; k += 2 * h)
            if (at + k + h < n) x[k] = O::join(x[k], x[k + h]);
    return x[0];
}
/* The same by all threads of a thread block, for contiguous entries. A warp makes one entry of 512,
 * and a round reads no entry that it, or one before it, has written. */
template <typename O> DEV typename O::result join_row(u64 *p, i64 n, i64 plane)
{
    enum { MINE = 16, OURS = 32 * MINE };
    const u32 lane = threadIdx.x & 31, warps = blockDim.x / 32;
    if (n == 0) return O::empty();
    while (n > 1) {
        const i64 n_out = (n + OURS - 1) / OURS;
        for (i64 k0 = 0; k0 < n_out; k0 += warps) {
            const i64 k = k0 + threadIdx.x / 32, at = k * OURS + lane * MINE;
            typename O::t x = join_near<O, MINE>(p, at, n, plane);
            _Pragma("unroll") for (u32 by = 1; by < 32; by *= 2) {
                const typename O::t y = shuffle_down(x, by);
                if (lane % (2 * by) == 0 && at + by * MINE < n) x = O::join(x, y);
            }
            __syncthreads();
            if (lane == 0 && at < n) O::put(p + k, plane, x);
            __syncthreads();
        }
        n = n_out;
    }
    return O::value(O::get(p, plane));
}

/* Running values of n elements, of which lane t holds 2t and 2t + 1, behind `run`. first:
 * there is nothing before them. */
template <typename O>
DEV void scan_warp(typename O::t *out, const typename O::t *v, typename O::t &run, bool first, u32 n)
{
    const u32 lane = threadIdx.x & 31;
    for (u32 t = 0; 2 * t < n; t++) {
        const typename O::t a = shuffle_from(v[0], t), b = shuffle_from(v[1], t);
        run = first && t == 0 ? a : O::join(run, a);
        if (lane == t) out[0] = run;
        if (2 * t + 1 < n) run = O::join(run, b);
        if (lane == t) out[1] = run;
    }
}

/* L: the thread block works on a row together, not each warp on its own. */
template <bool L> DEV void sync_team()
{
    if (L)
        __syncthreads();
    else
        __syncwarp();
}

/* What a launch has asked for, for rows that stay in shared memory. */
#ifndef DF_SHIM
extern __shared__ __align__(16) unsigned char held_rows[];
#endif

/* Begins to copy two neighbours to shared memory, or one of them. They are aligned as a pair. */
template <typename T> DEV void copy_ahead(T *to, const T *from, bool both)
{
#if !defined(DF_SHIM) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "n"(2 * sizeof(T)),
                    "r"((u32)sizeof(T) * (both ? 2u : 1u))
                 : "memory");
#else
    to[0] = from[0];
    if (both) to[1] = from[1];
#endif
}
/* The thread's own copies are there afterwards; those of others after a barrier. */
DEV void wait_for_copies()
{
#if !defined(DF_SHIM) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
