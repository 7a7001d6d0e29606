/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-cuts N: cuts a chain of 1000 ops N times, compiled, for a counter of instructions.
 */
#include <stdlib.h>

#include "deft/deft.h"

int main(int argc, char **argv)
{
    enum { OPS = 1000 };
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_FULL, .trace_dir = ""
    };
    const float v = 1;
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    deft_tensor *const a = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v);
    deft_tensor *const one = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v);
    for (long n = argc > 1 ? atol(argv[1]) : 1; n-- > 0;) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *x = a;
        for (int i = 0; i < OPS; i++) x = i % 2 ? deft_mul(x, one) : deft_add(x, one);
        if (deft_eval(&x, 1) != DEFT_OK || deft_scope_end(s) != DEFT_OK) return 1;
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return 0;
}
