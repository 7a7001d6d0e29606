/* SPDX-License-Identifier: Apache-2.0
 *
 * program CASE: what run_journal looks at the log of. Lines of the log hook go to stderr.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/journal.h"
#include "deft/deft.h"
#include "support/fail_mem.h"

static bool is_child;

/* What a child's lost threads had is lost. Asked by the leak checker, where there is one. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void must(deft_ctx *cx, deft_status st, const char *what)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "%s: %s\n", what, cx ? deft_message(cx) : deft_status_text(st));
    exit(1);
}

static void hook(void *user, const char *topic, const char *line)
{
    (void)user;
    fprintf(stderr, "%s: %s\n", topic, line);
}

static deft_runtime_options quiet(void)
{
    return (deft_runtime_options){ .size = sizeof(deft_runtime_options),
                                   .n_threads = 2,
                                   .tier = DEFT_TIER_INTERPRET,
                                   .log = "error",
                                   .log_hook = hook };
}

static deft_runtime *open_runtime(const deft_runtime_options *o)
{
    deft_runtime *rt = NULL;
    must(NULL, deft_runtime_create(o, &rt), "runtime");
    return rt;
}

static deft_ctx *open_ctx(deft_runtime *rt)
{
    deft_ctx *cx = NULL;
    must(NULL, deft_ctx_create(rt, NULL, &cx), "context");
    return cx;
}

static deft_tensor *range(deft_ctx *cx, int64_t n)
{
    return deft_keep(deft_cast(deft_iota(cx, DEFT_SHAPE(n), 0), DEFT_F32));
}

static void step(deft_ctx *cx, deft_tensor *x)
{
    const deft_scope s = deft_step_begin(cx);
    deft_assign(x, deft_add(deft_mul(x, 0.5), 1));
    must(cx, deft_step_end(s), "step");
}

static float item(deft_ctx *cx, deft_tensor *t)
{
    float v = 0;
    must(cx, deft_item(deft_sum(t, DEFT_ALL_AXES, 0), &v), "item");
    return v;
}

/* ---- all types ---- */

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_exp(in[0]);
    return DEFT_OK;
}

static void replay(deft_ctx *cx)
{
    deft_capture *c = deft_capture_create(cx, captured, NULL);
    for (int i = 0; i < 4; i++) {
        deft_tensor *in = range(cx, i == 2 ? 9 : 8), *out = NULL;
        must(cx, deft_capture_call(c, &in, 1, &out, 1), "capture");
        deft_drop(&in);
        deft_drop(&out);
    }
    deft_capture_destroy(&c);
}

static void recompute(deft_ctx *cx)
{
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const x = deft_tanh(deft_iota(cx, DEFT_SHAPE(6), 0));
    (void)item(cx, x);
    (void)item(cx, deft_mul(x, 3));
    must(cx, deft_scope_end(s), "scope");
}

static void miss(deft_ctx *cx)
{
    for (int64_t n = 3; n < 5; n++) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *const a = deft_iota(cx, DEFT_SHAPE(3, n), 0);
        deft_tensor *const b = deft_iota(cx, DEFT_SHAPE(n, 3), 0);
        (void)item(cx, deft_cast(deft_add(a, deft_t(b)), DEFT_F32));
        float out[16];
        deft_tensor *const w =
            deft_wrap(cx, DEFT_SHAPE(2, 2), DEFT_F32, out, sizeof out, (int64_t[]){ n, 1 });
        memset(out, 0, sizeof out);
        (void)item(cx, deft_reshape(deft_exp(w), DEFT_SHAPE(4)));
        must(cx, deft_scope_end(s), "scope");
    }
    /* What was read in one piece, and then is not. */
    for (int64_t stride = 4; stride < 6; stride++) {
        float m[4 * 5] = { 0 };
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *const w =
            deft_wrap(cx, DEFT_SHAPE(4, 4), DEFT_F32, m, sizeof m, (int64_t[]){ stride, 1 });
        (void)item(cx, deft_reshape(w, DEFT_SHAPE(16)));
        must(cx, deft_scope_end(s), "scope");
    }
}

