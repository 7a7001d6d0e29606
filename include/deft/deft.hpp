/* SPDX-License-Identifier: Apache-2.0
 *
 * The C++17 interface: the C interface with operators, owners that clean up at the end of a
 * block, and numbers as operands. It is header only and throws nothing.
 *
 *   deft::context cx;
 *   if (!cx) return 1;
 *   deft::tensor x = deft_ones(cx, deft::shape({2, 3}), DEFT_F32);
 *   deft::tensor y = 1 - deft::exp(x.slice({0, {1, -1}})) * 0.5;
 *   float worst;
 *   if (deft_item(deft_max(y, DEFT_ALL_AXES, 0), &worst) != DEFT_OK) puts(cx.message());
 *
 * The header has two halves. The first gives C++ what tensor.h and ops.h give C through
 * macros and _Generic. The names are the same, so that a C program compiles as C++ too. The
 * second half is namespace deft. Its types convert to those of C, so that every C function
 * takes them.
 *
 * The rules of context.h hold for everything here:
 *   - A tensor is a handle that the innermost open scope owns.
 *   - A recording call that fails returns a tensor that is false.
 *   - A context and its tensors belong to one thread at a time.
 * A function that only calls a C function of the same name has the contract of that
 * function. Owners are neither copied nor moved, unless their comment says so.
 */
#ifndef DEFT_DEFT_HPP
#define DEFT_DEFT_HPP

#include "deft/deft.h"

#include <array>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>

/* ---- what C has as macros ---- */

namespace deft {
namespace detail {

/** Enables a template for numbers, and for enumerators, which C takes as numbers. */
template <class T>
using if_number = std::enable_if_t<
    std::is_arithmetic_v<T> || (std::is_enum_v<T> && std::is_convertible_v<T, int64_t>), int>;

/** Enables a template for integers and bools. */
template <class T>
using if_integer = std::enable_if_t<std::is_integral_v<T>, int>;

/** Whether T is an unsigned integer type whose numbers int64_t may not hold. */
template <class T>
inline constexpr bool is_large = std::is_unsigned_v<T> && sizeof(T) == sizeof(uint64_t);

/** DEFT_SHAPE, DEFT_AXES and DEFT_ALL_AXES of tensor.h. */
template <class... I>
inline deft_shape shape_of(I... extent)
{
    const int64_t dim[sizeof...(I) + 1] = {0, static_cast<int64_t>(extent)...};
    return deft_shape_of(sizeof...(I), dim + 1);
}

template <class... I>
inline deft_axes axes_of(I... axis)
{
    const int at[sizeof...(I) + 1] = {0, static_cast<int>(axis)...};
    return deft_axes_of(sizeof...(I), at + 1);
}

inline deft_axes all_axes()
{
    deft_axes a = {};
    a.n = UINT32_MAX;
    return a;
}

} // namespace detail
} // namespace deft

/** Shapes and axes as the macros of C make them (tensor.h). */
#define DEFT_SHAPE(...) ::deft::detail::shape_of(__VA_ARGS__)
#define DEFT_AXES(...) ::deft::detail::axes_of(__VA_ARGS__)
#define DEFT_ALL_AXES ::deft::detail::all_axes()

/** deft_slice_n with one range for each of the first axes, as the macro of C takes them. More
 * than DEFT_MAX_RANK ranges are a mistake. */
template <class... R>
inline deft_tensor *deft_slice(deft_tensor *t, R... range)
{
    static_assert((std::is_convertible_v<R, deft_range> && ...),
                  "deft_slice takes ranges, not numbers: DEFT_R(a, b) for elements a to b - 1, "
                  "DEFT_AT(i) for one, DEFT_FULL for all");
    const deft_range ranges[sizeof...(R) + 1] = {static_cast<deft_range>(range)..., deft_range()};
    return deft_slice_n(t, sizeof...(R), ranges);
}

/** deft_full, deft_pad, deft_clamp and deft_arange with integers call the _i functions, and
 * deft_full calls deft_full_u for unsigned integers of 64 bits. */
template <class N, ::deft::detail::if_integer<N> = 0>
inline deft_tensor *deft_full(deft_ctx *cx, deft_shape shape, deft_dtype dtype, N value)
{
    if constexpr (::deft::detail::is_large<N>)
        return deft_full_u(cx, shape, dtype, value);
    else
        return deft_full_i(cx, shape, dtype, static_cast<int64_t>(value));
}

/** deft_full_like_i or deft_full_like_u, for an integer. */
template <class N, ::deft::detail::if_integer<N> = 0>
inline deft_tensor *deft_full_like(deft_tensor *t, N value)
{
    if constexpr (::deft::detail::is_large<N>)
        return deft_full_like_u(t, value);
    else
        return deft_full_like_i(t, static_cast<int64_t>(value));
}

/** deft_pad_i or deft_pad_u, for an integer. */
template <class N, ::deft::detail::if_integer<N> = 0>
inline deft_tensor *deft_pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                             deft_pad_mode mode, N value)
{
    if constexpr (::deft::detail::is_large<N>)
        return deft_pad_u(t, before, after, mode, value);
    else
        return deft_pad_i(t, before, after, mode, static_cast<int64_t>(value));
}

