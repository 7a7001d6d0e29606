/* SPDX-License-Identifier: Apache-2.0
 *
 * Random sequences of calls on a few tensors whose memory other code sees or owns: arrays of DLPack
 * that come and go, memory of the caller that is read or written, mappings. Between these calls
 * tensors are assigned, whole and in part, in steps that end, are submitted or are aborted, and by
 * captures, so that their memory is donated where that is allowed. A plain model in C knows each
 * value. A mapping and an exported array keep the elements that they had. Memory that deft gave
 * back is poisoned. Read-only memory never changes. Memory that assignments write has the value of
 * its tensor.
 *
 *   random_loans [--quick | --full | COUNT [SEED]] [-v]
 *
 * A program follows from its seed alone. The test fails when nothing was donated, exported or
 * imported without a copy, or mapped while a submitted step ran.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "deft/dlpack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { VARS = 5, LOANS = 6, BLOCKS = 64, CAPTURES = 3, CALLS = 60, MOST = 40000, POISON = 0x55 };

/* Memory of the caller, or of another library. */
typedef struct block {
    deft_dlpack_versioned m;
    int64_t shape, stride;
    int32_t *data, *kept; /* kept: what it holds while no assignment writes it */
    int n_freed;
    bool is_owned; /* deft was given it, and gives it back */
} block;

typedef struct variable {
    deft_tensor *t;
    int32_t *want;
    block *written; /* the memory that assignments write; NULL: there is none */
    block *shown;   /* imported memory that the value still is; NULL: it is another */
} variable;

/* Elements that must not change: those of a mapping or of an exported array. */
typedef struct loan {
    deft_mapped map;
    deft_dlpack_versioned *array;
    const int32_t *data;
    int32_t *want;
} loan;

typedef struct program {
    uint64_t seed, state;
    deft_ctx *cx;
    int64_t n; /* elements of each tensor */
    variable var[VARS];
    loan loan[LOANS];
    block block[BLOCKS];
    int n_blocks;
    deft_capture *capture[CAPTURES];
    int form[CAPTURES];
    bool assigns[CAPTURES]; /* the captured function assigns its first input */
    bool in_step, in_flight;
} program;

static long n_failed, n_shared, n_imported, n_mapped_in_flight, n_donated;
static bool is_verbose;

static uint32_t draw(program *p, uint32_t n)
{
    return (uint32_t)(oracle_next(&p->state) >> 33) % n;
}

static void wrong(const program *p, const char *what, long which)
{
    if (n_failed++ < 20)
        printf("seed %" PRIu64 ": %s (%ld): %s\n", p->seed, what, which, deft_message(p->cx));
}

static void must(const program *p, bool ok, const char *what, long which)
{
    if (!ok) wrong(p, what, which);
}

static size_t size_of(const program *p)
{
    return (size_t)p->n * sizeof(int32_t);
}

static int32_t *copy_of(const program *p, const int32_t *from)
{
    int32_t *const v = oracle_alloc(size_of(p));
    memcpy(v, from, size_of(p));
    return v;
}

static int32_t *numbers(program *p)
{
    int32_t *const v = oracle_alloc(size_of(p));
    for (int64_t i = 0; i < p->n; i++) v[i] = (int32_t)oracle_next(&p->state);
    return v;
}

/* ---- values ---- */

enum { N_FORMS = 6 };

static deft_tensor *value(int form, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *turned[2];
    switch (form) {
    case 0: return deft_add(a, b);
    case 1: return deft_sub(deft_mul(a, deft_const_i(deft_ctx_of(a), 3)), b);
    case 2: return deft_maximum(a, deft_flip(b, DEFT_AXES(0)));
    case 3: /* neighbours */
        turned[0] = deft_slice(b, DEFT_R(1, deft_dim(b, 0)));
        turned[1] = deft_slice(b, DEFT_R(0, 1));
        return deft_add(a, deft_concat(turned, 2, 0));
    case 4: return deft_add(a, deft_max(b, DEFT_AXES(0), 1));
    default: return deft_where(deft_lt(a, b), b, deft_neg(a));
    }
}

