/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: what is written comes back bit for bit; no file, however wrong, does more than fail
 * with a sentence; and a load that fails, for whatever reason, leaves every tensor as it was.
 *
 * Why this file is long: a table of hostile headers, and each way a load can fail with what it
 * must leave alone.
 */
#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "ops/dtype.h"
#include "deft/deft.h"
#include "support/int_ref.h"
#include "lazy/files/safetensors.h"
#include "support/budget.h"
#include "support/fail_mem.h"

/* ---- a context and a folder per test ---- */

static deft_ctx *cx;
static deft_runtime *rt;
static char dir[64], path[128];

static void open_context(const df_mem *mem)
{
    deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET };
    if (mem) {
        o.resize = mem->resize;
        o.resize_user = mem->user;
    }
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
}

static void close_context(void)
{
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

static void set_up(void)
{
    snprintf(dir, sizeof dir, "/tmp/deft-save-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file.safetensors", dir);
    open_context(NULL);
}

/* How many files the folder has. */
static int n_files(void)
{
    DIR *const d = opendir(dir);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void tear_down(void)
{
    close_context();
    unlink(path);
    rmdir(dir);
}

TestSuite(save, .init = set_up, .fini = tear_down);

#define OK(expr)                                                                                   \
    do {                                                                                           \
        const deft_status ok_ = (expr);                                                            \
        cr_assert(ok_ == DEFT_OK, "%s: %s: %s", #expr, deft_status_text(ok_), deft_message(cx));   \
    } while (0)

static void put_file(const void *data, size_t n)
{
    FILE *const f = fopen(path, "wb");
    cr_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static char *get_file(size_t *n)
{
    FILE *const f = fopen(path, "rb");
    cr_assert(f);
    char *const data = malloc(1 << 20);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

/* A file of this header, with n_data bytes 0, 1, 2, ... behind it. */
static size_t make_file(char *to, const char *header, size_t size, size_t n_data)
{
    for (int i = 0; i < 8; i++) to[i] = (char)(unsigned char)((uint64_t)size >> (8 * i));
    memcpy(to + 8, header, size);
    for (size_t i = 0; i < n_data; i++) to[8 + size + i] = (char)i;
    return 8 + size + n_data;
}

static void put_header(const char *header, size_t n_data)
{
    static char file[1 << 16];
    put_file(file, make_file(file, header, strlen(header), n_data));
}

/* ---- round trips ---- */

static const deft_dtype all_dtypes[] = { DEFT_BOOL, DEFT_U8,  DEFT_I32,  DEFT_I64, DEFT_F32,
                                         DEFT_F64,  DEFT_F16, DEFT_BF16, DEFT_I8,  DEFT_I16,
                                         DEFT_U16,  DEFT_U32, DEFT_U64 };
_Static_assert(sizeof all_dtypes / sizeof *all_dtypes == DF_N_RECORDED, "a dtype is missing");

Test(save, every_dtype_and_shape_comes_back_bit_for_bit)
{
    static const deft_shape shapes[] = { { 0, { 0 } },       { 1, { 5 } },
                                         { 2, { 3, 4 } },    { 1, { 0 } },
                                         { 3, { 2, 0, 3 } }, { 8, { 1, 2, 1, 2, 1, 2, 1, 2 } } };
    enum { N = 6 * DF_N_RECORDED };
    unsigned char data[N][16 * 8];
    char names[N][32];
    deft_named list[N], back[N];
    for (size_t t = 0; t < DF_N_RECORDED; t++)
        for (size_t s = 0; s < 6; s++) {
            const size_t i = t * 6 + s;
            size_t bytes = deft_dtype_size(all_dtypes[t]);
            for (uint32_t k = 0; k < shapes[s].rank; k++) bytes *= (size_t)shapes[s].dim[k];
            for (size_t k = 0; k < bytes; k++)
                data[i][k] =
                    (unsigned char)(t == 0 ? k % 2 : k * 37 + i * 11 + 1); /* NaNs and all */
            snprintf(names[i], sizeof names[i], "layer.%zu/%s", s, deft_dtype_name(all_dtypes[t]));
            list[i] =
                (deft_named){ names[i], deft_from(cx, shapes[s], all_dtypes[t], data[i], bytes) };
            back[i] = (deft_named){ names[i], deft_zeros(cx, shapes[s], all_dtypes[t]) };
        }
    OK(deft_save(cx, path, list, N));
    cr_assert_eq(n_files(), 1, "the temporary file is gone");
    OK(deft_load(cx, path, back, N));
    for (size_t i = 0; i < N; i++) {
        unsigned char got[16 * 8];
        const size_t bytes =
            (size_t)deft_numel(list[i].tensor) * deft_dtype_size(all_dtypes[i / 6]);
        OK(deft_read(back[i].tensor, all_dtypes[i / 6], got, bytes));
        cr_assert_arr_eq(got, data[i], bytes, "%s", names[i]);
    }
}

Test(save, data_is_aligned_and_the_file_parses)
{
    deft_named list[] = { { "a", deft_ones(cx, DEFT_SHAPE(3), DEFT_BOOL) },
                          { "b", deft_ones(cx, DEFT_SHAPE(2), DEFT_F64) },
                          { "c", deft_ones(cx, DEFT_SHAPE(3), DEFT_F32) } };
    OK(deft_save(cx, path, list, 3));
    size_t n;
    char *const file = get_file(&n);
    static const char want[] = "{\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                               "\"c\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[16,28]},"
                               "\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[28,31]}}";
    cr_assert_arr_eq(file + 8, want, sizeof want - 1);
    cr_assert_eq((n - 31) % 8, 0, "the data section begins aligned");
    cr_assert_eq(file[n - 1], 1);
    free(file);
}

Test(save, names_with_escapes_come_back)
{
    static const char *const names[] = { "plain",        "quo\"te",          "back\\slash",
                                         "tab\there",    "\x01\x1f\x7f",     "\xc3\xa9t\xc3\xa9",
                                         "\xe2\x82\xac", "\xf0\x9f\x98\x80", "/" };
    enum { N = sizeof names / sizeof *names };
    deft_named list[N];
    for (int i = 0; i < N; i++)
        list[i] = (deft_named){ names[i], deft_full(cx, DEFT_SHAPE(), DEFT_I32, i + 1) };
    OK(deft_save(cx, path, list, N));
    for (int i = 0; i < N; i++) list[i].tensor = deft_zeros(cx, DEFT_SHAPE(), DEFT_I32);
    OK(deft_load(cx, path, list, N));
    for (int i = 0; i < N; i++) {
        int32_t v;
        OK(deft_item(list[i].tensor, &v));
        cr_assert_eq(v, i + 1);
    }
}

Test(save, other_writers_headers_are_read)
{
    /* Another order, white space, metadata, escapes, and tensors of dtypes that are not ours. */
    put_header(
        "{ \"__metadata__\" : {\"format\":\"pt\", \"q\":\"\\u00e9\\n\"} ,\n\t\"h\":{\"shape\":[2],"
        "\"dtype\":\"BF16\",\"data_offsets\":[4,8]},\r\"\\u0061\\ud83d\\ude00\\/"
        "\":{\"data_offsets\":"
        "[0, 4],\"dtype\":\"U8\",\"shape\":[ 2 , 2 ]}, \"new\":{\"dtype\":\"F4\",\"shape\":[3],"
        "\"data_offsets\":[8,10]},\"none\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807,4,0],"
        "\"data_offsets\":[8,8]}}    ",
        10);
    deft_named one = { "a\xf0\x9f\x98\x80/", deft_zeros(cx, DEFT_SHAPE(2, 2), DEFT_U8) };
    OK(deft_load(cx, path, &one, 1));
    uint8_t got[4];
    OK(deft_read(one.tensor, DEFT_U8, got, 4));
    cr_assert_arr_eq(got, ((uint8_t[]){ 0, 1, 2, 3 }), 4);
    deft_named half = { "h", deft_zeros(cx, DEFT_SHAPE(2), DEFT_BF16) };
    OK(deft_load(cx, path, &half, 1));
    uint16_t bits[2];
    OK(deft_read(half.tensor, DEFT_BF16, bits, sizeof bits));
    cr_assert(bits[0] == 0x0504 && bits[1] == 0x0706);
    half.tensor = deft_zeros(cx, DEFT_SHAPE(2), DEFT_F16);
    cr_assert_eq(deft_load(cx, path, &half, 1), DEFT_E_DTYPE);
    OK(deft_load(cx, path, NULL, 0));
}

Test(save, views_wraps_pending_values_and_numbers)
{
    float memory[12];
    for (int i = 0; i < 12; i++) memory[i] = (float)i;
    deft_tensor *const w =
        deft_wrap(cx, DEFT_SHAPE(3, 2), DEFT_F32, memory, sizeof memory, (const int64_t[]){ 4, 1 });
    deft_named list[] = { { "strided", w },
                          { "view", deft_slice(w, DEFT_FLIP, DEFT_AT(1)) },
                          { "pending", deft_add(w, 0.5) },
                          { "again", w },
                          { "number", deft_num(cx, 0.25) } };
    OK(deft_save(cx, path, list, 5));
    deft_named back[] = { { "strided", deft_zeros(cx, DEFT_SHAPE(3, 2), DEFT_F32) },
                          { "view", deft_zeros(cx, DEFT_SHAPE(3), DEFT_F32) },
                          { "pending", deft_zeros(cx, DEFT_SHAPE(3, 2), DEFT_F32) },
                          { "again", deft_zeros(cx, DEFT_SHAPE(3, 2), DEFT_F32) },
                          { "number", deft_zeros(cx, DEFT_SHAPE(), DEFT_F32) } };
    OK(deft_load(cx, path, back, 5));
    float got[6], one;
    OK(deft_read(back[0].tensor, DEFT_F32, got, sizeof got));
    cr_assert_arr_eq(got, ((float[]){ 0, 1, 4, 5, 8, 9 }), sizeof got);
    OK(deft_read(back[1].tensor, DEFT_F32, got, 12));
    cr_assert_arr_eq(got, ((float[]){ 9, 5, 1 }), 12);
    OK(deft_read(back[2].tensor, DEFT_F32, got, sizeof got));
    cr_assert_arr_eq(got, ((float[]){ 0.5f, 1.5f, 4.5f, 5.5f, 8.5f, 9.5f }), sizeof got);
    OK(deft_item(back[4].tensor, &one));
    cr_assert_eq(one, 0.25f);
}

Test(save, an_empty_list_is_an_empty_file)
{
    OK(deft_save(cx, path, NULL, 0));
    size_t n;
    char *const file = get_file(&n);
    cr_assert_eq(n % 8, 0);
    cr_assert_arr_eq(file + 8, "{}", 2);
    free(file);
    OK(deft_load(cx, path, NULL, 0));
}

/* ---- assigning ---- */

Test(save, loads_into_views_and_wrapped_memory)
{
    deft_named src[] = { { "v", deft_full(cx, DEFT_SHAPE(2), DEFT_F32, 7) },
                         { "m", deft_full(cx, DEFT_SHAPE(2), DEFT_F32, 8) } };
    OK(deft_save(cx, path, src, 2));
    deft_tensor *const root = deft_zeros(cx, DEFT_SHAPE(4), DEFT_F32);
    float memory[2] = { 0, 0 }, got[4];
    deft_tensor *const m = deft_wrap_mut(cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL);
    const deft_scope s = deft_step_begin(cx);
    deft_named dst[] = { { "v", deft_slice(root, DEFT_R(1, 3)) }, { "m", m } };
    OK(deft_load(cx, path, dst, 2));
    OK(deft_step_end(s));
    OK(deft_read(root, DEFT_F32, got, sizeof got));
    cr_assert_arr_eq(got, ((float[]){ 0, 7, 7, 0 }), sizeof got);
    cr_assert_eq(memory[1], 8);
}

Test(save, a_load_belongs_to_its_step)
{
    deft_named one = { "x", deft_full(cx, DEFT_SHAPE(2), DEFT_F32, 7) };
    OK(deft_save(cx, path, &one, 1));
    one.tensor = deft_full(cx, DEFT_SHAPE(2), DEFT_F32, 1);
    deft_scope s = deft_step_begin(cx);
    OK(deft_load(cx, path, &one, 1));
    float got[2];
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 7, "inside the step it is seen");
    deft_step_abort(s);
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 1, "the abort takes it back");
    s = deft_step_begin(cx);
    OK(deft_load(cx, path, &one, 1));
    OK(deft_step_end(s));
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[1], 7);
}

/* x and y hold 1 and 2; loading list must fail with want and leave them so. */
static void refuse(deft_status want, deft_named list[2], const char *sentence)
{
    const deft_status st = deft_load(cx, path, list, 2);
    cr_assert_eq(st, want, "%s: %s, not %s", deft_status_text(st), deft_message(cx),
                 deft_status_text(want));
    cr_assert(strstr(deft_message(cx), sentence), "\"%s\" has no \"%s\"", deft_message(cx),
              sentence);
    for (int i = 0; i < 2; i++) {
        float got[2];
        if (!list[i].tensor || deft_dtype_of(list[i].tensor) != DEFT_F32) continue;
        if (deft_numel(list[i].tensor) != 2) continue;
        OK(deft_read(list[i].tensor, DEFT_F32, got, sizeof got));
        cr_assert_eq(got[0], (float)(i + 1), "%s was assigned", list[i].name);
    }
}

static deft_tensor *filled(double v)
{
    return deft_full(cx, DEFT_SHAPE(2), DEFT_F32, v);
}

Test(save, what_does_not_fit_assigns_nothing)
{
    deft_named file[] = { { "x", filled(10) }, { "y", filled(20) } };
    OK(deft_save(cx, path, file, 2));
    deft_tensor *const x = filled(1), *const y = filled(2);
    refuse(DEFT_E_NOT_FOUND, (deft_named[]){ { "x", x }, { "z", y } }, "no tensor is named \"z\"");
    refuse(DEFT_E_NOT_FOUND, (deft_named[]){ { "x", x }, { "y\n", y } }, "\"y?\"");
    refuse(DEFT_E_SHAPE,
           (deft_named[]){ { "x", x }, { "y", deft_zeros(cx, DEFT_SHAPE(3), DEFT_F32) } },
           "\"y\" is [2] in the file, the tensor is [3]");
    refuse(DEFT_E_SHAPE,
           (deft_named[]){ { "x", x }, { "y", deft_full(cx, DEFT_SHAPE(1, 2), DEFT_F32, 2) } },
           "[1,2]");
    refuse(DEFT_E_DTYPE,
           (deft_named[]){ { "x", x }, { "y", deft_zeros(cx, DEFT_SHAPE(2), DEFT_I32) } },
           "\"y\" is F32 in the file, the tensor is i32");
    refuse(DEFT_E_ARG, (deft_named[]){ { "x", x }, { "y", NULL } }, "NULL");
    refuse(DEFT_E_ARG, (deft_named[]){ { "x", x }, { NULL, y } }, "no name");
    refuse(DEFT_E_ARG, (deft_named[]){ { "x", x }, { "", y } }, "no name");
    cr_assert_eq(deft_load(cx, NULL, NULL, 0), DEFT_E_ARG);
    cr_assert_eq(deft_load(cx, path, NULL, 1), DEFT_E_ARG);
    cr_assert_eq(deft_load(NULL, path, NULL, 0), DEFT_E_ARG);
}

Test(save, an_assign_that_fails_takes_the_earlier_ones_back)
{
    deft_named file[] = { { "x", filled(10) }, { "y", filled(20) } };
    OK(deft_save(cx, path, file, 2));
    deft_tensor *const x = filled(1), *const root = filled(2),
                       *const whole = deft_slice(root, DEFT_FULL);
    deft_tensor *const stale = deft_slice(root, DEFT_R(0, 2));
    deft_assign(whole, 2);
    deft_assign(root, deft_mul(root, 1));
    refuse(DEFT_E_STATE, (deft_named[]){ { "x", x }, { "y", stale } }, "(load of \"y\")");
    const deft_scope s = deft_step_begin(cx);
    refuse(DEFT_E_STATE, (deft_named[]){ { "x", x }, { "y", stale } }, "(load of \"y\")");
    OK(deft_step_end(s));
    float got[2];
    OK(deft_read(x, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 1);
}

/* A tensor that can't be assigned: a view whose root moved on. */
static deft_tensor *stale_view(void)
{
    deft_tensor *const root = filled(2), *const view = deft_slice(root, DEFT_R(0, 2));
    deft_assign(root, deft_mul(root, 1));
    return view;
}

Test(save, a_failed_load_is_not_written_to_the_callers_memory_later)
{
    deft_named file[] = { { "x", filled(10) }, { "y", filled(20) } };
    OK(deft_save(cx, path, file, 2));
    float memory[2] = { 1, 1 };
    deft_tensor *const m = deft_wrap_mut(cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL);
    deft_tensor *const stale = stale_view();
    refuse(DEFT_E_STATE, (deft_named[]){ { "x", m }, { "y", stale } }, "(load of \"y\")");
    deft_scope s = deft_scope_begin(cx);
    OK(deft_scope_end(s));
    cr_assert_eq(memory[0], 1);
    s = deft_step_begin(cx);
    deft_assign(m, deft_mul(m, 5));
    const deft_named list[] = { { "x", m }, { "y", stale } };
    cr_assert_eq(deft_load(cx, path, list, 2), DEFT_E_STATE);
    OK(deft_step_end(s));
    cr_assert_eq(memory[0], 5, "what was assigned before a load that fails is written");
}

Test(save, a_failed_load_leaves_the_roots_of_views_of_views)
{
    deft_named file[] = { { "x", filled(10) }, { "y", filled(20) } };
    OK(deft_save(cx, path, file, 2));
    deft_tensor *const root = deft_full(cx, DEFT_SHAPE(4, 4), DEFT_F32, 1);
    deft_tensor *const view =
        deft_slice(deft_slice(deft_t(root), DEFT_R(1, 3)), DEFT_AT(0), DEFT_R(0, 2));
    refuse(DEFT_E_STATE, (deft_named[]){ { "x", view }, { "y", stale_view() } }, "(load of");
    float got[16];
    OK(deft_read(root, DEFT_F32, got, sizeof got));
    for (int i = 0; i < 16; i++) cr_assert_eq(got[i], 1);
    deft_assign(view, 3); /* and it is a view still */
    OK(deft_read(root, DEFT_F32, got, sizeof got));
    cr_assert(got[1] == 3 && got[5] == 3 && got[9] == 1);
}

Test(save, a_number_is_no_place_to_load_into)
{
    deft_named one = { "x", deft_full(cx, DEFT_SHAPE(), DEFT_F32, 7) };
    OK(deft_save(cx, path, &one, 1));
    one.tensor = deft_num(cx, 0.5);
    cr_assert_eq(deft_load(cx, path, &one, 1), DEFT_E_ARG, "%s", deft_message(cx));
    float got;
    OK(deft_item(one.tensor, &got));
    cr_assert_eq(got, 0.5f);
}

Test(save, a_missing_tensor_delivers_its_mistake_and_nothing_is_done)
{
    deft_named one = { "x", filled(10) };
    deft_named two = { "x", deft_add(one.tensor, deft_zeros(cx, DEFT_SHAPE(5), DEFT_F32)) };
    cr_assert_eq(deft_save(cx, path, &two, 1), DEFT_E_SHAPE);
    cr_assert_eq(access(path, F_OK), -1);
    deft_add(one.tensor, deft_zeros(cx, DEFT_SHAPE(5), DEFT_F32));
    OK(deft_save(cx, path, &one, 1)); /* it has nothing to do with that mistake */
    cr_assert_eq(deft_load(cx, path, &two, 1), DEFT_E_SHAPE);
    one.tensor = filled(1);
    float got[2];
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 1);
}

Test(save, bad_names_and_lists)
{
    deft_tensor *const x = filled(1);
    static const char *const bad[] = { "",     "__metadata__", "\xff",
                                       "\xc3", "\xed\xa0\x80", "\xc0\x80" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(deft_save(cx, path, &(deft_named){ bad[i], x }, 1), DEFT_E_ARG, "name %zu", i);
    cr_assert_eq(deft_save(cx, path, (deft_named[]){ { "a", x }, { "b", x }, { "a", x } }, 3),
                 DEFT_E_ARG);
    cr_assert(strstr(deft_message(cx), "\"a\" stands twice"), "%s", deft_message(cx));
    cr_assert_eq(deft_save(cx, path, &(deft_named){ "x", NULL }, 1), DEFT_E_ARG);
    cr_assert_eq(deft_save(cx, "", NULL, 0), DEFT_E_ARG);
    deft_ctx *other;
    cr_assert_eq(deft_ctx_create(rt, NULL, &other), DEFT_OK);
    cr_assert_eq(deft_save(other, path, &(deft_named){ "x", x }, 1), DEFT_E_STATE);
    cr_assert(strstr(deft_message(other), "(\"x\")"), "%s", deft_message(other));
    deft_ctx_destroy(&other);
    cr_assert_eq(n_files(), 0);
}

/* ---- hostile files ---- */

#define X "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define T(dtype, shape, offsets)                                                                   \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

typedef struct hostile {
    const char *header;
    size_t n_data;
    const char *sentence; /* part of it */
} hostile;

static const hostile hostiles[] = {
    /* not JSON, or not this JSON */
    { " {" X "}", 8, "does not begin with {, at byte 8" },
    { "[1]", 8, "does not begin with {" },
    { "null", 8, "does not begin with {" },
    { "{", 8, "expected a string" },
    { "{x:1}", 8, "expected a string, at byte 9" },
    { "{" X, 8, "expected , or }" },
    { "{" X ",}", 8, "expected a string" },
    { "{" X "}}", 8, "other than spaces" },
    { "{" X "}\n", 8, "other than spaces" },
    { "{" X "} {}", 8, "other than spaces" },
    { "{" X " " X "}", 8, "expected , or }" },
    { "{\"x\" {}}", 8, "expected :" },
    { "{\"x\":[]}", 8, "no object" },
    { "{\"x\":null}", 8, "no object" },
    { "{\"x\":{{{{{{{{{{{{{{{{{{{{{{{{", 8, "expected a string" },
    { "{\"x\":{}}", 8, "expected a string" },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "without dtype, shape or data_offsets" },
    { "{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8,
      "without dtype, shape or data_offsets" },
    { "{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "without dtype, shape or data_offsets" },
    { "{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
      "stands twice" },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"extra\":1}}", 8,
      "a field other than" },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],}}", 8, "expected a string" },
    { "{\"x\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "expected a string" },
    /* strings */
    { "{\"x", 8, "without end" },
    { "{\"x\n\":1}", 8, "control character" },
    { "{\"\\x\":1}", 8, "JSON does not know" },
    { "{\"\\", 8, "JSON does not know" },
    { "{\"\\u12", 8, "four hexadecimal digits" },
    { "{\"\\u00g0\":1}", 8, "four hexadecimal digits" },
    { "{\"\\ud800\":1}", 8, "surrogate" },
    { "{\"\\ud800\\u0041\":1}", 8, "surrogate" },
    { "{\"\\udc00\":1}", 8, "surrogate" },
    { "{\"\\ud800\\u", 8, "four hexadecimal digits" },
    { "{\"\x80\":1}", 8, "no UTF-8" },
    { "{\"\xc3(\":1}", 8, "no UTF-8" },
    { "{\"\xc0\xaf\":1}", 8, "no UTF-8" },
    { "{\"\xed\xa0\x80\":1}", 8, "no UTF-8" },
    { "{\"\xf4\x90\x80\x80\":1}", 8, "no UTF-8" },
    { "{\"\xe2\x82", 8, "no UTF-8" },
    /* duplicates */
    { "{" X "," X "}", 8, "the name \"x\" stands twice" },
    { "{" X ",\"\\u0078\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}", 8,
      "stands twice" },
    { "{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}," X "}", 8, "\"a\" stands twice" },
    { "{\"__metadata__\":{},\"__metadata__\":{}," X "}", 8, "\"__metadata__\" stands twice" },
    /* metadata */
    { "{\"__metadata__\":1," X "}", 8, "__metadata__ that is no object" },
    { "{\"__metadata__\":{\"a\":1}," X "}", 8, "no string" },
    { "{\"__metadata__\":{\"a\":{\"b\":\"\"}}," X "}", 8, "no string" },
    { "{\"__metadata__\":{\"a\":\"b\",}," X "}", 8, "expected a string" },
    /* shapes */
    { T("F32", "2", "[0,8]"), 8, "a shape that is no list" },
    { T("F32", "[-2]", "[0,8]"), 8, "whole number" },
    { T("F32", "[2.0]", "[0,8]"), 8, "not whole" },
    { T("F32", "[2e0]", "[0,8]"), 8, "not whole" },
    { T("F32", "[02]", "[0,8]"), 8, "leading zero" },
    { T("F32", "[2,]", "[0,8]"), 8, "whole number" },
    { T("F32", "[\"2\"]", "[0,8]"), 8, "whole number" },
    { T("F32", "[[2]]", "[0,8]"), 8, "whole number" },
    { T("F32", "[2 1]", "[0,8]"), 8, "expected , or ]" },
    { T("F32", "[2", "[0,8]"), 8, "whole number" },
    { T("F32", "[9223372036854775808]", "[0,8]"), 8, "beyond 2^63" },
    { T("F32", "[99999999999999999999999999]", "[0,8]"), 8, "beyond 2^63" },
    { T("F32", "[9223372036854775807]", "[0,8]"), 8, "more bytes than can be counted" },
    { T("F32", "[4294967296,4294967296]", "[0,0]"), 0, "more bytes than can be counted" },
    { T("F32", "[4611686018427387906,4]", "[0,8]"), 8, "more bytes than can be counted" },
    { T("U8", "[8,2305843009213693953]", "[0,8]"), 8, "more bytes than can be counted" },
    { T("U8", "[2,6000000000000000000]", "[0,8]"), 8, "more bytes than can be counted" },
    { T("F16", "[3037000500,3037000500]", "[0,8]"), 8, "more bytes than can be counted" },
    { T("F32", "[3]", "[0,8]"), 8, "not as far apart" },
    { T("F64", "[2]", "[0,8]"), 8, "not as far apart" },
    { T("BF16", "[2]", "[0,8]"), 8, "not as far apart" },
    { T("F32", "[]", "[0,8]"), 8, "not as far apart" },
    /* offsets */
    { T("F32", "[2]", "8"), 8, "no list" },
    { T("F32", "[2]", "[8]"), 8, "not two numbers" },
    { T("F32", "[2]", "[0,8,8]"), 8, "not two numbers" },
    { T("F32", "[2]", "[-8,0]"), 8, "whole number" },
    { T("F32", "[2]", "[8,0]"), 8, "end before they begin" },
    { T("F32", "[2]", "[0,8]"), 7, "beyond the end" },
    { T("F32", "[2]", "[1,9]"), 8, "beyond the end" },
    { T("F32", "[2]", "[9223372036854775800,9223372036854775807]"), 8, "beyond the end" },
    { T("F32", "[2]", "[0,8]"), 9, "1 bytes of data belong to no tensor" },
    { T("F32", "[2]", "[4,12]"), 12, "leaves a hole" },
    { "{}", 8, "8 bytes of data belong to no tensor" },
    { "{" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}", 20,
      "leaves a hole" },
    { "{" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
      "inside other data" },
    { "{" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
      "inside other data" },
    { "{" X ",\"y\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[7,8]}}", 8,
      "inside other data" },
    { "{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8,
      "inside other data" },
};

