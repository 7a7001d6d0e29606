/* SPDX-License-Identifier: Apache-2.0
 *
 * The entries of a list and their names. Either a complete entry is added or nothing. So memory is
 * allocated first. Then the tensor is made in a scope of its own, so that only the list owns it.
 */
#include "nn/nn.h"

#include <stdio.h>
#include <string.h>

const char *df_nn_text(const deft_tensor *t, char buf[DF_NN_TEXT])
{
    const deft_shape s = deft_shape_get(t);
    size_t n = (size_t)snprintf(buf, DF_NN_TEXT, "%s[", deft_dtype_name(deft_dtype_of(t)));
    for (uint32_t i = 0; i < s.rank && n < DF_NN_TEXT; i++)
        n += (size_t)snprintf(buf + n, DF_NN_TEXT - n, i ? ",%lld" : "%lld", (long long)s.dim[i]);
    if (n < DF_NN_TEXT - 1) strcpy(buf + n, "]");
    return buf;
}

/* ---- creating and destroying ---- */

static void entry_finish(const df_mem *mem, df_nn_entry *e)
{
    deft_drop(&e->t);
    if (e->owns_number) df_mem_free(mem, e->number, sizeof *e->number);
    if (e->name) df_mem_free(mem, e->name, strlen(e->name) + 1);
}

df_nn_mark df_nn_mark_of(const deft_nn *nn)
{
    return (df_nn_mark){ nn->list.n, nn->parameters.n, nn->rng.next };
}

void df_nn_truncate(deft_nn *nn, df_nn_mark m)
{
    while (nn->list.n > m.n) entry_finish(nn->mem, &nn->list.at[--nn->list.n]);
    nn->parameters.n = m.n_parameters;
    nn->rng.next = m.next;
}

deft_status deft_nn_create(deft_ctx *cx, const deft_nn_options *options, deft_nn **out)
{
    if (out) *out = NULL;
    if (!cx || !out) return DEFT_E_ARG;
    df_acts(cx, "nn_create", DF_SITE);
    const deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (options && options->size < sizeof *options)
        return df_refuse(
            cx, DEFT_E_ARG,
            "nn_create: the size of deft_nn_options is %zu, it must be sizeof(deft_nn_options)",
            options->size);
    const df_mem *const mem = df_ctx_mem(cx);
    deft_nn *nn = df_mem_zalloc(mem, sizeof *nn);
    if (!nn) return df_refuse(cx, DEFT_E_MEMORY, "nn_create: no memory");
    nn->cx = cx;
    nn->mem = mem;
    nn->dtype = options && options->dtype == DEFT_F64 ? DEFT_F64 : DEFT_F32;
    nn->rng.seed = options ? options->seed : 0;
    nn->training = true;
    df_str_init(&nn->prefix, mem);
    if (deft_nn_number(nn, "rng.seed", (int64_t *)&nn->rng.seed) &&
        deft_nn_number(nn, "rng.next", (int64_t *)&nn->rng.next)) {
        *out = nn;
        return DEFT_OK;
    }
    deft_nn_destroy(&nn);
    return df_deliver(cx);
}

void deft_nn_destroy(deft_nn **nn)
{
    if (!nn || !*nn) return;
    deft_nn *const n = *nn;
    const df_mem *const mem = n->mem;
    df_nn_truncate(n, (df_nn_mark){ 0 });
    df_vec_finish(mem, &n->list);
    df_vec_finish(mem, &n->parameters);
    df_vec_finish(mem, &n->marks);
    df_str_finish(&n->prefix);
    df_mem_free(mem, n, sizeof *n);
    *nn = NULL;
}

/* ---- names ---- */

const df_nn_entry *df_nn_get(const deft_nn *nn, const char *name)
{
    for (size_t i = 0; i < nn->list.n; i++)
        if (!strcmp(nn->list.at[i].name, name)) return &nn->list.at[i];
    return NULL;
}

bool deft_nn_push(deft_nn *nn, const char *name)
{
    if (!nn) return false;
    df_calls(nn->cx, DF_SITE);
    if (!name || !*name) return df_error(nn->cx, DEFT_E_ARG, "nn_push: no name");
    const size_t before = nn->prefix.n;
    if (df_vec_reserve(nn->mem, &nn->marks, 1)) {
        df_str_fmt(&nn->prefix, "%s.", name);
        if (nn->prefix.ok) return df_vec_push(nn->mem, &nn->marks, before);
    }
    nn->prefix.n = before;
    nn->prefix.ok = true;
    if (nn->prefix.at) nn->prefix.at[before] = 0;
    return df_error(nn->cx, DEFT_E_MEMORY, "nn_push: no memory for \"%.200s\"", name);
}