/** deft_clamp_i for integers, or deft_clamp_u when both are unsigned and have 64 bits. */
template <class A, class B, ::deft::detail::if_integer<A> = 0, ::deft::detail::if_integer<B> = 0>
inline deft_tensor *deft_clamp(deft_tensor *t, A low, B high)
{
    if constexpr (::deft::detail::is_large<A> && ::deft::detail::is_large<B>)
        return deft_clamp_u(t, low, high);
    else
        return deft_clamp_i(t, static_cast<int64_t>(low), static_cast<int64_t>(high));
}

/** deft_arange_i for integers, or deft_arange_u when start and stop are unsigned and have 64 bits. */
template <class A, class B, class C, ::deft::detail::if_integer<A> = 0,
          ::deft::detail::if_integer<B> = 0, ::deft::detail::if_integer<C> = 0>
inline deft_tensor *deft_arange(deft_ctx *cx, A start, B stop, C step, deft_dtype dtype)
{
    if constexpr (::deft::detail::is_large<A> && ::deft::detail::is_large<B>)
        return deft_arange_u(cx, start, stop, static_cast<int64_t>(step), dtype);
    else
        return deft_arange_i(cx, static_cast<int64_t>(start), static_cast<int64_t>(stop),
                             static_cast<int64_t>(step), dtype);
}

/** Binary operators, deft_assign and deft_lerp with a number: deft_add(x, 0.5) calls
 * deft_add_f, and deft_add(i, 1) calls deft_add_i. */
#define DEFT_HPP_NUMBER(name)                                                                      \
    template <class N, ::deft::detail::if_number<N> = 0>                                           \
    inline deft_tensor *deft_##name(deft_tensor *a, N b)                                           \
    {                                                                                              \
        if constexpr (std::is_floating_point_v<N>)                                                 \
            return deft_##name##_f(a, static_cast<double>(b));                                     \
        else if constexpr (::deft::detail::is_large<N>)                                            \
            return deft_##name##_u(a, b);                                                          \
        else                                                                                       \
            return deft_##name##_i(a, static_cast<int64_t>(b));                                    \
    }
DEFT_BINARY_OPS(DEFT_HPP_NUMBER)
DEFT_HPP_NUMBER(assign)
#undef DEFT_HPP_NUMBER

/** deft_lerp_f, deft_lerp_i or deft_lerp_u, by the type of weight. */
template <class N, ::deft::detail::if_number<N> = 0>
inline deft_tensor *deft_lerp(deft_tensor *a, deft_tensor *b, N weight)
{
    if constexpr (std::is_floating_point_v<N>)
        return deft_lerp_f(a, b, static_cast<double>(weight));
    else if constexpr (::deft::detail::is_large<N>)
        return deft_lerp_u(a, b, weight);
    else
        return deft_lerp_i(a, b, static_cast<int64_t>(weight));
}

/** deft_item chooses the function of eval.h by the type that out points to. */
#define DEFT_HPP_ITEM(type, suffix)                                                                \
    DEFT_MUST_CHECK inline deft_status deft_item(deft_tensor *t, type *out)                        \
    {                                                                                              \
        return deft_item_##suffix(t, out);                                                         \
    }
DEFT_HPP_ITEM(float, f32)
DEFT_HPP_ITEM(double, f64)
DEFT_HPP_ITEM(int8_t, i8)
DEFT_HPP_ITEM(int16_t, i16)
DEFT_HPP_ITEM(int32_t, i32)
DEFT_HPP_ITEM(int64_t, i64)
DEFT_HPP_ITEM(uint8_t, u8)
DEFT_HPP_ITEM(uint16_t, u16)
DEFT_HPP_ITEM(uint32_t, u32)
DEFT_HPP_ITEM(uint64_t, u64)
DEFT_HPP_ITEM(bool, bool)
#undef DEFT_HPP_ITEM

namespace deft {

/* ---- options ---- */

/** Options of a C function, with their size set and all other members 0. The program sets the
 * members that it needs: auto o = options<deft_conv2d_options>(). */
template <class T>
inline T options()
{
    T o = {};
    o.size = sizeof o;
    return o;
}

/* ---- shapes, axes, ranges ---- */

/** A shape from its extents. */
inline deft_shape shape(std::initializer_list<int64_t> dim)
{
    return deft_shape_of(dim.size(), dim.begin());
}

/** Axes from a list. */
inline deft_axes axes(std::initializer_list<int> at)
{
    return deft_axes_of(at.size(), at.begin());
}

/** All axes. */
inline deft_axes all_axes()
{
    return detail::all_axes();
}

/** One axis of tensor::slice:
 *
 *     {}            the whole axis
 *     i             one element; the axis disappears
 *     {a, b}        the elements a to b - 1
 *     {a, b, step}  every step-th of them */
struct range {
    /** The range of the C API. */
    deft_range c;
    range() : c(deft_range_of(0, DEFT_END, 1)) {}
    /** One element; the axis disappears. */
    range(int64_t at) : c(deft_range_of(at, at, 0)) {}
    /** The elements start, start + step, ... before stop. */
    range(int64_t start, int64_t stop, int64_t step = 1) : c(deft_range_of(start, stop, step)) {}
    /** The same range as in the C API. */
    range(deft_range r) : c(r) {}
};

/* ---- the handle ---- */

/** A deft_tensor * with operators. It may be copied, and owns nothing. A null tensor is false. */
class tensor {
public:
    tensor() = default;
    /** A handle of the C API. NULL stands for a mistake. */
    tensor(deft_tensor *t) : t_(t) {}