static deft_status squared(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_tanh(deft_matmul(in[0], in[0]));
    return DEFT_OK;
}

/* A loop that is no one kernel, with something to do before it. */
static void parts(deft_ctx *cx)
{
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *state =
        deft_reshape(deft_cast(deft_iota(cx, DEFT_SHAPE(9), 0), DEFT_F32), DEFT_SHAPE(3, 3));
    state = deft_div(state, deft_sum(state, DEFT_ALL_AXES, 0));
    if (!deft_scan(cx, squared, NULL, &state, 1, NULL, 0, 3, 0, &state)) exit(1);
    (void)item(cx, state);
    must(cx, deft_scope_end(s), "scope");
}

static void fail(deft_ctx *cx)
{
    const int64_t at[2] = { 1, 99 };
    deft_scope s = deft_step_begin(cx);
    deft_tensor *x = range(cx, 5);
    deft_assign(x, deft_take(x, deft_from(cx, DEFT_SHAPE(2), DEFT_I64, at, sizeof at), 0));
    if (deft_step_end(s) == DEFT_OK) exit(1);
    x = range(cx, 5);
    s = deft_step_begin(cx);
    deft_assign(x, deft_sum(deft_take(x, deft_from(cx, DEFT_SHAPE(2), DEFT_I64, at, sizeof at), 0),
                            DEFT_ALL_AXES, 0));
    if (deft_step_end(s) == DEFT_OK) exit(1);
    s = deft_step_begin(cx);
    deft_step_abort(s);
    deft_drop(&x);
}

