/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites: names and their texts; lines of bindings and labels in what deft tells, and in no
 * key.
 */
#include "support/harness.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/site.h"
#include "runtime/cpu.h"
#include "support/fail_mem.h"

enum { TEXT = 65536 };

static char told[TEXT];

/* ---- names ---- */

typedef struct fake {
    int opened, asked, destroyed;
    uintptr_t last;
    sem_t *inside, *go; /* NULL: does not wait */
} fake;

static bool fake_find(void *self, uintptr_t address, df_source_line *out)
{
    fake *const f = self;
    f->asked++;
    f->last = address;
    if (f->inside) {
        sem_post(f->inside);
        sem_wait(f->go);
    }
    if (address < 0x1000) return false;
    *out = (df_source_line){ .line = (uint32_t)(address & 0xfff) };
    strcpy(out->file, "mlp.c");
    if (address & 0x1000) strcpy(out->function, "train");
    return true;
}

static void fake_destroy(void *self)
{
    ((fake *)self)->destroyed++;
}

static bool fake_open(void *user, df_resolver *out)
{
    ((fake *)user)->opened++;
    *out = (df_resolver){ .self = user, .find = fake_find, .destroy = fake_destroy };
    return true;
}

static const char *text_of(df_sites *s, uintptr_t site)
{
    static char text[DF_SITE_TEXT];
    cr_assert_eq(df_site_text(s, site, text, sizeof text), text);
    return text;
}

Test(sites, text)
{
    fake f = { 0 };
    df_sites *s = df_sites_create(&df_mem_system, fake_open, &f);
    cr_expect_str_eq(text_of(s, 0), "the start");
    const uintptr_t line = df_sites_line(s, "/home/me/train.py", 7);
    cr_expect_str_eq(text_of(s, line), "train.py:7");
    cr_expect_eq(f.opened, 0, "no address was asked for yet");
    cr_expect_str_eq(text_of(s, 0x2000 + 42), "mlp.c:41");
    cr_expect_eq(f.last, 0x2000 + 41, "the call, not what it returns to");
    cr_expect_str_eq(text_of(s, 0x3000 + 42), "mlp.c:41 (train)");
    cr_expect_str_eq(text_of(s, 0x30), "0x30");
    cr_expect_eq(f.opened, 1);
    cr_expect_eq(f.asked, 3);

    const uintptr_t outer = df_sites_label(s, 0, "encoder");
    const uintptr_t inner = df_sites_label(s, outer, "attention");
    const uintptr_t within = df_sites_within(s, line, inner);
    cr_expect_str_eq(text_of(s, within), "train.py:7 in encoder/attention");
    cr_expect_str_eq(text_of(s, df_sites_within(s, 0x3002, outer)), "mlp.c:1 (train) in encoder");
    cr_expect_eq(df_sites_within(s, within, outer), within, "has its labels");
    cr_expect_eq(df_sites_within(s, 0, outer), 0);
    cr_expect_eq(df_sites_within(s, line, 0), line);

    cr_expect_eq(df_sites_line(s, "train.py", 7), line, "one name");
    cr_expect_neq(df_sites_line(s, "train.py", 8), line);
    cr_expect_neq(df_sites_label(s, 0, "attention"), inner);
    cr_expect_eq(df_sites_label(s, outer, "attention"), inner);
    cr_expect_str_eq(text_of(s, df_sites_line(s, "a\nb\033.py", -3)), "a?b?.py:-3");
    cr_expect_str_eq(text_of(s, df_site_of_name(DF_SITE_NAMES - 1)), "a line that is not known");

    char longer[200], small[8];
    memset(longer, 'x', sizeof longer);
    longer[199] = 0;
    memcpy(longer + 62, "\xc3\xa9", 2); /* byte 63 is inside a character */
    const char *const cut = text_of(s, df_sites_line(s, longer, 1));
    cr_expect(strlen(cut) == 62 + 2 && !strcmp(cut + 62, ":1"), "%s", cut);
    df_site_text(s, within, small, sizeof small);
    cr_expect_str_eq(small, "train.p");
    df_site_text(s, within, small, 0);
    df_sites_destroy(&s);
    cr_expect(!s && f.destroyed == 1);
    df_sites_destroy(&s);
}

