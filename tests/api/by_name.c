/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by name: they compute what the C functions compute, and every wrong argument gets a
 * sentence and records nothing.
 */
#include <stdio.h>
#include <string.h>

#include "deft/call.h"
#include "deft/deft.h"

static int n_failed;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (condition) break;                                                                      \
        printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                     \
        n_failed++;                                                                                \
    } while (0)

static const int64_t three[] = { 2, 1, 3 };

static deft_arg tensor(deft_tensor *t)
{
    return (deft_arg){ .kind = DEFT_ARG_TENSOR, .as.tensor = t };
}

static deft_arg integer(int64_t i)
{
    return (deft_arg){ .kind = DEFT_ARG_INT, .as.i = i };
}

static deft_arg real(double f)
{
    return (deft_arg){ .kind = DEFT_ARG_FLOAT, .as.f = f };
}

static deft_arg list(uint32_t n, const int64_t *ints)
{
    return (deft_arg){ .kind = DEFT_ARG_INTS, .n = n, .as.ints = ints };
}

/* Whether two tensors have the same elements. */
static bool equal(deft_tensor *a, deft_tensor *b)
{
    bool same = false;
    return a && b && deft_item_bool(deft_all(deft_eq(a, b), DEFT_ALL_AXES, 0), &same) == DEFT_OK &&
           same;
}

/* Calls f with wrong arguments: the status, and whether the sentence has these words. */
static bool refuses(deft_ctx *cx, const char *name, const deft_arg *args, size_t n,
                    deft_status want, const char *words)
{
    deft_tensor *out[4];
    deft_call_error error = { "" };
    deft_stats before, after;
    deft_stats_read(cx, &before, sizeof before);
    const deft_status st = deft_call(cx, name, args, n, out, 4, &error);
    deft_stats_read(cx, &after, sizeof after);
    if (st == want && !out[0] && strstr(error.text, words) &&
        before.ops_recorded == after.ops_recorded && deft_error(cx) == DEFT_OK)
        return true;
    printf("%s: status %d, sentence \"%s\"\n", name, (int)st, error.text);
    return false;
}

static void check_table(void)
{
    size_t n = 0;
    const char *before = "";
    for (const deft_function *f; (f = deft_function_at(n)); n++) {
        EXPECT(deft_function_find(deft_function_name(f)) == f);
        EXPECT(strcmp(before, deft_function_name(f)) < 0);
        before = deft_function_name(f);
        for (size_t i = 0; i < deft_function_arity(f); i++)
            EXPECT(deft_function_parameter(f, i).name && deft_function_parameter(f, i).type);
        EXPECT(!deft_function_parameter(f, deft_function_arity(f)).name);
    }
    printf("%zu functions\n", n);
    EXPECT(n > 190);
    EXPECT(!deft_function_find(NULL) && !deft_function_find("keep") && !deft_function_find(""));
}

