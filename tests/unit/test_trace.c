/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: building, verifying, identity, text both ways, simplification, slots.
 * Why this file is long: every pass over traces, with its hostile inputs.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/fail_mem.h"
#include "trace/place.h"
#include "trace/trace.h"

/* ---- helpers ---- */

static df_arena arena; /* of the running test: each has a process of its own */

static void begin(void)
{
    df_arena_init(&arena, &df_mem_system);
}

static void end(void)
{
    df_arena_finish(&arena);
}

TestSuite(trace, .init = begin, .fini = end);

static df_trace *parse(const char *text)
{
    df_trace *t = NULL;
    df_diag d = { .text = "" };
    cr_assert(df_trace_parse(&d, text, strlen(text), &arena, &t) == DEFT_OK, "%s\n%s", d.text,
              text);
    return t;
}

static char *print(const df_trace *t)
{
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_trace_print(&s, t);
    cr_assert(s.ok);
    char *const text = df_arena_strdup(&arena, s.at);
    df_str_finish(&s);
    return text;
}

static df_key key(const df_trace *t)
{
    df_key k;
    cr_assert(df_trace_key(NULL, t, &k) == DEFT_OK);
    return k;
}

static bool same_key(const df_trace *a, const df_trace *b)
{
    const df_key x = key(a), y = key(b);
    const bool same = x.n == y.n && memcmp(x.bytes, y.bytes, x.n) == 0;
    cr_assert(same == df_hash_equal(x.hash, y.hash));
    return same;
}

/* Both texts parse; the keys are equal or not. */
static void expect_keys(const char *a, const char *b, bool same)
{
    cr_assert(same_key(parse(a), parse(b)) == same, "%s\nand\n%s", a, b);
}

static void expect_refused(const char *text, size_t n, deft_status want, const char *sentence)
{
    df_trace *t = NULL;
    df_diag d = { .text = "" };
    const deft_status st = df_trace_parse(&d, text, n, &arena, &t);
    cr_assert(st == want && !t, "%d \"%s\": %s", (int)st, d.text, text);
    cr_assert_str_eq(d.text, sentence);
    cr_assert(df_trace_parse(NULL, text, n, &arena, &t) == want,
              "without a place for the sentence");
}

/* ---- identity ---- */

Test(trace, keys_hold_no_extents_numbers_or_strides)
{
    const char *const hidden =
        "%0 = input f32[64,128]\n%1 = input f32[128,32]\n%2 = matmul f32[64,32] %0 %1\n"
        "%3 = num f32[] 0x1p-1\n%4 = mul f32[64,32] %2 %3\noutput %4\n";
    /* The batch becomes equal to the hidden size, then to 1, then nothing. */
    expect_keys(hidden,
                "%0 = input f32[128,128]\n%1 = input f32[128,32]\n%2 = matmul f32[128,32] %0 %1\n"
                "%3 = num f32[] 0x1p-1\n%4 = mul f32[128,32] %2 %3\noutput %4\n",
                true);
    expect_keys(hidden,
                "%0 = input f32[1,1]\n%1 = input f32[1,1]\n%2 = matmul f32[1,1] %0 %1\n"
                "%3 = num f32[] 0x0p+0\n%4 = mul f32[1,1] %2 %3\noutput %4\n",
                true);
    expect_keys(hidden,
                "%0 = input f32[0,7] strides=[3,900] wrapped\n%1 = input f32[7,0] sole aligned\n"
                "%2 = matmul f32[0,0] %0 %1\n"
                "%3 = num f32[] nan\n%4 = mul f32[0,0] %2 %3\noutput %4\n",
                true);

    /* Two numbers becoming equal stay two numbers. */
    const char *const two = "%0 = input f64[9]\n%1 = num f64[] 2\n%2 = num f64[] 3\n"
                            "%3 = mul f64[9] %0 %1\n%4 = add f64[9] %3 %2\noutput %4\n";
    expect_keys(two,
                "%0 = input f64[9]\n%1 = num f64[] 2\n%2 = num f64[] 2\n"
                "%3 = mul f64[9] %0 %1\n%4 = add f64[9] %3 %2\noutput %4\n",
                true);
    expect_keys(two,
                "%0 = input f64[9]\n%1 = num f64[] 2\n%2 = num f64[] 3\n"
                "%3 = mul f64[9] %0 %1\n%4 = add f64[9] %3 %1\noutput %4\n",
                false);

    /* Slices move, random draws go on: one identity. */
    expect_keys("%0 = input f32[9]\n%1 = slice f32[4] %0 start=[0] step=[1]\noutput %1",
                "%0 = input f32[9]\n%1 = slice f32[3] %0 start=[8] step=[-4]\noutput %1", true);
    expect_keys("%0 = random i64[9] word=1 seed=1 draw=0\noutput %0",
                "%0 = random i64[5] word=1 seed=18446744073709551615 draw=77\noutput %0", true);
    /* What changes code. */
    expect_keys("%0 = random i64[9] word=1 seed=1 draw=0\noutput %0",
                "%0 = random i64[9] word=2 seed=1 draw=0\noutput %0", false);
    expect_keys("%0 = input f32[4]\noutput %0", "%0 = input f64[4]\noutput %0", false);
    expect_keys("%0 = input f32[4]\noutput %0", "%0 = input f32[4,1]\noutput %0", false);
    expect_keys("%0 = input f32[4]\noutput %0", "trace v1 fast\n%0 = input f32[4]\noutput %0",
                false);
    expect_keys("%0 = input f32[4]\noutput %0",
                "trace v1 temporaries=64\n%0 = input f32[4]\noutput %0", false);
    expect_keys("trace v1 temporaries=128\n%0 = input f32[4]\noutput %0",
                "trace v1 temporaries=64\n%0 = input f32[4]\noutput %0", false);
    expect_keys("%0 = input f32[4]\noutput %0", "%0 = input f32[4]\noutput %0 donor %0", false);
    expect_keys("%0 = input f32[4]\noutput %0", "%0 = input f32[4]\noutput %0 into %0", false);
    expect_keys("%0 = cst f32[] 1\noutput %0", "%0 = cst f32[] 2\noutput %0", false);
    expect_keys("%0 = input f32[4,4]\n%1 = sum f32[4] %0 axes=[0]\noutput %1",
                "%0 = input f32[4,4]\n%1 = sum f32[4] %0 axes=[1]\noutput %1", false);

    /* Call sites are beside the records. */
    df_trace *const a = parse(two), *const b = parse(two);
    a->site = df_arena_new(&arena, uintptr_t, a->n_nodes);
    a->site[3] = 0x1234;
    cr_assert(same_key(a, b));
}

/* ---- building and verifying ---- */

Test(trace, builder_checks_each_record_and_keeps_the_first_failure)
{
    df_diag d = { .text = "" };
    df_builder b;
    cr_assert(df_build_init(&b, &arena, &d) == DEFT_OK);
    const df_shape s = { 2, { 4, 8 } }, wrong = { 2, { 4, 9 } };
    const df_ref x = df_build_input(&b, DEFT_F32, &s, NULL);
    const df_ref y = df_build_op(&b, DF_OP_exp, DEFT_F32, 0, &x, 1, NULL, 0, &s);
    const df_ref two[] = { x, y };
    const df_ref z = df_build_op(&b, DF_OP_add, DEFT_F32, 0, two, 2, NULL, 0, NULL);
    df_build_root(&b, z, DF_ROOT_NEW, DF_NONE, DF_NONE);
    cr_assert(b.st == DEFT_OK && z.i == 2, "%s", d.text);
    cr_assert(df_trace_verify(&d, b.t) == DEFT_OK, "%s", d.text);
    cr_assert(b.t->n_extents == 2, "elementwise ops share their operand's extents");
    cr_assert(b.t->inputs[0].stride[0] == 8 && b.t->inputs[0].stride[1] == 1);
    cr_assert(b.t->inputs[0].bytes == 128 && b.t->inputs[0].flags == DF_INPUT_CONTIGUOUS);
    cr_assert(df_trace_numel(b.t, 2) == 32);

    const df_builder good = b;
    const df_ref none = { 7 };
    df_trace kept;
#define REFUSED(call, status, sentence)                                                            \
    do {                                                                                           \
        b = good;                                                                                  \
        kept = *b.t;                                                                               \
        cr_assert((call).i == DF_NONE);                                                            \
        cr_assert(b.st == (status), "%d", (int)b.st);                                              \
        cr_assert_str_eq(d.text, sentence);                                                        \
        cr_assert(df_build_op(&b, DF_OP_exp, DEFT_F32, 0, &x, 1, NULL, 0, NULL).i == DF_NONE);     \
        cr_assert(b.t->n_nodes == kept.n_nodes);                                                   \
    } while (0)
    REFUSED(df_build_op(&b, DF_OP_add, DEFT_F32, 0, two, 2, NULL, 0, &wrong), DEFT_E_SHAPE,
            "add: the result is [4,8], not [4,9]");
    REFUSED(df_build_op(&b, DF_OP_add, DEFT_F32, 0, two, 1, NULL, 0, NULL), DEFT_E_ARG,
            "add: 1 operands, must be 2");
    REFUSED(df_build_op(&b, DF_OP_exp, DEFT_F32, 0, &none, 1, NULL, 0, NULL), DEFT_E_ARG,
            "exp: operand 1 does not exist");
    REFUSED(df_build_op(&b, DF_OP_exp, DEFT_F64, 0, &x, 1, NULL, 0, NULL), DEFT_E_DTYPE,
            "exp: the result is f64, must be f32");
    REFUSED(df_build_op(&b, DF_OP_slice, DEFT_F32, 0, &x, 1, NULL, 0, &s), DEFT_E_ARG,
            "slice: 0 arguments, must be 4");
    REFUSED(df_build_op(&b, DF_OP_input, DEFT_F32, 0, NULL, 0, NULL, 0, &s), DEFT_E_ARG,
            "no op that a record can have: 0");
    REFUSED(df_build_op(&b, DF_OP_cst, DEFT_U8, 256, NULL, 0, NULL, 0, NULL), DEFT_E_RANGE,
            "cst: 256 does not fit u8");
    REFUSED(df_build_op(&b, DF_OP_num, DEFT_F32, 0, NULL, 0, (int64_t[]){ -1 }, 1, NULL),
            DEFT_E_RANGE, "num: bits 0xffffffffffffffff do not fit f32");
    const int64_t far[] = { INT64_MAX / 2, INT64_MAX / 2 };
    REFUSED(df_build_input(&b, DEFT_F32, &s, far), DEFT_E_RANGE, "input: strides reach too far");
#undef REFUSED
}