static void expect_format(const char *sentence, const char *which)
{
    deft_tensor *const x = filled(1);
    deft_named one = { "x", x };
    const deft_status st = deft_load(cx, path, &one, 1);
    cr_assert_eq(st, DEFT_E_FORMAT, "%s: %s: %s", which, deft_status_text(st), deft_message(cx));
    cr_assert(strstr(deft_message(cx), sentence), "%s: \"%s\" has no \"%s\"", which,
              deft_message(cx), sentence);
    cr_assert(strstr(deft_message(cx), path), "the sentence names the file");
    float got[2];
    OK(deft_read(x, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 1);
}

Test(save, hostile_headers_are_refused_with_a_sentence)
{
    enum { N = sizeof hostiles / sizeof *hostiles };
    _Static_assert(N >= 40, "as many as were promised");
    for (size_t i = 0; i < N; i++) {
        put_header(hostiles[i].header, hostiles[i].n_data);
        expect_format(hostiles[i].sentence, hostiles[i].header);
    }
}

Test(save, hostile_prefixes_and_paddings)
{
    static char file[256];
    static const uint64_t sizes[] = {
        0, 1, 7, 1000, 100000001, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX - 7, UINT64_MAX
    };
    static const char good[] = "{" X "}";
    const size_t n = make_file(file, good, sizeof good - 1, 8);
    put_file(file, n);
    OK(deft_load(cx, path, &(deft_named){ "x", filled(1) }, 1));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 8; k++) file[k] = (char)(unsigned char)(sizes[i] >> (8 * k));
        put_file(file, n);
        expect_format(i == 1 ? "expected a string" : i == 2 ? "" : "a header of", "a wrong prefix");
    }
    static const char nul_padded[] = "{" X "}\0\0\0", nul_inside[] = "{\"x\0\":1}";
    put_file(file, make_file(file, nul_padded, sizeof nul_padded - 1, 8));
    expect_format("other than spaces", "NUL padding");
    put_file(file, make_file(file, nul_inside, sizeof nul_inside - 1, 8));
    expect_format("control character", "a NUL in a name");
}

