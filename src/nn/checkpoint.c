/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves a list to a file and loads it. Numbers are written and read as temporary tensors. A load is
 * a step, so a failure undoes all assignments. Numbers are set last, after everything that can
 * fail.
 */
#include "nn/nn.h"

typedef struct files {
    deft_named *list;
    int64_t *numbers; /* per entry of the deft_nn that is a number: its value in the file */
    size_t n, n_all;
} files;

static bool takes_part(const df_nn_entry *e, deft_nn_part part)
{
    return part == DEFT_NN_ALL || e->kind == DF_NN_PARAMETER;
}

static deft_status open_list(deft_nn *nn, const char *what, deft_nn_part part, files *f)
{
    if (part != DEFT_NN_ALL && part != DEFT_NN_PARAMETERS)
        return df_refuse(nn->cx, DEFT_E_ARG, "%s: %d is no part of a network", what, (int)part);
    if (df_ctx_is_passing(nn->cx))
        return df_refuse(nn->cx, DEFT_E_STATE, "%s: a step is open, or a function is recorded",
                         what);
    f->n_all = nn->list.n;
    f->list = df_mem_zalloc(nn->mem, f->n_all * sizeof *f->list);
    f->numbers = df_mem_zalloc(nn->mem, f->n_all * sizeof *f->numbers);
    if (f->list && f->numbers) return DEFT_OK;
    return df_refuse(nn->cx, DEFT_E_MEMORY, "%s: no memory for a list of %zu names", what,
                     f->n_all);
}

static void close_list(const deft_nn *nn, files *f)
{
    df_mem_free(nn->mem, f->list, f->n_all * sizeof *f->list);
    df_mem_free(nn->mem, f->numbers, f->n_all * sizeof *f->numbers);
}

/* Fills f->list with the entries of a part. A number gets a tensor of the innermost scope. */
static void fill_list(deft_nn *nn, deft_nn_part part, files *f)
{
    const deft_shape single = { 0 };
    for (size_t i = 0; i < nn->list.n; i++) {
        const df_nn_entry *const e = &nn->list.at[i];
        if (!takes_part(e, part)) continue;
        deft_tensor *const t =
            e->number ? deft_from(nn->cx, single, DEFT_I64, e->number, sizeof *e->number) : e->t;
        f->list[f->n++] = (deft_named){ e->name, t };
    }
}

static deft_status nn_save(deft_nn *nn, const char *path, deft_nn_part part)
{
    files f = { 0 };
    if (!nn) return DEFT_E_ARG;
    df_acts(nn->cx, "nn_save", DF_SITE);
    deft_status st = df_may_act(nn->cx);
    if (st == DEFT_OK) st = open_list(nn, "nn_save", part, &f);
    if (st == DEFT_OK) {
        const deft_scope s = deft_scope_begin(nn->cx);
        fill_list(nn, part, &f);
        st = deft_save(nn->cx, path, f.list, f.n);
        const deft_status end = deft_scope_end(s);
        if (st == DEFT_OK) st = end;
    }
    close_list(nn, &f);
    return st;
}

static deft_status read_numbers(const deft_nn *nn, deft_nn_part part, files *f)
{
    size_t k = 0;
    for (size_t i = 0; i < nn->list.n; i++) {
        const df_nn_entry *const e = &nn->list.at[i];
        if (!takes_part(e, part)) continue;
        deft_tensor *const t = f->list[k++].tensor;
        const deft_status st = e->number ? deft_item_i64(t, &f->numbers[i]) : DEFT_OK;
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

static deft_status nn_load(deft_nn *nn, const char *path, deft_nn_part part)
{
    files f = { 0 };
    if (!nn) return DEFT_E_ARG;
    df_acts(nn->cx, "nn_load", DF_SITE);
    deft_status st = df_may_act(nn->cx);
    if (st == DEFT_OK) st = open_list(nn, "nn_load", part, &f);
    if (st == DEFT_OK) {
        const deft_scope s = deft_step_begin(nn->cx);
        if (!s.depth) st = df_deliver(nn->cx);
        if (st == DEFT_OK) fill_list(nn, part, &f);
        if (st == DEFT_OK) st = deft_load(nn->cx, path, f.list, f.n);
        if (st == DEFT_OK) st = read_numbers(nn, part, &f);
        if (st == DEFT_OK)
            st = deft_step_end(s);
        else
            deft_step_abort(s);
    }
    for (size_t i = 0; st == DEFT_OK && i < nn->list.n; i++)
        if (nn->list.at[i].number && takes_part(&nn->list.at[i], part))
            *nn->list.at[i].number = f.numbers[i];
    close_list(nn, &f);
    return st;
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_status deft_nn_save(deft_nn *nn, const char *path, deft_nn_part part)
{
    DF_LAYER_RETURN(deft_status, nn ? nn->cx : NULL, nn_save(nn, path, part));
}

deft_status deft_nn_load(deft_nn *nn, const char *path, deft_nn_part part)
{
    DF_LAYER_RETURN(deft_status, nn ? nn->cx : NULL, nn_load(nn, path, part));
}