Test(trace, verifier_finds_each_broken_field)
{
    df_diag d;
    static const char *const text =
        "%0 = input f32[4,8]\n%1 = num f32[] 3\n%2 = slice f32[2,8] %0 start=[1,0] step=[1,1]\n"
        "%3 = mul f32[2,8] %2 %1\n%4 = update f32[4,8] %0 %3 %2\noutput %4 into %0\n";
#define BROKEN(change, sentence)                                                                   \
    do {                                                                                           \
        df_trace *const t = parse(text);                                                           \
        change;                                                                                    \
        cr_assert(df_trace_verify(&d, t) != DEFT_OK, "passed: " #change);                          \
        cr_assert_str_eq(d.text, sentence);                                                        \
        cr_assert(df_trace_verify(NULL, t) != DEFT_OK);                                            \
    } while (0)
    cr_assert(df_trace_verify(&d, parse(text)) == DEFT_OK);
    BROKEN(t->nodes[3].op = DF_N_OPS, "%3: no such op");
    BROKEN(t->nodes[3].dtype = DF_N_RECORDED, "%3: no such dtype");
    BROKEN(t->nodes[3].dtype = DEFT_F64, "%3: mul: the result is f64, must be f32");
    BROKEN(t->nodes[3].rank = 9, "%3: rank above 8");
    BROKEN(t->nodes[3].rank = 1, "%3: mul: the result is [2,8], not [2]");
    BROKEN(t->nodes[3].n_src = 1, "%3: wrong number of operands");
    BROKEN(t->nodes[3].src[1].i = 3, "%3: operand %3 is not below");
    BROKEN(t->nodes[3].src[2].i = 0, "%3: an unused operand is set");
    BROKEN(t->nodes[3].attr = 1, "%3: mul: attribute 1 has no meaning");
    BROKEN(t->nodes[3].arg = 1, "%3: arguments of an op without");
    BROKEN(t->nodes[2].arg = 0, "%2: argument slots overlap");
    BROKEN(t->nodes[2].arg = 2, "%2: argument slots out of range");
    BROKEN(t->nodes[2].arg = UINT32_MAX, "%2: argument slots out of range");
    BROKEN(t->shape[3] = t->n_extents, "%3: extents out of range");
    BROKEN(t->shape[3] = UINT32_MAX, "%3: extents out of range");
    BROKEN((t->nodes[1].dtype = DEFT_BF16, t->args[0] = 65536),
           "%1: num: bits 0x10000 do not fit bf16");
    BROKEN(t->args[0] = (int64_t)1 << 32, "%1: num: bits 0x100000000 do not fit f32");
    BROKEN(t->args[1] = 3, "%2: slice: 2 elements from 3 in steps of 1 leave axis 0 of [4,8]");
    BROKEN(t->nodes[4].src[0].i = 3, "%4: update: the result is [2,8], not [4,8]");
    BROKEN(t->nodes[4].src[2].i = 3, "%4: update: place %3 is no view of %0");
    BROKEN(t->nodes[0].attr = 1, "%0: input: its ordinal names another node");
    BROKEN(t->inputs[0].node = 1, "%0: input: its ordinal names another node");
    BROKEN(t->n_inputs = 0, "%0: input: its ordinal names another node");
    BROKEN(t->n_inputs = 2, "2 inputs are named by 1 nodes");
    BROKEN(t->inputs[0].flags |= 64, "input 0: unknown flags");
    BROKEN(t->inputs[0].stride[0] = INT64_MAX, "input 0: strides reach too far");
    BROKEN(t->inputs[0].bytes = 127, "input 0: strides reach over 128 bytes, it has 127");
    BROKEN(t->roots[0].node = 5, "output 0: no node %5");
    BROKEN(t->roots[0].kind = 2, "output 0: no such kind");
    BROKEN(t->roots[0].kind = DF_ROOT_NEW, "output 0: no such input");
    BROKEN(t->roots[0].into = 1, "output 0: no such input");
    BROKEN(t->roots[0].donor = 1, "output 0: no such input");
    BROKEN(t->roots[0].node = 3, "output 0: f32[2,8] into f32[4,8]");
    BROKEN(t->flags = 4, "unknown trace flags 0x4");
    BROKEN(t->n_nodes = DF_TRACE_MAX_NODES + 1, "2097153 nodes, at most 2097152 are possible");
#undef BROKEN
    static const char expanded[] = "%0 = input f32[4]\n%1 = expand f32[4] %0\n"
                                   "%2 = input f32[4]\n%3 = update f32[4] %0 %2 %1\n";
    expect_refused(expanded, sizeof expanded - 1, DEFT_E_FORMAT,
                   "%3: update: place %1 is no view of %0");
}

/* Many updates, each seen through very many views: checking must not take the product. */
Test(trace, long_chains_of_views_and_updates_end_in_time)
{
    df_diag d = { .text = "" };
    df_builder b;
    cr_assert(df_build_init(&b, &arena, &d) == DEFT_OK);
    const df_shape s = { 1, { 4 } };
    const int64_t all[] = { 0, 1 };
    const df_ref x = df_build_input(&b, DEFT_F32, &s, NULL);
    df_ref v = x;
    for (int i = 0; i < 300000; i++)
        v = df_build_op(&b, DF_OP_slice, DEFT_F32, 0, &v, 1, all, 2, &s);
    const df_ref one[] = { x, x, v };
    const df_ref u = df_build_op(&b, DF_OP_update, DEFT_F32, 0, one, 3, NULL, 0, NULL);
    cr_assert(df_trace_verify(&d, b.t) == DEFT_OK, "%s", d.text);
    const df_ref more[] = { x, u, v };
    for (int i = 0; i < 300000; i++)
        (void)df_build_op(&b, DF_OP_update, DEFT_F32, 0, more, 3, NULL, 0, NULL);
    cr_assert(b.st == DEFT_OK);
    cr_assert(df_trace_verify(&d, b.t) == DEFT_E_LIMIT);
    cr_assert(strstr(d.text, "too many views"), "%s", d.text);
}

/* ---- text ---- */

/* The bound is as large as a program may ask for. */
static const char everything[] = "trace v1 fast nofuse temporaries=18446744073709551615\n"
                                 "%0 = input f32[4,8] strides=[8,1] wrapped aligned\n"
                                 "%1 = input i64[3] strides=[-1] ordinal=2 sole\n"
                                 "%2 = input bool[] ordinal=1\n"
                                 "%3 = num f32[] 0x1.99999ap-4\n"
                                 "%4 = num f64[] -0x1.999999999999ap-4\n"
                                 "%5 = num i32[] -2147483648\n"
                                 "%6 = num i64[] -9223372036854775808\n"
                                 "%7 = num u8[] 255\n"
                                 "%8 = num bool[] 1\n"
                                 "%9 = num f32[] nan\n"
                                 "%10 = num f32[] nan:0xffc00001\n"
                                 "%11 = num f32[] -inf\n"
                                 "%12 = num f32[] 0x0.000002p-126\n"
                                 "%13 = num f64[] -0x0p+0\n"
                                 "%14 = num f64[] 0x0.0000000000001p-1022\n"
                                 "%15 = num f32[] 0x1.fffffep+127\n"
                                 "%16 = cst f32[2,3] -0x0p+0\n"
                                 "%17 = cst f64[] 0x1p-3\n"
                                 "%18 = cst i64[] -7\n"
                                 "%19 = empty f64[0,9223372036854]\n"
                                 "%20 = iota i64[4,8] axis=1\n"
                                 "%21 = random i64[4] word=3 seed=18446744073709551615 draw=9\n"
                                 "%22 = count f32[] %0 axes=[0,1]\n"
                                 "%23 = powi f32[4,8] %0 power=-3\n"
                                 "%24 = cast f64[4,8] %0\n"
                                 "%25 = lt bool[4,8] %0 %3\n"
                                 "%26 = where f32[4,8] %25 %0 %23\n"
                                 "%27 = sum f32[4,1] %26 axes=[1] keepdims\n"
                                 "%28 = argmax i64[] %26 axes=[0,1]\n"
                                 "%29 = cumsum f32[4,8] %0 axis=0\n"
                                 "%30 = slice f32[2,4] %0 start=[3,0] step=[-2,2]\n"
                                 "%31 = permute f32[8,4] %0 perm=[1,0]\n"
                                 "%32 = expand f32[2,4,8] %27\n"
                                 "%33 = squeeze f32[4] %27 axes=[1]\n"
                                 "%34 = unsqueeze f32[1,4,1] %33 axes=[0,2]\n"
                                 "%35 = reshape f32[2,16] %0\n"
                                 "%36 = diagonal f32[3] %31 axes=[1,0] offset=5\n"
                                 "%37 = take f32[4,3] %0 %1 axis=1\n"
                                 "%38 = iota i64[2,8] axis=0\n"
                                 "%39 = gather f32[2,8] %0 %38 axis=0\n"
                                 "%40 = exp f32[2,4] %30\n"
                                 "%41 = update f32[4,8] %0 %40 %30\n"
                                 "%42 = matmul f32[4,4] %0 %31\n"
                                 "%43 = sum f32[4,8] %0 axes=[]\n"
                                 "%44 = num f16[] 0x1.554p-2\n"
                                 "%45 = num f16[] -0x0.004p-14\n"
                                 "%46 = num f16[] 0x1.ffcp+15\n"
                                 "%47 = num bf16[] 0x0.02p-126\n"
                                 "%48 = num bf16[] 0x1.fep+127\n"
                                 "%49 = num bf16[] nan:0xff81\n"
                                 "%50 = num f16[] nan\n"
                                 "%51 = cst bf16[2] -0x1.8p+0\n"
                                 "%52 = add f16[] %44 %45\n"
                                 "output %41 into %0\n"
                                 "output %28\n"
                                 "output %1 donor %1\n";

Test(trace, print_and_parse_are_inverse)
{
    const df_trace *const a = parse(everything);
    cr_assert_str_eq(print(a), everything);
    const df_trace *const b = parse(print(a));
    cr_assert(same_key(a, b));
    cr_assert(a->n_args == b->n_args && memcmp(a->args, b->args, a->n_args * sizeof *a->args) == 0);
    cr_assert(a->n_extents == b->n_extents &&
              memcmp(a->extents, b->extents, a->n_extents * sizeof *a->extents) == 0);
    for (uint32_t i = 0; i < a->n_inputs; i++)
        cr_assert(memcmp(&a->inputs[i], &b->inputs[i], sizeof *a->inputs) == 0);
    cr_assert(a->inputs[2].node == 1 && a->inputs[2].flags == DF_INPUT_SOLE);
    cr_assert(a->inputs[0].flags == (DF_INPUT_WRAPPED | DF_INPUT_ALIGNED | DF_INPUT_CONTIGUOUS));
    cr_assert(a->roots[2].donor == 2 && a->roots[0].into == 0 && a->roots[0].kind == DF_ROOT_INTO);
    cr_assert((uint64_t)a->args[0] == 0x3dcccccd);
    cr_assert((uint64_t)a->args[2] == 0x80000000, "zero-extended, not sign-extended");

    /* Freer forms of the same. */
    expect_keys("%0=input f32[ 4 , 8 ]\r\n\n  # a comment\n%1\t= add f32[4,8]%0%0#x\noutput%1",
                "trace v1\n%0 = input f32[4,8]\n%1 = add f32[4,8] %0 %0\noutput %1\n", true);
    const df_trace *const n =
        parse("%0 = num f32[] 3\n%1 = num f64[] -0x.8p0\n%2 = num f32[] 0x1800p-11\n"
              "%3 = num f32[] 16777216\n%4 = num f64[] 0x000000000000000000001.8p+1");
    cr_assert((uint64_t)n->args[0] == 0x40400000 && (uint64_t)n->args[1] == 0xbfe0000000000000u);
    cr_assert((uint64_t)n->args[2] == 0x40400000 && (uint64_t)n->args[3] == 0x4b800000);
    cr_assert((uint64_t)n->args[4] == 0x4008000000000000);
    static const struct {
        const char *text;
        bool contiguous;
    } inputs[] = {
        { "%0 = input f32[1,4] strides=[99,1]", true },
        { "%0 = input f32[4,1] strides=[1,99]", true },
        { "%0 = input f32[4,2] strides=[2,1]", true },
        { "%0 = input f32[4,2] strides=[3,1]", false },
        { "%0 = input f32[4,2] strides=[1,4]", false },
        { "%0 = input f32[4,0] strides=[7,7]", true },
        { "%0 = input f32[4] strides=[0]", false },
        { "%0 = input f32[]", true },
    };
    for (size_t i = 0; i < DF_LEN(inputs); i++)
        cr_assert((parse(inputs[i].text)->inputs[0].flags == DF_INPUT_CONTIGUOUS) ==
                      inputs[i].contiguous,
                  "%s", inputs[i].text);
    cr_assert(parse("")->n_nodes == 0);
    cr_assert_str_eq(print(parse("")), "trace v1\n");
}

Test(trace, hostile_texts_give_a_sentence_with_the_line)
{
    static const struct {
        const char *text, *sentence;
        deft_status st;
    } rows[] = {
        { "hello", "line 1: expected %, output or trace, found \"hello\"", DEFT_E_FORMAT },
        { "\n\n%0", "line 3: expected =, found \"\"", DEFT_E_FORMAT },
        { "%1 = num f32[] 0", "line 1: %1 where %0 is next", DEFT_E_FORMAT },
        { "%99999999999999999999 = num",
          "line 1: expected a number that fits i64, found "
          "\"99999999999999999999 = n\"",
          DEFT_E_FORMAT },
        { "%-1 = num", "line 1: -1 is outside [0, 4294967295]", DEFT_E_RANGE },
        { "%0 = frobnicate f32[]", "line 1: there is no operator 'frobnicate' in this library",
          DEFT_E_FORMAT },
        { "%0 = 7 f32[]", "line 1: expected an op, found \"7 f32[]\"", DEFT_E_FORMAT },
        { "%0 = num@2 f32[] 1", "line 1: num has version 2 here, and this library has version 1",
          DEFT_E_FORMAT },
        { "%0 = num@0 f32[] 1", "line 1: 0 is outside [1, 2147483647]", DEFT_E_RANGE },
        { "%0 = num@ f32[] 1", "line 1: expected a number that fits i64, found \"f32[] 1\"",
          DEFT_E_FORMAT },
        { "%0 = num f8[] 1", "line 1: expected a dtype, found \"f8[] 1\"", DEFT_E_FORMAT },
        { "%0 = num f32 1", "line 1: expected [, found \"1\"", DEFT_E_FORMAT },
        { "%0 = num f32[1", "line 1: expected , or ], found \"\"", DEFT_E_FORMAT },
        { "%0 = empty f32[1,2,3,4,5,6,7,8,9]", "line 1: more than 8 members", DEFT_E_LIMIT },
        { "%0 = empty f32[-1]", "line 1: -1 is outside [0, 9223372036854775807]", DEFT_E_RANGE },
        { "%0 = empty f32[9999999999,9999999999]",
          "line 1: empty: [9999999999,9999999999] has too many elements", DEFT_E_SHAPE },
        { "%0 = num f32[] 0.5", "line 1: expected a number that fits f32, found \"0.5\"",
          DEFT_E_FORMAT },
        { "%0 = num f32[] 16777217", "line 1: expected a number that fits f32, found \"16777217\"",
          DEFT_E_FORMAT },
        { "%0 = num f32[] 0x1p+128", "line 1: expected a number that fits f32, found \"0x1p+128\"",
          DEFT_E_FORMAT },
        { "%0 = num f32[] 0x1p-150", "line 1: expected a number that fits f32, found \"0x1p-150\"",
          DEFT_E_FORMAT },
        { "%0 = num f64[] 0x1p+99999999999",
          "line 1: expected a number that fits f64, found \"0x1p+99999999999\"", DEFT_E_FORMAT },
        { "%0 = num f64[] 0xp+1", "line 1: expected a number that fits f64, found \"0xp+1\"",
          DEFT_E_FORMAT },
        { "%0 = num f64[] nan:0x1", "line 1: expected a number that fits f64, found \"nan:0x1\"",
          DEFT_E_FORMAT },
        { "%0 = num f16[] 0x1.002p+0",
          "line 1: expected a number that fits f16, found \"0x1.002p+0\"", DEFT_E_FORMAT },
        { "%0 = num f16[] 0x1p+16", "line 1: expected a number that fits f16, found \"0x1p+16\"",
          DEFT_E_FORMAT },
        { "%0 = num bf16[] 0x1p-134",
          "line 1: expected a number that fits bf16, found \"0x1p-134\"", DEFT_E_FORMAT },
        { "%0 = num f16[] nan:0x7c00",
          "line 1: expected a number that fits f16, found \"nan:0x7c00\"", DEFT_E_FORMAT },
        { "%0 = cst f16[] 0x1.002p+0", "line 1: cst: 0x1.002p+0 does not fit f16", DEFT_E_RANGE },
        { "%0 = num f32[] nan:0x1ffc00000",
          "line 1: expected a number that fits f32, found \"nan:0x1ffc00000\"", DEFT_E_FORMAT },
        { "%0 = num u8[] 256", "line 1: expected a number that fits u8, found \"256\"",
          DEFT_E_FORMAT },
        { "%0 = num u8[] -1", "line 1: expected a number that fits u8, found \"-1\"",
          DEFT_E_FORMAT },
        { "%0 = num bool[] 2", "line 1: expected a number that fits bool, found \"2\"",
          DEFT_E_FORMAT },
        { "%0 = num i32[] 2147483648",
          "line 1: expected a number that fits i32, found \"2147483648\"", DEFT_E_FORMAT },
        { "%0 = cst u8[] 300", "line 1: cst: 300 does not fit u8", DEFT_E_RANGE },
        { "%0 = num f32[]", "line 1: expected a number that fits f32, found \"\"", DEFT_E_FORMAT },
        { "%0 = num f32[] 1 2", "line 1: expected the end of the line, found \"2\"",
          DEFT_E_FORMAT },
        { "%0 = neg f32[] %0", "line 1: %0 is not an earlier node", DEFT_E_FORMAT },
        { "%0 = neg f32[] 0", "line 1: expected %, found \"0\"", DEFT_E_FORMAT },
        { "%0 = input f32[4] strides=[1,2]", "line 1: 2 strides of an input of rank 1",
          DEFT_E_FORMAT },
        { "%0 = input f32[4] strides=[9223372036854775807]", "line 1: input: strides reach too far",
          DEFT_E_RANGE },
        { "%0 = input f32[4] holy", "line 1: expected strides=, found \"holy\"", DEFT_E_FORMAT },
        { "%0 = input f32[4] ordinal=1", "%0: ordinal 1 is taken or not below 1", DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = input f32[] ordinal=0", "%1: ordinal 0 is taken or not below 2",
          DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = sum f32[] %0 axes=[0,0]", "line 2: axis 0 is named twice",
          DEFT_E_ARG },
        { "%0 = input f32[4]\n%1 = sum f32[] %0 axes=[8]", "line 2: 8 is outside [0, 7]",
          DEFT_E_RANGE },
        { "%0 = input f32[4]\n%1 = sum f32[] %0 axes=[1]",
          "line 2: sum: axis 1 of a tensor of rank 1", DEFT_E_RANGE },
        { "%0 = input f32[4]\n%1 = sum f32[4] %0 axes=[0]",
          "line 2: sum: the result is [], not [4]", DEFT_E_SHAPE },
        { "%0 = input f32[4]\n%1 = sum f32[] %0", "line 2: expected axes=, found \"\"",
          DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = permute f32[4] %0 perm=[0,1]",
          "line 2: perm has 2 members, must have 1", DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = slice f32[4] %0 start=[0] step=[]",
          "line 2: 1 starts, but 0 steps", DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = slice f32[4] %0 start=[] step=[]",
          "line 2: slice: 0 arguments, must be 2", DEFT_E_ARG },
        { "%0 = input i32[4]\n%1 = powi i32[4] %0 power=-2", "line 2: powi: i32 to the power -2",
          DEFT_E_RANGE },
        { "%0 = random i64[4] word=0 seed=18446744073709551616 draw=0",
          "line 1: expected a number below 2^64, found \"18446744073709551616 dra\"",
          DEFT_E_FORMAT },
        { "output %0", "line 1: %0 is not an earlier node", DEFT_E_FORMAT },
        { "%0 = num f32[] 1\noutput %0 into %0", "line 2: %0 is not an input", DEFT_E_FORMAT },
        { "%0 = input f32[4]\n%1 = input f32[5]\noutput %0 into %1", "output 0: f32[4] into f32[5]",
          DEFT_E_SHAPE },
        { "trace v2", "line 1: the trace has version v2, and this library reads v1",
          DEFT_E_FORMAT },
        { "trace 1", "line 1: expected v1, found \"1\"", DEFT_E_FORMAT },
        { "trace v1 quick", "line 1: expected fast, nofuse or temporaries, found \"quick\"",
          DEFT_E_FORMAT },
        { "trace v1 temporaries 9", "line 1: expected =, found \"9\"", DEFT_E_FORMAT },
        { "trace v1 temporaries=0", "line 1: 0 is outside [1, 18446744073709551615]",
          DEFT_E_RANGE },
        { "%0 = num f32[] 1\ntrace v1", "line 2: the header stands before the first node",
          DEFT_E_FORMAT },
        { "trace v1\ntrace v1", "line 2: the header stands before the first node", DEFT_E_FORMAT },
    };
    for (size_t i = 0; i < DF_LEN(rows); i++)
        expect_refused(rows[i].text, strlen(rows[i].text), rows[i].st, rows[i].sentence);
    expect_refused("\0\x01\xff\033[2J", 7, DEFT_E_FORMAT,
                   "line 1: expected %, output or trace, found \"????[2J\"");

    /* Every prefix of a good text, and every single byte of it replaced, is an answer, not an
     * accident. The text ends where its memory ends, so that reading on would show. */
    const size_t n = strlen(everything);
    for (size_t i = 0; i < n; i++) {
        df_trace *t;
        char *const copy = malloc(i + 1);
        memcpy(copy, everything, i);
        (void)df_trace_parse(NULL, copy, i, &arena, &t);
        free(copy);
        df_arena_reset(&arena);
    }
    static const char bytes[] = { '\0', '9', '%', '[', ']', '-', '=', '\n', '\x80' };
    char *const text = malloc(n);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) {
            df_trace *t;
            memcpy(text, everything, n);
            text[i] = bytes[k];
            (void)df_trace_parse(NULL, text, n, &arena, &t);
            df_arena_reset(&arena);
        }
    }
    free(text);
}

