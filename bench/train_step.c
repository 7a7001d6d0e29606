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

#include "../examples/transformer.h"
#include "held.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != DEFT_OK) goto done;                                                              \
    } while (0)

typedef struct trainee {
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw;
    deft_nn_linear dense[3];
    deft_tensor *weight[2], *bias[2]; /* of convolutions */
    deft_nn_embedding words;
    transformer net;
    deft_tensor *x, *labels, *loss;
    deft_tensor *(*forward)(const struct trainee *t);
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

/* ---- models ---- */

static deft_tensor *mlp_loss(const trainee *t)
{
    deft_tensor *x = t->x;
    for (int i = 0; i < 3; i++) {
        x = deft_nn_linear_call(&t->dense[i], x);
        if (i < 2) x = deft_relu(x);
    }
    return deft_cross_entropy(x, t->labels);
}

static void mlp_of(trainee *t, int64_t rows)
{
    static const int64_t widths[] = { 784, 1024, 1024, 10 };
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        deft_nn_linear_init(&t->dense[i], t->nn, name, widths[i], widths[i + 1], true);
    }
    t->x = deft_normal(t->cx, deft_nn_rng(t->nn), DEFT_SHAPE(rows, 784), DEFT_F32, 0, 1);
    t->forward = mlp_loss;
}

static void mlp_init(trainee *t)
{
    mlp_of(t, 64);
}

static void mlp1_init(trainee *t)
{
    mlp_of(t, 1);
}

static void mlp8_init(trainee *t)
{
    mlp_of(t, 8);
}

static deft_tensor *tiny_loss(const trainee *t)
{
    deft_tensor *const x = deft_relu(deft_nn_embedding_call(&t->words, t->x));
    return deft_cross_entropy(deft_nn_linear_call(&t->dense[0], x), t->labels);
}

static void tiny_init(trainee *t)
{
    enum { WORDS = 16 };
    deft_nn_embedding_init(&t->words, t->nn, "0", WORDS, 16);
    deft_nn_linear_init(&t->dense[0], t->nn, "1", 16, 10, true);
    t->x = deft_randint(t->cx, deft_nn_rng(t->nn), DEFT_SHAPE(8), DEFT_I64, 0, WORDS);
    t->forward = tiny_loss;
}

static deft_tensor *cnn_loss(const trainee *t)
{
    deft_tensor *x = t->x;
    for (int i = 0; i < 2; i++) {
        x = deft_conv2d(x, t->weight[i], DEFT_CONV2D(.padding = { 1, 1 }, .bias = t->bias[i]));
        x = deft_max_pool2d(deft_relu(x), DEFT_POOL2D(.kernel = { 2, 2 }));
    }
    const int64_t n = deft_dim(x, 0);
    x = deft_reshape(x, DEFT_SHAPE(n, deft_numel(x) / n));
    return deft_cross_entropy(deft_nn_linear_call(&t->dense[0], x), t->labels);
}

static void cnn_init(trainee *t)
{
    static const int64_t channels[] = { 1, 32, 64 };
    for (int i = 0; i < 2; i++) {
        char name[8];
        const double bound = 1 / sqrt(9 * (double)channels[i]);
        const deft_init init = { DEFT_INIT_UNIFORM, -bound, bound };
        snprintf(name, sizeof name, "%d", i);
        deft_nn_push(t->nn, name);
        t->weight[i] = deft_nn_parameter(t->nn, "weight",
                                         DEFT_SHAPE(channels[i + 1], channels[i], 3, 3), init);
        t->bias[i] = deft_nn_parameter(t->nn, "bias", DEFT_SHAPE(channels[i + 1]), init);
        deft_nn_pop(t->nn);
    }
    deft_nn_linear_init(&t->dense[0], t->nn, "2", 64 * 7 * 7, 10, true);
    t->x = deft_normal(t->cx, deft_nn_rng(t->nn), DEFT_SHAPE(64, 1, 28, 28), DEFT_F32, 0, 1);
    t->forward = cnn_loss;
}

static deft_tensor *text_loss(const trainee *t)
{
    return transformer_loss(&t->net, t->x, t->labels);
}