    /** The handle of C. */
    deft_tensor *get() const { return t_; }
    /** The handle of the C API. */
    operator deft_tensor *() const { return t_; }
    /** Whether this is a tensor, and not the result of a mistake. */
    explicit operator bool() const { return t_ != nullptr; }

    /* What the tensor is. These calls compute nothing and never fail. tensor.h says what they
     * return for a null tensor. */
    /** Calls deft_ctx_of. */
    deft_ctx *ctx() const { return deft_ctx_of(t_); }
    /** Calls deft_dtype_of. */
    deft_dtype dtype() const { return deft_dtype_of(t_); }
    /** Calls deft_shape_get. */
    deft_shape shape() const { return deft_shape_get(t_); }
    /** Calls deft_rank. */
    uint32_t rank() const { return deft_rank(t_); }
    /** Calls deft_dim. */
    int64_t dim(int axis) const { return deft_dim(t_, axis); }
    /** Calls deft_numel. */
    int64_t numel() const { return deft_numel(t_); }

    /** deft_assign: gives the tensor another value, or writes the elements that a view shows.
     * The operator = only copies the handle. */
    tensor assign(tensor value) const { return deft_assign(t_, value.t_); }
    /** Assigns a number to all elements: deft_assign. */
    template <class N, detail::if_number<N> = 0>
    tensor assign(N value) const
    {
        return deft_assign(t_, value);
    }

    /** The elements of the ranges, one for each of the first axes: a view. */
    tensor slice(std::initializer_list<range> ranges) const
    {
        deft_range r[DEFT_MAX_RANK + 1];
        size_t n = 0;
        for (const range &one : ranges)
            if (n <= DEFT_MAX_RANK) r[n++] = one.c; /* deft_slice_n refuses one too many */
        return deft_slice_n(t_, n, r);
    }
    /** The same elements with other extents. */
    tensor reshape(std::initializer_list<int64_t> dim) const
    {
        return deft_reshape(t_, ::deft::shape(dim));
    }
    /** The elements in another dtype. */
    tensor cast(deft_dtype to) const { return deft_cast(t_, to); }
    /** Makes the tensor outlive its scope, until deft_drop is called for it (deft_keep). The class
     * `kept` below keeps and drops by itself: do not pass it the result of keep(). */
    tensor keep() const { return deft_keep(t_); }
    /** A new tensor with the value on that device. A pending value is computed first. */
    tensor on(deft_device where) const { return deft_to(t_, where); }
    /** Writes to *out the device on which the value lives. */
    DEFT_MUST_CHECK deft_status device(deft_device *out) const { return deft_device_of(t_, out); }