/* ---- simplification ---- */

static const char *simplified(const char *text, uint32_t passes)
{
    df_trace *t;
    uint32_t *from;
    df_diag d = { .text = "" };
    const df_trace *const in = parse(text);
    cr_assert(df_trace_simplify(&d, in, passes, &arena, &t, &from) == DEFT_OK, "%s", d.text);
    cr_assert(df_trace_verify(&d, t) == DEFT_OK, "%s", d.text);
    cr_assert(t->args == in->args && t->extents == in->extents);
    for (uint32_t k = 0; k < t->n_nodes; k++)
        cr_assert(from[k] < in->n_nodes &&
                  (t->nodes[k].rank == 0 || t->shape[k] == in->shape[from[k]]));
    return print(t);
}

/* The body of a trace over two inputs %0, %1 of dtype[4,4] and what becomes of it. */
static void expect(const char *head, const char *body, const char *want)
{
    char in[2048], out[2048];
    const bool fast = strncmp(head, "fast ", 5) == 0;
    const char *const t = fast ? head + 5 : head;
    const char *const form = "trace v1%s\n%%0 = input %s[4,4] strides=[4,1]\n"
                             "%%1 = input %s[4,4] strides=[4,1]\n%s";
    snprintf(in, sizeof in, form, fast ? " fast" : "", t, t, body);
    snprintf(out, sizeof out, form, fast ? " fast" : "", t, t, want);
    cr_assert_str_eq(simplified(in, DF_PASS_ALL), out);
}

