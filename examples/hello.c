/* SPDX-License-Identifier: Apache-2.0
 *
 * The README's program: rows of a matrix are normalized and summed up. Nothing runs until the read;
 * then all of it is one kernel.
 */
#include <deft/deft.h>
#include <stdio.h>

int main(void)
{
    deft_ctx *cx = NULL;
    float x[4][3] = { { 1, 2, 3 }, { 2, 2, 2 }, { 0, 5, 1 }, { 9, 0, 0 } }, out[4];
    static char plan[4096];
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;

    deft_tensor *a = deft_wrap(cx, DEFT_SHAPE(4, 3), DEFT_F32, x, sizeof x, NULL);
    deft_tensor *p = deft_softmax(deft_mul(a, 0.5), 1); /* nothing runs */
    deft_tensor *entropy = deft_neg(deft_sum(deft_mul(p, deft_log(p)), DEFT_AXES(1), 0));

    const deft_status st = deft_read(entropy, DEFT_F32, out, sizeof out); /* one kernel */
    if (st == DEFT_OK)
        printf("%g %g %g %g\n", (double)out[0], (double)out[1], (double)out[2], (double)out[3]);
    else
        fprintf(stderr, "%s\n", deft_message(cx));

    deft_show(cx, "plan", plan, sizeof plan); /* what fusion did */
    fputs(plan, stdout);
    deft_ctx_destroy(&cx);
    return st != DEFT_OK;
}
