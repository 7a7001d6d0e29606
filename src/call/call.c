/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by name. tools/gen_call makes the table: for each function its address, its parameters, and
 * a thunk. A thunk is shared by all functions of one prototype. It takes arguments that are already
 * converted, calls, and writes the results.
 *
 * Everything here is built on public calls. A wrong argument is found before anything is recorded.
 */
#include "deft/call.h"

#include "deft/deft.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Most arguments of a function, and most numbers among them. */
enum { MAX_ARGS = 16, LAST_ARG = DEFT_ARG_TEXT };

typedef enum kind {
    KIND_tensor,
    KIND_tensors,
    KIND_int,
    KIND_int32,
    KIND_uint32,
    KIND_size,
    KIND_uint,
    KIND_float,
    KIND_bool,
    KIND_dtype,
    KIND_enum,
    KIND_pair,   /* two numbers, or one for both */
    KIND_triple, /* three numbers; fewer: the last one stands for the rest */
    KIND_floats, /* the same with doubles */
    KIND_ints,
    KIND_per_axis, /* a number for each axis of the first operand */
    KIND_ranges,
    KIND_shape,
    KIND_axes,
    KIND_rng,
    KIND_text
} kind;

typedef struct parameter {
    const char *name;
    kind kind;
    bool is_optional;
} parameter;

/* A converted argument. */
typedef struct slot {
    size_t n; /* of a list */
    union {
        deft_tensor *t;
        deft_tensor *const *list;
        int64_t i;
        double f;
        int64_t several[3];
        double floats[3];
        const int64_t *ints;
        const deft_range *ranges;
        deft_shape shape;
        deft_axes axes;
        deft_rng *rng;
        const char *text;
    };
} slot;

typedef void (*any_fn)(void);
typedef bool (*thunk_fn)(any_fn fn, deft_ctx *cx, const slot *a, deft_tensor **out, size_t n_out);

struct deft_function {
    const char *name;
    any_fn fn;
    thunk_fn thunk;
    uint16_t first; /* index in `parameters` */
    uint8_t n;
    uint8_t n_results; /* 0: as many as parameter `counted` says */
    int16_t counted;
    int16_t integer; /* index in `functions` of the form for integers; -1: none */
    int16_t large;   /* the same for integers that int64_t may not hold */
};

#include "call/call_table.inc"

enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- finding ---- */

const deft_function *deft_function_find(const char *name)
{
    size_t low = 0, high = name ? N_FUNCTIONS : 0;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int order = strcmp(functions[mid].name, name);
        if (order == 0) return &functions[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const deft_function *deft_function_at(size_t i)
{
    return i < N_FUNCTIONS ? &functions[i] : NULL;
}

const char *deft_function_name(const deft_function *f)
{
    return f ? f->name : "";
}

size_t deft_function_arity(const deft_function *f)
{
    return f ? f->n : 0;
}

static const char *call_type_name(kind k)
{
    static const char *const names[] = {
        [KIND_tensor] = "tensor", [KIND_tensors] = "tensors", [KIND_int] = "int",
        [KIND_int32] = "int",     [KIND_uint32] = "int",      [KIND_size] = "int",
        [KIND_uint] = "int",      [KIND_float] = "float",     [KIND_bool] = "bool",
        [KIND_dtype] = "dtype",   [KIND_enum] = "enum",       [KIND_pair] = "ints",
        [KIND_triple] = "ints",   [KIND_ints] = "ints",       [KIND_per_axis] = "ints",
        [KIND_ranges] = "ranges", [KIND_shape] = "shape",     [KIND_axes] = "axes",
        [KIND_rng] = "rng",       [KIND_text] = "text",       [KIND_floats] = "floats"
    };
    return names[k];
}

deft_parameter deft_function_parameter(const deft_function *f, size_t i)
{
    if (!f || i >= f->n) return (deft_parameter){ 0 };
    const parameter *const p = &parameters[f->first + i];
    return (deft_parameter){ p->name, call_type_name(p->kind), p->is_optional };
}

/* The number of insertions, deletions and replacements that make b of a. */
static size_t call_distance(const char *a, const char *b)
{
    size_t row[32];
    const size_t n = strlen(b);
    if (n + 1 > sizeof row / sizeof *row) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1], replaced = diagonal + (a[i] != b[j]);
            size_t best = above < row[j] ? above + 1 : row[j] + 1;
            if (replaced < best) best = replaced;
            diagonal = above;
            row[j + 1] = best;
        }
    }
    return row[n];
}

