/* SPDX-License-Identifier: Apache-2.0
 *
 * Records the operations of formulas (formula.h), and calls them.
 */
#include "lazy/extend/formula.h"

#include "deft/array.h"
#include "deft/complex.h"

/* ---- functions ---- */

static deft_tensor *(*const unary_fn[])(deft_tensor *) = {
#define DF_ROW_OF(name) deft_##name,
    DEFT_UNARY_OPS(DF_ROW_OF)
#undef DF_ROW_OF
};

static const struct {
    deft_tensor *(*of_tensors)(deft_tensor *, deft_tensor *);
    deft_tensor *(*by_float)(deft_tensor *, double);
    deft_tensor *(*by_int)(deft_tensor *, int64_t);
} binary_fn[] = {
#define DF_ROW_OF(name) { deft_##name, deft_##name##_f, deft_##name##_i },
    DEFT_BINARY_OPS(DF_ROW_OF)
#undef DF_ROW_OF
};

/* The function that gives a op b as function of b and the number a. The same number: there is
 * none. */
static uint32_t with_number_first(uint32_t op)
{
    switch (op) {
    case DF_FORMULA_add:
    case DF_FORMULA_mul:
    case DF_FORMULA_eq:
    case DF_FORMULA_ne: return op;
    case DF_FORMULA_sub: return DF_FORMULA_rsub;
    case DF_FORMULA_div: return DF_FORMULA_rdiv;
    case DF_FORMULA_pow: return DF_FORMULA_rpow;
    case DF_FORMULA_lt: return DF_FORMULA_gt;
    case DF_FORMULA_le: return DF_FORMULA_ge;
    case DF_FORMULA_gt: return DF_FORMULA_lt;
    case DF_FORMULA_ge: return DF_FORMULA_le;
    }
    return DF_FORMULA_OPS;
}

/* ---- steps ---- */

/* One run of a code. value has the inputs, and then the results of steps. */
typedef struct formula_run {
    deft_ctx *cx;
    const df_formula_code *code;
    deft_tensor **value;
} formula_run;

static bool is_formula_number(df_formula_ref r)
{
    return r & DF_FORMULA_NUMBER;
}

static const df_formula_number *number_at(const formula_run *r, df_formula_ref ref)
{
    return &r->code->number[ref & ~DF_FORMULA_NUMBER];
}

static deft_tensor *operand_of(const formula_run *r, df_formula_ref ref)
{
    if (!is_formula_number(ref)) return r->value[ref];
    const df_formula_number *const n = number_at(r, ref);
    return n->is_int ? deft_num_i(r->cx, n->i) : deft_num(r->cx, n->f);
}

static deft_tensor *by_number(uint32_t op, deft_tensor *a, const df_formula_number *n)
{
    const uint32_t row = op - DF_FORMULA_FIRST_BINARY;
    return n->is_int ? binary_fn[row].by_int(a, n->i) : binary_fn[row].by_float(a, n->f);
}

static deft_tensor *run_binary(const formula_run *r, const df_formula_step *s)
{
    const df_formula_ref a = s->operand[0], b = s->operand[1];
    const uint32_t mirrored = with_number_first(s->op);
    if (is_formula_number(b)) return by_number(s->op, operand_of(r, a), number_at(r, b));
    if (is_formula_number(a) && mirrored != DF_FORMULA_OPS)
        return by_number(mirrored, operand_of(r, b), number_at(r, a));
    return binary_fn[s->op - DF_FORMULA_FIRST_BINARY].of_tensors(operand_of(r, a),
                                                                 operand_of(r, b));
}

/* Two numbers have no dtype. They take that of the inputs, unless it cannot hold them. */
static deft_tensor *where_numbers(const formula_run *r, const df_formula_step *s)
{
    const df_formula_number *const a = number_at(r, s->operand[1]);
    const df_formula_number *const b = number_at(r, s->operand[2]);
    deft_dtype t = deft_result_type(r->value, r->code->n_inputs);
    if (t == DEFT_BOOL || t >= DEFT_N_DTYPES) t = DEFT_I64;
    if (!(a->is_int && b->is_int) && !deft_isdtype(t, DEFT_KIND_REAL | DEFT_KIND_COMPLEX))
        t = DEFT_F32;
    return deft_where(operand_of(r, s->operand[0]), deft_cast(operand_of(r, s->operand[1]), t),
                      deft_cast(operand_of(r, s->operand[2]), t));
}

/* The result of another formula. */
static deft_tensor *run_called(const formula_run *r, const df_formula_step *s)
{
    deft_tensor *in[DEFT_OP_MAX_TENSORS], *out = NULL;
    const df_formula_ref *const a = &r->code->argument[s->operand[1]];
    const uint32_t n = s->operand[2];
    for (uint32_t i = 0; i < n; i++) in[i] = operand_of(r, a[i]);
    return deft_op_call(r->cx, r->code->called[s->operand[0]], in, n, NULL, &out, 1) ? out : NULL;
}