Test(save, a_header_beyond_the_limit_is_not_read)
{
    const uint64_t size = DF_SAFETENSORS_MAX_HEADER + 1;
    char prefix[9];
    for (int i = 0; i < 8; i++) prefix[i] = (char)(unsigned char)(size >> (8 * i));
    prefix[8] = '{';
    put_file(prefix, sizeof prefix);
    cr_assert_eq(truncate(path, (off_t)size + 16), 0); /* a hole: takes no space */
    expect_format("a header of 100000001 bytes", "too long a header");
}

Test(save, an_escaped_nul_does_not_end_a_name)
{
    put_header("{\"x\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
    cr_assert_eq(deft_load(cx, path, &(deft_named){ "x", filled(1) }, 1), DEFT_E_NOT_FOUND);
}

Test(save, too_many_axes_and_other_dtypes_only_matter_when_asked_for)
{
    put_header(
        "{" X ",\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[8,16]},"
        "\"odd\":{\"dtype\":\"F\\nunny\",\"shape\":[2],\"data_offsets\":[16,17]}}",
        17);
    OK(deft_load(cx, path, &(deft_named){ "x", filled(1) }, 1));
    cr_assert_eq(deft_load(cx, path, &(deft_named){ "deep", filled(1) }, 1), DEFT_E_SHAPE);
    cr_assert_eq(deft_load(cx, path, &(deft_named){ "odd", filled(1) }, 1), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(cx), "F?unny"), "%s", deft_message(cx));
}

