/* SPDX-License-Identifier: Apache-2.0
 *
 * The least program that computes with deft and needs no compiler: its start is compared with
 * empty.c.
 */
#include "deft/deft.h"

int main(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    float out = 0;
    const float v[2] = { 1, 2 };
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    deft_tensor *x = deft_from(cx, DEFT_SHAPE(2), DEFT_F32, v, sizeof v);
    const deft_status st = deft_item(deft_sum(deft_mul(x, 2), DEFT_ALL_AXES, 0), &out);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return st == DEFT_OK && out == 6 ? 0 : 1;
}