Test(sites, names_are_bounded)
{
    df_sites *s = df_sites_create(&df_mem_system, NULL, NULL);
    const uintptr_t first = df_sites_line(s, "x.py", 0);
    for (int i = 1; i < (int)DF_SITE_NAMES; i++) cr_assert_neq(df_sites_line(s, "x.py", i), 0);
    cr_expect_eq(df_sites_line(s, "x.py", (int)DF_SITE_NAMES), 0);
    cr_expect_eq(df_sites_line(s, "x.py", 0), first, "old ones stay");
    cr_expect_eq(df_sites_within(s, first, first), first, "nor is there room for a label");
    cr_expect_str_eq(text_of(s, df_sites_line(s, "x.py", 40000)), "x.py:40000");
    df_sites_destroy(&s);
}

Test(sites, names_without_memory)
{
    fail_mem *m = fail_mem_create();
    int n_failed = 0;
    for (size_t n = 1; n < 40; n++) {
        fail_mem_at(m, n, false);
        df_sites *s = df_sites_create(fail_mem_get(m), NULL, NULL);
        for (int i = 0; s && i < 100; i++) {
            const uintptr_t site = df_sites_line(s, "x.py", i);
            n_failed += !site;
            char want[32];
            snprintf(want, sizeof want, "x.py:%d", i);
            cr_assert(!site || !strcmp(text_of(s, site), want));
            cr_assert(!site || site == df_sites_line(s, "x.py", i));
        }
        df_sites_destroy(&s);
        fail_mem_at(m, 0, false);
        cr_assert_eq(fail_mem_count(m).live_blocks, 0);
    }
    cr_expect_gt(n_failed, 3);
    fail_mem_destroy(&m);
}

static void *name_many(void *user)
{
    df_sites *const s = user;
    char text[DF_SITE_TEXT], want[64];
    for (int i = 0; i < 3000; i++) {
        const uintptr_t site = df_sites_within(s, df_sites_line(s, "x.py", i % 700),
                                               df_sites_label(s, 0, i % 2 ? "odd" : "even"));
        snprintf(want, sizeof want, "x.py:%d in %s", i % 700, i % 2 ? "odd" : "even");
        if (strcmp(df_site_text(s, site, text, sizeof text), want) != 0) return s;
        df_site_text(s, (uintptr_t)name_many + (uintptr_t)i % 64, text, sizeof text);
    }
    return NULL;
}

static bool open_real(void *user, df_resolver *out)
{
    (void)user;
    return df_plugin_sites(getenv("DEFT_PLUGIN_DIR"), out);
}

Test(sites, several_threads)
{
    pthread_t t[4];
    df_sites *s = df_sites_create(&df_mem_system, open_real, NULL);
    for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&t[i], NULL, name_many, s), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(t[i], &wrong);
        cr_expect_null(wrong);
    }
    df_sites_destroy(&s);
}

static void *ask_one(void *user)
{
    char text[DF_SITE_TEXT];
    df_site_text(user, 0x3002, text, sizeof text);
    return NULL;
}

/* A child of a process that was just looking up does without, and waits for nobody. */
Test(sites, forked_while_one_is_resolved)
{
    sem_t inside, go;
    sem_init(&inside, 0, 0);
    sem_init(&go, 0, 0);
    fake f = { .inside = &inside, .go = &go };
    df_sites *s = df_sites_create(&df_mem_system, fake_open, &f);
    const uintptr_t line = df_sites_line(s, "x.py", 3);
    pthread_t t;
    pthread_create(&t, NULL, ask_one, s);
    sem_wait(&inside);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const bool ok = !strcmp(text_of(s, 0x30), "0x30") &&
                        !strcmp(text_of(s, line), "a line that is not known") &&
                        !strcmp(text_of(s, df_sites_line(s, "y.py", 4)), "y.py:4");
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    sem_post(&go);
    pthread_join(t, NULL);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    df_sites_destroy(&s);
}

/* ---- contexts ---- */

static void open_plain(rig *r)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    rig_open(r, &o, NULL);
}

static const char *explain(const rig *r)
{
    deft_explain(r->cx, told, sizeof told);
    return told;
}

static const char *shown(const rig *r)
{
    deft_show(r->cx, "sites", told, sizeof told);
    return told;
}

/* Reads from a line of its own. */
static void read_at(rig *r, deft_tensor *t, int line)
{
    float v[4];
    deft_site(r->cx, "model.py", line);
    OK(r, deft_read(t, DEFT_F32, v, sizeof v));
}