    /** Computes the tensor and copies its elements to dst, converted to dtype `as`. bytes is
     * exactly their size in that dtype. */
    DEFT_MUST_CHECK deft_status read(deft_dtype as, void *dst, size_t bytes) const
    {
        return deft_read(t_, as, dst, bytes);
    }
    /** Computes a tensor of one element and converts the element to *out. */
    template <class T>
    DEFT_MUST_CHECK deft_status item(T *out) const
    {
        return deft_item(t_, out);
    }

private:
    deft_tensor *t_ = nullptr;
};

namespace detail {

/** A number as left operand: a bare number (deft_num) in the context of `like`. */
template <class N>
inline deft_tensor *left(N value, tensor like)
{
    if constexpr (std::is_floating_point_v<N>)
        return deft_num(like.ctx(), static_cast<double>(value));
    else if constexpr (is_large<N>)
        return deft_num_u(like.ctx(), value);
    else
        return deft_num_i(like.ctx(), static_cast<int64_t>(value));
}

} // namespace detail

/* ---- operators by name: deft::exp(x), deft::maximum(x, 0) ---- */

/** Each operator of ops.h is a function of the same name without "deft_". */
#define DEFT_HPP_UNARY(name)                                                                       \
    inline tensor name(tensor x)                                                                   \
    {                                                                                              \
        return deft_##name(x.get());                                                               \
    }
DEFT_UNARY_OPS(DEFT_HPP_UNARY)
#undef DEFT_HPP_UNARY

/** The real parts (deft_real). */
inline tensor real(tensor x)
{
    return deft_real(x.get());
}
/** The imaginary parts (deft_imag). */
inline tensor imag(tensor x)
{
    return deft_imag(x.get());
}
/** The conjugates (deft_conj). */
inline tensor conj(tensor x)
{
    return deft_conj(x.get());
}
/** The angles, in radians (deft_angle). */
inline tensor angle(tensor x)
{
    return deft_angle(x.get());
}

/** Operators with two tensors, or a tensor and a number in either order. Comparisons return
 * tensors of bools. So if (a == b) compiles, but asks only whether the call succeeded. */
#define DEFT_HPP_BINARY(name, as)                                                                  \
    inline tensor as(tensor a, tensor b)                                                           \
    {                                                                                              \
        return deft_##name(a.get(), b.get());                                                      \
    }                                                                                              \
    template <class N, detail::if_number<N> = 0>                                                   \
    inline tensor as(tensor a, N b)                                                                \
    {                                                                                              \
        return deft_##name(a.get(), b);                                                            \
    }                                                                                              \
    template <class N, detail::if_number<N> = 0>                                                   \
    inline tensor as(N a, tensor b)                                                                \
    {                                                                                              \
        return deft_##name(detail::left(a, b), b.get());                                           \
    }
#define DEFT_HPP_NAMED(name) DEFT_HPP_BINARY(name, name)
DEFT_BINARY_OPS(DEFT_HPP_NAMED)
DEFT_HPP_BINARY(add, operator+)
DEFT_HPP_BINARY(sub, operator-)
DEFT_HPP_BINARY(mul, operator*)
DEFT_HPP_BINARY(div, operator/)
DEFT_HPP_BINARY(remainder, operator%)
DEFT_HPP_BINARY(eq, operator==)
DEFT_HPP_BINARY(ne, operator!=)
DEFT_HPP_BINARY(lt, operator<)
DEFT_HPP_BINARY(le, operator<=)
DEFT_HPP_BINARY(gt, operator>)
DEFT_HPP_BINARY(ge, operator>=)
DEFT_HPP_BINARY(bitwise_and, operator&)
DEFT_HPP_BINARY(bitwise_or, operator|)
DEFT_HPP_BINARY(bitwise_xor, operator^)
#undef DEFT_HPP_NAMED
#undef DEFT_HPP_BINARY

/** Calls deft_neg. */
inline tensor operator-(tensor x)
{
    return deft_neg(x.get());
}

/** Calls deft_bitwise_not. */
inline tensor operator~(tensor x)
{
    return deft_bitwise_not(x.get());
}

/* ---- sizes known only by computing ---- */

/** What nonzero, compress and unique find: auto [rows, count] = deft::nonzero(x, 100). The first
 * member has max rows. The second is the number of rows that were found, as an i64 of shape []. It
 * may be larger than max; when it is smaller, further rows hold 0. Both are false after a
 * mistake. */
struct found {
    tensor rows;  /**< The rows that were found. Rows after these hold 0. */
    tensor count; /**< The number of rows that were found. */
};

/** Calls deft_nonzero (tensor.h). */
inline found nonzero(tensor x, int64_t max)
{
    deft_tensor *n = nullptr;
    const tensor t = deft_nonzero(x.get(), max, &n);
    return {t, n};
}

/** Calls deft_compress (tensor.h). */
inline found compress(tensor x, tensor mask, int64_t max)
{
    deft_tensor *n = nullptr;
    const tensor t = deft_compress(x.get(), mask.get(), max, &n);
    return {t, n};
}

/** Calls deft_unique (tensor.h). */
inline found unique(tensor x, int64_t max)
{
    deft_tensor *n = nullptr;
    const tensor t = deft_unique(x.get(), max, &n);
    return {t, n};
}

/** What unique_all finds. All members are false after a mistake. */
struct distinct {
    tensor values;  /**< The distinct values, in ascending order. */
    tensor indices; /**< Where each value occurs first. */
    tensor inverse; /**< The index of the value of each element. */
    tensor counts;  /**< How often each value occurs. */
    tensor count;   /**< The number of values. */
};

/** Calls deft_unique_all (array.h). */
inline distinct unique_all(tensor x, int64_t max)
{
    deft_tensor *part[4] = {};
    const tensor t = deft_unique_all(x.get(), max, &part[0], &part[1], &part[2], &part[3]);
    return {t, part[0], part[1], part[2], part[3]};
}

/* ---- the first elements of an order ---- */

/** What topk finds: auto [values, indices] = deft::topk(x, 5). Both are false after a mistake. */
struct top {
    tensor values;  /**< The elements, in order. */
    tensor indices; /**< Their indices along the axis, as i64. */
};

/** Calls deft_topk (tensor.h). */
inline top topk(tensor x, int64_t k, int axis = -1, bool largest = true)
{
    deft_tensor *at = nullptr;
    const tensor t = deft_topk(x.get(), k, axis, largest, &at);
    return {t, at};
}

/* ---- gradients ---- */

/** The gradient of a loss of one element with respect to a tensor; false after a mistake. */
inline tensor grad(tensor loss, tensor with)
{
    deft_tensor *const of = loss.get(), *const to = with.get();
    deft_tensor *g = nullptr;
    deft_grad(&of, nullptr, 1, &to, 1, nullptr, &g);
    return g;
}

/** The gradients of a loss with respect to several tensors: auto [gw, gb] = grad(loss, {w, b}).
 * All are false after a mistake. */
template <size_t N>
inline std::array<tensor, N> grad(tensor loss, const tensor (&with)[N])
{
    deft_tensor *const of = loss.get();
    deft_tensor *to[N], *g[N] = {};
    std::array<tensor, N> out;
    for (size_t i = 0; i < N; i++) to[i] = with[i].get();
    deft_grad(&of, nullptr, 1, to, N, nullptr, g);
    for (size_t i = 0; i < N; i++) out[i] = g[i];
    return out;
}

/** The same value, through which no gradient passes. */
inline tensor stop_gradient(tensor t)
{
    return deft_stop_gradient(t.get());
}

/* ---- many examples ---- */

namespace detail {

template <class F, size_t... I>
inline tensor for_one(F &fn, deft_tensor *const *in, std::index_sequence<I...>)
{
    return fn(tensor(in[I])...);
}

template <class F, size_t N>
inline deft_status vmap_body(deft_ctx *, deft_tensor *const *in, size_t, deft_tensor **out, size_t,
                             void *user) noexcept
{
    out[0] = for_one(*static_cast<F *>(user), in, std::make_index_sequence<N>{}).get();
    return DEFT_OK;
}

} // namespace detail

/** Applies fn to each example, along the first axis of each tensor (deft_vmap). A tensor that
 * fn captures is the same for all examples:
 *
 *     auto g = vmap([&](tensor x, tensor y) { return grad(loss(w, x, y), w); }, xs, ys);
 *
 * fn is called once, while its operations are recorded. The result has the examples along its
 * first axis, and is false after a mistake. When `first` is false, nothing is recorded. fn
 * must not throw. */
template <class F, class... T>
inline tensor vmap(F fn, tensor first, T... rest)
{
    constexpr size_t n = 1 + sizeof...(T);
    deft_tensor *const in[n] = {first.get(), tensor(rest).get()...};
    deft_tensor *out = nullptr;
    deft_ctx *const cx = first ? deft_ctx_of(first.get()) : nullptr;
    if (cx) deft_vmap(cx, detail::vmap_body<F, n>, &fn, in, nullptr, n, &out, nullptr, 1);
    return out;
}

/* ---- owners ---- */

namespace detail {

/** The base of owners that are neither copied nor moved. */
class pinned {
public:
    pinned(const pinned &) = delete;
    pinned &operator=(const pinned &) = delete;

protected:
    pinned() = default;
    ~pinned() = default;
};

} // namespace detail

/** Owns a reference to a runtime. Most programs need none, because a context makes its own. It
 * is false when the runtime could not be made; status() then has the reason. */
class runtime : detail::pinned {
public:
    /** Calls deft_runtime_create. status() has its result. */
    explicit runtime(const deft_runtime_options *options = nullptr)
        : status_(deft_runtime_create(options, &rt_))
    {
    }
    ~runtime() { deft_runtime_destroy(&rt_); }
    /** Whether there is a runtime. */
    explicit operator bool() const { return rt_ != nullptr; }
    /** The handle of the C API, still owned by this object. */
    operator deft_runtime *() const { return rt_; }
    /** The result of deft_runtime_create. */
    deft_status status() const { return status_; }

private:
    deft_runtime *rt_ = nullptr;
    deft_status status_;
};

/** Owns a context, and destroys it at the end of the block. It is false when the context could
 * not be made; status() then has the reason. It must outlive its steps, scopes, networks and
 * tensors. */
class context : detail::pinned {
public:
    /** Calls deft_ctx_create. status() has its result. */
    explicit context(deft_runtime *rt = nullptr, const deft_ctx_options *options = nullptr)
        : status_(deft_ctx_create(rt, options, &cx_))
    {
    }
    ~context() { deft_ctx_destroy(&cx_); }
    /** Whether there is a context. */
    explicit operator bool() const { return cx_ != nullptr; }
    /** The handle of the C API, still owned by this object. */
    operator deft_ctx *() const { return cx_; }
    /** The result of deft_ctx_create. */
    deft_status status() const { return status_; }
    /* ---- functions of context.h and device.h, for this context ---- */