static const char *call_nearest(const char *name)
{
    const char *best = functions[0].name;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        const size_t d = call_distance(name, functions[i].name);
        if (d < least) least = d, best = functions[i].name;
    }
    return best;
}

/* ---- arguments ---- */

/* One call: what is needed to convert and to complain. */
typedef struct call {
    const deft_function *f;
    deft_ctx *cx;
    deft_call_error *error; /* may be NULL */
    uint32_t rank;          /* of the first operand */
} call;

static bool call_fail(const call *c, const char *format, ...)
{
    if (!c->error) return false;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(c->error->text, sizeof c->error->text, format, list);
    va_end(list);
    return false;
}

static const char *call_kind_name(deft_arg_kind k)
{
    static const char *const names[] = {
        "nothing",          "a tensor", "a list of tensors", "an integer",
        "an integer",       "a float",  "a list of ints",    "a stream of random numbers",
        "a list of floats", "a text",   "an unknown kind"
    };
    return names[(unsigned)k <= LAST_ARG ? (unsigned)k : LAST_ARG + 1];
}

static bool call_refuse(const call *c, const parameter *p, const deft_arg *a)
{
    return call_fail(c, "%s: %s is of type %s, and got %s", c->f->name, p->name,
                     call_type_name(p->kind), call_kind_name(a->kind));
}

static bool call_take_tensor(call *c, const parameter *p, const deft_arg *a, slot *out)
{
    switch (a->kind) {
    case DEFT_ARG_TENSOR: out->t = a->as.tensor; break;
    case DEFT_ARG_INT: out->t = deft_num_i(c->cx, a->as.i); break;
    case DEFT_ARG_UINT: out->t = deft_num_u(c->cx, a->as.u); break;
    case DEFT_ARG_FLOAT: out->t = deft_num(c->cx, a->as.f); break;
    case DEFT_ARG_NONE:
    case DEFT_ARG_TENSORS:
    case DEFT_ARG_INTS:
    case DEFT_ARG_RNG:
    case DEFT_ARG_FLOATS:
    case DEFT_ARG_TEXT: return call_refuse(c, p, a);
    }
    if (c->rank == UINT32_MAX) c->rank = deft_rank(out->t);
    return true;
}

static bool call_take_list(const call *c, const parameter *p, const deft_arg *a, slot *out)
{
    const bool tensors = p->kind == KIND_tensors;
    if (a->kind != (tensors ? DEFT_ARG_TENSORS : DEFT_ARG_INTS)) return call_refuse(c, p, a);
    out->n = a->n;
    if (tensors) {
        out->list = a->as.tensors;
        return true;
    }
    if (p->kind == KIND_ranges) {
        if (a->n % 3 != 0)
            return call_fail(c, "%s: %s has %u numbers, not three for each range", c->f->name,
                             p->name, (unsigned)a->n);
        out->n = a->n / 3;
    }
    if (p->kind == KIND_per_axis && a->n != c->rank)
        return call_fail(c, "%s: %s has %u numbers, and the tensor %u axes", c->f->name, p->name,
                         (unsigned)a->n, (unsigned)c->rank);
    out->ints = a->as.ints;
    return true;
}

/* Too long a shape or list of axes is left to the function, which names the bound. */
static bool call_take_shape(const call *c, const parameter *p, const deft_arg *a, slot *out)
{
    int at[DEFT_MAX_RANK + 1] = { 0 };
    if (a->kind == DEFT_ARG_NONE && p->kind == KIND_axes) {
        out->axes = (deft_axes){ UINT32_MAX, { 0 } };
        return true;
    }
    const int64_t *const ints = a->kind == DEFT_ARG_INT ? &a->as.i : a->as.ints;
    const uint32_t n = a->kind == DEFT_ARG_INT ? 1 : a->n;
    if (a->kind != DEFT_ARG_INTS && a->kind != DEFT_ARG_INT) return call_refuse(c, p, a);
    if (p->kind == KIND_shape) {
        out->shape = deft_shape_of(n, ints);
        return true;
    }
    for (uint32_t i = 0; i < n && i <= DEFT_MAX_RANK; i++) {
        if (ints[i] < INT32_MIN || ints[i] > INT32_MAX)
            return call_fail(c, "%s: %lld is no axis", c->f->name, (long long)ints[i]);
        at[i] = (int)ints[i];
    }
    out->axes = deft_axes_of(n, at);
    return true;
}

