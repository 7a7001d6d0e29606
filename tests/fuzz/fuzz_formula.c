/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of formulas: any bytes give a status and a sentence, or an operator. A call of it records
 * its results, or one mistake. The text is defined, too, as the derivative of another formula.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "fuzz.h"

static void must(bool ok)
{
    if (!ok) abort();
}

/* Tensors of several dtypes, and numbers, in a row that repeats. */
static void make_inputs(deft_ctx *cx, deft_tensor **in, size_t n)
{
    static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_I32, DEFT_BOOL, DEFT_BF16 };
    for (size_t i = 0; i < n; i++)
        in[i] = i % 6 == 5 ? deft_num(cx, 2) : deft_ones(cx, DEFT_SHAPE(2), dtypes[i % 6]);
}

static void call_formula(deft_ctx *cx, const deft_op *op)
{
    deft_tensor *in[DEFT_OP_MAX_TENSORS], *out[DEFT_OP_MAX_TENSORS];
    const size_t n_in = deft_op_inputs(op), n_out = deft_op_results(op);
    must(n_in >= 1 && n_in <= DEFT_OP_MAX_TENSORS && n_out >= 1 && n_out <= DEFT_OP_MAX_TENSORS);
    make_inputs(cx, in, n_in);
    const bool ok = deft_op_call(cx, op, in, n_in, NULL, out, n_out);
    must(ok == (deft_error(cx) == DEFT_OK));
    for (size_t k = 0; k < n_out; k++) must((out[k] != NULL) == ok);
    if (ok && n_in == 1) {
        deft_tensor *g;
        const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
        (void)deft_grad(out, NULL, 1, in, 1, &zero, &g);
    }
    deft_clear(cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static deft_ctx *cx;
    static deft_op *known;
    if (!cx) {
        must(deft_ctx_create(NULL, NULL, &cx) == DEFT_OK);
        const deft_formula_def d = {
            .size = sizeof d, .name = "known.one", .version = 1, .text = "(x) { return x * x; }"
        };
        must(deft_formula_define(deft_ctx_runtime(cx), &d, &known, NULL, 0) == DEFT_OK);
    }
    char *const text = calloc(1, n + 1), why[256];
    if (!text) return 0;
    memcpy(text, bytes, n);
    for (int is_slope = 0; is_slope < 2; is_slope++) {
        deft_op *op = (deft_op *)(void *)why;
        const deft_formula_def d = { .size = sizeof d,
                                     .name = "fuzz.text",
                                     .version = 1,
                                     .text = is_slope ? "(x) { return x; }" : text,
                                     .derivative = is_slope ? text : NULL };
        const deft_status st = deft_formula_define(deft_ctx_runtime(cx), &d, &op, why, sizeof why);
        must((st == DEFT_OK) == (op != NULL) && (st == DEFT_OK) == !*why);
        if (!op) continue;
        const deft_scope s = deft_step_begin(cx);
        call_formula(cx, op);
        deft_step_abort(s);
        must(deft_op_destroy(&op, why, sizeof why) == DEFT_OK);
    }
    free(text);
    return 0;
}
