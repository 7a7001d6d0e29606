/* SPDX-License-Identifier: Apache-2.0
 *
 * The op matrix as kernels.
 */
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>

#include "jit_cuda/gen/gen.h"

static matrix_kernel *add(matrix *m, const char *mode, df_kop op, uint8_t t, uint8_t src)
{
    enum { MOST = 2000 };
    if (!m->at) m->at = calloc(MOST, sizeof *m->at);
    if (!m->at || m->n == MOST) {
        fprintf(stderr, "matrix: no memory\n");
        abort();
    }
    matrix_kernel *const k = &m->at[m->n++];
    snprintf(k->where, sizeof k->where, "%s%s %s <- %s", mode, df_kop_infos[op].name,
             deft_dtype_name((deft_dtype)t), deft_dtype_name((deft_dtype)src));
    return k;
}

/* A load, what is joined along RED, and a store of it: in the next stage, or of each running value.
 */
static void join(one_op *x, df_mode mode, df_kop op, uint8_t t, uint8_t src)
{
    const bool scans = df_kop_infos[op].kind == DF_KOP_scan;
    const uint8_t level = scans ? DF_LEVEL_ELEM : DF_LEVEL_ROW;
    const uint8_t along = scans ? DF_STEP_ANY : DF_STEP_ZERO;
    x->ins[0] = (df_ins){ .op = DF_K_load, .dtype = src, .level = DF_LEVEL_ELEM };
    x->ins[1] = (df_ins){ .op = (uint8_t)op, .dtype = t, .level = DF_LEVEL_ELEM };
    x->ins[2] = (df_ins){
        .op = DF_K_store, .dtype = t, .stage = !scans, .level = level, .src = { 1 }, .imm = 1
    };
    for (uint32_t i = 0; i < 2; i++)
        x->access[i] =
            (df_access){ .kind = i ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                         .dtype = i ? t : src,
                         .same_as = i,
                         .step = { DF_STEP_ANY, i ? along : DF_STEP_ANY, DF_STEP_UNIT } };
    x->k = (df_kernel){ .mode = (uint8_t)mode,
                        .n_axes = mode == DF_MODE_COL ? 3 : 2,
                        .n_stages = scans ? 1 : 2,
                        .flags = scans ? DF_KERNEL_SCAN : DF_KERNEL_SPLIT,
                        .role = { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER },
                        .n_access = 2,
                        .n_ins = 3,
                        .access = x->access,
                        .ins = x->ins };
}

void matrix_make(matrix *m)
{
    *m = (matrix){ 0 };
    for (int op = 0; op < DF_N_KOPS; op++)
        for (uint32_t types = 0; types < DF_N_RECORDED * DF_N_RECORDED; types++) {
            const uint8_t t = types / DF_N_RECORDED, src = types % DF_N_RECORDED;
            const uint8_t kind = df_kop_infos[op].kind;
            const bool joins = kind == DF_KOP_reduce || kind == DF_KOP_scan;
            if (op >= DF_K_add && op <= DF_K_bitcast && one_op_is_known((df_kop)op, t, src))
                one_op_make(&add(m, "", (df_kop)op, t, src)->x, (df_kop)op, t, src);
            if (!joins || is_half(src) ||
                !df_kop_takes((df_kop_types)df_kop_infos[op].types, (deft_dtype)t, (deft_dtype)src))
                continue;
            join(&add(m, "row ", (df_kop)op, t, src)->x, DF_MODE_ROW, (df_kop)op, t, src);
            join(&add(m, "col ", (df_kop)op, t, src)->x, DF_MODE_COL, (df_kop)op, t, src);
        }
}

void matrix_finish(matrix *m)
{
    free(m->at);
    *m = (matrix){ 0 };
}