static deft_tensor *run_formula_step(const formula_run *r, const df_formula_step *s)
{
    const df_formula_ref *const o = s->operand;
    if (s->op < DF_FORMULA_FIRST_BINARY) return unary_fn[s->op](operand_of(r, o[0]));
    if (s->op < DF_FORMULA_FMA) return run_binary(r, s);
    if (s->op == DF_FORMULA_CAST) return deft_cast(operand_of(r, o[0]), (deft_dtype)o[1]);
    if (s->op == DF_FORMULA_CALL) return run_called(r, s);
    if (s->op == DF_FORMULA_FMA)
        return deft_fma(operand_of(r, o[0]), operand_of(r, o[1]), operand_of(r, o[2]));
    if (is_formula_number(o[1]) && is_formula_number(o[2])) return where_numbers(r, s);
    return deft_where(operand_of(r, o[0]), operand_of(r, o[1]), operand_of(r, o[2]));
}

/* Records all steps. Returns false after a mistake, which is recorded. */
static bool run_formula(const formula_run *r)
{
    const df_formula_code *const c = r->code;
    for (uint32_t i = 0; i < c->n_steps; i++) {
        deft_tensor *const t = run_formula_step(r, &c->step[i]);
        if (!t) return false;
        r->value[c->n_inputs + i] = t;
    }
    return true;
}

/* ---- the functions of the operator ---- */

deft_status df_formula_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *attributes)
{
    const df_formula *const f = *(const df_formula *const *)attributes;
    deft_tensor *value[DF_FORMULA_MOST_VALUES];
    const formula_run r = { cx, &f->value, value };
    for (size_t i = 0; i < n_in; i++) value[i] = in[i];
    if (!run_formula(&r)) return DEFT_E_ARG;
    for (size_t k = 0; k < n_out; k++) out[k] = value[f->value.result[k]];
    return DEFT_OK;
}

/* The gradient g of a result times a partial derivative of it. NULL after a mistake. */
static deft_tensor *times_slope(const formula_run *r, deft_tensor *g, df_formula_ref slope)
{
    deft_tensor *d = operand_of(r, slope);
    if (!is_formula_number(slope) && deft_isdtype(deft_dtype_of(d), DEFT_KIND_COMPLEX))
        d = deft_conj(d);
    return deft_mul(g, d);
}

/* g summed over the axes along which t was broadcast to it, in the dtype of t. */
static deft_tensor *gradient_like(deft_tensor *g, const deft_tensor *t)
{
    const deft_shape have = deft_shape_get(g), want = deft_shape_get(t);
    int axis[DEFT_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0, more = have.rank - want.rank; i < have.rank; i++)
        if (i < more || want.dim[i - more] != have.dim[i]) axis[n++] = (int)i;
    const deft_dtype dtype = deft_dtype_of(t);
    if (deft_isdtype(deft_dtype_of(g), DEFT_KIND_COMPLEX) &&
        !deft_isdtype(dtype, DEFT_KIND_COMPLEX))
        g = deft_real(g);
    if (n) g = deft_reshape(deft_sum(g, deft_axes_of(n, axis), true), want);
    return deft_cast(g, dtype);
}

deft_status df_formula_grad(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *attributes)
{
    const df_formula *const f = *(const df_formula *const *)attributes;
    deft_tensor *value[DF_FORMULA_MOST_VALUES];
    const formula_run r = { cx, &f->slope, value };
    for (size_t i = 0; i < n_in; i++) value[i] = in[i];
    for (size_t k = 0; k < n_out && n_in + k < f->slope.n_inputs; k++) value[n_in + k] = out[k];
    if (!run_formula(&r)) return DEFT_E_ARG;
    for (size_t i = 0; i < n_in; i++) {
        deft_tensor *sum = NULL;
        if (!deft_isdtype(deft_dtype_of(in[i]), DEFT_KIND_REAL | DEFT_KIND_COMPLEX)) continue;
        for (size_t k = 0; k < n_out; k++) {
            const df_formula_ref slope = f->slope.result[k * n_in + i];
            if (is_formula_number(slope) && number_at(&r, slope)->f == 0) continue;
            if (!deft_isdtype(deft_dtype_of(out[k]), DEFT_KIND_REAL | DEFT_KIND_COMPLEX)) continue;
            deft_tensor *const g = times_slope(&r, grad_out[k], slope);
            sum = sum && g ? deft_add(sum, g) : g;
            if (!sum) return DEFT_E_ARG;
        }
        if (sum && !(grad_in[i] = gradient_like(sum, in[i]))) return DEFT_E_ARG;
    }
    return DEFT_OK;
}
