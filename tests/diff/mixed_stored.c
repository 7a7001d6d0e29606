/* SPDX-License-Identifier: Apache-2.0 */
#include "mixed_stored.h"

#include "../../tools/deft/store.h"
#include "../support/oracle.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One run of a stored program. */
typedef struct stored_run {
    deft_status status;
    run_results results;
} stored_run;

static size_t n_elements(const df_trace *t, uint32_t root)
{
    return (size_t)df_trace_numel(t, t->roots[root].node);
}

static deft_dtype dtype_of(const df_trace *t, uint32_t root)
{
    return (deft_dtype)t->nodes[t->roots[root].node].dtype;
}

static stored_run run_stored(cli_program *p, const data_source *data, const mixed_stored *was,
                             bool is_fused)
{
    const run_way way = { .tier = DF_TIER_INTERP,
                          .passes = { is_fused ? DF_PASS_ALL : 0, is_fused },
                          .threads = 1,
                          .limits = was->limits };
    stored_run r = { .status = DEFT_OK };
    const uint64_t bound = p->trace->max_temporary_bytes;
    if (!is_fused) p->trace->max_temporary_bytes = 0;
    r.status = run_once(p, data, &way, &r.results);
    p->trace->max_temporary_bytes = bound;
    for (uint32_t i = 0; i < p->trace->n_roots && r.status == DEFT_OK; i++)
        oracle_canonical(dtype_of(p->trace, i), r.results.root[i], n_elements(p->trace, i));
    return r;
}

/* The first root in which a and b differ; n_roots: none. */
static uint32_t different_root(const df_trace *t, const stored_run *a, const stored_run *b)
{
    for (uint32_t i = 0; i < t->n_roots; i++)
        if (memcmp(a->results.root[i], b->results.root[i],
                   n_elements(t, i) * deft_dtype_size(dtype_of(t, i))) != 0)
            return i;
    return t->n_roots;
}

/* Whether result `root` of r has the elements of v. */
static bool is_value(const df_trace *t, const stored_run *r, uint32_t root, const mixed_value *v)
{
    return dtype_of(t, root) == DEFT_F32 && n_elements(t, root) == v->n &&
           oracle_difference(DEFT_F32, r->results.root[root], v->at, v->n) == v->n;
}

static bool has_value(const df_trace *t, const stored_run *r, const mixed_value *v)
{
    for (uint32_t i = 0; i < t->n_roots; i++)
        if (is_value(t, r, i, v)) return true;
    return false;
}

/* The first result of dtype f32 that no tensor has; n_roots: none. */
static uint32_t lost_root(const df_trace *t, const stored_run *r, const mixed_stored *was)
{
    for (uint32_t i = 0; i < t->n_roots; i++) {
        bool is_kept = dtype_of(t, i) != DEFT_F32;
        for (size_t k = 0; k < was->n_kept && !is_kept; k++)
            is_kept = is_value(t, r, i, &was->kept[k]);
        if (!is_kept) return i;
    }
    return t->n_roots;
}

static void compare(cli_program *p, const data_source *data, const mixed_stored *was, char *why,
                    size_t n)
{
    const df_trace *const t = p->trace;
    for (uint32_t i = 0; i < t->n_inputs; i++)
        if (!data->input[i]) (void)snprintf(why, n, "input %u was not stored", i);
    if (*why) return;
    const stored_run plain = run_stored(p, data, was, false),
                     fused = run_stored(p, data, was, true);
    /* Only the fused run has the bound on temporaries that the trace asks for. */
    const bool is_refused = t->max_temporary_bytes && fused.status == DEFT_E_MEMORY;
    if (is_refused && (!was->is_known || was->status == DEFT_E_MEMORY)) return;
    if (plain.status != fused.status || (was->is_known && plain.status != was->status)) {
        (void)snprintf(why, n, "unfused it ends with %s, fused with %s, and ended with %s: %s",
                       deft_status_text(plain.status), deft_status_text(fused.status),
                       was->is_known ? deft_status_text(was->status) : "any", p->diag.text);
        return;
    }
    if (plain.status != DEFT_OK) return;
    const uint32_t other = different_root(t, &plain, &fused);
    const uint32_t lost = was->n_kept ? lost_root(t, &plain, was) : t->n_roots;
    if (other < t->n_roots)
        (void)snprintf(why, n, "fused, result %u has other bits than unfused", other);
    else if (was->read.at && !has_value(t, &plain, &was->read))
        (void)snprintf(why, n, "none of its results is what was read");
    else if (lost < t->n_roots)
        (void)snprintf(why, n, "no tensor has the value of result %u", lost);
}

bool mixed_stored_runs(const char *path, const mixed_stored *was, bool *is_there, char *why,
                       size_t why_size)
{
    char trace[160], tensors[160];
    data_source data = { .seed = 1 };
    cli_program p;
    *why = 0;
    (void)snprintf(trace, sizeof trace, "%.140s.trace", path);
    (void)snprintf(tensors, sizeof tensors, "%.140s.safetensors", path);
    *is_there = access(trace, F_OK) == 0;
    if (!*is_there) return true;
    if (cli_program_read(&p, trace, 0) != CLI_OK)
        (void)snprintf(why, why_size, "its text is refused: %s", p.diag.text);
    else if (store_read_inputs(&p, tensors, &data) != CLI_OK)
        (void)snprintf(why, why_size, "its inputs are refused");
    else
        compare(&p, &data, was, why, why_size);
    cli_program_finish(&p);
    (void)unlink(trace);
    (void)unlink(tensors);
    return !*why;
}