static int32_t *wanted(const program *p, int form, const int32_t *a, const int32_t *b)
{
    int32_t *const v = oracle_alloc(size_of(p));
    int32_t most = b[0];
    for (int64_t i = 0; i < p->n; i++) most = b[i] > most ? b[i] : most;
    for (int64_t i = 0; i < p->n; i++) {
        const uint32_t x = (uint32_t)a[i], y = (uint32_t)b[i];
        const int32_t back = b[p->n - 1 - i];
        switch (form) {
        case 0: v[i] = (int32_t)(x + y); break;
        case 1: v[i] = (int32_t)(x * 3 - y); break;
        case 2: v[i] = a[i] > back ? a[i] : back; break;
        case 3: v[i] = (int32_t)(x + (uint32_t)b[(i + 1) % p->n]); break;
        case 4: v[i] = (int32_t)(x + (uint32_t)most); break;
        default: v[i] = a[i] < b[i] ? b[i] : (int32_t)(0 - x); break;
        }
    }
    return v;
}

static void replace(variable *v, int32_t *want)
{
    free(v->want);
    v->want = want;
    v->shown = NULL;
}

/* ---- checks ---- */

static void look_at_loans(const program *p)
{
    for (int i = 0; i < LOANS; i++)
        if (p->loan[i].data && memcmp(p->loan[i].data, p->loan[i].want, size_of(p)) != 0)
            wrong(p, p->loan[i].array ? "an exported array has changed" : "a mapping has changed",
                  i);
    for (int i = 0; i < p->n_blocks; i++)
        if (p->block[i].kept && p->block[i].n_freed == 0 &&
            memcmp(p->block[i].data, p->block[i].kept, size_of(p)) != 0)
            wrong(p, "memory that is only read has changed", i);
}

static void check_variable(program *p, int i)
{
    const variable *const v = &p->var[i];
    int32_t *const got = oracle_alloc(size_of(p));
    must(p, deft_read(v->t, DEFT_I32, got, size_of(p)) == DEFT_OK, "read", i);
    must(p, memcmp(got, v->want, size_of(p)) == 0, "a value is wrong", i);
    free(got);
    if (v->shown) must(p, v->shown->n_freed == 0, "memory was given back in use", i);
    if (!v->written || p->in_step) return;
    must(p, v->written->n_freed == 0, "memory was given back that is written", i);
    must(p, memcmp(v->written->data, v->want, size_of(p)) == 0, "memory has another value", i);
}

static void check_all(program *p)
{
    for (int i = 0; i < VARS; i++) check_variable(p, i);
    p->in_flight = false;
    look_at_loans(p);
}

/* ---- memory of others ---- */

static void give_back(struct DLManagedTensorVersioned *self)
{
    deft_dlpack_versioned *const m = (deft_dlpack_versioned *)(void *)self;
    block *const b = m->manager_ctx;
    memset(b->data, POISON, (size_t)b->shape * sizeof *b->data);
    b->n_freed++;
}

static block *new_block(program *p, int32_t *data)
{
    block *const b = &p->block[p->n_blocks++];
    *b = (block){ .data = data, .shape = p->n, .stride = 1 };
    b->m = (deft_dlpack_versioned){ .major = 1,
                                    .manager_ctx = b,
                                    .deleter = give_back,
                                    .tensor = { .data = data,
                                                .device_type = 1,
                                                .ndim = 1,
                                                .code = 0,
                                                .bits = 32,
                                                .lanes = 1,
                                                .shape = &b->shape,
                                                .strides = &b->stride } };
    return b;
}

/* Makes the tensor t the variable's. Its old tensor ends; memory that it wrote has its value. */
static void take(program *p, int i, deft_tensor *t, int32_t *want)
{
    variable *const v = &p->var[i];
    if (v->written) {
        check_variable(p, i);
        v->written->kept = copy_of(p, v->want);
        v->written = NULL;
    }
    if (!deft_keep(t)) wrong(p, "keep", i);
    deft_drop(&v->t);
    v->t = t;
    replace(v, want);
}

static void wrap(program *p, int i)
{
    if (p->n_blocks == BLOCKS) return;
    block *const b = new_block(p, numbers(p));
    const bool is_written = draw(p, 2);
    int32_t *const want = copy_of(p, b->data);
    const deft_shape s = DEFT_SHAPE(p->n);
    if (!is_written) b->kept = copy_of(p, b->data);
    take(p, i,
         is_written ? deft_wrap_mut(p->cx, s, DEFT_I32, b->data, size_of(p), NULL)
                    : deft_wrap(p->cx, s, DEFT_I32, b->data, size_of(p), NULL),
         want);
    if (is_written) p->var[i].written = b;
}

