/* SPDX-License-Identifier: Apache-2.0 */
#include "support/hand_kernel.h"

#include <string.h>

#define INS(name, type, of_stage, x, y, number)                                                    \
    {                                                                                              \
        .op = DF_K_##name, .dtype = DEFT_##type, .stage = (of_stage), .level = DF_LEVEL_ELEM,      \
        .src = { (x), (y) }, .imm = (number)                                                       \
    }

/* ---- gather with a check ---- */

static const df_access gather_access[] = {
    { .kind = DF_ACCESS_LOAD, .dtype = DEFT_I64, .same_as = 0, .step = { DF_STEP_UNIT } },
    { .kind = DF_ACCESS_AT, .dtype = DEFT_F32, .same_as = 1 },
    { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 2, .step = { DF_STEP_UNIT } },
};

static const df_ins gather_body[] = {
    INS(load, I64, 0, 0, 0, 0),    INS(num, I64, 0, 0, 0, 0),   INS(check, I64, 0, 0, 1, 41),
    INS(load_at, F32, 0, 2, 0, 1), INS(store, F32, 0, 3, 0, 2),
};

/* A gather with these accesses and this body. */
#define GATHER(ACCESS, BODY)                                                                       \
    {                                                                                              \
        .mode = DF_MODE_MAP, .n_axes = 1, .n_stages = 1, .flags = DF_KERNEL_CHECKS,                \
        .role = { DF_AXIS_INNER }, .n_access = 3, .n_num = 1, .n_ins = DF_LEN(BODY),               \
        .access = ACCESS, .ins = BODY                                                              \
    }

const df_kernel hand_gather = GATHER(gather_access, gather_body);

static const df_access short_gather_access[] = {
    { .kind = DF_ACCESS_LOAD, .dtype = DEFT_I32, .same_as = 0, .step = { DF_STEP_UNIT } },
    { .kind = DF_ACCESS_AT, .dtype = DEFT_F32, .same_as = 1 },
    { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 2, .step = { DF_STEP_UNIT } },
};

static const df_ins short_gather_body[] = {
    INS(load, I32, 0, 0, 0, 0),   INS(cast, I64, 0, 0, 0, 0),    INS(num, I64, 0, 0, 0, 0),
    INS(check, I64, 0, 1, 2, 41), INS(load_at, F32, 0, 3, 0, 1), INS(store, F32, 0, 4, 0, 2),
};

const df_kernel hand_short_gather = GATHER(short_gather_access, short_gather_body);

void hand_gather_init(hand_gather_run *r, int64_t n, int64_t bad)
{
    static const int64_t stride[] = { 1, 0, 1 };
    *r = (hand_gather_run){ .n = n, .bad = bad, .num = { HAND_GATHER_TABLE } };
    for (int i = 0; i < HAND_GATHER_TABLE; i++) r->table[i] = (float)(10 + i);
    for (int64_t i = 0; i < n; i++)
        r->index[i] = i % HAND_GATHER_TABLE - (i % 21 == 20 ? HAND_GATHER_TABLE : 0);
    if (bad >= 0) r->index[bad] = bad % 2 ? HAND_GATHER_TABLE : -7;
    r->ptr[0] = (char *)r->index;
    r->ptr[1] = (char *)r->table;
    r->ptr[2] = (char *)r->out;
    r->args = (df_kargs){
        .ptr = r->ptr, .stride = stride, .extent = &r->n, .num = r->num, .fault = r->fault
    };
}

void hand_gather_shorten(hand_gather_run *r, bool is_long)
{
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t up = is_long && i != r->bad && r->index[i] < 0 ? HAND_GATHER_TABLE : 0;
        const int32_t index = (int32_t)(r->index[i] + up);
        memcpy(r->ptr[0] + 4 * i, &index, sizeof index);
    }
    if (is_long) r->num[0] = (uint64_t)1 << 33;
}

bool hand_gather_holds(const hand_gather_run *r)
{
    if (r->fault[0] != (r->bad < 0 ? 0 : 42)) return false;
    const int64_t place = r->bad % 2 ? HAND_GATHER_TABLE : HAND_GATHER_TABLE - 7;
    if (r->bad >= 0 && (r->fault[1] != place || r->fault[2] != HAND_GATHER_TABLE)) return false;
    for (int64_t i = 0; i < r->n; i++)
        if (r->out[i] != r->table[i == r->bad ? 0 : i % HAND_GATHER_TABLE]) return false;
    return true;
}

/* ---- stages that share a row through scratch ---- */