Test(sites, lines_of_a_binding)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    deft_site(r.cx, "lib/model.py", 10);
    deft_tensor *y = deft_exp(x);
    deft_site(r.cx, "lib/model.py", 11);
    deft_tensor *z = deft_add(y, deft_mul(y, y));
    deft_site(r.cx, NULL, 99);
    deft_tensor *w = deft_neg(z);
    read_at(&r, w, 20);
    cr_expect(strstr(explain(&r), "built at model.py:20: "), "%s", told);
    cr_expect(strstr(told, "sync: read at model.py:20 "), "%s", told);
    shown(&r);
    cr_expect(strstr(told, "exp f32[4] %0  # at model.py:10\n"), "%s", told);
    cr_expect(strstr(told, "mul f32[4] %1 %1  # at model.py:11\n"), "%s", told);
    cr_expect(strstr(told, "add f32[4] %1 %2  # at model.py:11\n"), "%s", told);
    const char *const neg = strstr(told, "neg f32[4] %3  # at ");
    cr_expect(neg && !strstr(neg, "model.py"), "back to this program: %s", told);
    cr_expect(strstr(told, "input f32[4] strides=[1] aligned\n"), "nobody called: %s", told);
    cr_expect(!HAS_LINES || strstr(neg, "test_sites.c:"), "%s", told);
    rig_close(&r);
}

Test(sites, lines_in_sentences)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    deft_site(r.cx, "model.py", 1);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_site(r.cx, "model.py", 2);
    deft_label_begin(r.cx, "inner");
    deft_tensor *y = deft_exp(x);
    OK(&r, deft_scope_end(s));
    cr_expect_null(deft_neg(y));
    cr_expect(strstr(deft_message(r.cx), "scope opened at model.py:1, which"), "%s",
              deft_message(r.cx));
    deft_clear(r.cx);
    deft_label_begin(r.cx, "epoch");
    const deft_scope step = deft_step_begin(r.cx);
    (void)deft_step_begin(r.cx);
    cr_expect(strstr(deft_message(r.cx), "the step opened at model.py:2 in epoch is still open"),
              "%s", deft_message(r.cx));
    deft_step_abort(step);
    rig_close(&r);
}

Test(sites, labels)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    deft_site(r.cx, "m.py", 1);
    deft_label_begin(r.cx, "encoder");
    deft_tensor *a = deft_exp(x);
    char name[] = "attention";
    deft_label_begin(r.cx, name);
    memset(name, '-', sizeof name - 1);
    deft_tensor *b = deft_neg(a);
    deft_label_end(r.cx);
    deft_tensor *c = deft_sqrt(b);
    deft_label_end(r.cx);
    deft_tensor *d = deft_abs(c);
    deft_label_begin(r.cx, "read");
    read_at(&r, d, 2);
    shown(&r);
    cr_expect(strstr(told, "exp f32[4] %0  # at m.py:1 in encoder\n"), "%s", told);
    cr_expect(strstr(told, "neg f32[4] %1  # at m.py:1 in encoder/attention\n"), "%s", told);
    cr_expect(strstr(told, "sqrt f32[4] %2  # at m.py:1 in encoder\n"), "%s", told);
    cr_expect(strstr(told, "abs f32[4] %3  # at m.py:1\n"), "%s", told);
    cr_expect(strstr(explain(&r), "built at model.py:2 in read: "), "%s", told);
    deft_label_end(r.cx);
    rig_close(&r);
}

Test(sites, labels_of_plain_calls)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    deft_label_begin(r.cx, "encoder");
    deft_tensor *a = deft_exp(x);
    deft_label_end(r.cx);
    read_at(&r, a, 1);
    const char *const at = strstr(shown(&r), "exp f32[4] %0  # ");
    cr_expect(at && strstr(at, " in encoder\n"), "%s", told);
    cr_expect(at && strstr(at, HAS_LINES ? "test_sites.c:" : "+0x"), "%s", told);
    rig_close(&r);
}

Test(sites, labels_end_with_their_scope)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    deft_site(r.cx, "m.py", 1);
    deft_label_begin(r.cx, "outer");
    const deft_scope s = deft_scope_begin(r.cx);
    deft_label_begin(r.cx, "inner");
    deft_label_begin(r.cx, "innermost");
    OK(&r, deft_scope_end(s));
    deft_tensor *y = deft_keep(deft_exp(x));
    const deft_scope step = deft_step_begin(r.cx);
    deft_label_begin(r.cx, "lost");
    deft_step_abort(step);
    deft_label_end(r.cx);
    cr_assert_eq(deft_error(r.cx), DEFT_OK);
    read_at(&r, y, 2);
    cr_expect(strstr(shown(&r), "exp f32[4] %0  # at m.py:1 in outer\n"), "%s", told);
    cr_expect(strstr(explain(&r), "built at model.py:2: "), "%s", told);
    deft_drop(&y);
    rig_close(&r);
}