static void expect_kept(const char *head, const char *body)
{
    expect(head, body, body);
}

/* x op c, c op x: dropped, or kept as it is. */
static void expect_neutral(const char *head, const char *op, const char *c, bool left, bool right)
{
    const char *const t = strncmp(head, "fast ", 5) == 0 ? head + 5 : head;
    char body[256];
    for (int side = 0; side < 2; side++) {
        snprintf(body, sizeof body, "%%2 = cst %s[] %s\n%%3 = %s %s[4,4] %s\noutput %%3\n", t, c,
                 op, t, side ? "%0 %2" : "%2 %0");
        if (side ? right : left)
            expect(head, body, "output %0\n");
        else
            expect_kept(head, body);
    }
}

Test(trace, neutral_operands_go_only_where_no_bit_changes)
{
    expect_neutral("f32", "add", "-0x0p+0", true, true);
    expect_neutral("f32", "add", "0x0p+0", false, false);
    expect_neutral("fast f32", "add", "0x0p+0", true, true);
    expect_neutral("f32", "sub", "0x0p+0", false, true);
    expect_neutral("f32", "sub", "-0x0p+0", false, false);
    expect_neutral("fast f64", "sub", "-0x0p+0", false, true);
    expect_neutral("f64", "mul", "0x1p+0", true, true);
    expect_neutral("f64", "mul", "0x0p+0", false, false);
    expect_neutral("fast f32", "mul", "0x0p+0", false, false);
    expect_neutral("f64", "div", "0x1p+0", false, true);
    expect_neutral("f32", "maximum", "-inf", true, true);
    expect_neutral("f32", "minimum", "inf", true, true);
    expect_neutral("f32", "maximum", "inf", false, false);
    expect_neutral("i32", "add", "0", true, true);
    expect_neutral("i32", "sub", "0", false, true);
    expect_neutral("i64", "mul", "1", true, true);
    expect_neutral("u8", "bitwise_and", "255", true, true);
    expect_neutral("i32", "bitwise_and", "255", false, false);
    expect_neutral("i32", "bitwise_and", "-1", true, true);
    expect_neutral("bool", "bitwise_and", "1", true, true);
    expect_neutral("i32", "bitwise_and", "1", false, false);
    expect_neutral("bool", "bitwise_or", "0", true, true);
    expect_neutral("i32", "bitwise_xor", "0", true, true);
    expect_neutral("i32", "shift_left", "0", false, true);
    expect_neutral("i32", "floor_div", "1", false, true);
    expect_neutral("f32", "floor_div", "0x1p+0", false, false);
    /* A constant with extents may broadcast the other operand. */
    expect_kept("f32", "%2 = cst f32[1,1] 0x1p+0\n%3 = mul f32[4,4] %0 %2\noutput %3\n");
    /* A number is not a constant. */
    expect_kept("f32", "%2 = num f32[] 0x1p+0\n%3 = mul f32[4,4] %0 %2\noutput %3\n");
}

