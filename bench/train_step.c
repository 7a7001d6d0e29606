/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-train THREADS fast|strict|graphs: deft's side of `deft-bench train`, a process of its own
 * so that its memory can be told from that of others. Answers lines as bench/peers/train.py does,
 * and
 *
 *   make MODEL FILE    builds it; FILE gets the parameters and the batch, as safetensors ("-":
 * none)
 *   launches 0         of a step
 *   gap N              as bench/peers/train.py, with at most N launches put in ahead
 *
 * Steps are on one batch again and again, f32, AdamW with its defaults; on the GPU that DEFT_DEVICE
 * names, whose memory `peak` then is of.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"

#include "held.h"
#include "train_models.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != DEFT_OK) goto done;                                                              \
    } while (0)

typedef struct trainee {
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw; /* NULL: the model is not trained */
    train_model *model;
    deft_tensor *result;       /* of the latest step: what train_model_call returned */
    deft_tensor **grad;        /* owned */
    double before;             /* resident bytes before the model was built */
    uint64_t launches;         /* of the latest step */
    held_begin_fn *held_begin; /* NULL: no GPU, or the library is not there */
    held_end_fn *held_end;
} trainee;

static const double rate = 3e-4;

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- steps ---- */

/* A line of /proc/self/status, in bytes. */
static double resident(const char *key)
{
    char line[256];
    double kib = 0;
    FILE *const f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) kib = strtod(line + strlen(key) + 1, NULL);
    if (f) fclose(f);
    return kib * 1024;
}

static int ordinal(void)
{
    const char *const device = getenv("DEFT_DEVICE");
    return device && !strncmp(device, "cuda:", 5) ? atoi(device + 5) : 0;
}

/* The most memory that values took so far: on a GPU, of what they take there. */
static double peak(const trainee *t)
{
    deft_device_memory m = { 0 };
    const char *const device = getenv("DEFT_DEVICE");
    if (!device || !strcmp(device, "cpu")) return resident("VmHWM");
    const deft_status st =
        deft_device_memory_read(deft_ctx_runtime(t->cx), DEFT_CUDA(ordinal()), &m, sizeof m);
    return st == DEFT_OK ? (double)m.peak_bytes : NAN;
}

/* The gradients and the update of the parameters. */
static void learn(trainee *t, deft_tensor *loss)
{
    deft_grad(&loss, NULL, 1, deft_optim_parameters(t->adamw), deft_optim_n(t->adamw), NULL,
              t->grad);
    deft_optim_step(t->adamw, t->grad, rate);
}

static deft_status steps(trainee *t, long n)
{
    deft_tensor *const token = train_model_token(t->model);
    deft_status st = DEFT_OK;
    for (long i = 0; i < n; i++) {
        deft_stats before, after;
        int64_t word = 0;
        deft_stats_read(t->cx, &before, sizeof before);
        const deft_scope s = deft_step_begin(t->cx);
        deft_tensor *const result = train_model_call(t->model);
        if (t->adamw) learn(t, result);
        deft_assign(t->result, result);
        TRY(deft_step_end(s));
        if (token) TRY(deft_item(token, &word)); /* which a program would show */
        deft_stats_read(t->cx, &after, sizeof after);
        t->launches = after.launches - before.launches;
    }
done:
    return st;
}

/* N steps, and what is compared: the loss that the last of them began with, the cross entropy of
 * its scores, or the score of the token it decoded. */
static deft_status run(trainee *t, long n, float *loss)
{
    deft_status st = steps(t, n);
    if (st != DEFT_OK) return st;
    const deft_scope s = deft_scope_begin(t->cx);
    deft_tensor *const y = t->result, *const labels = train_model_labels(t->model);
    st = deft_item(deft_rank(y) ? deft_cross_entropy(y, labels) : y, loss);
    const deft_status end = deft_scope_end(s);
    return st != DEFT_OK ? st : end;
}

static deft_status make(trainee *t, const char *name, const char *path)
{
    FILE *const clear = fopen("/proc/self/clear_refs", "w"); /* VmHWM starts again */
    if (clear) fputs("5", clear), fclose(clear);
    t->before = getenv("DEFT_DEVICE") ? 0 : resident("VmRSS");
    deft_status st = DEFT_OK;
    TRY(deft_nn_create(t->cx, NULL, &t->nn));
    const deft_scope s = deft_scope_begin(t->cx);
    t->model = train_model_create(t->cx, t->nn, name);
    if (t->model) t->result = deft_keep(deft_zeros(t->cx, train_model_result(t->model), DEFT_F32));
    TRY(deft_scope_end(s));
    if (!t->model) return DEFT_E_ARG;
    if (strcmp(path, "-") != 0) TRY(deft_nn_save(t->nn, path, DEFT_NN_ALL));
    if (train_model_work(t->model) != TRAINS) return DEFT_OK;
    TRY(deft_optim_create(t->nn, NULL, &t->adamw));
    t->grad = calloc(deft_optim_n(t->adamw), sizeof *t->grad);
    if (!t->grad) return DEFT_E_MEMORY;
done:
    return st;
}

/* ---- the GPU's share of a step ---- */

enum { GAP_ROUNDS = 5, MOST_HELD_STEPS = 32 };
static const double held_limit_s = 5;