static void import_array(program *p, int i)
{
    if (p->n_blocks == BLOCKS) return;
    block *const b = new_block(p, numbers(p));
    const bool is_constant = draw(p, 2), is_copied = draw(p, 3) == 0;
    const bool is_written = !is_copied && !is_constant && draw(p, 2);
    int32_t *const want = copy_of(p, b->data);
    b->m.flags = is_constant ? 1 : 0;
    b->kept = is_written ? NULL : copy_of(p, b->data);
    struct DLManagedTensorVersioned *const m = (struct DLManagedTensorVersioned *)(void *)&b->m;
    if (is_constant) /* is refused, and stays the caller's */
        must(p, !deft_from_dlpack(p->cx, m, DEFT_DLPACK_WRITE), "wrote what is read only", i);
    deft_clear(p->cx);
    b->is_owned = true;
    deft_tensor *const t = deft_from_dlpack(p->cx, m,
                                            is_copied    ? DEFT_DLPACK_COPY
                                            : is_written ? DEFT_DLPACK_WRITE
                                                         : 0);
    if (!t) wrong(p, "import", i);
    take(p, i, t, want);
    if (is_written) p->var[i].written = b;
    if (!is_copied && !is_written) p->var[i].shown = b;
    n_imported += !is_copied;
}

/* ---- loans ---- */

static void end_loan(program *p, loan *l)
{
    look_at_loans(p);
    if (l->array) l->array->deleter((struct DLManagedTensorVersioned *)(void *)l->array);
    if (l->map.data) deft_unmap(&l->map);
    free(l->want);
    *l = (loan){ 0 };
}

static loan *free_loan(program *p)
{
    loan *const l = &p->loan[draw(p, LOANS)];
    if (l->data) end_loan(p, l);
    return l;
}

static void map(program *p, int i)
{
    loan *const l = free_loan(p);
    n_mapped_in_flight += p->in_flight;
    if (deft_map(p->var[i].t, &l->map) != DEFT_OK) {
        wrong(p, "map", i);
        return;
    }
    l->data = l->map.data;
    l->want = copy_of(p, p->var[i].want);
}

static void export_array(program *p, int i)
{
    loan *const l = free_loan(p);
    struct DLManagedTensorVersioned *m = NULL;
    const bool is_copied = draw(p, 4) == 0;
    if (deft_to_dlpack(p->var[i].t, is_copied ? DEFT_DLPACK_COPY : 0, &m) != DEFT_OK) {
        wrong(p, "export", i);
        return;
    }
    l->array = (deft_dlpack_versioned *)(void *)m;
    l->data = (const int32_t *)l->array->tensor.data + l->array->tensor.byte_offset / 4;
    l->want = copy_of(p, p->var[i].want);
    n_shared += !(l->array->flags & 2);
    if (!is_copied) return;
    int32_t *const own = (int32_t *)l->array->tensor.data + l->array->tensor.byte_offset / 4;
    look_at_loans(p);
    memset(own, POISON, size_of(p)); /* nobody else sees it */
    memset(l->want, POISON, size_of(p));
}

/* What deft exported comes back as another tensor. */
static void import_loan(program *p, int i)
{
    loan *const l = &p->loan[draw(p, LOANS)];
    if (!l->array) return;
    deft_tensor *const t =
        deft_from_dlpack(p->cx, (struct DLManagedTensorVersioned *)(void *)l->array, 0);
    if (!t) wrong(p, "import of what was exported", i);
    take(p, i, t, l->want);
    *l = (loan){ 0 };
}

/* ---- computations ---- */