Test(trace, signs_casts_selections_and_views_are_simplified)
{
    expect("f32", "%2 = neg f32[4,4] %0\n%3 = neg f32[4,4] %2\noutput %3\n", "output %0\n");
    expect("bool", "%2 = logical_not bool[4,4] %0\n%3 = logical_not bool[4,4] %2\noutput %3\n",
           "output %0\n");
    expect("u8", "%2 = neg u8[4,4] %0\n%3 = abs u8[4,4] %2\noutput %3\n",
           "%2 = neg u8[4,4] %0\n%3 = abs u8[4,4] %2\noutput %3\n");
    expect("f32", "%2 = neg f32[4,4] %0\n%3 = abs f32[4,4] %2\n%4 = abs f32[4,4] %3\noutput %4\n",
           "%2 = abs f32[4,4] %0\noutput %2\n");
    expect("f32", "%2 = floor f32[4,4] %0\n%3 = round f32[4,4] %2\noutput %3\n",
           "%2 = floor f32[4,4] %0\noutput %2\n");
    expect_kept("f32", "%2 = exp f32[4,4] %0\n%3 = exp f32[4,4] %2\noutput %3\n");
    expect_kept("f32", "%2 = exp f32[4,4] %0\n%3 = log f32[4,4] %2\noutput %3\n");
    expect("f32", "%2 = neg f32[4,4] %1\n%3 = add f32[4,4] %0 %2\noutput %3\n",
           "%2 = sub f32[4,4] %0 %1\noutput %2\n");
    expect("f32", "%2 = neg f32[4,4] %0\n%3 = add f32[4,4] %2 %1\noutput %3\n",
           "%2 = sub f32[4,4] %1 %0\noutput %2\n");
    expect("f32", "%2 = neg f32[4,4] %1\n%3 = sub f32[4,4] %0 %2\noutput %3\n",
           "%2 = add f32[4,4] %0 %1\noutput %2\n");
    expect("f32",
           "%2 = neg f32[4,4] %0\n%3 = neg f32[4,4] %1\n%4 = mul f32[4,4] %2 %3\noutput %4\n",
           "%2 = mul f32[4,4] %0 %1\noutput %2\n");
    expect_kept("f32", "%2 = neg f32[4,4] %0\n%3 = sub f32[4,4] %2 %1\noutput %3\n");
    expect_kept("f32", "%2 = sub f32[4,4] %0 %0\noutput %2\n");
    expect_kept("fast f32", "%2 = sub f32[4,4] %0 %0\noutput %2\n");
    expect("f32", "%2 = maximum f32[4,4] %0 %0\noutput %2\n", "output %0\n");
    expect("f32", "%2 = powi f32[4,4] %0 power=1\noutput %2\n", "output %0\n");

    expect("f32", "%2 = cst f32[] 0x1p+1\n%3 = div f32[4,4] %0 %2\noutput %3\n",
           "%2 = cst f32[] 0x1p-1\n%3 = mul f32[4,4] %0 %2\noutput %3\n");
    expect_kept("f32", "%2 = cst f32[] 0x1.8p+1\n%3 = div f32[4,4] %0 %2\noutput %3\n");
    expect_kept("f32", "%2 = cst f32[] 0x1p+127\n%3 = div f32[4,4] %0 %2\noutput %3\n");
    expect("f16", "%2 = cst f16[] 0x1p+15\n%3 = div f16[4,4] %0 %2\noutput %3\n",
           "%2 = cst f16[] 0x1p-15\n%3 = mul f16[4,4] %0 %2\noutput %3\n");
    expect_kept("f16", "%2 = cst f16[] 0x1p-16\n%3 = div f16[4,4] %0 %2\noutput %3\n");
    expect("bf16", "%2 = cst bf16[] 0x1p-16\n%3 = div bf16[4,4] %0 %2\noutput %3\n",
           "%2 = cst bf16[] 0x1p+16\n%3 = mul bf16[4,4] %0 %2\noutput %3\n");
    expect_kept("fast f64", "%2 = cst f64[] 0x1.8p+1\n%3 = div f64[4,4] %0 %2\noutput %3\n");
    expect("fast f32", "%2 = cst f32[] 0x1.8p+1\n%3 = div f32[4,4] %0 %2\noutput %3\n",
           "%2 = cst f32[] 0x1.555556p-2\n%3 = mul f32[4,4] %0 %2\noutput %3\n");
    expect_kept("f32", "%2 = square f32[4,4] %0\n%3 = sqrt f32[4,4] %2\noutput %3\n");
    expect("fast f32", "%2 = square f32[4,4] %0\n%3 = sqrt f32[4,4] %2\noutput %3\n",
           "%2 = abs f32[4,4] %0\noutput %2\n");

    /* from, through, to, whether the step between goes */
    static const struct {
        const char *from, *mid, *to;
        bool goes;
    } casts[] = {
        { "f32", "f64", "f32", true },   { "f64", "f32", "f64", false },
        { "i32", "f64", "i32", true },   { "i32", "f32", "i32", false },
        { "i64", "f64", "i64", false },  { "u8", "i32", "i64", true },
        { "i64", "i32", "u8", false },   { "i32", "f64", "u8", false },
        { "bool", "f32", "i64", true },  { "i32", "i64", "f32", true },
        { "i32", "bool", "i32", false }, { "f16", "f32", "f16", true },
        { "bf16", "f64", "bf16", true }, { "f32", "f16", "f32", false },
        { "f16", "bf16", "f16", false }, { "bf16", "f16", "bf16", false },
        { "u8", "bf16", "u8", true },    { "i32", "f16", "i32", false },
    };
    for (size_t i = 0; i < DF_LEN(casts); i++) {
        char body[256], want[256];
        snprintf(body, sizeof body, "%%2 = cast %s[4,4] %%0\n%%3 = cast %s[4,4] %%2\noutput %%3\n",
                 casts[i].mid, casts[i].to);
        snprintf(want, sizeof want, "%%2 = cast %s[4,4] %%0\noutput %%2\n", casts[i].to);
        const bool back = strcmp(casts[i].from, casts[i].to) == 0;
        expect(casts[i].from, body, !casts[i].goes ? body : back ? "output %0\n" : want);
    }
    expect("f32", "%2 = cast f32[4,4] %0\noutput %2\n", "output %0\n");

    expect("f32",
           "%2 = input bool[4,4] strides=[4,1]\n%3 = logical_not bool[4,4] %2\n"
           "%4 = where f32[4,4] %3 %0 %1\noutput %4\n",
           "%2 = input bool[4,4] strides=[4,1]\n%3 = where f32[4,4] %2 %1 %0\noutput %3\n");
    expect_kept("f32", "%2 = input bool[9,4,4] strides=[16,4,1]\n%3 = where f32[9,4,4] %2 %0 %0\n"
                       "output %3\n");
    expect("f32", "%2 = input bool[]\n%3 = where f32[4,4] %2 %0 %0\noutput %3\n",
           "%2 = input bool[]\noutput %0\n");
    expect("f32", "%2 = cst bool[] 0\n%3 = num f32[] 1\n%4 = where f32[4,4] %2 %3 %0\noutput %4\n",
           "output %0\n");
    expect_kept(
        "f32",
        "%2 = cst bool[] 1\n%3 = num f32[] 0x1p+0\n%4 = where f32[4,4] %2 %3 %0\noutput %4\n");

    expect("f32", "%2 = permute f32[4,4] %0 perm=[0,1]\noutput %2\n", "output %0\n");
    expect("f32",
           "%2 = permute f32[4,4] %0 perm=[1,0]\n%3 = permute f32[4,4] %2 perm=[1,0]\noutput %3\n",
           "output %0\n");
    expect("f32",
           "%2 = input f32[2,3,5] strides=[15,5,1]\n%3 = permute f32[3,5,2] %2 perm=[1,2,0]\n"
           "%4 = permute f32[3,2,5] %3 perm=[0,2,1]\noutput %4\n",
           "%2 = input f32[2,3,5] strides=[15,5,1]\n%3 = permute f32[3,2,5] %2 "
           "perm=[1,0,2]\noutput %3\n");
    expect("f32",
           "%2 = unsqueeze f32[4,1,4] %0 axes=[1]\n%3 = squeeze f32[4,4] %2 axes=[1]\noutput %3\n",
           "output %0\n");
    expect("f32", "%2 = reshape f32[16] %0\n%3 = reshape f32[2,8] %2\noutput %3\n",
           "%2 = reshape f32[2,8] %0\noutput %2\n");
    expect("f32", "%2 = sum f32[4,4] %0 axes=[]\noutput %2\n", "output %0\n");
    expect_kept("f32", "%2 = argmin i64[4,4] %0 axes=[]\noutput %2\n");
    /* Slices are not merged: their arguments are not known. */
    expect_kept("f32", "%2 = slice f32[3,4] %0 start=[1,0] step=[1,1]\n"
                       "%3 = slice f32[2,4] %2 start=[0,0] step=[1,1]\noutput %3\n");

    /* The thread from an updated value to its place is not cut. */
    expect_kept("f32", "%2 = permute f32[4,4] %0 perm=[1,0]\n%3 = permute f32[4,4] %2 perm=[1,0]\n"
                       "%4 = exp f32[4,4] %0\n%5 = update f32[4,4] %2 %4 %3\noutput %5\n");
    expect("f32",
           "%2 = neg f32[4,4] %0\n%3 = neg f32[4,4] %2\n"
           "%4 = slice f32[1,4] %3 start=[2,0] step=[1,1]\n%5 = exp f32[1,4] %4\n"
           "%6 = update f32[4,4] %3 %5 %4\noutput %6\n",
           "%2 = slice f32[1,4] %0 start=[2,0] step=[1,1]\n%3 = exp f32[1,4] %2\n"
           "%4 = update f32[4,4] %0 %3 %2\noutput %4\n");
}

