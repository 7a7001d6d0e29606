/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_text.h"

static void log_line(void *user, const char *topic, const char *line)
{
    rig *const r = user;
    log_text_add(r->log, sizeof r->log, topic, line);
}

void rig_open(rig *r, const deft_runtime_options *options, const deft_ctx_options *cx_options)
{
    *r = (rig){ 0 };
    deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET };
    if (options) o = *options;
    o.log_hook = log_line;
    o.log_user = r;
    cr_assert_eq(deft_runtime_create(&o, &r->rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(r->rt, cx_options, &r->cx), DEFT_OK);
}

void rig_interpret(rig *r, uint32_t n_threads)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = n_threads,
                                     .tier = DEFT_TIER_INTERPRET };
    rig_open(r, &o, NULL);
}

void rig_close(rig *r)
{
    deft_ctx_destroy(&r->cx);
    deft_runtime_destroy(&r->rt);
}

deft_stats rig_stats(const rig *r)
{
    deft_stats s;
    deft_stats_read(r->cx, &s, sizeof s);
    return s;
}

deft_tensor *rig_range(rig *r, int64_t n, float first)
{
    float v[4096];
    cr_assert(n <= 4096);
    for (int64_t i = 0; i < n; i++) v[i] = first + (float)i;
    return deft_keep(deft_from(r->cx, DEFT_SHAPE(n), DEFT_F32, v, (size_t)n * sizeof *v));
}

void rig_ok(const rig *r, deft_status st, const char *file, int line)
{
    cr_assert(st == DEFT_OK, "%s:%d: %s: %s", file, line, deft_status_text(st),
              deft_message(r->cx));
}

deft_tensor *rig_vector(rig *r, int64_t n, const float *v)
{
    return deft_keep(deft_from(r->cx, DEFT_SHAPE(n), DEFT_F32, v, (size_t)n * sizeof *v));
}

void rig_read(rig *r, deft_tensor *t, float *out, int64_t n)
{
    OK(r, deft_read(t, DEFT_F32, out, (size_t)n * sizeof *out));
}

float rig_item(rig *r, deft_tensor *t)
{
    float v = 0;
    OK(r, deft_item(t, &v));
    return v;
}

void rig_expect_at(rig *r, deft_tensor *t, int64_t n, const float *want, const char *file, int line)
{
    float *const got = malloc((size_t)n * sizeof *got);
    cr_assert(t && got, "%s:%d: %s", file, line, deft_message(r->cx));
    rig_read(r, t, got, n);
    for (int64_t i = 0; i < n; i++)
        cr_assert(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])),
                  "%s:%d: element %lld is %.9g, not %.9g", file, line, (long long)i, (double)got[i],
                  (double)want[i]);
    free(got);
}

deft_tensor *rig_grad_of_sum(deft_tensor *y, deft_tensor *x)
{
    deft_tensor *const of[] = { deft_sum(y, DEFT_ALL_AXES, 0) };
    deft_tensor *g = NULL;
    deft_grad(of, NULL, 1, &x, 1, NULL, &g);
    return g;
}

deft_tensor *rig_tensor(rig *r, deft_shape s, const float *v)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    return deft_keep(deft_from(r->cx, s, DEFT_F32, v, (size_t)n * sizeof *v));
}

void rig_expect_error(rig *r, const deft_tensor *t, deft_status st, const char *part)
{
    cr_assert_null(t);
    cr_assert_eq(deft_error(r->cx), st, "%d: %s", (int)deft_error(r->cx), deft_message(r->cx));
    cr_assert(strstr(deft_message(r->cx), part), "\"%s\" lacks \"%s\"", deft_message(r->cx), part);
    deft_clear(r->cx);
}

deft_tensor *rig_alias(rig *r, deft_tensor *t)
{
    deft_device where;
    OK(r, deft_device_of(t, &where));
    return deft_keep(deft_to(t, where));
}