static void assign(program *p, int i)
{
    const int a = (int)draw(p, VARS), b = (int)draw(p, VARS), form = (int)draw(p, N_FORMS);
    variable *const v = &p->var[i];
    int32_t *const want = wanted(p, form, p->var[a].want, p->var[b].want);
    deft_tensor *const x = value(form, p->var[a].t, p->var[b].t);
    if (draw(p, 3)) {
        if (!deft_assign(v->t, x)) wrong(p, "assign", i);
        replace(v, want);
        return;
    }
    const int64_t from = draw(p, (uint32_t)p->n), to = from + draw(p, (uint32_t)(p->n - from) + 1);
    if (!deft_assign(deft_slice(v->t, DEFT_R(from, to)), deft_slice(x, DEFT_R(from, to))))
        wrong(p, "assign a part", i);
    memcpy(want, v->want, (size_t)from * sizeof *want);
    memcpy(want + to, v->want + to, (size_t)(p->n - to) * sizeof *want);
    replace(v, want);
}

static void compute(program *p, int i)
{
    const int a = (int)draw(p, VARS), b = (int)draw(p, VARS), form = (int)draw(p, N_FORMS);
    int32_t *const want = wanted(p, form, p->var[a].want, p->var[b].want);
    take(p, i, value(form, p->var[a].t, p->var[b].t), want);
}

static void write_view(program *p, int i)
{
    deft_view view;
    variable *const v = &p->var[i];
    int32_t *const want = copy_of(p, v->want);
    if (deft_map_view(v->t, 1u << DEFT_I32, true, &view) != DEFT_OK) wrong(p, "map a view", i);
    for (int64_t k = draw(p, 3); k < p->n; k += 3) {
        want[k] = (int32_t)((uint32_t)want[k] + 7);
        ((int32_t *)view.data)[k * view.stride[0]] = want[k];
    }
    if (deft_unmap_view(&view) != DEFT_OK) wrong(p, "unmap a view", i);
    replace(v, want);
}

typedef struct captured_function {
    program *p;
    int k;
} captured_function;

static captured_function functions[CAPTURES];

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const captured_function *const f = user;
    (void)n_in, (void)n_out;
    deft_tensor *const x = value(f->p->form[f->k], in[0], in[1]);
    out[0] = deft_sub(x, in[1]);
    if (f->p->assigns[f->k]) deft_assign(in[0], x);
    return deft_error(cx);
}

static void call_capture(program *p, int i)
{
    const int k = (int)draw(p, CAPTURES), a = (int)draw(p, VARS), b = (int)draw(p, VARS);
    deft_tensor *const in[2] = { p->var[a].t, p->var[b].t }, *out = NULL;
    int32_t *const x = wanted(p, p->form[k], p->var[a].want, p->var[b].want);
    int32_t *const want = oracle_alloc(size_of(p));
    for (int64_t j = 0; j < p->n; j++)
        want[j] = (int32_t)((uint32_t)x[j] - (uint32_t)p->var[b].want[j]);
    if (deft_capture_call(p->capture[k], in, 2, &out, 1) != DEFT_OK) wrong(p, "capture", k);
    p->in_flight = false;
    if (p->assigns[k])
        replace(&p->var[a], x);
    else
        free(x);
    take(p, i, out, want);
}

static void step(program *p)
{
    const deft_scope s = deft_step_begin(p->cx);
    const bool is_aborted = draw(p, 5) == 0;
    variable before[VARS];
    for (int i = 0; i < VARS; i++) {
        before[i] = p->var[i];
        before[i].want = copy_of(p, p->var[i].want);
    }
    p->in_step = true;
    for (uint32_t n = 1 + draw(p, 4); n-- > 0;) {
        const int i = (int)draw(p, VARS);
        switch (draw(p, 10)) {
        case 0: map(p, i); break;
        case 1: export_array(p, i); break;
        case 2: check_variable(p, i); break;
        default: assign(p, i); break;
        }
    }
    p->in_step = false;
    if (is_aborted) {
        deft_step_abort(s);
    } else if (draw(p, 2)) {
        if (deft_step_submit(s) != DEFT_OK) wrong(p, "submit", 0);
        p->in_flight = true;
    } else {
        if (deft_step_end(s) != DEFT_OK) wrong(p, "end of a step", 0);
        p->in_flight = false;
    }
    for (int i = 0; i < VARS; i++) {
        if (is_aborted) {
            free(p->var[i].want);
            p->var[i] = before[i];
        } else {
            free(before[i].want);
        }
    }
}