Test(trace, an_order_that_only_sorts_becomes_a_sort)
{
    const char *const order = "%2 = argsort i64[4,4] %0 descending\n";
    char body[256];
    expect("f32",
           "%2 = argsort i64[4,4] %0 descending\n%3 = gather f32[4,4] %0 %2 axis=1\noutput %3\n",
           "%2 = sort f32[4,4] %0 descending\noutput %2\n");
    expect("f32",
           "%2 = reshape f32[16] %0\n%3 = argsort i64[16] %2\n%4 = take f32[16] %2 %3 axis=0\n"
           "%5 = exp f32[16] %4\noutput %5\n",
           "%2 = reshape f32[16] %0\n%3 = sort f32[16] %2\n%4 = exp f32[16] %3\noutput %4\n");
    /* A dead reader does not count. Equal orders are one, with two readers. */
    expect("f32",
           "%2 = argsort i64[4,4] %0\n%3 = gather f32[4,4] %0 %2 axis=1\n"
           "%4 = neg i64[4,4] %2\noutput %3\n",
           "%2 = sort f32[4,4] %0\noutput %2\n");
    expect("f32",
           "%2 = argsort i64[4,4] %0\n%3 = argsort i64[4,4] %0\n"
           "%4 = gather f32[4,4] %0 %2 axis=1\noutput %3\noutput %4\n",
           "%2 = argsort i64[4,4] %0\n%3 = gather f32[4,4] %0 %2 axis=1\noutput %2\noutput %3\n");
    /* Another operand, another axis, another reader, slices of a matrix. */
    static const char *const kept[] = { "%3 = gather f32[4,4] %1 %2 axis=1\noutput %3\n",
                                        "%3 = gather f32[4,4] %0 %2 axis=0\noutput %3\n",
                                        "%3 = gather f32[4,4] %0 %2 axis=1\noutput %2\noutput %3\n",
                                        "%3 = gather f32[4,4] %0 %2 axis=1\n"
                                        "%4 = gather f32[4,4] %1 %2 axis=1\n"
                                        "output %3\noutput %4\n",
                                        "%3 = take f32[4,4,4] %0 %2 axis=1\noutput %3\n" };
    for (size_t i = 0; i < DF_LEN(kept); i++) {
        snprintf(body, sizeof body, "%s%s", order, kept[i]);
        expect_kept("f32", body);
    }
}

Test(trace, equal_nodes_are_shared_unless_they_only_look_equal)
{
    expect("f32",
           "%2 = exp f32[4,4] %0\n%3 = exp f32[4,4] %0\n%4 = add f32[4,4] %2 %3\noutput %4\n",
           "%2 = exp f32[4,4] %0\n%3 = add f32[4,4] %2 %2\noutput %3\n");
    expect("f32",
           "%2 = add f32[4,4] %0 %1\n%3 = add f32[4,4] %1 %0\n%4 = mul f32[4,4] %2 %3\noutput %4\n",
           "%2 = add f32[4,4] %0 %1\n%3 = mul f32[4,4] %2 %2\noutput %3\n");
    expect_kept(
        "f32",
        "%2 = sub f32[4,4] %0 %1\n%3 = sub f32[4,4] %1 %0\n%4 = mul f32[4,4] %2 %3\noutput %4\n");
    expect_kept("f32",
                "%2 = minimum f32[4,4] %0 %1\n%3 = minimum f32[4,4] %1 %0\noutput %2\noutput %3\n");
    expect(
        "f32",
        "%2 = cst f32[] 3\n%3 = cst f32[] 3\n%4 = mul f32[4,4] %0 %2\n%5 = mul f32[4,4] %0 %3\n"
        "%6 = atan2 f32[4,4] %4 %5\noutput %6\n",
        "%2 = cst f32[] 0x1.8p+1\n%3 = mul f32[4,4] %0 %2\n%4 = atan2 f32[4,4] %3 %3\noutput %4\n");
    expect_kept("f32", "%2 = num f32[] 0x1p+1\n%3 = num f32[] 0x1p+1\n%4 = mul f32[4,4] %0 %2\n"
                       "%5 = mul f32[4,4] %0 %3\noutput %4\noutput %5\n");
    expect_kept("f32",
                "%2 = random i64[4] word=0 seed=1 draw=2\n%3 = random i64[4] word=0 seed=1 draw=2\n"
                "output %2\noutput %3\n");
    expect_kept("f32", "%2 = cst f32[4] 0x1p+1\n%3 = cst f32[5] 0x1p+1\noutput %2\noutput %3\n");
    expect_kept("f32",
                "%2 = reshape f32[2,8] %0\n%3 = reshape f32[8,2] %0\noutput %2\noutput %3\n");
    expect_kept("f32", "%2 = slice f32[1,4] %0 start=[0,0] step=[1,1]\n"
                       "%3 = slice f32[1,4] %0 start=[1,0] step=[1,1]\noutput %2\noutput %3\n");
    expect_kept("f32",
                "%2 = sum f32[4] %0 axes=[0]\n%3 = sum f32[4] %0 axes=[1]\noutput %2\noutput %3\n");
    expect_kept("f32", "%2 = cast i32[4,4] %0\n%3 = cast i64[4,4] %0\noutput %2\noutput %3\n");
}