static const df_access softmax_access[] = {
    { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
    { .kind = DF_ACCESS_SCRATCH, .dtype = DEFT_F32, .same_as = 1 },
    { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
};

static const df_ins softmax_body[] = {
    INS(load, F32, 0, 0, 0, 0), INS(rmax, F32, 0, 0, 0, 0),  INS(load, F32, 1, 0, 0, 0),
    INS(sub, F32, 1, 2, 1, 0),  INS(store, F32, 1, 3, 0, 1), INS(sum, F32, 1, 3, 0, 0),
    INS(load, F32, 2, 0, 0, 1), INS(div, F32, 2, 6, 5, 0),   INS(store, F32, 2, 7, 0, 2),
};

const df_kernel hand_softmax = { .mode = DF_MODE_ROW,
                                 .n_axes = 2,
                                 .n_stages = 3,
                                 .role = { DF_AXIS_OUTER, DF_AXIS_RED },
                                 .n_access = 3,
                                 .n_ins = DF_LEN(softmax_body),
                                 .access = softmax_access,
                                 .ins = softmax_body };

void hand_softmax_init(hand_softmax_run *r, float *data, float *scratch, int64_t rows,
                       int64_t length)
{
    *r = (hand_softmax_run){ .ptr = { (char *)data, (char *)scratch, (char *)data },
                             .extent = { rows, length },
                             .stride = { length, 1, 0, 0, length, 1 } };
    for (int64_t i = 0; i < rows * length; i++) data[i] = (float)((i * 37) % 101) / 8;
    r->args = (df_kargs){ .ptr = r->ptr, .stride = r->stride, .extent = r->extent };
}

/* ---- axpy ---- */

void hand_axpy_make(hand_axpy *p, uint8_t t, bool has_rows)
{
    const uint64_t two = t == DEFT_F64 ? 0x4000000000000000ull : t == DEFT_F32 ? 0x40000000u : 2;
    for (uint32_t i = 0; i < 3; i++) {
        p->access[i] = (df_access){ .kind = i == 2 ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                    .dtype = t,
                                    .same_as = (uint8_t)(i ? 1 : 0) };
        p->access[i].step[0] = has_rows ? DF_STEP_ANY : DF_STEP_UNIT;
        p->access[i].step[1] = DF_STEP_UNIT;
    }
    p->ins[0] = ins(DF_K_const, t, 0, DF_LEVEL_ELEM, 0, 0, two);
    p->ins[1] = ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 0);
    p->ins[2] = ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 1);
    p->ins[3] = ins(DF_K_mul, t, 0, DF_LEVEL_ELEM, 0, 1, 0);
    p->ins[4] = ins(DF_K_add, t, 0, DF_LEVEL_ELEM, 3, 2, 0);
    p->ins[5] = ins(DF_K_store, t, 0, DF_LEVEL_ELEM, 4, 0, 2);
    p->k = (df_kernel){ .mode = DF_MODE_MAP,
                        .n_axes = has_rows ? 2 : 1,
                        .n_stages = 1,
                        .role = { has_rows ? DF_AXIS_OUTER : DF_AXIS_INNER, DF_AXIS_INNER },
                        .n_access = 3,
                        .n_ins = 6,
                        .access = p->access,
                        .ins = p->ins };
}

/* ---- reductions ---- */

void hand_reductions_make(hand_reductions *r, bool col, bool scans, uint32_t n_reds)
{
    static const df_kop ops[] = { DF_K_sum, DF_K_argmin, DF_K_rmax, DF_K_argmax };
    const uint32_t run = n_reds + 1;
    df_ins *const body = r->ins;
    uint32_t n = 0;
    memset(r, 0, sizeof *r);
    for (uint32_t i = 0; i <= run; i++) {
        const bool is_row = i > 0 && i < run, is_arg = is_row && ops[(i - 1) % 4] > DF_K_rmax;
        r->access[i] = (df_access){ .kind = i ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                    .dtype = is_arg ? DEFT_I64 : DEFT_F64,
                                    .same_as = i,
                                    .step = { DF_STEP_ANY, is_row ? DF_STEP_ZERO : DF_STEP_ANY,
                                              DF_STEP_UNIT } };
    }
    body[n++] = ins(DF_K_load, DEFT_F64, 0, DF_LEVEL_ELEM, 0, 0, 0);
    if (scans) body[n++] = ins(DF_K_cumsum, DEFT_F64, 0, DF_LEVEL_ELEM, 0, 0, 0);
    if (scans) body[n++] = ins(DF_K_store, DEFT_F64, 0, DF_LEVEL_ELEM, 1, 0, run);
    const uint32_t first = n;
    for (uint32_t i = 0; i < n_reds; i++)
        body[n++] =
            ins(ops[i % 4], r->access[i + 1].dtype, 0, DF_LEVEL_ELEM, scans && i % 3 == 0, 0, 0);
    for (uint32_t i = 0; i < n_reds; i++)
        body[n++] = ins(DF_K_store, r->access[i + 1].dtype, 1, DF_LEVEL_ROW, first + i, 0, i + 1);
    r->k = (df_kernel){ .mode = col ? DF_MODE_COL : DF_MODE_ROW,
                        .n_axes = col ? 3 : 2,
                        .n_stages = 2,
                        .flags = scans ? DF_KERNEL_SCAN : 0,
                        .role = { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER },
                        .n_access = scans ? run + 1 : run,
                        .n_ins = n,
                        .access = r->access,
                        .ins = r->ins };
}