static void all(void)
{
    deft_runtime_options o = quiet();
    o.tier = DEFT_TIER_FULL;
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    deft_tensor *x = range(cx, 10);
    deft_label_begin(cx, "outer");
    for (int i = 0; i < 5; i++) step(cx, x);
    deft_scope s = deft_step_begin(cx);
    deft_assign(x, deft_mul(x, 2));
    must(cx, deft_step_submit(s), "submit");
    deft_label_end(cx);
    (void)item(cx, x);
    replay(cx);
    recompute(cx);
    miss(cx);
    parts(cx);
    fail(cx);
    deft_drop(&x);
    deft_stats st;
    deft_stats_read(cx, &st, sizeof st);
    printf("cuts=%llu syncs=%llu recomputed=%llu plans=%llu guard_misses=%llu kernels=%llu\n",
           (unsigned long long)st.cuts, (unsigned long long)st.syncs,
           (unsigned long long)st.recomputed, (unsigned long long)st.plans_built,
           (unsigned long long)st.guard_misses, (unsigned long long)st.kernels_compiled);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

/* ---- one question each ---- */

static const char hostile[] =
    "</script><script>alert(1)</script>\"}\n{\"type\":\"end\"}\x01\x7f\xff"
    "\xc0\xaf\xed\xa0\x80\xe2\x80\xa8\\";

static void labels(void)
{
    deft_runtime_options o = quiet();
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    deft_label_begin(cx, hostile);
    deft_site(cx, hostile, 7);
    deft_tensor *x = range(cx, 4);
    step(cx, x);
    deft_label_end(cx);
    deft_drop(&x);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

static void steps(int n, const deft_runtime_options *o)
{
    deft_runtime *rt = open_runtime(o);
    deft_ctx *cx = open_ctx(rt);
    deft_tensor *x = range(cx, 4);
    for (int i = 0; i < n; i++) {
        step(cx, x);
        /* So that nothing is dropped. */
        if (i % 100 == 99) nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    printf("%g\n", (double)item(cx, x));
    deft_drop(&x);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

static void rotate(void)
{
    deft_runtime_options o = quiet();
    o.trace_file_bytes = 40000;
    o.trace_files = 3;
    steps(1000, &o);
}

/* The log that was begun, with another ending. */
static void log_name(char name[400], const char *ending)
{
    const char *const dir = getenv("DEFT_TRACE_DIR");
    DIR *const d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "deft-", 5)) snprintf(name, 400, "%s/%.200s", dir, e->d_name);
    closedir(d);
    snprintf(strstr(name, ".jsonl"), 16, "%s", ending);
}

/* The second file's name is taken, by a link to somewhere else. */
static void link_in_the_way(void)
{
    char name[400] = "", target[400];
    deft_runtime_options o = quiet();
    o.trace_file_bytes = 20000;
    deft_runtime *rt = open_runtime(&o);
    log_name(name, ".1.jsonl");
    snprintf(target, sizeof target, "%s/victim", getenv("DEFT_TRACE_DIR"));
    if (symlink(target, name) != 0) exit(1);
    deft_ctx *cx = open_ctx(rt);
    deft_tensor *x = range(cx, 4);
    for (int i = 0; i < 500; i++) step(cx, x);
    nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
    for (int i = 0; i < 500; i++) step(cx, x);
    deft_drop(&x);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

static void limit(void)
{
    const struct rlimit l = { 50000, 50000 };
    if (setrlimit(RLIMIT_FSIZE, &l) != 0) exit(1);
    deft_runtime_options o = quiet();
    steps(1000, &o);
}

/* The parent tells before and after; a child, and a child of that, each for itself; one only exits.
 */
static void forks(void)
{
    deft_runtime_options o = quiet();
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    deft_tensor *x = range(cx, 4);
    for (int i = 0; i < 50; i++) step(cx, x);
    const pid_t silent = fork();
    if (silent == 0) _exit(0);
    const pid_t child = fork();
    if (child == 0) {
        is_child = true;
        for (int i = 0; i < 20; i++) step(cx, x);
        const pid_t grandchild = fork();
        for (int i = 0; i < 5; i++) step(cx, x);
        int status = 0;
        if (grandchild && (waitpid(grandchild, &status, 0) < 0 || status)) exit(1);
        deft_drop(&x);
        deft_ctx_destroy(&cx);
        deft_runtime_destroy(&rt);
        exit(0);
    }
    for (int i = 0; i < 30; i++) step(cx, x);
    for (int i = 0, status; i < 2; i++)
        if (waitpid(i ? child : silent, &status, 0) < 0 || status) exit(1);
    deft_drop(&x);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

/* Faster than any writer. */
static void overflow(void)
{
    enum { N = 300000 };
    const df_log log = { 0 };
    const df_journal_options o = {
        .dir = getenv("DEFT_TRACE_DIR"), .version = "test", .compiler = "none", .text_bytes = 20000
    };
    df_journal *j = df_journal_open(&df_mem_system, &log, &o);
    df_ring *r = df_ring_open(j, 3);
    for (uint64_t i = 0; i < N; i++)
        df_ring_log(r, DF_NOTE_label_end, &(df_note_label_end){ .depth = i });
    for (int i = 0; i < 1000; i++) {
        df_str s;
        df_record_begin(&s, j, "error", 3);
        df_json_text(&s, "reason", NULL);
        df_json_site(&s, "site", 0);
        df_json_text(&s, "status", "none");
        df_json_text(&s, "message", "0123456789012345678901234567890123456789");
        df_record_end(&s, j);
    }
    df_ring_end(&r);
    df_journal_close(&j);
    printf("notes=%d records=1000\n", N);
}

/* Two runtimes, each with a log of its own. */
static void twice(void)
{
    deft_runtime_options o = quiet();
    deft_runtime *a = open_runtime(&o), *b = open_runtime(&o);
    deft_runtime_destroy(&a);
    deft_runtime_destroy(&b);
}

static bool try_to_sum(deft_ctx *cx)
{
    static const float x[6] = { 1, 2, 3, 4, 5, 6 };
    float v;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const even = deft_wrap(cx, DEFT_SHAPE(3), DEFT_F32, x, sizeof x, (int64_t[]){ 2 });
    const deft_status st = deft_item(deft_sum(even, DEFT_ALL_AXES, 0), &v);
    return deft_scope_end(s) == DEFT_OK && st == DEFT_OK;
}

/* Each allocation failing in turn, those of the writer's thread with them. */
static void memory(void)
{
    int n_failed = 0;
    for (size_t n = 1; n < 300; n++) {
        fail_mem *f = fail_mem_create();
        const df_mem *const mem = fail_mem_get(f);
        deft_runtime_options o = quiet();
        o.log_hook = NULL;
        o.resize = mem->resize;
        o.resize_user = mem->user;
        deft_runtime *rt = NULL;
        deft_ctx *cx = NULL;
        fail_mem_at(f, n, false);
        if (deft_runtime_create(&o, &rt) == DEFT_OK && deft_ctx_create(rt, NULL, &cx) == DEFT_OK)
            for (int i = 0; i < 3; i++) n_failed += !try_to_sum(cx);
        deft_ctx_destroy(&cx);
        deft_runtime_destroy(&rt);
        const fail_mem_counts c = fail_mem_count(f);
        if (c.live_blocks || c.faults) {
            fprintf(stderr, "call %zu: %zu blocks left, %s\n", n, c.live_blocks, fail_mem_fault(f));
            exit(1);
        }
        fail_mem_destroy(&f);
    }
    printf("%d reads failed\n", n_failed);
}

/* ---- inputs ---- */

/* The plan made last, and what it computed. */
static void print_result(deft_ctx *cx, const void *data, size_t n)
{
    deft_stats st;
    deft_stats_read(cx, &st, sizeof st);
    printf("plan 1.%llu ", (unsigned long long)st.plans_built);
    for (size_t i = 0; i < n; i++) printf("%02x", ((const unsigned char *)data)[i]);
    printf("\n");
}

static void print_tensor(deft_ctx *cx, deft_tensor *t)
{
    char data[4096];
    const deft_dtype type = deft_dtype_of(t);
    const size_t n = (size_t)deft_numel(t) * deft_dtype_size(type);
    must(cx, deft_read(t, type, data, n), "read");
    print_result(cx, data, n);
}

/* Memory that has gaps, goes backwards, or is there once for many elements. */
static void wrapped(deft_ctx *cx)
{
    float m[60];
    for (int i = 0; i < 60; i++) m[i] = (float)(i * i % 17) - 7.5f;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const gaps =
        deft_wrap(cx, DEFT_SHAPE(3, 4), DEFT_F32, m, sizeof m, (int64_t[]){ 11, 2 });
    print_tensor(cx, deft_tanh(gaps));
    deft_tensor *const once =
        deft_wrap(cx, DEFT_SHAPE(3, 4), DEFT_F32, m, sizeof m, (int64_t[]){ 0, 1 });
    print_tensor(cx, deft_add(deft_exp(once), deft_t(deft_reshape(gaps, DEFT_SHAPE(4, 3)))));
    print_tensor(cx,
                 deft_sum(deft_wrap(cx, DEFT_SHAPE(0, 4), DEFT_F32, m, 0, NULL), DEFT_AXES(0), 0));
    must(cx, deft_scope_end(s), "scope");
}

static void all_dtypes(deft_ctx *cx)
{
    const unsigned char truth[5] = { 1, 0, 0, 1, 1 }, small[5] = { 9, 8, 250, 6, 5 };
    const int32_t whole[5] = { -3, 1 << 30, 7, 0, 2 };
    const int64_t at[5] = { 4, 0, 3, 3, 1 };
    const double wide[5] = { 1e-300, 2.5, -7, 1e9, 0.1 };
    const float narrow[5] = { 0.1f, -2, 3, 1e-40f, 5 };
    const deft_shape n = DEFT_SHAPE(5);
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const t = deft_from(cx, n, DEFT_BOOL, truth, sizeof truth);
    deft_tensor *const u = deft_from(cx, n, DEFT_U8, small, sizeof small);
    deft_tensor *const i = deft_from(cx, n, DEFT_I32, whole, sizeof whole);
    deft_tensor *const k = deft_from(cx, n, DEFT_I64, at, sizeof at);
    deft_tensor *const d = deft_from(cx, n, DEFT_F64, wide, sizeof wide);
    deft_tensor *const f = deft_from(cx, n, DEFT_F32, narrow, sizeof narrow);
    deft_tensor *const first =
        deft_add(deft_where(t, deft_add(u, i), k), deft_mul(deft_take(d, k, 0), f));
    const int8_t tiny[5] = { -128, 127, -1, 0, 5 };
    const int16_t low[5] = { -32768, 32767, -1, 0, 5 };
    const uint16_t high[5] = { 65535, 0, 1, 32768, 9 };
    const uint32_t wider[5] = { UINT32_MAX, 0, 1, 1u << 31, 9 };
    const uint64_t widest[5] = { UINT64_MAX, 0, 1, (uint64_t)1 << 63, 9 };
    deft_tensor *const signs = deft_add(deft_from(cx, n, DEFT_I8, tiny, sizeof tiny),
                                        deft_from(cx, n, DEFT_I16, low, sizeof low));
    deft_tensor *const none = deft_add(deft_from(cx, n, DEFT_U16, high, sizeof high),
                                       deft_from(cx, n, DEFT_U32, wider, sizeof wider));
    deft_tensor *const all = deft_add(none, deft_from(cx, n, DEFT_U64, widest, sizeof widest));
    deft_tensor *const second = deft_add(signs, deft_cast(deft_sub(all, UINT64_MAX), DEFT_I32));
    print_tensor(cx, deft_add(first, second));
    must(cx, deft_scope_end(s), "scope");
}

/* What a plan runs on later is stored when it is asked for. */
static void stored_later(deft_ctx *cx, deft_tensor *x)
{
    float v[9];
    const deft_scope s = deft_step_begin(cx);
    deft_assign(x, deft_mul(x, 1e-3));
    deft_assign(x, deft_exp(x));
    must(cx, deft_step_end(s), "step");
    step(cx, x);
    must(cx, deft_store_next(cx, "later"), "store_next");
    step(cx, x);
    must(cx, deft_read(x, DEFT_F32, v, sizeof v), "read");
    printf("plan later ");
    for (size_t i = 0; i < sizeof v; i++) printf("%02x", ((const unsigned char *)v)[i]);
    printf("\n");
}

/* What a step overwrites was stored as it was: a value of its own, and the caller's. */
static void overwritten(deft_ctx *cx, bool submits)
{
    float m[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    deft_tensor *x = range(cx, submits ? 9 : 8);
    must(cx, deft_eval(&x, 1), "eval");
    deft_tensor *w =
        deft_keep(deft_wrap_mut(cx, DEFT_SHAPE(4), DEFT_F32, m, sizeof m, (int64_t[]){ 2 }));
    deft_scope s = deft_step_begin(cx);
    if (submits)
        deft_assign(x, deft_add(deft_mul(x, 3), 1));
    else
        deft_assign(w, deft_sub(deft_mul(w, w), 2));
    must(cx, submits ? deft_step_submit(s) : deft_step_end(s), "step");
    print_tensor(cx, submits ? x : w);
    for (int i = 0; i < 2; i++) step(cx, x);
    s = deft_step_begin(cx);
    deft_assign(x, deft_exp(x));
    must(cx, deft_step_end(s), "step");
    if (!submits) print_tensor(cx, x); /* else a plan that there was */
    if (submits) stored_later(cx, x);
    deft_drop(&w);
    deft_drop(&x);
}

static void replayed(deft_ctx *cx)
{
    deft_capture *c = deft_capture_create(cx, captured, NULL);
    deft_tensor *out = NULL, *in = range(cx, 8);
    must(cx, deft_eval(&in, 1), "eval");
    must(cx, deft_capture_call(c, &in, 1, &out, 1), "capture");
    print_tensor(cx, out);
    deft_drop(&in);
    deft_drop(&out);
    deft_capture_destroy(&c);
}

static void inputs(void)
{
    deft_runtime_options o = quiet();
    o.tier = DEFT_TIER_FULL;
    o.trace_inputs = 1;
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    wrapped(cx);
    all_dtypes(cx);
    overwritten(cx, false);
    overwritten(cx, true);
    replayed(cx);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

/* Three plans: of 4, of 40000 and of 16 bytes of inputs. */
static void three_plans(deft_ctx *cx)
{
    static float x[10000];
    for (int64_t rank = 1; rank <= 3; rank++) {
        deft_shape n = { .rank = (uint32_t)rank, .dim = { 1, 1, 1 } };
        n.dim[0] = rank == 2 ? 10000 : rank == 1 ? 1 : 4;
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *const t = deft_from(cx, n, DEFT_F32, x, (size_t)n.dim[0] * sizeof *x);
        (void)item(cx, deft_cos(t));
        must(cx, deft_scope_end(s), "scope");
    }
}

static void in_a_runtime(const char *ending, void (*before)(const char *name))
{
    char name[400] = "";
    deft_runtime_options o = quiet();
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    log_name(name, ending);
    before(name);
    three_plans(cx);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

static void leave(const char *name)
{
    (void)name;
}

static void input_bound(void)
{
    in_a_runtime(".inputs", leave);
}

static void limit_size(const char *name)
{
    (void)name;
    const struct rlimit l = { 30000, 30000 };
    if (setrlimit(RLIMIT_FSIZE, &l) != 0) exit(1);
}

static void input_limit(void)
{
    in_a_runtime(".inputs", limit_size);
}

static void plant_link(const char *name)
{
    char target[400];
    snprintf(target, sizeof target, "%s/victim", getenv("DEFT_TRACE_DIR"));
    if (mkdir(target, 0700) != 0 || symlink(target, name) != 0) exit(1);
}

static void input_link(void)
{
    in_a_runtime(".inputs", plant_link);
}

static void plant_folder(const char *name)
{
    if (mkdir(name, 0700) != 0 || chmod(name, 0755) != 0) exit(1);
}

static void input_folder(void)
{
    in_a_runtime(".inputs", plant_folder);
}

static void input_forks(void)
{
    deft_runtime_options o = quiet();
    deft_runtime *rt = open_runtime(&o);
    deft_ctx *cx = open_ctx(rt);
    wrapped(cx);
    const pid_t child = fork();
    int status = 0;
    if (child == 0) is_child = true;
    if (child == 0) all_dtypes(cx);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    if (child && (waitpid(child, &status, 0) < 0 || status)) exit(1);
}

/* Characters: every byte, alone and in pairs, comes back from JSON as it went in or as U+FFFD. */
static void bytes(void)
{
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_json_open(&s, NULL, '[');
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            const char text[] = { (char)a, (char)b, '\x85', '\x85', 'x', (char)a };
            df_json_textn(&s, NULL, text, sizeof text);
        }
    char longer[3000];
    for (size_t i = 0; i < sizeof longer; i++) longer[i] = "\xf0\x9f\x98\x80"[i % 4];
    df_json_textn(&s, NULL, longer, sizeof longer);
    df_json_close(&s, ']');
    fwrite(s.at, 1, s.n, stdout);
    df_str_finish(&s);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = { { "all", all },
                  { "labels", labels },
                  { "rotate", rotate },
                  { "link", link_in_the_way },
                  { "limit", limit },
                  { "forks", forks },
                  { "overflow", overflow },
                  { "twice", twice },
                  { "memory", memory },
                  { "bytes", bytes },
                  { "inputs", inputs },
                  { "input_bound", input_bound },
                  { "input_limit", input_limit },
                  { "input_link", input_link },
                  { "input_folder", input_folder },
                  { "input_forks", input_forks } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc > 1 && !strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