Test(trace, constants_fold_only_to_exact_results)
{
    static const struct {
        const char *op, *in, *a, *b, *out, *want; /* want NULL: kept */
    } rows[] = {
        { "add", "f32", "0x1p+0", "0x1p+1", "f32", "0x1.8p+1" },
        { "add", "f32", "0x1p+0", "0x1p-24", "f32", NULL },
        { "add", "f64", "0x1p+0", "0x1p-24", "f64", NULL }, /* exact, but no f32 */
        { "add", "f32", "0x1p+0", "-0x1p+0", "f32",
          NULL }, /* the zero's sign is the rounding mode's */
        { "mul", "f32", "0x1.8p+0", "0x1.8p+0", "f32", "0x1.2p+1" },
        { "mul", "f32", "0x1.000002p+0", "0x1.000002p+0", "f32", NULL },
        { "mul", "f32", "0x1p-100", "0x1p-100", "f32", NULL },
        { "mul", "f32", "0x1p+100", "0x1p+100", "f32", NULL },
        { "mul", "f32", "-0x1p+1", "0x0p+0", "f32", "-0x0p+0" },
        { "div", "f32", "0x1p+0", "0x1.8p+1", "f32", NULL },
        { "div", "f32", "0x1p+1", "0x0p+0", "f32", NULL },
        { "div", "f32", "0x1.8p+2", "0x1.8p+1", "f32", "0x1p+1" },
        { "add", "i32", "2147483647", "1", "i32", NULL },
        { "sub", "i32", "-5", "7", "i32", "-12" },
        { "mul", "i64", "65536", "65536", "i64", NULL },
        { "sub", "u8", "1", "2", "u8", NULL },
        { "lt", "f32", "-0x0p+0", "0x0p+0", "bool", "0" },
        { "le", "i32", "-3", "-3", "bool", "1" },
        { "maximum", "f32", "0x0p+0", "-0x0p+0", "f32", "-0x0p+0" },
        { "add", "f32", "inf", "0x1p+0", "f32", NULL },
        { "add", "f16", "0x1p+0", "0x1p-10", "f16", "0x1.004p+0" },
        { "add", "f16", "0x1p+0", "0x1p-11", "f16", NULL }, /* exact, but no f16 */
        { "mul", "f16", "0x1p+8", "0x1p+9", "f16", NULL },
        { "add", "bf16", "0x1p+0", "0x1p-7", "bf16", "0x1.02p+0" },
        { "add", "bf16", "0x1p+0", "0x1p-8", "bf16", NULL },
    };
    for (size_t i = 0; i < DF_LEN(rows); i++) {
        char body[256], want[256];
        snprintf(body, sizeof body,
                 "%%2 = cst %s[] %s\n%%3 = cst %s[] %s\n%%4 = %s %s[] %%2 %%3\noutput %%4\n",
                 rows[i].in, rows[i].a, rows[i].in, rows[i].b, rows[i].op, rows[i].out);
        snprintf(want, sizeof want, "%%2 = cst %s[] %s\noutput %%2\n", rows[i].out, rows[i].want);
        const bool merges = strcmp(rows[i].a, rows[i].b) == 0;
        if (rows[i].want)
            expect("f32", body, want);
        else if (!merges)
            expect_kept("f32", body);
    }
    expect("f32",
           "%2 = cst i32[] -3\n%3 = cast f32[] %2\n%4 = square f32[] %3\n%5 = sqrt f32[] "
           "%4\noutput %5\n",
           "%2 = cst f32[] 0x1.8p+1\noutput %2\n");
    expect("f32", "%2 = cst f32[] 0x1p+1\n%3 = sqrt f32[] %2\noutput %3\n",
           "%2 = cst f32[] 0x1p+1\n%3 = sqrt f32[] %2\noutput %3\n");
    expect_kept("f32", "%2 = cst f32[] 0x1.8p+0\n%3 = cast i32[] %2\noutput %3\n");
}

Test(trace, passes_are_off_when_not_asked_for)
{
    static const char text[] =
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = cst f32[] 0x1p+0\n%2 = cst f32[] 0x1p+0\n"
        "%3 = add f32[] %1 %2\n%4 = mul f32[4] %0 %1\n%5 = exp f32[4] %0\noutput %4\noutput %3\n";
    cr_assert_str_eq(simplified(text, 0), text);
    cr_assert_str_eq(
        simplified(text, DF_PASS_DCE),
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = cst f32[] 0x1p+0\n%2 = cst f32[] 0x1p+0\n"
        "%3 = add f32[] %1 %2\n%4 = mul f32[4] %0 %1\noutput %4\noutput %3\n");
    cr_assert_str_eq(
        simplified(text, DF_PASS_CSE),
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = cst f32[] 0x1p+0\n%2 = add f32[] %1 %1\n"
        "%3 = mul f32[4] %0 %1\n%4 = exp f32[4] %0\noutput %3\noutput %2\n");
    cr_assert_str_eq(
        simplified(text, DF_PASS_FOLD | DF_PASS_DCE),
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = cst f32[] 0x1p+0\n%2 = cst f32[] 0x1p+1\n"
        "%3 = mul f32[4] %0 %1\noutput %3\noutput %2\n");
    cr_assert_str_eq(
        simplified(text, DF_PASS_ALGEBRA | DF_PASS_DCE),
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = cst f32[] 0x1p+0\n%2 = cst f32[] 0x1p+0\n"
        "%3 = add f32[] %1 %2\noutput %0\noutput %3\n");
    /* Inputs that move are found again. */
    cr_assert_str_eq(
        simplified("%0 = cst f32[] 1\n%1 = input f32[4]\n%2 = neg f32[4] %1\noutput %2",
                   DF_PASS_ALL),
        "trace v1\n%0 = input f32[4] strides=[1]\n%1 = neg f32[4] %0\noutput %1\n");
    /* An unused input stays, so that inputs keep their numbers. */
    static const char unused[] = "trace v1\n%0 = input f32[4] strides=[1]\n%1 = input f32[] \n%2 = "
                                 "neg f32[] %1\noutput %2\n";
    cr_assert(strstr(simplified(unused, DF_PASS_ALL), "%0 = input f32[4]"));
}

Test(trace, a_million_nodes_take_linear_time_and_no_stack, .timeout = 120)
{
    const int N = (int)test_size(1000000, 150000);
    df_diag d = { .text = "" };
    df_builder b;
    cr_assert(df_build_init(&b, &arena, &d) == DEFT_OK);
    const df_shape s = { 1, { 4 } };
    df_ref x = df_build_input(&b, DEFT_F32, &s, NULL);
    const df_ref y = df_build_input(&b, DEFT_F32, &s, NULL);
    for (int i = 0; i < N; i++) {
        const df_ref src[] = { x, y };
        x = i % 2 ? df_build_op(&b, DF_OP_sin, DEFT_F32, 0, src, 1, NULL, 0, NULL)
                  : df_build_op(&b, DF_OP_atan2, DEFT_F32, 0, src, 2, NULL, 0, NULL);
    }
    df_build_root(&b, x, DF_ROOT_NEW, DF_NONE, DF_NONE);
    cr_assert(b.st == DEFT_OK && b.t->n_extents == 2);
    df_trace *t;
    uint32_t *from;
    cr_assert(df_trace_simplify(&d, b.t, DF_PASS_ALL, &arena, &t, &from) == DEFT_OK);
    cr_assert(t->n_nodes == (uint32_t)N + 2 && same_key(t, b.t));
    const df_trace *const again = parse(print(t));
    cr_assert(same_key(again, b.t));

    /* All equal: everything shared, everything dead. */
    cr_assert(df_build_init(&b, &arena, &d) == DEFT_OK);
    x = df_build_input(&b, DEFT_F32, &s, NULL);
    df_ref sum = x;
    for (int i = 0; i < N; i++) sum = df_build_op(&b, DF_OP_neg, DEFT_F32, 0, &x, 1, NULL, 0, NULL);
    df_build_root(&b, sum, DF_ROOT_NEW, DF_NONE, DF_NONE);
    cr_assert(df_trace_simplify(&d, b.t, DF_PASS_ALL, &arena, &t, &from) == DEFT_OK);
    cr_assert(t->n_nodes == 2);
}

Test(trace, nodes_have_a_bound)
{
    df_diag d = { .text = "" };
    df_builder b;
    cr_assert(df_build_init(&b, &arena, &d) == DEFT_OK);
    const df_shape s = { 1, { 4 } };
    const df_ref x = df_build_input(&b, DEFT_F32, &s, NULL);
    while (b.st == DEFT_OK) (void)df_build_op(&b, DF_OP_neg, DEFT_F32, 0, &x, 1, NULL, 0, NULL);
    cr_assert(b.st == DEFT_E_LIMIT && b.t->n_nodes == DF_TRACE_MAX_NODES);
    cr_assert_str_eq(d.text, "a trace holds at most 2097152 nodes");
}

/* ---- slots, memory ---- */

Test(trace, slots_are_computed_in_order)
{
    const df_trace *const t = parse(
        "%0 = input f32[37,64] strides=[100,-1]\n%1 = slice f32[5,64] %0 start=[9,0] step=[2,1]\n");
    static const df_slot_def defs[] = {
        { DF_SLOT_const, 0, 0, 0, 16 },        { DF_SLOT_extent, 0, 0, 0, 0 },
        { DF_SLOT_extent, 1, 1, 0, 0 },        { DF_SLOT_arg, 0, 0, 0, 0 },
        { DF_SLOT_stride, 0, 1, 0, 0 },        { DF_SLOT_add, 1, 2, 0, 0 },
        { DF_SLOT_sub, 1, 2, 0, 0 },           { DF_SLOT_mul, 5, 4, 0, 0 },
        { DF_SLOT_max, 6, 4, 0, 0 },           { DF_SLOT_divup, 1, 0, 0, 0 },
        { DF_SLOT_divup, 2, 0, 0, 0 },         { DF_SLOT_divup, 6, 0, 0, 0 },
        { DF_SLOT_const, 0, 0, 0, INT64_MAX }, { DF_SLOT_add, 12, 0, 0, 0 },
    };
    static const int64_t want[] = { 16,   37, 64, 9, -1, 101,       -27,
                                    -101, -1, 3,  4, -1, INT64_MAX, INT64_MIN + 15 };
    int64_t out[DF_LEN(defs)];
    df_slots_eval(defs, DF_LEN(defs), t, out);
    for (size_t i = 0; i < DF_LEN(defs); i++)
        cr_assert(out[i] == want[i], "slot %zu is %ld", i, (long)out[i]);
}