static void text_init(trainee *t, const transformer_options *o, int64_t batch)
{
    const deft_shape s = DEFT_SHAPE(batch, 64);
    transformer_init(&t->net, t->nn, o);
    t->x = deft_randint(t->cx, deft_nn_rng(t->nn), s, DEFT_I64, 0, o->n_tokens);
    t->labels = deft_keep(deft_randint(t->cx, deft_nn_rng(t->nn), s, DEFT_I64, 0, o->n_tokens));
    t->forward = text_loss;
}

static void gpt_init(trainee *t)
{
    const transformer_options o = {
        .n_tokens = 1024, .length = 64, .layers = 4, .width = 256, .heads = 4, .is_tied = true
    };
    text_init(t, &o, 16);
}

static void gpt2_init(trainee *t)
{
    const transformer_options o = transformer_gpt2();
    text_init(t, &o, 4);
}

static const struct {
    const char *name;
    void (*init)(trainee *t);
} models[] = { { "mlp", mlp_init },   { "mlp1", mlp1_init }, { "mlp8", mlp8_init },
               { "tiny", tiny_init }, { "cnn", cnn_init },   { "gpt", gpt_init },
               { "gpt2", gpt2_init } };

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

static deft_status save(trainee *t, const char *path)
{
    const size_t n = deft_nn_n_parameters(t->nn);
    deft_named *const list = calloc(n + 2, sizeof *list);
    if (!list) return DEFT_E_MEMORY;
    for (size_t i = 0; i < n; i++)
        list[i] = (deft_named){ deft_nn_name_at(t->nn, i), deft_nn_parameter_at(t->nn, i) };
    list[n] = (deft_named){ "x", t->x };
    list[n + 1] = (deft_named){ "labels", t->labels };
    const deft_status st = deft_save(t->cx, path, list, n + 2);
    free(list);
    return st;
}

static deft_status make(trainee *t, const char *model, const char *path)
{
    FILE *const clear = fopen("/proc/self/clear_refs", "w"); /* VmHWM starts again */
    if (clear) fputs("5", clear), fclose(clear);
    t->before = getenv("DEFT_DEVICE") ? 0 : resident("VmRSS");
    deft_status st = DEFT_OK;
    TRY(deft_nn_create(t->cx, NULL, &t->nn));
    const deft_scope s = deft_scope_begin(t->cx);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, model)) models[i].init(t);
    if (t->x && !t->labels)
        t->labels = deft_keep(deft_randint(t->cx, deft_nn_rng(t->nn), DEFT_SHAPE(deft_dim(t->x, 0)),
                                           DEFT_I32, 0, 10));
    t->x = deft_keep(t->x);
    t->loss = deft_keep(deft_zeros(t->cx, DEFT_SHAPE(), DEFT_F32));
    TRY(deft_scope_end(s));
    TRY(deft_optim_create(t->nn, NULL, &t->adamw));
    t->grad = calloc(deft_optim_n(t->adamw), sizeof *t->grad);
    if (!t->grad) return DEFT_E_MEMORY;
    if (strcmp(path, "-") != 0) TRY(save(t, path));
done:
    return st;
}

static deft_status steps(trainee *t, long n)
{
    deft_status st = DEFT_OK;
    for (long i = 0; i < n; i++) {
        deft_stats before, after;
        deft_stats_read(t->cx, &before, sizeof before);
        const deft_scope s = deft_step_begin(t->cx);
        deft_tensor *const l = t->forward(t);
        deft_grad(&l, NULL, 1, deft_optim_parameters(t->adamw), deft_optim_n(t->adamw), NULL,
                  t->grad);
        deft_optim_step(t->adamw, t->grad, rate);
        deft_assign(t->loss, l);
        TRY(deft_step_end(s));
        deft_stats_read(t->cx, &after, sizeof after);
        t->launches = after.launches - before.launches;
    }
done:
    return st;
}

static deft_status run(trainee *t, long n, float *loss)
{
    const deft_status st = steps(t, n);
    return st == DEFT_OK ? deft_item(t->loss, loss) : st;
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
    TRY(deft_ctx_create(rt, &c, &t.cx));
    printf("ok %s\n", deft_version());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && answer(&t, line)) {
    }
done:
    if (st != DEFT_OK) printf("failed %s\n", deft_status_text(st));
    free(t.grad);
    deft_optim_destroy(&t.adamw);
    deft_nn_destroy(&t.nn);
    deft_ctx_destroy(&t.cx);
    deft_runtime_destroy(&rt);
    return st != DEFT_OK;
}