Test(save, truncations_at_every_byte_and_flips_of_every_bit)
{
    deft_named list[] = { { "one", filled(1) },
                          { "two", deft_ones(cx, DEFT_SHAPE(2, 3), DEFT_BOOL) } };
    OK(deft_save(cx, path, list, 2));
    size_t n;
    char *const file = get_file(&n);
    for (size_t k = 0; k < n; k++) {
        put_file(file, k);
        const deft_status st = deft_load(cx, path, list, 2);
        cr_assert_eq(st, DEFT_E_FORMAT, "cut at %zu: %s: %s", k, deft_status_text(st),
                     deft_message(cx));
    }
    /* Any answer, but an answer. By day one bit of each byte. */
    for (size_t k = 0; k < n * 8; k += (size_t)test_size(1, 9)) {
        file[k / 8] ^= (char)(1 << k % 8);
        put_file(file, n);
        const deft_status st = deft_load(cx, path, list, 2);
        cr_assert(st == DEFT_OK || st == DEFT_E_FORMAT || st == DEFT_E_NOT_FOUND ||
                      st == DEFT_E_DTYPE || st == DEFT_E_SHAPE,
                  "bit %zu: %s", k, deft_status_text(st));
        file[k / 8] ^= (char)(1 << k % 8);
    }
    free(file);
}

