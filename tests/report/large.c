/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of some 5000 operations with labels, twice: what a report must stay usable with.
 */
#include <stdio.h>
#include <stdlib.h>

#include "deft/deft.h"

static void must(deft_ctx *cx, deft_status st)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "%s\n", cx ? deft_message(cx) : deft_status_text(st));
    exit(1);
}

static deft_tensor *layer(deft_ctx *cx, deft_tensor *x, deft_tensor *w, int k)
{
    char name[32];
    snprintf(name, sizeof name, "layer %d", k);
    deft_label_begin(cx, name);
    for (int i = 0; i < 9; i++) x = deft_tanh(deft_add(deft_mul(x, 0.5), deft_matmul(x, w)));
    x = deft_sub(x, deft_mean(x, DEFT_AXES(1), 1));
    x = deft_div(x, deft_add(deft_max(deft_abs(x), DEFT_AXES(1), 1), 1));
    deft_label_end(cx);
    return x;
}

int main(void)
{
    enum { LAYERS = 117 };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 2,
                                     .tier = DEFT_TIER_INTERPRET };
    must(NULL, deft_runtime_create(&o, &rt));
    must(NULL, deft_ctx_create(rt, NULL, &cx));
    deft_tensor *x = deft_keep(deft_ones(cx, DEFT_SHAPE(4, 8), DEFT_F32));
    deft_tensor *w = deft_keep(deft_ones(cx, DEFT_SHAPE(8, 8), DEFT_F32));
    for (int step = 0; step < 2; step++) {
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *y = x;
        for (int k = 0; k < LAYERS; k++) y = layer(cx, y, w, k);
        deft_assign(x, y);
        must(cx, deft_step_end(s));
    }
    deft_drop(&x);
    deft_drop(&w);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return 0;
}