    /** Calls deft_message. */
    const char *message() const { return deft_message(cx_); }
    /** Calls deft_clear. */
    void clear() const { deft_clear(cx_); }
    /** Calls deft_wait. */
    DEFT_MUST_CHECK deft_status wait() const { return deft_wait(cx_); }
    /** Calls deft_stream. */
    void *stream(deft_device where) const { return deft_stream(cx_, where); }
    /** Calls deft_device_work. */
    DEFT_MUST_CHECK deft_status work(const deft_work &w, deft_tensor *const *in, size_t n_in,
                                     const deft_work_result *results, deft_tensor **out,
                                     size_t n_out) const
    {
        return deft_device_work(cx_, &w, in, n_in, results, out, n_out);
    }
    /** Calls deft_replay_read. */
    DEFT_MUST_CHECK deft_status replay_read(deft_device where, deft_replay_stats &out) const
    {
        return deft_replay_read(cx_, where, &out, sizeof out);
    }
    /** Calls deft_explain. */
    size_t explain(char *buf, size_t n) const { return deft_explain(cx_, buf, n); }
    /** Calls deft_store_next. */
    DEFT_MUST_CHECK deft_status store_next(const char *path) const
    {
        return deft_store_next(cx_, path);
    }
    /** The counters (deft_stats_read). */
    deft_stats stats() const
    {
        deft_stats s = {};
        deft_stats_read(cx_, &s, sizeof s);
        return s;
    }

private:
    deft_ctx *cx_ = nullptr;
    deft_status status_;
};

/** Opens a scope, and ends it with the block. A failure of this implicit end is lost; call end()
 * to get its status. */
class scope : detail::pinned {
public:
    /** Calls deft_scope_begin. */
    explicit scope(deft_ctx *cx) : s_(deft_scope_begin(cx)) {}
    ~scope()
    {
        if (open_ && end() != DEFT_OK) return;
    }
    /** Ends the scope now. */
    DEFT_MUST_CHECK deft_status end()
    {
        open_ = false;
        return deft_scope_end(s_);
    }
    /** Ends the scope, moves t to the scope around it, and returns the new handle of t. */
    tensor give(tensor t)
    {
        open_ = false;
        return deft_scope_return(s_, t.get());
    }

private:
    deft_scope s_;
    bool open_ = true;
};

/** Attributes the calls of the block to `name` in messages and explanations
 * (deft_label_begin). */
class label : detail::pinned {
public:
    /** Calls deft_label_begin. */
    label(deft_ctx *cx, const char *name) : cx_(cx) { deft_label_begin(cx, name); }
    ~label() { deft_label_end(cx_); }

private:
    deft_ctx *cx_;
};

/** Opens a step, which is a transaction. Only end() and submit() commit it. When the block ends
 * before, the step is aborted. */
class step : detail::pinned {
public:
    /** Calls deft_step_begin. */
    explicit step(deft_ctx *cx) : s_(deft_step_begin(cx)) {}
    /** Calls deft_step_begin_with. */
    step(deft_ctx *cx, const deft_step_options &options) : s_(deft_step_begin_with(cx, &options)) {}
    ~step() { abort(); }
    /** Ends the step and computes it. After a failure the step has ended too, and assigned tensors
     * have their former values. */
    DEFT_MUST_CHECK deft_status end()
    {
        open_ = false;
        return deft_step_end(s_);
    }
    /** Ends the step and lets a thread of the context run it. */
    DEFT_MUST_CHECK deft_status submit()
    {
        open_ = false;
        return deft_step_submit(s_);
    }
    /** The memory that end() would take if it came now. */
    DEFT_MUST_CHECK deft_status memory(deft_step_memory &out)
    {
        return deft_step_memory_read(s_, &out, sizeof out);
    }
    /** Ends the step as if it had never been. After end() or submit() it does nothing. */
    void abort()
    {
        if (open_) deft_step_abort(s_);
        open_ = false;
    }

private:
    deft_scope s_;
    bool open_ = true;
};

/** Owns a deft_nn, the list of the parameters, buffers and numbers of a network. Layers are
 * deft_nn_linear and the like, as in C. It is false when the list could not be made; status()
 * then has the reason. It must not outlive its context, and must outlive its optimizers and
 * scalers. */
class network : detail::pinned {
public:
    /** Calls deft_nn_create. status() has its result. */
    explicit network(deft_ctx *cx, const deft_nn_options *options = nullptr)
        : status_(deft_nn_create(cx, options, &nn_))
    {
    }
    ~network() { deft_nn_destroy(&nn_); }
    /** Whether there is a network. */
    explicit operator bool() const { return nn_ != nullptr; }
    /** The handle of the C API, still owned by this object. */
    operator deft_nn *() const { return nn_; }
    /** The result of deft_nn_create. */
    deft_status status() const { return status_; }
    /** The tensor with that full name; false when there is none. */
    tensor find(const char *name) const { return deft_nn_find(nn_, name); }
    /** Writes that part of the list to a file (deft_nn_save). */
    DEFT_MUST_CHECK deft_status save(const char *path, deft_nn_part part = DEFT_NN_ALL) const
    {
        return deft_nn_save(nn_, path, part);
    }
    /** Sets that part of the list from a file (deft_nn_load). */
    DEFT_MUST_CHECK deft_status load(const char *path, deft_nn_part part = DEFT_NN_ALL) const
    {
        return deft_nn_load(nn_, path, part);
    }

private:
    deft_nn *nn_ = nullptr;
    deft_status status_;
};

/** Owns an optimizer, AdamW unless options say otherwise. It is false when the optimizer could
 * not be made; status() then has the reason. */
class optimizer : detail::pinned {
public:
    /** Calls deft_optim_create. status() has its result. */
    explicit optimizer(deft_nn *nn, const deft_optim_options *options = nullptr)
        : status_(deft_optim_create(nn, options, &o_))
    {
    }
    ~optimizer() { deft_optim_destroy(&o_); }
    /** Whether there is an optimizer. */
    explicit operator bool() const { return o_ != nullptr; }
    /** The handle of the C API, still owned by this object. */
    operator deft_optim *() const { return o_; }
    /** The result of deft_optim_create. */
    deft_status status() const { return status_; }
    /** The number of parameters. */
    size_t n() const { return deft_optim_n(o_); }
    /** Sets out[0..n()) to the gradients of a loss of one element. false means a mistake. */
    bool grad(tensor loss, deft_tensor **out) const
    {
        deft_tensor *const of = loss.get();
        return deft_grad(&of, nullptr, 1, deft_optim_parameters(o_), n(), nullptr, out);
    }
    /** Records the update, inside a step. grads has n() gradients. */
    bool step(deft_tensor *const *grads, double rate) const
    {
        return deft_optim_step(o_, grads, rate);
    }
    /** The same with the rate as a bare number (deft_optim_step_t). In a captured function the rate
     * is a deft_param_f or deft_const_f. */
    bool step(deft_tensor *const *grads, tensor rate) const
    {
        return deft_optim_step_t(o_, grads, rate.get());
    }
    /** The same, but parameters and their state change only where condition, a bool of shape [], is
     * true. The update counts in both cases (deft_optim_step_if). */
    bool step_if(deft_tensor *const *grads, double rate, tensor condition) const
    {
        return deft_optim_step_if(o_, grads, rate, condition.get());
    }
    /** Calls deft_optim_step_if_t. */
    bool step_if(deft_tensor *const *grads, tensor rate, tensor condition) const
    {
        return deft_optim_step_if_t(o_, grads, rate.get(), condition.get());
    }

private:
    deft_optim *o_ = nullptr;
    deft_status status_;
};

/** Sets a policy of mixed precision (deft_mixed_set), and restores the old one at the end of the
 * block. */
class mixed : detail::pinned {
public:
    /** Calls deft_mixed_set. */
    mixed(deft_ctx *cx, deft_dtype low) : cx_(cx), was_(deft_mixed_set(cx, low)) {}
    ~mixed() { deft_mixed_set(cx_, was_); }

private:
    deft_ctx *cx_;
    deft_dtype was_;
};

/** Owns the scale of a loss (deft_scaler_create). It is false when the scale could not be made;
 * status() then has the reason. It must not outlive its network. */
class scaler : detail::pinned {
public:
    /** Calls deft_scaler_create. status() has its result. */
    explicit scaler(deft_nn *nn, const deft_scaler_options *options = nullptr)
        : status_(deft_scaler_create(nn, options, &s_))
    {
    }
    ~scaler() { deft_scaler_destroy(&s_); }
    /** Whether there is a scaler. */
    explicit operator bool() const { return s_ != nullptr; }
    /** The handle of the C API, still owned by this object. */
    operator deft_scaler *() const { return s_; }
    /** The result of deft_scaler_create. */
    deft_status status() const { return status_; }
    /** The loss times the scale. */
    tensor loss(tensor loss) const { return deft_scaler_loss(s_, loss.get()); }
    /** Divides n gradients by the scale. Returns whether all are finite, a bool of shape []. */
    tensor unscale(deft_tensor **grads, size_t n) const
    {
        return deft_scaler_unscale(s_, grads, n);
    }
    /** Records the change of the scale, inside a step. */
    bool update(tensor is_finite) const { return deft_scaler_update(s_, is_finite.get()); }

private:
    deft_scaler *s_ = nullptr;
    deft_status status_;
};

/** Keeps a tensor beyond its scope (deft_keep), and drops it at the end of the block. It may be
 * moved. It must not outlive its context. */
class kept {
public:
    kept() = default;
    /** Calls deft_keep for t. */
    explicit kept(tensor t) : t_(deft_keep(t.get())) {}
    /** Takes the tensor of other, which then has none. */
    kept(kept &&other) noexcept : t_(std::exchange(other.t_, nullptr)) {}
    /** Drops the tensor, and takes that of other. */
    kept &operator=(kept &&other) noexcept
    {
        if (this == &other) return *this;
        deft_drop(&t_);
        t_ = std::exchange(other.t_, nullptr);
        return *this;
    }
    ~kept() { deft_drop(&t_); }
    /** The tensor, still kept by this object. */
    tensor get() const { return t_; }
    /** The same as get(). */
    operator tensor() const { return t_; }
    /** The handle of the C API. */
    operator deft_tensor *() const { return t_; }

private:
    deft_tensor *t_ = nullptr;
};

/** Computes a tensor and lends its elements until the end of the block (deft_map). It is false
 * after a failure; status() then has the reason. It must not outlive its context. */
class mapped : detail::pinned {
public:
    /** Calls deft_map. status() has its result. */
    explicit mapped(tensor t) : status_(deft_map(t.get(), &m_)) {}
    ~mapped() { deft_unmap(&m_); }
    /** Whether t was mapped. */
    explicit operator bool() const { return status_ == DEFT_OK; }
    /** The result of deft_map. */
    deft_status status() const { return status_; }
    /** The size of the elements in bytes. */
    size_t bytes() const { return m_.bytes; }
    /** The address of the elements, read only. T must be the C type of the tensor's dtype, which is
     * not checked. Undefined when t was not mapped. */
    template <class T>
    const T *data() const
    {
        return static_cast<const T *>(m_.data);
    }

private:
    deft_mapped m_ = {};
    deft_status status_;
};

/* ---- arrays with their types (typed.h) ---- */

namespace detail {

/** The dtype of a type of C++: that of its size and sign. */
template <class T>
constexpr deft_dtype dtype_of()
{
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "the elements must be numbers");
    if (std::is_same_v<T, bool>) return DEFT_BOOL;
    if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DEFT_F32 : DEFT_F64;
    const bool is_signed = std::is_signed_v<T>;
    switch (sizeof(T)) {
    case 1: return is_signed ? DEFT_I8 : DEFT_U8;
    case 2: return is_signed ? DEFT_I16 : DEFT_U16;
    case 4: return is_signed ? DEFT_I32 : DEFT_U32;
    default: return is_signed ? DEFT_I64 : DEFT_U64;
    }
}

/** The bits of the dtypes whose elements a T can be: 16-bit integers can be halves. */
template <class T>
constexpr uint32_t dtypes_of()
{
    const uint32_t halves = 1u << DEFT_F16 | 1u << DEFT_BF16;
    return 1u << dtype_of<T>() | (std::is_integral_v<T> && sizeof(T) == 2 ? halves : 0);
}

template <class A>
using element_of = std::remove_cv_t<std::remove_all_extents_t<A>>;

/** Enables a template for arrays. */
template <class A>
using if_array = std::enable_if_t<std::is_array_v<A>, int>;

/** The shape of an array. */
template <class A>
inline deft_shape shape_of_array()
{
    static_assert(std::rank_v<A> <= DEFT_MAX_RANK, "an array of at most 8 axes");
    deft_shape s = {};
    s.rank = std::rank_v<A>;
    const size_t n[] = {std::extent_v<A, 0>, std::extent_v<A, 1>, std::extent_v<A, 2>,
                        std::extent_v<A, 3>, std::extent_v<A, 4>, std::extent_v<A, 5>,
                        std::extent_v<A, 6>, std::extent_v<A, 7>};
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = static_cast<int64_t>(n[i]);
    return s;
}

} // namespace detail