void deft_nn_pop(deft_nn *nn)
{
    if (!nn || !nn->marks.n) return;
    nn->prefix.n = nn->marks.at[--nn->marks.n];
    nn->prefix.at[nn->prefix.n] = 0;
}

static const char *prefix(const deft_nn *nn)
{
    return nn->prefix.n ? nn->prefix.at : "";
}

/* Returns the full name, which the caller owns, and makes room for its entry. Returns NULL on
 * failure and records a mistake, also when the name is in use. */
static char *reserve_entry_name(deft_nn *nn, const char *what, const char *first,
                                const char *middle, const char *name)
{
    if (!name || !*name) return df_error(nn->cx, DEFT_E_ARG, "%s: no name", what);
    const char *const dot = middle ? "." : "";
    if (!middle) middle = "";
    const size_t size = strlen(first) + strlen(middle) + strlen(dot) + strlen(name) + 1;
    char *const whole = df_mem_alloc(nn->mem, size);
    if (!whole || !df_vec_reserve(nn->mem, &nn->list, 1) ||
        !df_vec_reserve(nn->mem, &nn->parameters, 1)) {
        df_mem_free(nn->mem, whole, size);
        return df_error(nn->cx, DEFT_E_MEMORY, "%s: no memory for \"%.200s\"", what, name);
    }
    snprintf(whole, size, "%s%s%s%s", first, middle, dot, name);
    if (!df_nn_get(nn, whole)) return whole;
    df_error(nn->cx, DEFT_E_ARG, "%s: \"%.200s\" is there already", what, whole);
    df_mem_free(nn->mem, whole, size);
    return NULL;
}

/* Makes a kept tensor. It is computed at once unless another scope is open. Returns NULL on failure
 * and records a mistake. */
static deft_tensor *make_kept_tensor(deft_nn *nn, const char *what, const deft_shape *shape,
                                     deft_dtype dtype, deft_init init)
{
    const uint64_t next = nn->rng.next;
    const deft_scope s = deft_scope_begin(nn->cx);
    deft_tensor *t = deft_keep(df_nn_begin(nn, what, shape, dtype, init));
    const deft_status st = deft_scope_end(s);
    if (st == DEFT_OK) return t;
    deft_drop(&t);
    nn->rng.next = next;
    return df_error_keep(nn->cx, st);
}

deft_tensor *df_nn_add(deft_nn *nn, const char *what, df_nn_kind kind, const char *first,
                       const char *middle, const char *name, const deft_shape *shape,
                       deft_dtype dtype, deft_init init)
{
    if (!nn) return NULL;
    if (df_ctx_is_passing(nn->cx))
        return df_error(nn->cx, DEFT_E_STATE,
                        "%s: \"%.200s\" is to stay: not in a step, a capture or a loop", what,
                        name ? name : "");
    char *const whole = reserve_entry_name(nn, what, first, middle, name);
    deft_tensor *const t = whole ? make_kept_tensor(nn, what, shape, dtype, init) : NULL;
    if (!t) {
        if (whole) df_mem_free(nn->mem, whole, strlen(whole) + 1);
        return NULL;
    }
    const bool is_parameter = kind == DF_NN_PARAMETER;
    if (is_parameter) (void)df_vec_push(nn->mem, &nn->parameters, nn->list.n);
    const df_nn_entry e = { .name = whole, .kind = kind, .trainable = is_parameter, .t = t };
    (void)df_vec_push(nn->mem, &nn->list, e);
    return t;
}

static deft_tensor *nn_parameter(deft_nn *nn, const char *name, deft_shape shape, deft_init init)
{
    if (!nn) return NULL;
    return df_nn_add(nn, "nn_parameter", DF_NN_PARAMETER, prefix(nn), NULL, name, &shape, nn->dtype,
                     init);
}

static deft_tensor *nn_buffer(deft_nn *nn, const char *name, deft_shape shape, deft_dtype dtype,
                              deft_init init)
{
    if (!nn) return NULL;
    return df_nn_add(nn, "nn_buffer", DF_NN_BUFFER, prefix(nn), NULL, name, &shape, dtype, init);
}