Test(save, many_tensors_in_any_order)
{
    enum { N = 3000 };
    df_str header;
    df_str_init(&header, &df_mem_system);
    df_str_putc(&header, '{');
    for (int i = 0; i < N; i++) {
        const int at = (i * 7919) % N;
        df_str_fmt(&header, "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                   i ? "," : "", at, at, at + 1);
    }
    df_str_putc(&header, '}');
    df_safetensors_table t;
    cr_assert_eq(df_safetensors_parse(NULL, &df_mem_system, "many", header.at, header.n, N, &t),
                 DEFT_OK);
    cr_assert_eq(t.n, N);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        const df_safetensors_entry *const e = df_safetensors_find(&t, name);
        cr_assert(e && e->begin == (uint64_t)i, "%s", name);
    }
    cr_assert_null(df_safetensors_find(&t, "t"));
    cr_assert_null(df_safetensors_find(&t, "u"));
    df_safetensors_finish(&t);
    df_str_finish(&header);
}

/* ---- the system ---- */

Test(save, files_that_are_none)
{
    deft_named one = { "x", filled(1) };
    cr_assert_eq(deft_load(cx, path, &one, 1), DEFT_E_NOT_FOUND);
    cr_assert(strstr(deft_message(cx), path));
    cr_assert_eq(deft_load(cx, dir, &one, 1), DEFT_E_IO, "%s", deft_message(cx));
    cr_assert_eq(deft_load(cx, "/dev/zero", &one, 1), DEFT_E_IO, "%s", deft_message(cx));
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(deft_load(cx, path, &one, 1), DEFT_E_IO, "%s", deft_message(cx));
    unlink(path);
    put_file("", 0);
    cr_assert_eq(deft_load(cx, path, &one, 1), DEFT_E_FORMAT);
    char missing[160];
    snprintf(missing, sizeof missing, "%s/missing/file", dir);
    cr_assert_eq(deft_save(cx, missing, &one, 1), DEFT_E_IO);
    cr_assert_eq(deft_save(cx, dir, &one, 1), DEFT_E_IO, "a folder is not replaced");
    cr_assert(strstr(deft_message(cx), "no regular file"), "%s", deft_message(cx));
    char beside[160];
    snprintf(beside, sizeof beside, "%s.tmp-%ld-0", dir, (long)getpid());
    cr_assert_eq(access(beside, F_OK), -1, "the temporary file is removed");
}

