/* SPDX-License-Identifier: Apache-2.0
 *
 *     bench-first-step [N]
 *
 * N training steps of network.h, or one, and the loss, in a process of its own, with defaults. It
 * leaves without waiting for the compiler, as a program would that goes on. first.c and kept.c time
 * it.
 */
#include <stdlib.h>

#include "bench.h"
#include "network.h"

deft_ctx *bench_ctx(deft_runtime *rt, deft_numerics numerics)
{
    const deft_ctx_options o = { .size = sizeof o, .numerics = numerics };
    deft_ctx *cx = NULL;
    if (deft_ctx_create(rt, &o, &cx) != DEFT_OK) exit(1);
    return cx;
}

void bench_must(deft_ctx *cx, deft_status st, const char *what)
{
    (void)cx, (void)what;
    if (st != DEFT_OK) exit(1);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 1;
    deft_runtime *rt = NULL;
    network w;
    if (deft_runtime_create(NULL, &rt) != DEFT_OK) return 1;
    network_open(&w, rt, 8);
    for (int i = 0; i < n; i++) network_train_again(&w);
    const float loss = network_loss(&w);
    _Exit(loss > 0 && loss < 10 ? 0 : 1);
}