/** A tensor of an array, which is borrowed, with its shape and dtype (deft_wrap). */
template <class A, detail::if_array<A> = 0>
inline tensor wrap(deft_ctx *cx, const A &a)
{
    return deft_wrap(cx, detail::shape_of_array<A>(), detail::dtype_of<detail::element_of<A>>(), a,
                     sizeof a, nullptr);
}
/** The same of an array that assignments write (deft_wrap_mut). */
template <class A, detail::if_array<A> = 0>
inline tensor wrap_mut(deft_ctx *cx, A &a)
{
    return deft_wrap_mut(cx, detail::shape_of_array<A>(), detail::dtype_of<detail::element_of<A>>(),
                         a, sizeof a, nullptr);
}
/** A tensor with a copy of an array (deft_from). */
template <class A, detail::if_array<A> = 0>
inline tensor from(deft_ctx *cx, const A &a)
{
    return deft_from(cx, detail::shape_of_array<A>(), detail::dtype_of<detail::element_of<A>>(), a,
                     sizeof a);
}

/** A tensor of one axis with a copy of the elements of a std::vector, std::array or the like. */
template <class C, std::enable_if_t<!std::is_array_v<C>, int> = 0>
inline auto from(deft_ctx *cx, const C &c) -> decltype(std::data(c), tensor())
{
    using element = std::remove_cv_t<std::remove_reference_t<decltype(*std::data(c))>>;
    return deft_from(cx, shape({static_cast<int64_t>(std::size(c))}), detail::dtype_of<element>(),
                     std::data(c), std::size(c) * sizeof(element));
}