static bool call_take_several(const call *c, const parameter *p, const deft_arg *a, slot *out)
{
    const uint32_t most = p->kind == KIND_pair ? 2 : 3;
    const bool is_one = a->kind == DEFT_ARG_INT;
    const uint32_t n = is_one ? 1 : a->n;
    if (!is_one && (a->kind != DEFT_ARG_INTS || n < 1 || n > most)) return call_refuse(c, p, a);
    const int64_t *const ints = is_one ? &a->as.i : a->as.ints;
    for (uint32_t i = 0; i < 3; i++) out->several[i] = ints[i < n ? i : n - 1];
    return true;
}

static bool call_take_float(const call *c, const parameter *p, const deft_arg *a, slot *out)
{
    switch (a->kind) {
    case DEFT_ARG_FLOAT: out->f = a->as.f; return true;
    case DEFT_ARG_INT: out->f = (double)a->as.i; return true;
    case DEFT_ARG_UINT: out->f = (double)a->as.u; return true;
    case DEFT_ARG_NONE:
    case DEFT_ARG_TENSOR:
    case DEFT_ARG_TENSORS:
    case DEFT_ARG_INTS:
    case DEFT_ARG_RNG:
    case DEFT_ARG_FLOATS:
    case DEFT_ARG_TEXT: return call_refuse(c, p, a);
    }
    return call_refuse(c, p, a);
}

/* One number, or a list of one to three, of integers or of doubles. */
static bool call_take_floats(const call *c, const parameter *p, const deft_arg *a, slot *out)
{
    const bool is_list = a->kind == DEFT_ARG_INTS || a->kind == DEFT_ARG_FLOATS;
    slot one = { 0 };
    if (is_list && (a->n < 1 || a->n > 3)) return call_refuse(c, p, a);
    if (!is_list && !call_take_float(c, p, a, &one)) return false;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t k = is_list && i >= a->n ? a->n - 1 : i;
        out->floats[i] = a->kind == DEFT_ARG_INTS     ? (double)a->as.ints[k]
                         : a->kind == DEFT_ARG_FLOATS ? a->as.floats[k]
                                                      : one.f;
    }
    return true;
}

static bool call_take_int(const call *c, const parameter *p, const deft_arg *a, slot *out,
                          int64_t low, int64_t high)
{
    if (p->kind == KIND_uint && a->kind == DEFT_ARG_UINT) {
        out->i = (int64_t)a->as.u;
        return true;
    }
    if (a->kind != DEFT_ARG_INT) return call_refuse(c, p, a);
    if (a->as.i < low || a->as.i > high)
        return call_fail(c, "%s: %s is %lld, outside %lld to %lld", c->f->name, p->name,
                         (long long)a->as.i, (long long)low, (long long)high);
    out->i = a->as.i;
    return true;
}

static bool call_take(call *c, const parameter *p, const deft_arg *a, slot *out)
{
    if ((unsigned)a->kind > LAST_ARG) return call_refuse(c, p, a);
    if (a->kind == DEFT_ARG_NONE && p->is_optional && p->kind != KIND_axes) return true;
    switch (p->kind) {
    case KIND_tensor: return call_take_tensor(c, p, a, out);
    case KIND_tensors:
    case KIND_ints:
    case KIND_per_axis:
    case KIND_ranges: return call_take_list(c, p, a, out);
    case KIND_shape:
    case KIND_axes: return call_take_shape(c, p, a, out);
    case KIND_pair:
    case KIND_triple: return call_take_several(c, p, a, out);
    case KIND_float: return call_take_float(c, p, a, out);
    case KIND_floats: return call_take_floats(c, p, a, out);
    case KIND_int: return call_take_int(c, p, a, out, INT64_MIN, INT64_MAX);
    case KIND_int32:
    case KIND_dtype:
    case KIND_enum: return call_take_int(c, p, a, out, INT32_MIN, INT32_MAX);
    case KIND_uint32: return call_take_int(c, p, a, out, 0, UINT32_MAX);
    case KIND_size:
    case KIND_uint: return call_take_int(c, p, a, out, 0, INT64_MAX);
    case KIND_bool: return call_take_int(c, p, a, out, 0, 1);
    case KIND_rng:
        if (a->kind != DEFT_ARG_RNG) return call_refuse(c, p, a);
        out->rng = a->as.rng;
        return true;
    case KIND_text:
        if (a->kind != DEFT_ARG_TEXT) return call_refuse(c, p, a);
        out->text = a->as.text;
        return true;
    }
    return call_refuse(c, p, a);
}