static void check_values(deft_ctx *cx)
{
    deft_tensor *out[6];
    deft_call_error error;
    deft_tensor *x = deft_reshape(deft_arange(cx, 0, 24, 1, DEFT_F32), DEFT_SHAPE(1, 2, 3, 4));
    deft_tensor *w = deft_ones(cx, DEFT_SHAPE(3, 2, 2, 2), DEFT_F32);
    deft_tensor *bias = deft_arange(cx, 0, 3, 1, DEFT_F32);

    /* Options are arguments; one number serves rows and columns; those at the end are left out. */
    const deft_arg none = { .kind = DEFT_ARG_NONE };
    const int64_t pads[] = { 1, 0 };
    const deft_arg conv[] = { tensor(x),  tensor(w), none,        list(2, pads),
                              integer(1), none,      tensor(bias) };
    EXPECT(deft_call(cx, "conv2d", conv, 7, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_conv2d(x, w, DEFT_CONV2D(.padding = { 1, 0 }, .bias = bias))));
    EXPECT(deft_call(cx, "conv2d", conv, 2, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_conv2d(x, w, NULL)));

    const deft_arg pool[] = { tensor(deft_abs(x)), integer(2), integer(1) };
    EXPECT(deft_call(cx, "max_pool2d", pool, 3, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 2, 2 }, .stride = { 1, 1 }))));

    const int64_t axes[] = { -1, 1 };
    const deft_arg sum[] = { tensor(x), list(2, axes), integer(1) };
    EXPECT(deft_call(cx, "sum", sum, 3, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_sum(x, DEFT_AXES(-1, 1), 1)));
    const deft_arg all[] = { tensor(x), none, integer(0) };
    EXPECT(deft_call(cx, "sum", all, 3, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_sum(x, DEFT_ALL_AXES, 0)));

    /* Numbers in the place of tensors, and integers that choose the form for integers. */
    const deft_arg add[] = { integer(1), tensor(x) };
    EXPECT(deft_call(cx, "sub", add, 2, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_sub(deft_num_i(cx, 1), x)));
    const int64_t large = (int64_t)1 << 62 | 1;
    const deft_arg full[] = { list(1, three), integer(DEFT_I64), integer(large) };
    int64_t found = 0;
    EXPECT(deft_call(cx, "full", full, 3, out, 1, &error) == DEFT_OK);
    EXPECT(deft_item_i64(deft_max(out[0], DEFT_ALL_AXES, 0), &found) == DEFT_OK && found == large);
    const deft_arg largest[] = { list(0, NULL),
                                 integer(DEFT_U64),
                                 { .kind = DEFT_ARG_UINT, .as.u = UINT64_MAX } };
    uint64_t most = 0;
    EXPECT(deft_call(cx, "full", largest, 3, out, 1, &error) == DEFT_OK);
    EXPECT(deft_item_u64(out[0], &most) == DEFT_OK && most == UINT64_MAX);

    /* Ranges, lists of tensors, several results, as many results as sizes. */
    const int64_t ranges[] = { 0, 0, 0, 1, DEFT_END, 1 };
    const deft_arg slice[] = { tensor(x), list(6, ranges) };
    EXPECT(deft_call(cx, "slice_n", slice, 2, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_slice(x, DEFT_AT(0), DEFT_R(1, DEFT_END))));
    deft_tensor *const parts[] = { x, x };
    const deft_arg concat[] = { { .kind = DEFT_ARG_TENSORS, .n = 2, .as.tensors = parts },
                                integer(1) };
    EXPECT(deft_call(cx, "concat", concat, 2, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_concat(parts, 2, 1)));
    const deft_arg topk[] = { tensor(bias), integer(2), integer(0), integer(1) };
    EXPECT(deft_function_results(deft_function_find("topk"), topk, 4) == 2);
    EXPECT(deft_call(cx, "topk", topk, 4, out, 3, &error) == DEFT_OK && out[0] && out[1] &&
           !out[2]);
    EXPECT(deft_call(cx, "topk", topk, 4, out, 1, &error) == DEFT_OK);
    const deft_arg split[] = { tensor(deft_arange(cx, 0, 6, 1, DEFT_F32)), list(3, three),
                               integer(0) };
    EXPECT(deft_function_results(deft_function_find("split"), split, 3) == 3);
    EXPECT(deft_call(cx, "split", split, 3, out, 4, &error) == DEFT_OK && out[2] && !out[3]);
    EXPECT(deft_dim(out[2], 0) == 3);

    /* A text, and numbers that are no integers: one of them serves all sides. */
    const double scale[] = { 2, 1.5 };
    const int64_t twice[] = { 2, 1 };
    const deft_arg text = { .kind = DEFT_ARG_TEXT, .as.text = "nchw->wc" };
    deft_tensor *const images[] = { x };
    const deft_arg einsum[] = { text, { .kind = DEFT_ARG_TENSORS, .n = 1, .as.tensors = images } };
    EXPECT(deft_call(cx, "einsum", einsum, 2, out, 1, &error) == DEFT_OK);
    EXPECT(equal(out[0], deft_einsum("nchw->wc", images, 1)));
    deft_arg larger[] = { tensor(x),
                          list(0, NULL),
                          integer(DEFT_LINEAR),
                          none,
                          { .kind = DEFT_ARG_FLOATS, .n = 2, .as.floats = scale } };
    EXPECT(deft_call(cx, "interpolate", larger, 5, out, 1, &error) == DEFT_OK);
    EXPECT(
        equal(out[0], deft_interpolate(x, DEFT_SHAPE(),
                                       DEFT_SAMPLING(.mode = DEFT_LINEAR, .scale = { 2, 1.5 }))));
    larger[4] = list(2, twice);
    EXPECT(deft_call(cx, "interpolate", larger, 5, out, 1, &error) == DEFT_OK);
    EXPECT(deft_dim(out[0], 2) == 6 && deft_dim(out[0], 3) == 4);
    larger[4] = real(1.5);
    EXPECT(deft_call(cx, "interpolate", larger, 5, out, 1, &error) == DEFT_OK);
    EXPECT(deft_dim(out[0], 2) == 4 && deft_dim(out[0], 3) == 6);

    deft_rng rng = { 5, 0 }, same = { 5, 0 };
    const deft_arg draw[] = { { .kind = DEFT_ARG_RNG, .as.rng = &rng },
                              list(3, three),
                              integer(DEFT_F32),
                              real(0),
                              integer(1) };
    EXPECT(deft_call(cx, "normal", draw, 5, out, 1, &error) == DEFT_OK && rng.next == 1);
    EXPECT(equal(out[0], deft_normal(cx, &same, deft_shape_of(3, three), DEFT_F32, 0, 1)));
}