Test(save, a_full_disk_leaves_the_old_file)
{
    deft_named one = { "x", filled(5) };
    OK(deft_save(cx, path, &one, 1));
    deft_named big = { "x", deft_ones(cx, DEFT_SHAPE(100000), DEFT_F64) };
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = { 65536 + 100, RLIM_INFINITY },
                        all = { RLIM_INFINITY, RLIM_INFINITY };
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const deft_status st = deft_save(cx, path, &big, 1); /* a partial write, then EFBIG */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    cr_assert_eq(st, DEFT_E_IO, "%s", deft_message(cx));
    cr_assert(strstr(deft_message(cx), "write"), "%s", deft_message(cx));
    cr_assert_eq(n_files(), 1);
    one.tensor = filled(0);
    OK(deft_load(cx, path, &one, 1));
    float got[2];
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    cr_assert_eq(got[0], 5);
}

Test(save, permissions_follow_the_umask_and_leftovers_are_stepped_over)
{
    deft_named one = { "x", filled(5) };
    char beside[192];
    snprintf(beside, sizeof beside, "%s.tmp-%ld-0", path, (long)getpid());
    FILE *const f = fopen(beside, "w");
    cr_assert(f);
    fclose(f);
    const mode_t old = umask(027);
    OK(deft_save(cx, path, &one, 1));
    umask(old);
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0640);
    cr_assert_eq(stat(beside, &info), 0, "what another left is not ours to remove");
    unlink(beside);
}