/* The form of f for these numbers: integers in the place of all doubles choose another. */
static const deft_function *call_form(const deft_function *f, const deft_arg *args, size_t n)
{
    bool any = false, large = false;
    if (f->integer < 0) return f;
    for (size_t i = 0; i < n && i < f->n; i++) {
        if (parameters[f->first + i].kind != KIND_float) continue;
        if (args[i].kind != DEFT_ARG_INT && args[i].kind != DEFT_ARG_UINT) return f;
        any = true;
        large |= args[i].kind == DEFT_ARG_UINT && args[i].as.u > INT64_MAX;
    }
    if (!any || (large && f->large < 0)) return f;
    return &functions[large ? f->large : f->integer];
}

size_t deft_function_results(const deft_function *f, const deft_arg *args, size_t n)
{
    if (!f) return 0;
    if (f->counted < 0) return f->n_results;
    if (!args || (size_t)f->counted >= n) return 0;
    const deft_arg *const a = &args[f->counted];
    if (a->kind == DEFT_ARG_INT) return a->as.i > 0 ? (size_t)a->as.i : 0;
    return a->kind == DEFT_ARG_TENSORS || a->kind == DEFT_ARG_INTS ? a->n : 0;
}

/* ---- calling ---- */

/* The function returned no tensor: a mistake of its own, or an operand that is NULL by an older
 * one. */
static deft_status mistake_of(const call *c)
{
    const deft_status st = deft_error(c->cx);
    call_fail(c, "%s",
              st != DEFT_OK ? deft_message(c->cx)
                            : "an operand is missing by a mistake that was delivered before");
    return st != DEFT_OK ? st : DEFT_E_ARG;
}

deft_status deft_function_call(const deft_function *f, deft_ctx *cx, const deft_arg *args,
                               size_t n_args, deft_tensor **out, size_t n_out,
                               deft_call_error *error)
{
    static const deft_arg none;
    slot slots[MAX_ARGS] = { 0 };
    call c = { f, cx, error, UINT32_MAX };
    for (size_t i = 0; out && i < n_out; i++) out[i] = NULL;
    if (!f || !cx || (!args && n_args) || !out) {
        call_fail(&c, "deft_function_call: the function, the context or a list is NULL");
        return DEFT_E_ARG;
    }
    if (n_args > f->n) {
        call_fail(&c, "%s takes %u arguments, and got %zu", f->name, (unsigned)f->n, n_args);
        return DEFT_E_ARG;
    }
    const size_t n_results = deft_function_results(f, args, n_args);
    if (n_out < (f->counted >= 0 ? n_results : 1)) {
        call_fail(&c, "%s gives %zu results, and there is room for %zu", f->name, n_results, n_out);
        return DEFT_E_ARG;
    }
    f = c.f = call_form(f, args, n_args);
    for (size_t i = 0; i < f->n; i++) {
        const parameter *const p = &parameters[f->first + i];
        const deft_arg *const a = i < n_args ? &args[i] : &none;
        if (a->kind == DEFT_ARG_NONE && !p->is_optional) {
            call_fail(&c, "%s: %s is missing", f->name, p->name);
            return DEFT_E_ARG;
        }
        if (!call_take(&c, p, a, &slots[i])) return DEFT_E_ARG;
    }
    if (f->thunk(f->fn, cx, slots, out, n_out)) return DEFT_OK;
    for (size_t i = 0; i < n_out; i++) out[i] = NULL;
    return mistake_of(&c);
}

deft_status deft_call(deft_ctx *cx, const char *name, const deft_arg *args, size_t n_args,
                      deft_tensor **out, size_t n_out, deft_call_error *error)
{
    const deft_function *const f = deft_function_find(name);
    if (f) return deft_function_call(f, cx, args, n_args, out, n_out, error);
    for (size_t i = 0; out && i < n_out; i++) out[i] = NULL;
    const call c = { .error = error };
    call_fail(&c, "there is no function %s; the nearest name is %s", name ? name : "(NULL)",
              call_nearest(name ? name : ""));
    return DEFT_E_NOT_FOUND;
}