static void check_mistakes(deft_ctx *cx)
{
    deft_tensor *const x = deft_zeros(cx, DEFT_SHAPE(2, 3), DEFT_F32), *out[2];
    deft_call_error error;
    const deft_arg good[] = { tensor(x), tensor(x), integer(1) };
    EXPECT(refuses(cx, "conv2e", good, 2, DEFT_E_NOT_FOUND,
                   "no function conv2e; the nearest name is conv2d"));
    EXPECT(refuses(cx, NULL, good, 2, DEFT_E_NOT_FOUND, "(NULL)"));
    EXPECT(refuses(cx, "add", good, 3, DEFT_E_ARG, "add takes 2 arguments, and got 3"));
    EXPECT(refuses(cx, "add", good, 1, DEFT_E_ARG, "add: b is missing"));
    const deft_arg text[] = { tensor(x), list(2, three) };
    EXPECT(refuses(cx, "add", text, 2, DEFT_E_ARG, "b is of type tensor, and got a list of ints"));
    const deft_arg fraction[] = { tensor(x), real(0.5) };
    EXPECT(refuses(cx, "softmax", fraction, 2, DEFT_E_ARG, "axis is of type int, and got a float"));
    const deft_arg far_axis[] = { tensor(x), integer((int64_t)1 << 40) };
    EXPECT(refuses(cx, "softmax", far_axis, 2, DEFT_E_ARG, "outside -2147483648 to 2147483647"));
    const deft_arg shift[] = { tensor(x), list(3, three), integer(0), real(0) };
    EXPECT(refuses(cx, "shift", shift, 4, DEFT_E_ARG, "by has 3 numbers, and the tensor 2 axes"));
    const deft_arg ranges[] = { tensor(x), list(2, three) };
    EXPECT(refuses(cx, "slice_n", ranges, 2, DEFT_E_ARG, "not three for each range"));
    const deft_arg number[] = { integer(1), { .kind = DEFT_ARG_TENSORS } };
    EXPECT(refuses(cx, "einsum", number, 2, DEFT_E_ARG,
                   "equation is of type text, and got an integer"));
    const deft_arg scales[] = {
        tensor(x), list(0, NULL), integer(0), integer(0), { .kind = DEFT_ARG_FLOATS, .n = 4 }
    };
    EXPECT(refuses(cx, "interpolate", scales, 5, DEFT_E_ARG,
                   "scale is of type floats, and got a list of floats"));
    const deft_arg unknown[] = { tensor(x), { .kind = (deft_arg_kind)99 } };
    EXPECT(refuses(cx, "add", unknown, 2, DEFT_E_ARG, "an unknown kind"));
    EXPECT(deft_call(cx, "split", (const deft_arg[]){ tensor(x), list(3, three), integer(0) }, 3,
                     out, 2, &error) == DEFT_E_ARG &&
           strstr(error.text, "3 results, and there is room for 2"));
    EXPECT(deft_call(NULL, "add", good, 2, out, 1, NULL) == DEFT_E_ARG);

    /* A mistake of the function itself stays in the context, as after the C call. */
    deft_tensor *const y = deft_zeros(cx, DEFT_SHAPE(2, 4), DEFT_F32);
    const deft_arg shapes[] = { tensor(x), tensor(y) };
    EXPECT(deft_call(cx, "add", shapes, 2, out, 1, &error) == DEFT_E_SHAPE);
    EXPECT(strstr(error.text, "do not broadcast") && deft_error(cx) == DEFT_E_SHAPE && !out[0]);
    const deft_arg missing[] = { tensor(out[0]) };
    EXPECT(deft_call(cx, "exp", missing, 1, out, 1, &error) == DEFT_E_SHAPE);
    deft_clear(cx);
}

int main(void)
{
    deft_ctx *cx = NULL;
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;
    const deft_scope s = deft_scope_begin(cx);
    check_table();
    check_values(cx);
    check_mistakes(cx);
    EXPECT(deft_scope_end(s) == DEFT_OK);
    deft_ctx_destroy(&cx);
    return n_failed != 0;
}