/** Computes t and writes its elements into an array, converted to its type (deft_read). The
 * numbers of elements must be equal. */
template <class A, detail::if_array<A> = 0>
DEFT_MUST_CHECK inline deft_status read(tensor t, A &a)
{
    return deft_read(t.get(), detail::dtype_of<detail::element_of<A>>(), a, sizeof a);
}

/** The same into a std::vector, std::array or the like, which has its size already. */
template <class C, std::enable_if_t<!std::is_array_v<C>, int> = 0>
DEFT_MUST_CHECK inline auto read(tensor t, C &c) -> decltype(std::data(c), deft_status())
{
    using element = std::remove_reference_t<decltype(*std::data(c))>;
    return deft_read(t.get(), detail::dtype_of<element>(), std::data(c),
                     std::size(c) * sizeof(element));
}

/** Computes a tensor and lends its elements under a type (deft_map_view): view<const float> to
 * read, view<float> to write as well. It is false after a failure; status() then has the reason.
 *
 * What was written is assigned when end() is called, or else when the block ends; end() has the
 * status of that. A view must not outlive its context. */
template <class T>
class view : detail::pinned {
public:
    /** Calls deft_map_view. status() has its result. */
    explicit view(tensor t)
        : status_(deft_map_view(t.get(), detail::dtypes_of<std::remove_cv_t<T>>(),
                                !std::is_const_v<T>, &v_))
    {
    }
    ~view() { (void)deft_unmap_view(&v_); }
    /** Whether the tensor was mapped. */
    explicit operator bool() const { return status_ == DEFT_OK; }
    /** The result of deft_map_view. */
    deft_status status() const { return status_; }
    /** The element with these indices, one for each axis. Without NDEBUG an index out of range
     * ends the program (deft_view_at). */
    template <class... I>
    T &operator()(I... index) const
    {
        const int64_t at[sizeof...(I) + 1] = {static_cast<int64_t>(index)..., 0};
        return static_cast<T *>(v_.data)[deft_view_at(&v_, sizeof...(I), at)];
    }
    /** Extents, strides and the first element. */
    const deft_view &raw() const { return v_; }
    /** Ends the loan (deft_unmap_view). */
    DEFT_MUST_CHECK deft_status end() { return deft_unmap_view(&v_); }

private:
    deft_view v_ = {};
    deft_status status_;
};

} // namespace deft

#endif