static void expect_error(rig *r, deft_status st, const char *sentence)
{
    cr_expect_eq(deft_error(r->cx), st);
    cr_expect(strstr(deft_message(r->cx), sentence), "%s", deft_message(r->cx));
    deft_clear(r->cx);
}

Test(sites, labels_that_do_not_pair)
{
    rig r;
    open_plain(&r);
    deft_label_end(r.cx);
    expect_error(&r, DEFT_E_STATE, "label_end: no label is open");
    deft_label_begin(r.cx, "a");
    deft_label_begin(r.cx, "b");
    deft_site(r.cx, "m.py", 4);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_label_end(r.cx);
    expect_error(
        &r, DEFT_E_STATE,
        "label_end: all 2 open labels were begun outside the scope opened at m.py:4 in a/b");
    OK(&r, deft_scope_end(s));
    deft_label_begin(r.cx, NULL);
    expect_error(&r, DEFT_E_ARG, "label_begin: the name is NULL");
    deft_label_end(r.cx);
    deft_label_end(r.cx);
    cr_expect_eq(deft_error(r.cx), DEFT_OK);
    for (int i = 0; i < 64; i++) deft_label_begin(r.cx, "deep");
    cr_expect_eq(deft_error(r.cx), DEFT_OK);
    deft_label_begin(r.cx, "deeper");
    expect_error(&r, DEFT_E_LIMIT, "label_begin: \"deeper\" would be one of more than 64");
    for (int i = 0; i < 64; i++) deft_label_end(r.cx);
    cr_expect_eq(deft_error(r.cx), DEFT_OK);
    deft_site(NULL, "x", 1);
    deft_label_begin(NULL, "x");
    deft_label_end(NULL);
    rig_close(&r);
}

/* Lines and labels follow the records where an epoch takes another turn or goes back. */
Test(sites, marks_stay_with_their_records)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0), *y = rig_range(&r, 4, 9);
    for (int i = 0; i < 6; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_site(r.cx, "m.py", 10 + i);
        deft_tensor *a = deft_exp(x);
        deft_site(r.cx, "m.py", 20 + i);
        a = i % 2 ? deft_neg(a) : deft_abs(a); /* one turn, or the other */
        deft_site(r.cx, "m.py", 30 + i);
        a = deft_mul(a, a);
        deft_assign(y, a);
        if (i == 3) { /* is as if it had never been */
            deft_step_abort(s);
            continue;
        }
        OK(&r, deft_step_end(s));
        if (i > 1) continue;
        char want[64];
        shown(&r);
        snprintf(want, sizeof want, "exp f32[4] %%0  # at m.py:%d\n", 10 + i);
        cr_expect(strstr(told, want), "%s: %s", want, told);
        snprintf(want, sizeof want, "%s f32[4] %%1  # at m.py:%d\n", i ? "neg" : "abs", 20 + i);
        cr_expect(strstr(told, want), "%s: %s", want, told);
        snprintf(want, sizeof want, "mul f32[4] %%2 %%2  # at m.py:%d\n", 30 + i);
        cr_expect(strstr(told, want), "%s: %s", want, told);
    }
    /* Pending records, and a step after them that goes. */
    deft_site(r.cx, "m.py", 40);
    deft_tensor *p = deft_sqrt(x);
    const deft_scope s = deft_step_begin(r.cx);
    deft_site(r.cx, "m.py", 41);
    deft_assign(y, deft_exp(p));
    deft_site(r.cx, "m.py", 42);
    deft_step_abort(s);
    deft_tensor *q = deft_neg(p);
    read_at(&r, q, 50);
    shown(&r);
    cr_expect(strstr(told, "sqrt f32[4] %0  # at m.py:40\n"), "%s", told);
    cr_expect(strstr(told, "neg f32[4] %1  # at m.py:42\n"), "%s", told);
    rig_close(&r);
}