bool deft_nn_number(deft_nn *nn, const char *name, int64_t *number)
{
    if (!nn) return false;
    df_calls(nn->cx, DF_SITE);
    if (!number) return df_error(nn->cx, DEFT_E_ARG, "nn_number: the number is NULL");
    const df_nn_entry e = { .name = reserve_entry_name(nn, "nn_number", prefix(nn), NULL, name),
                            .kind = DF_NN_NUMBER,
                            .number = number };
    return e.name && df_vec_push(nn->mem, &nn->list, e);
}

int64_t *df_nn_own_number(deft_nn *nn, const char *what, const char *first, const char *name)
{
    const df_nn_entry e = { .name = reserve_entry_name(nn, what, first, NULL, name),
                            .kind = DF_NN_NUMBER,
                            .owns_number = true,
                            .number = df_mem_zalloc(nn->mem, sizeof(int64_t)) };
    if (e.name && e.number) {
        (void)df_vec_push(nn->mem, &nn->list, e);
        return e.number;
    }
    df_error(nn->cx, DEFT_E_MEMORY, "%s: no memory for \"%s%s\"", what, first, name);
    df_mem_free(nn->mem, e.number, sizeof(int64_t));
    if (e.name) df_mem_free(nn->mem, e.name, strlen(e.name) + 1);
    return NULL;
}

/* ---- properties ---- */

deft_tensor *deft_nn_find(const deft_nn *nn, const char *name)
{
    const df_nn_entry *const e = nn && name ? df_nn_get(nn, name) : NULL;
    return e ? e->t : NULL;
}

static bool nn_fill(deft_nn *nn, const char *name, deft_init init)
{
    if (!nn) return false;
    deft_tensor *const t = deft_nn_find(nn, name);
    if (!t)
        return df_error(nn->cx, DEFT_E_NOT_FOUND, "nn_fill: there is no tensor \"%.200s\"",
                        name ? name : "");
    const deft_shape shape = deft_shape_get(t);
    return deft_assign(t, df_nn_begin(nn, "nn_fill", &shape, deft_dtype_of(t), init)) != NULL;
}

size_t deft_nn_n_parameters(const deft_nn *nn)
{
    return nn ? nn->parameters.n : 0;
}

deft_tensor *deft_nn_parameter_at(const deft_nn *nn, size_t i)
{
    return nn && i < nn->parameters.n ? nn->list.at[nn->parameters.at[i]].t : NULL;
}

const char *deft_nn_name_at(const deft_nn *nn, size_t i)
{
    return nn && i < nn->parameters.n ? nn->list.at[nn->parameters.at[i]].name : NULL;
}

int64_t deft_nn_numel(const deft_nn *nn, bool trainable_only)
{
    int64_t n = 0;
    for (size_t i = 0; nn && i < nn->list.n; i++) {
        const df_nn_entry *const e = &nn->list.at[i];
        if (e->kind == DF_NN_PARAMETER && (e->trainable || !trainable_only)) n += deft_numel(e->t);
    }
    return n;
}

static bool is_below(const char *name, const char *above)
{
    const size_t n = strlen(above);
    return !n || (!strncmp(name, above, n) && (!name[n] || name[n] == '.'));
}

size_t deft_nn_set_trainable(deft_nn *nn, const char *name, bool trainable)
{
    size_t n = 0;
    for (size_t i = 0; nn && i < nn->list.n; i++) {
        df_nn_entry *const e = &nn->list.at[i];
        if (e->kind != DF_NN_PARAMETER || !is_below(e->name, name ? name : "")) continue;
        e->trainable = trainable;
        n++;
    }
    return n;
}

void deft_nn_set_training(deft_nn *nn, bool training)
{
    if (nn) nn->training = training;
}

bool deft_nn_is_training(const deft_nn *nn)
{
    return nn && nn->training;
}

deft_rng *deft_nn_rng(deft_nn *nn)
{
    return nn ? &nn->rng : NULL;
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_tensor *deft_nn_parameter(deft_nn *nn, const char *name, deft_shape shape, deft_init init)
{
    DF_LAYER_RETURN(deft_tensor *, nn ? nn->cx : NULL, nn_parameter(nn, name, shape, init));
}

deft_tensor *deft_nn_buffer(deft_nn *nn, const char *name, deft_shape shape, deft_dtype dtype,
                            deft_init init)
{
    DF_LAYER_RETURN(deft_tensor *, nn ? nn->cx : NULL, nn_buffer(nn, name, shape, dtype, init));
}

bool deft_nn_fill(deft_nn *nn, const char *name, deft_init init)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, nn_fill(nn, name, init));
}
