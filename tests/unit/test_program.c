/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as data: a captured function is written as a trace, loaded, and called. The results have
 * the bits of the capture. What does not fit is refused by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/harness.h"

#include "deft/random.h"

enum { N = 32 };

static rig r;
static char folder[64], path[96], file[112];

static void set_up(void)
{
    rig_interpret(&r, 1);
    snprintf(folder, sizeof folder, "/tmp/deft-program-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f", folder);
    snprintf(file, sizeof file, "%s/f.trace", folder);
}

static void tear_down(void)
{
    char command[128];
    rig_close(&r);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(program, .init = set_up, .fini = tear_down);

static void write_text(const char *text)
{
    FILE *const f = fopen(file, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static deft_program *load_text(const char *text)
{
    deft_program *p = NULL;
    write_text(text);
    OK(&r, deft_program_load(r.cx, file, &p));
    return p;
}

static deft_tensor *state, *bias;

static deft_status advance(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const decayed = deft_mul(state, deft_const_f(cx, 0.5));
    deft_assign(state, deft_add(decayed, deft_mul(in[1], bias)));
    out[0] = deft_sum(deft_mul(state, in[0]), DEFT_ALL_AXES, 0);
    out[1] = deft_slice(deft_exp(in[0]), DEFT_RS(1, N, 2));
    return DEFT_OK;
}

Test(program, a_captured_function_is_written_loaded_and_called)
{
    float want[3][N], have[3][N];
    deft_shape shape;
    deft_dtype dtype;
    deft_program *p = NULL;
    bias = deft_keep(deft_sin(rig_range(&r, N, 3)));
    state = rig_range(&r, N, 1);
    deft_tensor *const x = rig_range(&r, N, 0.25f), *const y = rig_range(&r, N, -0.5f);
    deft_tensor *const before = deft_keep(deft_mul_f(state, 1));
    deft_tensor *in[2] = { x, y }, *out[2], *made[3];
    deft_capture *c = deft_capture_create(r.cx, advance, NULL);
    OK(&r, deft_eval(&before, 1));
    OK(&r, deft_capture_call(c, in, 2, out, 2));
    OK(&r, deft_export(c, path, DEFT_EXPORT(.as_trace = true)));
    rig_read(&r, out[0], want[0], 1);
    rig_read(&r, out[1], want[1], N / 2);
    rig_read(&r, state, want[2], N);
    OK(&r, deft_program_load(r.cx, file, &p));
    cr_assert_eq(deft_program_inputs(p), 4);
    cr_assert_eq(deft_program_outputs(p), 3);
    cr_assert(deft_program_input(p, 1, &dtype, &shape) && dtype == DEFT_F32 && shape.rank == 1);
    cr_assert(deft_program_output(p, 1, NULL, &shape) && shape.dim[0] == N / 2);
    cr_assert(!deft_program_input(p, 4, NULL, NULL) && !deft_program_output(p, 3, NULL, NULL));
    /* Tensors from outside are in the order in which the function uses them. */
    cr_assert(deft_program_call(p, (deft_tensor *const[]){ x, y, before, bias }, 4, made, 3));
    rig_read(&r, made[0], have[0], 1);
    rig_read(&r, made[1], have[1], N / 2);
    rig_read(&r, made[2], have[2], N);
    cr_assert_arr_eq(have[0], want[0], sizeof(float));
    cr_assert_arr_eq(have[1], want[1], N / 2 * sizeof(float));
    cr_assert_arr_eq(have[2], want[2], N * sizeof(float));
    deft_program_destroy(&p);
    cr_assert(!p);
    deft_capture_destroy(&c);
}

/* x to the power of 2 ^ 3 by a loop, then negated where a test fails. */
static const char looping[] = "trace v1\n"
                              "%0 = input f32[3]\n"
                              "%1 = input bool[]\n"
                              "%2 = cst i64[] 0\n"
                              "%3 = loop i64[] %2 most=3\n"
                              "%4 = carry f32[3] %0 %3\n"
                              "%5 = mul f32[3] %4 %4\n"
                              "%6 = next f32[3] %4 %5 %3\n"
                              "%7 = final f32[3] %6 %6\n"
                              "%8 = neg f32[3] %7\n"
                              "%9 = cond f32[3] %1 %7 %8\n"
                              "output %9\n";

static deft_status in_a_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    deft_program *const p = user;
    (void)cx, (void)n_in, (void)n_out;
    return deft_program_call(
               p, (deft_tensor *const[]){ in[0], deft_full_i(cx, DEFT_SHAPE(), DEFT_BOOL, 1) }, 2,
               out, 1)
               ? DEFT_OK
               : DEFT_E_STATE;
}

Test(program, loops_and_branches_run_and_have_gradients)
{
    deft_program *p = load_text(looping);
    for (int sign = 0; sign < 2; sign++) {
        deft_tensor *const x = rig_vector(&r, 3, ((const float[]){ 1, 2, -1 })), *out, *g;
        deft_tensor *const test = deft_full_i(r.cx, DEFT_SHAPE(), DEFT_BOOL, sign);
        cr_assert(deft_program_call(p, (deft_tensor *const[]){ x, test }, 2, &out, 1));
        g = rig_grad_of_sum(out, x);
        const float s = sign ? 1 : -1;
        RIG_EXPECT(&r, out, s * 1, s * 256, s * 1);
        RIG_EXPECT(&r, g, s * 8, s * 1024, s * -8);
    }
    deft_program_destroy(&p);
}

/* The bodies of other loops and branches, and examples of deft_vmap, call it too. */
Test(program, loops_and_branches_run_in_other_bodies)
{
    deft_program *p = load_text(looping);
    deft_tensor *const x = rig_vector(&r, 3, ((const float[]){ 1, -1, 0.5f })), *out, *g;
    deft_tensor *const yes = deft_full_i(r.cx, DEFT_SHAPE(), DEFT_BOOL, 1);
    cr_assert(deft_scan(r.cx, in_a_body, p, &x, 1, NULL, 0, 2, 0, &out));
    g = rig_grad_of_sum(out, x);
    RIG_EXPECT(&r, out, 1, 1, 0x1p-64f);
    RIG_EXPECT(&r, g, 64, -64, 64 * 0x1p-63f);
    cr_assert(deft_cond(yes, in_a_body, in_a_body, p, &x, 1, &out, 1));
    RIG_EXPECT(&r, out, 1, 1, 0x1p-8f);
    deft_tensor *const rows = deft_stack((deft_tensor *[]){ x, deft_mul_f(x, 2) }, 2, 0);
    cr_assert(deft_vmap(r.cx, in_a_body, p, &rows, NULL, 1, &out, NULL, 1));
    RIG_EXPECT(&r, out, 1, 1, 0x1p-8f, 256, 256, 1);
    deft_program_destroy(&p);
}

/* One more loop than there are levels. */
static deft_status in_all_bodies(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    static int depth = 0;
    deft_tensor *x = in[0];
    if (depth == 16) return in_a_body(cx, in, n_in, out, n_out, user);
    depth++;
    const bool ok = deft_scan(cx, in_all_bodies, user, &x, 1, NULL, 0, 1, 0, out);
    depth--;
    return ok ? DEFT_OK : deft_error(cx);
}

Test(program, loops_that_would_nest_too_deep_are_refused)
{
    deft_program *p = load_text(looping);
    deft_tensor *x = rig_vector(&r, 3, ((const float[]){ 1, -1, 0.5f })), *out;
    cr_assert_neq(in_all_bodies(r.cx, &x, 1, &out, 1, p), DEFT_OK);
    cr_assert_eq(deft_error(r.cx), DEFT_E_LIMIT);
    cr_assert(strstr(deft_message(r.cx), "its loops are nested more than 16 deep here"), "%s",
              deft_message(r.cx));
    deft_clear(r.cx);
    deft_program_destroy(&p);
}

static void expect_refused(const char *text, deft_status st, const char *part)
{
    deft_program *p = (deft_program *)(void *)file;
    if (text) write_text(text);
    cr_assert_eq(deft_program_load(r.cx, text ? file : "/nowhere/f.trace", &p), st, "%s", text);
    cr_assert(!p);
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" has no \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

Test(program, files_that_do_not_fit_are_refused_by_name)
{
    expect_refused("trace v2\n%0 = input f32[1]\noutput %0\n", DEFT_E_FORMAT,
                   "f.trace: line 1: the trace has version v2, and this library reads v1");
    expect_refused("%0 = input f32[1]\n%1 = transmogrify f32[1] %0\n", DEFT_E_FORMAT,
                   "line 2: there is no operator 'transmogrify' in this library");
    expect_refused("%0 = input f32[1]\n%1 = exp@2 f32[1] %0\n", DEFT_E_FORMAT,
                   "line 2: exp has version 2 here, and this library has version 1");
    expect_refused("\x7f\x45LF\n", DEFT_E_FORMAT, "line 1: ");
    expect_refused(NULL, DEFT_E_NOT_FOUND, "/nowhere/f.trace");
    deft_program *p = load_text("%0 = input f32[1]\n%1 = exp@1 f32[1] %0\noutput %1\n");
    deft_program_destroy(&p);
    deft_program_destroy(&p);
    deft_program_destroy(NULL);
    cr_assert_eq(deft_program_load(NULL, file, &p), DEFT_E_ARG);
    cr_assert_eq(deft_program_load(r.cx, "", &p), DEFT_E_ARG);
    cr_assert_eq(deft_program_load(r.cx, file, NULL), DEFT_E_ARG);
    cr_assert(deft_program_inputs(NULL) == 0 && deft_program_outputs(NULL) == 0);
    cr_assert(!deft_program_input(NULL, 0, NULL, NULL) &&
              !deft_program_call(NULL, NULL, 0, NULL, 0));
    deft_clear(r.cx);
}

static void expect_bad_call(deft_program *p, deft_tensor *const *in, size_t n_in, size_t n_out,
                            deft_status st, const char *part)
{
    deft_tensor *out[2] = { in[0], in[0] };
    cr_assert(!deft_program_call(p, in, n_in, out, n_out));
    for (size_t i = 0; i < n_out; i++) cr_assert(!out[i]);
    cr_assert_eq(deft_error(r.cx), st, "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" has no \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

Test(program, calls_that_do_not_fit_are_mistakes_with_numbers)
{
    deft_program *p =
        load_text("%0 = input f32[4]\n%1 = input i32[]\n%2 = cast f32[] %1\n%3 = expand f32[4] %2\n"
                  "%4 = mul f32[4] %0 %3\noutput %4\n");
    deft_tensor *const four = rig_range(&r, 4, 1), *const five = rig_range(&r, 5, 1), *out;
    deft_tensor *const two = deft_full_i(r.cx, DEFT_SHAPE(), DEFT_I32, 2);
    cr_assert(deft_program_call(p, (deft_tensor *const[]){ four, two }, 2, &out, 1));
    RIG_EXPECT(&r, out, 2, 4, 6, 8);
    cr_assert(
        deft_program_call(p, (deft_tensor *const[]){ four, deft_num_i(r.cx, 3) }, 2, &out, 1));
    RIG_EXPECT(&r, out, 3, 6, 9, 12);
    expect_bad_call(p, (deft_tensor *const[]){ four }, 1, 1, DEFT_E_ARG,
                    "f.trace: 1 inputs and 1 results, it has 2 inputs and 1 results");
    expect_bad_call(p, (deft_tensor *const[]){ four, two }, 2, 2, DEFT_E_ARG,
                    "2 inputs and 2 results, it has 2 inputs and 1 results");
    expect_bad_call(p, (deft_tensor *const[]){ five, two }, 2, 1, DEFT_E_SHAPE,
                    "input 0 is f32[5], it must be f32[4]");
    expect_bad_call(p, (deft_tensor *const[]){ four, deft_cast(two, DEFT_I64) }, 2, 1, DEFT_E_DTYPE,
                    "input 1 is i64[], it must be i32[]");
    deft_program_destroy(&p);
}

static deft_rng rng;

static deft_status noise(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_uniform(cx, &rng, DEFT_SHAPE(N), DEFT_F32, 0, 1));
    return DEFT_OK;
}

Test(program, a_function_with_parameters_is_no_trace)
{
    deft_tensor *in[1] = { rig_range(&r, N, 0) }, *out;
    deft_capture *c = deft_capture_create(r.cx, noise, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    cr_assert_eq(deft_export(c, path, DEFT_EXPORT(.as_trace = true)), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "a trace has no parameters, and seed0 is one"), "%s",
              deft_message(r.cx));
    deft_clear(r.cx);
    cr_assert_eq(deft_export(c, path, DEFT_EXPORT(.as_trace = true, .as_c = true)), DEFT_E_ARG);
    deft_clear(r.cx);
    deft_capture_destroy(&c);
}