/* Loads "x" from path and returns its first element. */
static float first_in(const char *from)
{
    float got[2] = { -1, -1 };
    const deft_named one = { "x", filled(0) };
    OK(deft_load(cx, from, &one, 1));
    OK(deft_read(one.tensor, DEFT_F32, got, sizeof got));
    return got[0];
}

Test(save, a_link_stays_and_the_file_it_names_is_written)
{
    char link[160], onward[160], loop[160];
    struct stat info;
    const deft_named one = { "x", filled(5) }, two = { "x", filled(6) };
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(onward, sizeof onward, "%s/onward", dir);
    snprintf(loop, sizeof loop, "%s/loop", dir);
    cr_assert_eq(symlink("file.safetensors", link), 0); /* names no file yet */
    cr_assert_eq(symlink(link, onward), 0);
    cr_assert_eq(symlink("loop", loop), 0);
    OK(deft_save(cx, link, &one, 1));
    cr_assert_eq(lstat(link, &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
    cr_assert_eq(first_in(path), 5);
    OK(deft_save(cx, onward, &two, 1));
    cr_assert_eq(lstat(onward, &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
    cr_assert_eq(first_in(path), 6);
    cr_assert_eq(deft_save(cx, loop, &one, 1), DEFT_E_IO);
    cr_assert_eq(n_files(), 4);
    unlink(link);
    unlink(onward);
    unlink(loop);
}

Test(save, a_file_keeps_its_permissions)
{
    static const mode_t modes[] = { 0600, 0400, 0664, 0777 };
    struct stat info;
    const deft_named one = { "x", filled(5) };
    OK(deft_save(cx, path, &one, 1));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        cr_assert_eq(chmod(path, modes[i]), 0);
        const mode_t old = umask(077);
        OK(deft_save(cx, path, &one, 1));
        umask(old);
        cr_assert_eq(stat(path, &info), 0);
        cr_assert_eq(info.st_mode & 07777, modes[i], "%o", info.st_mode);
    }
    cr_assert_eq(first_in(path), 5);
}

Test(save, a_file_keeps_its_owner)
{
    struct stat info;
    const deft_named one = { "x", filled(5) };
    OK(deft_save(cx, path, &one, 1));
    if (chown(path, 12, 34) != 0) cr_skip_test("only the superuser may");
    OK(deft_save(cx, path, &one, 1));
    cr_assert_eq(stat(path, &info), 0);
    cr_assert(info.st_uid == 12 && info.st_gid == 34);
}

Test(save, devices_and_pipes_are_not_replaced)
{
    char pipe[160], device[160];
    struct stat info;
    const deft_named one = { "x", filled(5) };
    snprintf(pipe, sizeof pipe, "%s/pipe", dir);
    snprintf(device, sizeof device, "%s/null", dir);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    const bool has_device = mknod(device, S_IFCHR | 0600, makedev(1, 3)) == 0;
    for (int i = 0; i < 1 + has_device; i++) {
        const char *const which = i ? device : pipe;
        cr_assert_eq(deft_save(cx, which, &one, 1), DEFT_E_IO);
        cr_assert(strstr(deft_message(cx), "no regular file"), "%s", deft_message(cx));
        cr_assert_eq(lstat(which, &info), 0);
        cr_assert_eq(info.st_mode & S_IFMT, i ? S_IFCHR : S_IFIFO);
    }
    cr_assert_eq(n_files(), 1 + has_device);
    unlink(pipe);
    unlink(device);
}

Test(save, every_allocation_failing_changes_nothing)
{
    fail_mem *f = fail_mem_create();
    close_context();
    open_context(fail_mem_get(f));
    deft_named list[] = { { "x", filled(1) }, { "y", deft_ones(cx, DEFT_SHAPE(2, 3), DEFT_I64) } };
    OK(deft_eval((deft_tensor *const[]){ list[0].tensor, list[1].tensor }, 2));
    deft_status st = DEFT_E_MEMORY;
    size_t n = 1;
    for (; n < 10000 && st != DEFT_OK; n++) {
        fail_mem_at(f, n, false);
        st = deft_save(cx, path, list, 2);
        if (st == DEFT_OK) break;
        cr_assert_eq(st, DEFT_E_MEMORY, "allocation %zu: %s", n, deft_message(cx));
        cr_assert_eq(n_files(), 0);
    }
    cr_assert(n > 5 && st == DEFT_OK);
    fail_mem_at(f, 0, false);
    list[0].tensor = filled(2);
    list[1].tensor = deft_zeros(cx, DEFT_SHAPE(2, 3), DEFT_I64);
    OK(deft_eval((deft_tensor *const[]){ list[0].tensor, list[1].tensor }, 2));
    for (n = 1, st = DEFT_E_MEMORY; n < 10000; n++) {
        fail_mem_at(f, n, false);
        st = deft_load(cx, path, list, 2);
        fail_mem_at(f, 0, false);
        if (st == DEFT_OK) break;
        cr_assert_eq(st, DEFT_E_MEMORY, "allocation %zu: %s", n, deft_message(cx));
        float x[2];
        int64_t y[6];
        OK(deft_read(list[0].tensor, DEFT_F32, x, sizeof x));
        OK(deft_read(list[1].tensor, DEFT_I64, y, sizeof y));
        cr_assert(x[0] == 2 && y[0] == 0, "allocation %zu: something was assigned", n);
    }
    cr_assert(n > 5 && st == DEFT_OK);
    close_context();
    const fail_mem_counts c = fail_mem_count(f);
    cr_assert_eq(c.live_blocks, 0, "%zu blocks leaked", c.live_blocks);
    cr_assert_eq(c.faults, 0, "%s", fail_mem_fault(f));
    fail_mem_destroy(&f);
    open_context(NULL);
}

Test(save, loading_over_and_over_grows_nothing)
{
    fail_mem *f = fail_mem_create();
    close_context();
    open_context(fail_mem_get(f));
    deft_tensor *const root = deft_from(cx, DEFT_SHAPE(2), DEFT_F32, (float[]){ 1, 2 }, 8);
    deft_named list[] = { { "x", filled(1) }, { "y", root } };
    OK(deft_save(cx, path, list, 2));
    size_t before = 0;
    for (int i = 0; i < 2000; i++) {
        if (i == 10) before = fail_mem_count(f).live_bytes;
        const deft_scope s = deft_step_begin(cx);
        OK(deft_load(cx, path, list, 2));
        OK(deft_step_end(s));
    }
    for (int i = 0; i < 4000; i++) { /* outside a step, a tensor with a value of its own */
        const deft_scope s = deft_step_begin(cx);
        OK(deft_step_end(s));
        OK(deft_load(cx, path, list, 2));
    }
    cr_assert_eq(fail_mem_count(f).live_bytes, before);
    close_context();
    cr_assert_eq(fail_mem_count(f).live_blocks, 0);
    fail_mem_destroy(&f);
    open_context(NULL);
}
