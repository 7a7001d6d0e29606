/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_store_next: the cut that it stores is the next one, as it was before it ran; what is there
 * is never touched. That the files run again to the same bits is for tests/journal.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deft/deft.h"

static deft_ctx *cx;
static char dir[64], name[96], trace[128], tensors[128];

static void set_up(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *rt = NULL;
    snprintf(dir, sizeof dir, "/tmp/deft-store-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(name, sizeof name, "%s/next", dir);
    snprintf(trace, sizeof trace, "%s.trace", name);
    snprintf(tensors, sizeof tensors, "%s.safetensors", name);
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
    deft_runtime_destroy(&rt);
}

static void tear_down(void)
{
    deft_ctx_destroy(&cx);
    unlink(trace);
    unlink(tensors);
    rmdir(dir);
}

TestSuite(store, .init = set_up, .fini = tear_down);

static bool is_there(const char *path)
{
    struct stat info;
    const bool found = stat(path, &info) == 0;
    if (found) cr_assert_eq(info.st_mode & 0777, 0600);
    return found;
}

static float sum(deft_tensor *t)
{
    float v = -1;
    cr_assert_eq(deft_item(deft_sum(t, DEFT_ALL_AXES, 0), &v), DEFT_OK, "%s", deft_message(cx));
    return v;
}

/* What the file has under in0, which is wanted to be n numbers. */
static void load(float *out, int64_t n)
{
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const t = deft_zeros(cx, DEFT_SHAPE(n), DEFT_F32);
    cr_assert_eq(deft_load(cx, tensors, &(deft_named){ "in0", t }, 1), DEFT_OK, "%s",
                 deft_message(cx));
    cr_assert_eq(deft_read(t, DEFT_F32, out, (size_t)n * sizeof *out), DEFT_OK);
    cr_assert_eq(deft_scope_end(s), DEFT_OK);
}

Test(store, the_next_cut_alone)
{
    float x[6] = { 1, 2, 3, 4, 5, 6 }, back[3] = { 0 };
    deft_tensor *const t =
        deft_wrap(cx, DEFT_SHAPE(3), DEFT_F32, x + 4, 2 * sizeof *x, (int64_t[]){ -2 });
    cr_assert_null(t, "outside its memory");
    deft_clear(cx);
    deft_tensor *const odd = deft_wrap(cx, DEFT_SHAPE(3), DEFT_F32, x, sizeof x, (int64_t[]){ 2 });
    cr_assert_eq(deft_store_next(cx, name), DEFT_OK);
    cr_assert_not(is_there(trace));
    cr_assert_eq(sum(odd), 9);
    cr_assert(is_there(trace) && is_there(tensors));
    load(back, 3);
    cr_assert(back[0] == 1 && back[1] == 3 && back[2] == 5);
    unlink(trace);
    x[0] = 7;
    cr_assert_eq(sum(odd), 15);
    cr_assert_not(is_there(trace));
}

Test(store, what_it_overwrites_is_stored_as_it_was)
{
    float m[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
    for (int submits = 0; submits < 2; submits++) {
        deft_tensor *const w = deft_wrap_mut(cx, DEFT_SHAPE(4), DEFT_F32, m, sizeof m, NULL);
        cr_assert_eq(deft_store_next(cx, name), DEFT_OK);
        const deft_scope s = deft_step_begin(cx);
        deft_assign(w, deft_mul(w, 2));
        cr_assert_eq(submits ? deft_step_submit(s) : deft_step_end(s), DEFT_OK);
        cr_assert_eq(deft_wait(cx), DEFT_OK);
        load(back, 4);
        for (int i = 0; i < 4; i++)
            cr_assert(m[i] == (float)((i + 1) * (submits ? 4 : 2)) && back[i] * 2 == m[i]);
        unlink(trace);
        unlink(tensors);
    }
}

Test(store, a_file_that_is_there_stays_and_the_cut_fails)
{
    char line[8] = "";
    float v = 0;
    for (int which = 0; which < 2; which++) {
        const char *const taken = which ? tensors : trace, *const other = which ? trace : tensors;
        FILE *f = fopen(taken, "w");
        cr_assert(f && fputs("mine\n", f) >= 0 && fclose(f) == 0);
        deft_tensor *const t =
            deft_sum(deft_ones(cx, DEFT_SHAPE(3 + which), DEFT_F32), DEFT_ALL_AXES, 0);
        cr_assert_eq(deft_store_next(cx, name), DEFT_OK);
        cr_assert_eq(deft_item(t, &v), DEFT_E_IO);
        cr_assert(strstr(deft_message(cx), taken) && strstr(deft_message(cx), "File exists"), "%s",
                  deft_message(cx));
        cr_assert_neq(access(other, F_OK), 0);
        f = fopen(taken, "r");
        cr_assert(f && fgets(line, sizeof line, f) && fclose(f) == 0);
        cr_assert_str_eq(line, "mine\n");
        unlink(taken);
        /* It was asked for once. */
        cr_assert_eq(deft_item(t, &v), DEFT_OK, "%s", deft_message(cx));
        cr_assert_eq(v, (float)(3 + which));
        cr_assert_not(is_there(trace));
    }
}

Test(store, another_path_takes_the_place_of_the_first)
{
    char other[128];
    snprintf(other, sizeof other, "%s/no/folder", dir);
    cr_assert_eq(deft_store_next(NULL, name), DEFT_E_ARG);
    cr_assert_eq(deft_store_next(cx, ""), DEFT_E_ARG);
    cr_assert(strstr(deft_message(cx), "store_next: the path is empty"));
    deft_clear(cx);
    cr_assert_eq(deft_store_next(cx, other), DEFT_OK);
    cr_assert_eq(deft_store_next(cx, name), DEFT_OK);
    cr_assert_eq(deft_store_next(cx, NULL), DEFT_OK);
    cr_assert_eq(sum(deft_ones(cx, DEFT_SHAPE(3), DEFT_F32)), 3);
    cr_assert_not(is_there(trace));
    char longer[2000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    float v;
    cr_assert_eq(deft_store_next(cx, longer), DEFT_OK);
    cr_assert_eq(deft_item(deft_sum(deft_ones(cx, DEFT_SHAPE(5), DEFT_F32), DEFT_ALL_AXES, 0), &v),
                 DEFT_E_LIMIT);
    /* Asked for and never used: it goes with the context. */
    cr_assert_eq(deft_store_next(cx, name), DEFT_OK);
}