static void one_call(program *p)
{
    static const char *const names[] = { "step",    "step",         "step",       "assign",
                                         "compute", "wrap",         "import",     "import back",
                                         "map",     "export",       "end a loan", "capture",
                                         "read",    "write a view", "wait",       "check" };
    const int i = (int)draw(p, VARS);
    const uint32_t what = draw(p, LEN(names));
    if (is_verbose) fprintf(stderr, "%s %d\n", names[what], i);
    if (what < 3) {
        step(p);
        return;
    }
    const deft_scope s = deft_scope_begin(p->cx);
    switch (what) {
    case 3: assign(p, i); break;
    case 4: compute(p, i); break;
    case 5: wrap(p, i); break;
    case 6: import_array(p, i); break;
    case 7: import_loan(p, i); break;
    case 8: map(p, i); break;
    case 9: export_array(p, i); break;
    case 10: (void)free_loan(p); break;
    case 11: call_capture(p, i); break;
    case 12: check_variable(p, i); break;
    case 13: write_view(p, i); break;
    case 14: must(p, deft_wait(p->cx) == DEFT_OK, "wait", 0); break;
    default: check_all(p); break;
    }
    if (deft_scope_end(s) != DEFT_OK) wrong(p, "end of a scope", (long)what);
}

/* ---- programs ---- */

/* Exported arrays outlive the context. What deft was given it has given back once afterwards. */
static void finish(program *p)
{
    deft_stats stats;
    deft_stats_read(p->cx, &stats, sizeof stats);
    n_donated += (long)stats.donated;
    for (int k = 0; k < CAPTURES; k++) deft_capture_destroy(&p->capture[k]);
    for (int i = 0; i < LOANS; i++)
        if (p->loan[i].map.data) end_loan(p, &p->loan[i]);
    deft_ctx_destroy(&p->cx);
    look_at_loans(p);
    for (int i = 0; i < LOANS; i++)
        if (p->loan[i].data) end_loan(p, &p->loan[i]);
    for (int i = 0; i < p->n_blocks; i++) {
        must(p, p->block[i].n_freed == p->block[i].is_owned, "memory was not given back once", i);
        free(p->block[i].data);
        free(p->block[i].kept);
    }
    for (int i = 0; i < VARS; i++) free(p->var[i].want);
}

static void check(uint64_t seed, const oracle_path *path)
{
    static const int64_t sizes[] = { 2, 5, 64, 1000, 1003, 5000, MOST };
    static program p;
    p = (program){ .seed = seed, .state = oracle_mix(seed, 9), .cx = oracle_context(path, NULL) };
    p.n = sizes[draw(&p, LEN(sizes))];
    if (is_verbose) fprintf(stderr, "seed %" PRIu64 ", %d elements\n", seed, (int)p.n);
    for (int i = 0; i < VARS; i++) {
        int32_t *const v = numbers(&p);
        take(&p, i, deft_from(p.cx, DEFT_SHAPE(p.n), DEFT_I32, v, size_of(&p)), v);
    }
    for (int k = 0; k < CAPTURES; k++) {
        p.form[k] = (int)draw(&p, N_FORMS);
        p.assigns[k] = draw(&p, 3) > 0;
        functions[k] = (captured_function){ .p = &p, .k = k };
        p.capture[k] = deft_capture_create(p.cx, captured, &functions[k]);
    }
    for (int k = 0; k < CALLS && n_failed < 20; k++) one_call(&p);
    check_all(&p);
    finish(&p);
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
        { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2, .streams = true },
    };
    oracle_asked asked = { .count = 2000, .quick = 200, .full = 100000, .seed = 1 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) is_verbose |= !strcmp(argv[i], "-v");
    const double t0 = oracle_now();
    const size_t n_paths = oracle_open(paths, LEN(paths));
    uint64_t n = 0;
    for (; n < asked.count && n_failed < 20 && (n < 20 || test_time_left(1)); n++)
        check(asked.seed + n, &paths[n % n_paths]);
    oracle_close(paths, n_paths);
    printf("%" PRIu64 " programs; arrays exported %ld and imported %ld times without a copy, "
           "%ld mapped behind a submitted step, %ld results donated; %ld failures, %.1f s\n",
           n, n_shared, n_imported, n_mapped_in_flight, n_donated, n_failed, oracle_now() - t0);
    return n_failed || n_shared == 0 || n_imported == 0 || n_mapped_in_flight == 0 ||
           n_donated == 0;
}