/* held.h's library goes between deft and its driver. */
static void stand_between(trainee *t)
{
    const char *const device = getenv("DEFT_DEVICE"), *const theirs = getenv("DEFT_CUDA_DRIVER");
    const char *const library = BENCH_BUILD_ROOT "/bench/libbench-held.so";
    if (!device || !strcmp(device, "cpu") || setenv("BENCH_CUDA_DRIVER", theirs ? theirs : "", 1))
        return;
    void *const h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *const begin = h ? dlsym(h, "held_begin") : NULL, *const end =
                                                               h ? dlsym(h, "held_end") : NULL;
    if (!begin || !end || setenv("DEFT_CUDA_DRIVER", library, 1)) return;
    memcpy(&t->held_begin, &begin, sizeof begin);
    memcpy(&t->held_end, &end, sizeof end);
}

/* N steps of which the GPU does each part only when all of it is put in; of one step. */
static deft_status held_steps(trainee *t, long n, held *out, double *host_s, const char **why)
{
    deft_status st = deft_wait(t->cx);
    if (st != DEFT_OK) return st;
    *why = t->held_begin(deft_stream(t->cx, DEFT_CUDA(ordinal())), ordinal(), held_limit_s);
    if (*why) return DEFT_OK;
    const double start = now();
    st = steps(t, n);
    const double all_s = now() - start;
    *why = t->held_end(out);
    *host_s = (all_s - out->wait_s) / (double)n;
    return st;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "GPU HOST WAITS", of a step, or "nan WHY". most: launches that are put in ahead. */
static deft_status gap(trainee *t, long most, char *text, size_t size)
{
    held h = { 0 };
    double gpu_s[GAP_ROUNDS], host_s[GAP_ROUNDS];
    const char *why = t->held_begin ? NULL : "libbench-held.so is not there";
    deft_status st = steps(t, 1);
    /* Beside launches there are an event for some, and copies. */
    const long each = (long)(t->launches + t->launches / 16) + 8;
    const long n = most / each < MOST_HELD_STEPS ? most / each : MOST_HELD_STEPS;
    if (n < 1) why = "a step has more launches than the driver's queue takes";
    for (int i = 0; i < GAP_ROUNDS && st == DEFT_OK && !why; i++) {
        st = held_steps(t, n, &h, &host_s[i], &why);
        gpu_s[i] = h.gpu_s / (double)n;
    }
    if (st != DEFT_OK || why) {
        snprintf(text, size, "nan %s", why ? why : "");
        return st;
    }
    qsort(gpu_s, GAP_ROUNDS, sizeof *gpu_s, by_value);
    qsort(host_s, GAP_ROUNDS, sizeof *host_s, by_value);
    snprintf(text, size, "%.9g %.9g %.9g", gpu_s[GAP_ROUNDS / 2], host_s[GAP_ROUNDS / 2],
             (double)(h.n_segments - 1) / (double)n);
    return DEFT_OK;
}

/* ---- answers ---- */

/* false: an error, which is told. */
static bool answer(trainee *t, char *line)
{
    char *rest = NULL;
    const char *const word = strtok_r(line, " \n", &rest), *const arg =
                                                               strtok_r(NULL, " \n", &rest);
    deft_status st = DEFT_OK;
    char text[256] = "";
    float loss = 0;
    double number = 0;
    if (!word || !arg) {
        st = DEFT_E_ARG;
    } else if (!strcmp(word, "make")) {
        const char *const path = strtok_r(NULL, " \n", &rest);
        st = path ? make(t, arg, path) : DEFT_E_ARG;
        number = st == DEFT_OK ? (double)deft_nn_numel(t->nn, true) : 0;
    } else if (!strcmp(word, "loss")) {
        st = run(t, atol(arg), &loss);
        number = (double)loss;
    } else if (!strcmp(word, "time")) {
        const double start = now();
        st = run(t, atol(arg), &loss);
        number = now() - start;
    } else if (!strcmp(word, "gap")) {
        st = gap(t, atol(arg), text, sizeof text);
    } else if (!strcmp(word, "launches")) {
        number = (double)t->launches;
    } else if (!strcmp(word, "peak")) {
        number = peak(t) - t->before;
    }
    if (st == DEFT_OK && *text)
        printf("ok %s\n", text);
    else if (st == DEFT_OK)
        printf("ok %.9g\n", number);
    else
        printf("failed %s: %s\n", deft_status_text(st), deft_message(t->cx));
    fflush(stdout);
    return st == DEFT_OK;
}

int main(int argc, char **argv)
{
    char line[4096];
    trainee t = { 0 };
    deft_runtime *rt = NULL;
    if (argc != 3) return 2;
    stand_between(&t);
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = (uint32_t)atoi(argv[1]),
                                     .tier = DEFT_TIER_FULL };
    const deft_ctx_options c = {
        .size = sizeof c,
        .numerics = strcmp(argv[2], "strict") ? DEFT_FAST : DEFT_STRICT,
        .replay = strcmp(argv[2], "graphs") ? DEFT_REPLAY_OFF : DEFT_REPLAY_GRAPHS,
    };
    deft_status st = DEFT_OK;
    TRY(deft_runtime_create(&o, &rt));
    (void)deft_runtime_compiler(
        rt); /* loads it; the peers have loaded their libraries by now, too */
    TRY(deft_ctx_create(rt, &c, &t.cx));
    printf("ok %s\n", deft_version());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && answer(&t, line)) {
    }
done:
    if (st != DEFT_OK) printf("failed %s\n", deft_status_text(st));
    free(t.grad);
    deft_optim_destroy(&t.adamw);
    train_model_destroy(&t.model);
    deft_nn_destroy(&t.nn);
    deft_ctx_destroy(&t.cx);
    deft_runtime_destroy(&rt);
    return st != DEFT_OK;
}