/* What there was no memory for is left out, and nothing stands in its place. */
Test(sites, marks_without_memory)
{
    fail_mem *m = fail_mem_create();
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = fail_mem_get(m)->resize,
                                     .resize_user = fail_mem_get(m)->user };
    rig r;
    rig_open(&r, &o, NULL);
    deft_tensor *x = rig_range(&r, 4, 0);
    for (int again = 0; again < 2; again++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *t = x;
        for (int i = 0; i < 40; i++) {
            deft_site(r.cx, "m.py", 100 + i);
            if (i == 10) { /* names are there, room for their marks is not */
                fail_mem_at(m, 1, true);
                for (int k = 0; k < 30 && !again; k++) {
                    deft_site(r.cx, "m.py", 100 + k);
                    t = deft_neg(t);
                }
                fail_mem_at(m, 0, false);
            }
            t = deft_exp(t);
        }
        deft_site(r.cx, NULL, 0);
        float v[4];
        OK(&r, deft_read(t, DEFT_F32, v, sizeof v));
        shown(&r);
        cr_expect_eq(strstr(told, "m.py:") != NULL, again, "%s", told);
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
    fail_mem_destroy(&m);
}

Test(sites, no_part_of_the_key)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 4, 0);
    float v[4], want[4];
    for (int i = 0; i < 8; i++) {
        char name[24];
        snprintf(name, sizeof name, "label %d", i);
        const deft_scope s = deft_scope_begin(r.cx);
        if (i % 2) deft_site(r.cx, name, i);
        if (i % 3) deft_label_begin(r.cx, name);
        deft_tensor *t = deft_mul(deft_exp(x), 0.5);
        if (i % 3 == 1) deft_label_end(r.cx);
        deft_site(r.cx, i % 4 ? "x.py" : NULL, i);
        OK(&r, deft_read(deft_sum(t, DEFT_AXES(0), 1), DEFT_F32, v, sizeof *v));
        OK(&r, deft_scope_end(s));
        if (i == 0) memcpy(want, v, sizeof want);
        cr_expect_eq(v[0], want[0]);
    }
    const deft_stats n = rig_stats(&r);
    cr_expect_eq(n.plans_built, 1);
    cr_expect_eq(n.plan_misses, 1);
    cr_expect_eq(n.cuts_matched, 7);
    rig_close(&r);
    /* And in another context of the same runtime, by its key. */
    open_plain(&r);
    deft_ctx *other;
    cr_assert_eq(deft_ctx_create(r.rt, NULL, &other), DEFT_OK);
    for (int i = 0; i < 2; i++) {
        deft_ctx *const cx = i ? other : r.cx;
        deft_label_begin(cx, i ? "second" : "first");
        deft_tensor *o = deft_ones(cx, DEFT_SHAPE(4), DEFT_F32);
        cr_assert_eq(deft_read(deft_exp(o), DEFT_F32, v, sizeof v), DEFT_OK);
    }
    deft_stats k;
    deft_stats_read(other, &k, sizeof k);
    cr_expect_eq(k.plans_built, 0);
    cr_expect_eq(k.plan_hits, 1);
    deft_ctx_destroy(&other);
    rig_close(&r);
}

static int noted_fd;

static void note_line(void *user, const char *topic, const char *line)
{
    (void)topic;
    snprintf(user, 1024, "%s", line);
}

/* The log has the same; nothing is printed, whatever the plug-in finds. */
Test(sites, log_and_silence)
{
    char out[] = "/tmp/deft-quiet-XXXXXX", line[1024] = "";
    noted_fd = mkstemp(out);
    const int before = dup(2);
    dup2(noted_fd, 2);
    deft_runtime *rt;
    deft_ctx *cx;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .log = "why",
                                     .log_hook = note_line,
                                     .log_user = line };
    setenv("DEBUGINFOD_VERBOSE", "1", 1);
    setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9", 1);
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
    float v;
    cr_assert_eq(deft_item(deft_exp(deft_ones(cx, DEFT_SHAPE(), DEFT_F32)), &v), DEFT_OK);
    char text[DF_SITE_TEXT], before_it[DF_SITE_TEXT];
    df_sites *s = df_sites_create(&df_mem_system, open_real, NULL);
    df_site_text(s, (uintptr_t)qsort + 4, text, sizeof text);
    df_site_text(NULL, (uintptr_t)qsort, before_it, sizeof before_it); /* of the code before it */
    df_sites_destroy(&s);
    dup2(before, 2);
    struct stat st;
    fstat(noted_fd, &st);
    cr_expect_eq(st.st_size, 0);
    cr_expect(strstr(line, HAS_LINES ? "sync: item at test_sites.c:" : "+0x"), "%s", line);
    cr_expect(strstr(text, "qsort"), "%s", text);
    cr_expect(!strstr(before_it, "qsort+"), "%s", before_it);
    close(noted_fd);
    close(before);
    unlink(out);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
