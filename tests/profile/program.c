/* SPDX-License-Identifier: Apache-2.0
 *
 * A program to be profiled: program run|fork|twice [REPEATS]. Its log goes to stderr. It says where
 * its own kernels are recorded by deft_site, so that tests need not know the lines of this file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deft/deft.h"

static void log_line(void *user, const char *topic, const char *line)
{
    (void)user;
    fprintf(stderr, "%s: %s\n", topic, line);
}

static float x[1 << 16];

/* exp, mul, sum: one kernel of program.c:100, or tanh and max of program.c:200. */
static int run(deft_ctx *cx, int repeats, bool other)
{
    float out = 0;
    for (int i = 0; i < repeats; i++) {
        deft_site(cx, "program.c", other ? 200 : 100);
        deft_tensor *a = deft_wrap(cx, DEFT_SHAPE(256, 256), DEFT_F32, x, sizeof x, NULL);
        deft_tensor *y = other ? deft_max(deft_tanh(a), DEFT_ALL_AXES, 0)
                               : deft_sum(deft_mul(deft_exp(a), 0.5), DEFT_ALL_AXES, 0);
        if (deft_read(y, DEFT_F32, &out, sizeof out) != DEFT_OK) {
            fprintf(stderr, "%s\n", deft_message(cx));
            return 1;
        }
    }
    printf("%d %.9g\n", (int)getpid(), (double)out);
    fflush(stdout);
    return 0;
}

static int in_child(deft_ctx *cx)
{
    const pid_t child = fork();
    if (child == 0) _exit(run(cx, 1, true));
    int status = 1;
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(int argc, char **argv)
{
    deft_runtime *rt = NULL, *second = NULL;
    deft_ctx *cx = NULL;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_FULL,
                                     .log = "error",
                                     .log_hook = log_line };
    const int repeats = argc > 2 ? atoi(argv[2]) : 1;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)(i % 7) * 0.25f;
    if (argc < 2 || deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx))
        return 2;
    int bad = run(cx, repeats, false);
    if (!strcmp(argv[1], "fork")) bad |= in_child(cx);
    if (!strcmp(argv[1], "twice")) { /* two runtimes, one process */
        deft_ctx_destroy(&cx);
        bad |= deft_runtime_create(&o, &second) != DEFT_OK || deft_ctx_create(second, NULL, &cx);
        bad |= bad ? 1 : run(cx, 1, true);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    deft_runtime_destroy(&second);
    return bad;
}