/* ---- places ---- */

static int64_t arg_of(void *user, uint32_t arg)
{
    return ((const df_trace *)user)->args[arg];
}

static int64_t computed(void *user, df_slot_op op, int64_t a, int64_t b)
{
    (void)user;
    return op == DF_SLOT_mul ? a * b : op == DF_SLOT_add ? a + b : op == DF_SLOT_sub ? a - b : a;
}

/* Whatever its memory held before. */
Test(trace, a_place_is_written_whole)
{
    df_trace *const t = parse("%0 = input f32[9,8]\n"
                              "%1 = slice f32[4,8] %0 start=[2,0] step=[2,1]\n"
                              "%2 = slice f32[2,5] %1 start=[1,3] step=[1,1]\n"
                              "%3 = neg f32[2,5] %2\n");
    const df_place_terms terms = { arg_of, computed, t };
    static const int64_t off[3][DEFT_MAX_RANK] = { { 0 }, { 2 }, { 4, 3 } };
    static const int64_t coef[3][DEFT_MAX_RANK] = { { 1, 1 }, { 2, 1 }, { 2, 1 } };
    df_view_place p;
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t like = k % 3; /* %3 is its own base */
        memset(&p, 0x5a, sizeof p);
        df_place_of(t, k, NULL, &terms, &p);
        cr_expect(p.base == k - like && p.rank == 2, "%u: %u of rank %u", k, p.base, p.rank);
        cr_expect(memcmp(p.off, off[like], sizeof p.off) == 0, "%u", k);
        cr_expect(memcmp(p.coef, coef[like], sizeof p.coef) == 0, "%u", k);
        for (int j = 0; j < DEFT_MAX_RANK; j++) cr_expect_eq(p.axis[j], j < 2 ? j : -1);
    }
}

Test(trace, every_allocation_may_fail)
{
    bool done = false;
    for (size_t n = 1; !done; n++) {
        fail_mem *f = fail_mem_create();
        df_arena a;
        df_diag d = { .text = "" };
        df_trace *t = NULL, *small = NULL;
        uint32_t *from;
        df_key k;
        df_arena_init(&a, fail_mem_get(f));
        fail_mem_at(f, n, true);
        deft_status st = df_trace_parse(&d, everything, strlen(everything), &a, &t);
        if (st == DEFT_OK) st = df_trace_simplify(&d, t, DF_PASS_ALL, &a, &small, &from);
        if (st == DEFT_OK) st = df_trace_key(&d, small, &k);
        cr_assert(st == DEFT_OK || (st == DEFT_E_MEMORY && strstr(d.text, "could not get")), "%s",
                  d.text);
        done = st == DEFT_OK;
        fail_mem_at(f, 0, false);
        df_arena_finish(&a);
        cr_assert(fail_mem_count(f).live_blocks == 0 && fail_mem_count(f).faults == 0);
        fail_mem_destroy(&f);
        cr_assert(n < 100);
    }
}

/* ---- calls of opaque operators (trace/opaque.h) ---- */

#define CALLED(operator)                                                                           \
    "trace v1\n%0 = input f32[4] strides=[1]\n%1 = input i64[2] strides=[1]\n%2 = cst i64[] 0\n"   \
    "%3 = pass f32[] %1 %2\n%4 = pass f32[] %0 %3\n%5 = call f64[3] %4 "                           \
    operator"\n"                                                                                   \
            "%6 = add f64[3] %5 %5\noutput %6\n"

Test(trace, calls_are_printed_and_read_again)
{
    static const char *const all[] = {
        CALLED("acme.solve@1"),
        CALLED("acme.a-b_c.d@4294967295 results=3"),
        CALLED("acme.solve@2 attributes=00ff7f"),
        "trace v1\n%0 = cst i64[] 0\n%1 = call i32[2,3] %0 a.b@1 results=2\n"
        "%2 = result f16[] %1 index=1\n%3 = call i32[2,3] %0 a.b@1 results=2\n"
        "%4 = call i32[2,3] %0 a.c@1\noutput %2\noutput %3\noutput %4\n",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const df_trace *const t = parse(all[i]);
        cr_assert_str_eq(print(t), all[i]);
        df_trace *simple;
        cr_assert(df_trace_simplify(NULL, t, DF_PASS_ALL, &arena, &simple, NULL) == DEFT_OK);
        cr_assert(df_trace_verify(NULL, simple) == DEFT_OK);
    }
    const df_trace *const t = parse(all[3]);
    cr_assert_eq(t->nodes[1].attr, t->nodes[3].attr); /* one operator */
    cr_assert_neq(t->nodes[1].attr, t->nodes[4].attr);
}

Test(trace, keys_have_the_operators_of_calls)
{
    expect_keys(CALLED("acme.solve@1"), CALLED("acme.solve@1"), true);
    expect_keys(CALLED("acme.solve@1"), CALLED("acme.solvf@1"), false);
    expect_keys(CALLED("acme.solve@1"), CALLED("acme.solve@2"), false);
    expect_keys(CALLED("acme.solve@1 attributes=00"), CALLED("acme.solve@1 attributes=01"), false);
    expect_keys(CALLED("acme.solve@1"), CALLED("acme.solve@1 attributes=01"), false);
}

Test(trace, equal_calls_are_one)
{
    df_trace *simple;
    const df_trace *const t = parse(
        "%0 = input f32[4]\n%1 = cst i64[] 0\n%2 = pass f32[] %0 %1\n%3 = call f32[4] %2 a.b@1\n"
        "%4 = pass f32[] %0 %1\n%5 = call f32[4] %4 a.b@1\n%6 = call f32[4] %4 a.c@1\n"
        "%7 = add f32[4] %3 %5\n%8 = add f32[4] %7 %6\noutput %8\n");
    cr_assert(df_trace_simplify(NULL, t, DF_PASS_ALL, &arena, &simple, NULL) == DEFT_OK);
    int n_calls = 0;
    for (uint32_t k = 0; k < simple->n_nodes; k++) n_calls += simple->nodes[k].op == DF_OP_call;
    cr_assert_eq(n_calls, 2);
}

Test(trace, refuses_calls_that_are_none)
{
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        { CALLED("solve"), "line 7: expected @, found \"\"" },
        { CALLED("@1"), "line 7: expected the name of an operator, found \"@1\"" },
        { CALLED("a.b@0"), "line 7: 0 is outside [1, 4294967295]" },
        { CALLED("a.b@1 results=1"), "line 7: 1 is outside [2, 64]" },
        { CALLED("a.b@1 attributes=0"),
          "line 7: expected pairs of hexadecimal digits, found \"0\"" },
        { "%0 = cst i64[] 0\n%1 = pass f32[] %0 %0\noutput %1\n", "output 0: a list of inputs" },
        { "%0 = cst i64[] 0\n%1 = pass f32[] %0 %0\n%2 = neg f32[] %1\noutput %2\n",
          "%2: an operand is a list of inputs of a call" },
        { "%0 = cst i64[] 0\n%1 = pass f64[] %0 %0\n%2 = call f32[] %1 a.b@1\noutput %2\n",
          "%1: a list of inputs is no f32[]" },
        { "%0 = input f32[]\n%1 = pass f32[] %0 %0\n%2 = call f32[] %1 a.b@1\noutput %2\n",
          "%1: its last operand is no list of inputs" },
        { "%0 = cst i64[] 0\n%1 = call f32[] %0 a.b@1 results=2\n%2 = result f32[] %1 index=2\n"
          "output %2\n",
          "%2: no such result of a call" },
        { "%0 = input f32[]\n%1 = result f32[] %0 index=1\noutput %1\n",
          "%1: no such result of a call" },
        { "%0 = cst i64[] 0\n%1 = call f32[] %0 a.b@1 results=2\n%2 = result f32[] %1 index=0\n"
          "output %2\n",
          "line 3: 0 is outside [1, 63]" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        df_trace *t = NULL;
        df_diag d = { .text = "" };
        const deft_status st = df_trace_parse(&d, bad[i].text, strlen(bad[i].text), &arena, &t);
        cr_assert(st != DEFT_OK && !t, "%zu", i);
        cr_assert_str_eq(d.text, bad[i].sentence, "%zu: %s", i, d.text);
    }
}

Test(trace, a_call_has_at_most_64_inputs)
{
    for (int n = 64; n <= 66; n++) {
        char text[4096] = "%0 = cst i64[] 0\n";
        for (int i = 1; i <= n; i++)
            snprintf(text + strlen(text), 64, "%%%d = pass f32[] %%0 %%%d\n", i, i - 1);
        snprintf(text + strlen(text), 64, "%%%d = call f32[] %%%d a.b@1\noutput %%%d\n", n + 1, n,
                 n + 1);
        df_trace *t = NULL;
        df_diag d = { .text = "" };
        const deft_status st = df_trace_parse(&d, text, strlen(text), &arena, &t);
        cr_assert_eq(st, n == 64 ? DEFT_OK : DEFT_E_LIMIT, "%d: %s", n, d.text);
    }
}
