/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before a program: asks for its events before each step and when a context goes, and
 * appends them, then the counters, to the file that DEFT_WHY_OUT names.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "deft/deft.h"

static void tell(deft_ctx *cx)
{
    static char text[1 << 16];
    const char *const path = getenv("DEFT_WHY_OUT");
    FILE *const f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    if (deft_explain(cx, text, sizeof text)) fputs(text, f);
    fclose(f);
}

/* Between steps, so that the ring is never full. The call site of this one is lost, and with it
 * only those of lines about the step as such. */
__attribute__((visibility("default"))) deft_scope deft_step_begin(deft_ctx *cx)
{
    deft_scope (*real)(deft_ctx *);
    *(void **)&real = dlsym(RTLD_NEXT, "deft_step_begin");
    tell(cx);
    return real(cx);
}

__attribute__((visibility("default"))) deft_scope
deft_step_begin_with(deft_ctx *cx, const deft_step_options *options)
{
    deft_scope (*real)(deft_ctx *, const deft_step_options *);
    *(void **)&real = dlsym(RTLD_NEXT, "deft_step_begin_with");
    tell(cx);
    return real(cx, options);
}

static void counters(deft_ctx *cx)
{
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    const char *const path = getenv("DEFT_WHY_OUT");
    FILE *const f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f,
            "counters: runtime=%p kernels_compiled=%llu plans_built=%llu plan_misses=%llu "
            "guard_misses=%llu\n",
            (void *)deft_ctx_runtime(cx), (unsigned long long)s.kernels_compiled,
            (unsigned long long)s.plans_built, (unsigned long long)s.plan_misses,
            (unsigned long long)s.guard_misses);
    fclose(f);
}

__attribute__((visibility("default"))) void deft_ctx_destroy(deft_ctx **cx)
{
    void (*real)(deft_ctx **);
    *(void **)&real = dlsym(RTLD_NEXT, "deft_ctx_destroy");
    if (cx && *cx) {
        deft_runtime_settle(deft_ctx_runtime(*cx));
        tell(*cx);
        counters(*cx);
    }
    real(cx);
}
