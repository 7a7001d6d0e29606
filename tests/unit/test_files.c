/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that say what they have: what is written as npy or npz comes back bit for bit; other byte
 * orders, the order of Fortran and deflated members are read; a mapped file may be larger than
 * memory; and no file, however wrong, does more than fail with a sentence.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "lazy/files/listing.h"
#include "support/budget.h"
#include "support/harness.h"

#define S DEFT_SHAPE
#define LEN(a) (sizeof(a) / sizeof *(a))

static rig r;
static char dir[64], path[96];

static void set_up(void)
{
    rig_interpret(&r, 1);
    snprintf(dir, sizeof dir, "/tmp/deft-files-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
}

static void tear_down(void)
{
    rig_close(&r);
    unlink(path);
    rmdir(dir);
}

TestSuite(files, .init = set_up, .fini = tear_down);

static void store(const void *bytes, size_t n)
{
    FILE *const f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

static deft_file *opened(void)
{
    deft_file *f = NULL;
    OK(&r, deft_file_open(r.cx, path, &f));
    return f;
}

static deft_file_entry entry(const deft_file *f, size_t i)
{
    deft_file_entry e;
    cr_assert(deft_file_entry_read(f, i, &e, sizeof e));
    return e;
}

/* ---- what was written ---- */

/* Twelve elements with bits of their own. */
static deft_tensor *sample(deft_dtype t)
{
    unsigned char bytes[12 * 16];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = t == DEFT_BOOL ? i % 3 == 1 : (unsigned char)(37 * i + 11);
    return deft_from(r.cx, S(3, 4), t, bytes, 12 * deft_dtype_size(t));
}

static void same(deft_tensor *a, deft_tensor *b)
{
    unsigned char x[192] = { 0 }, y[192] = { 0 };
    cr_assert(a && b, "%s", deft_message(r.cx));
    const deft_dtype t = deft_dtype_of(a);
    const size_t n = (size_t)deft_numel(a) * deft_dtype_size(t);
    const deft_shape p = deft_shape_get(a), q = deft_shape_get(b);
    cr_assert(deft_dtype_of(b) == t && p.rank == q.rank);
    cr_assert(memcmp(p.dim, q.dim, p.rank * sizeof *p.dim) == 0);
    OK(&r, deft_read(a, t, x, n));
    OK(&r, deft_read(b, t, y, n));
    cr_assert(memcmp(x, y, n) == 0, "%s", deft_dtype_name(t));
}

/* Files have the low byte first: a machine that has it last loads elements of several bytes, and
 * refuses to map them. */
static bool is_mapped(deft_dtype t)
{
    return !DF_IS_BIG_ENDIAN || deft_dtype_size(t) == 1;
}

/* An entry maps as `want`, or not at all. */
static void same_or_refused(deft_file *f, const char *name, deft_tensor *want)
{
    deft_tensor *const x = deft_file_map(f, name);
    if (is_mapped(deft_dtype_of(want)))
        same(x, want);
    else
        rig_expect_error(&r, x, DEFT_E_ARG, "of another byte order");
}

Test(files, npy_and_npz_of_each_dtype)
{
    for (deft_dtype t = 0; t <= DEFT_C128; t++) {
        deft_tensor *const x = sample(t);
        if (t == DEFT_BF16) {
            cr_assert_eq(deft_save_npy(x, path), DEFT_E_DTYPE);
            cr_assert(strstr(deft_message(r.cx), "npy has no bf16"), "%s", deft_message(r.cx));
            continue;
        }
        OK(&r, deft_save_npy(deft_t(x), path));
        deft_file *f = opened();
        const deft_file_entry e = entry(f, 0);
        cr_assert(deft_file_count(f) == 1 && e.dtype == t && e.is_mappable == is_mapped(t) &&
                  !*e.name);
        same(deft_file_load(f, NULL), deft_t(x));
        same_or_refused(f, "", deft_t(x));
        deft_file_close(&f);
        const deft_named list[2] = { { "x", x }, { "odd/\xc3\xa9", deft_slice(x, DEFT_AT(1)) } };
        OK(&r, deft_save_npz(r.cx, path, list, 2));
        f = opened();
        cr_assert(deft_file_count(f) == 2 && entry(f, 0).is_mappable == is_mapped(t));
        cr_assert_str_eq(entry(f, 1).name, "odd/\xc3\xa9");
        same(deft_file_load(f, "x"), x);
        same_or_refused(f, "x", x);
        same(deft_file_load(f, list[1].name), list[1].tensor);
        deft_file_close(&f);
    }
}

Test(files, numbers_empty_arrays_and_no_array)
{
    deft_file *f;
    OK(&r, deft_save_npy(deft_num(r.cx, 2.5), path));
    f = opened();
    RIG_EXPECT(&r, deft_file_load(f, NULL), 2.5f);
    deft_file_close(&f);
    OK(&r, deft_save_npy(deft_zeros(r.cx, S(2, 0, 3), DEFT_I16), path));
    f = opened();
    cr_assert_eq(deft_dim(deft_file_load(f, NULL), 2), 3);
    if (is_mapped(DEFT_I16)) cr_assert_eq(deft_dim(deft_file_map(f, NULL), 0), 2);
    deft_file_close(&f);
    OK(&r, deft_save_npz(r.cx, path, NULL, 0));
    f = opened();
    cr_assert_eq(deft_file_count(f), 0u);
    rig_expect_error(&r, deft_file_load(f, NULL), DEFT_E_NOT_FOUND, "has 0 tensors");
    deft_file_close(&f);
    cr_assert(!f && deft_file_count(NULL) == 0);
}

Test(files, safetensors_say_what_they_have)
{
    deft_tensor *const x = sample(DEFT_BF16), *const y = sample(DEFT_U64);
    OK(&r, deft_save(r.cx, path, (const deft_named[]){ { "w", x }, { "a.b", y } }, 2));
    deft_file *f = opened();
    cr_assert_eq(deft_file_count(f), 2u);
    const deft_file_entry a = entry(f, 0), w = entry(f, 1);
    cr_assert_str_eq(a.name, "a.b");
    cr_assert(a.dtype == DEFT_U64 && a.bytes == 96 && a.shape.rank == 2 && a.shape.dim[1] == 4);
    cr_assert_str_eq(w.dtype_name, "BF16");
    same(deft_file_load(f, "w"), x);
    same_or_refused(f, "a.b", y);
    rig_expect_error(&r, deft_file_load(f, "nobody"), DEFT_E_NOT_FOUND, "named \"nobody\"");
    rig_expect_error(&r, deft_file_map(f, NULL), DEFT_E_NOT_FOUND, "which one");
    deft_tensor *const mapped =
        deft_keep((is_mapped(DEFT_BF16) ? deft_file_map : deft_file_load)(f, "w"));
    deft_file_close(&f);
    unlink(path);
    same(mapped, x);
}

/* The bytes of each part are in the other order, not those of each number. */
Test(files, complex_numbers_of_another_byte_order)
{
    static const char header[] =
        "{'descr': '>c8', 'fortran_order': True, 'shape': (2, 2), }           \n";
    unsigned char bytes[10 + sizeof header - 1 + 32] = { 0x93, 'N', 'U',
                                                         'M',  'P', 'Y',
                                                         1,    0,   sizeof header - 1 };
    memcpy(bytes + 10, header, sizeof header - 1);
    unsigned char *const at = bytes + 10 + sizeof header - 1;
    for (int i = 0; i < 8; i++) at[4 * i] = 0x40, at[4 * i + 1] = (unsigned char)(16 * i);
    store(bytes, sizeof bytes);
    deft_file *f = opened();
    cr_assert(entry(f, 0).dtype == DEFT_C64 && entry(f, 0).is_mappable == DF_IS_BIG_ENDIAN);
    deft_tensor *const z = deft_file_load(f, NULL);
    RIG_EXPECT(&r, deft_real(z), 2, 3, 2.5f, 3.5f);
    RIG_EXPECT(&r, deft_imag(z), 2.25f, 3.25f, 2.75f, 3.75f);
    deft_file_close(&f);
}

Test(files, safetensors_of_complex_numbers)
{
    deft_tensor *const z = sample(DEFT_C64);
    OK(&r, deft_save(r.cx, path, (const deft_named[]){ { "z", z }, { "b", sample(DEFT_U8) } }, 2));
    deft_file *f = opened();
    cr_assert_str_eq(entry(f, 1).dtype_name, "C64");
    same(deft_file_load(f, "z"), z);
    same_or_refused(f, "z", z);
    deft_file_close(&f);
    cr_assert_eq(deft_save(r.cx, path, (const deft_named[]){ { "z", sample(DEFT_C128) } }, 1),
                 DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "\"z\" is c128, for which the format has no name"), "%s",
              deft_message(r.cx));
}

Test(files, of_dtypes_that_deft_lacks)
{
    static const char json[] =
        "{\"x\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    unsigned char bytes[8 + sizeof json - 1 + 2] = { sizeof json - 1 };
    memcpy(bytes + 8, json, sizeof json - 1);
    store(bytes, sizeof bytes);
    deft_file *f = opened();
    cr_assert(entry(f, 0).dtype == DEFT_N_DTYPES && !entry(f, 0).is_mappable);
    rig_expect_error(&r, deft_file_load(f, NULL), DEFT_E_DTYPE, "\"x\" is F6_E2M3");
    deft_file_close(&f);
}

/* A mapped tensor may be larger than memory: only what is used is read. */
Test(files, a_file_larger_than_memory)
{
    const int64_t n = test_size((int64_t)1 << 40, (int64_t)1 << 36);
    char json[128];
    unsigned char head[256] = { 0 };
    snprintf(json, sizeof json,
             "{\"x\":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}}", (long long)n,
             (long long)n);
    head[0] = (unsigned char)strlen(json);
    memcpy(head + 8, json, strlen(json));
    const off_t data = 8 + (off_t)strlen(json);
    store(head, (size_t)data);
    const int fd = open(path, O_WRONLY);
    if (ftruncate(fd, data + n)) {
        close(fd);
        cr_skip_test("no room for a sparse file");
    }
    cr_assert_eq(pwrite(fd, "\1\2\3", 3, data + n - 3), 3);
    close(fd);
    deft_file *f = opened();
    deft_tensor *const x = deft_file_map(f, "x");
    if (SIZE_MAX > UINT32_MAX)
        RIG_EXPECT(&r, deft_slice(x, DEFT_R(-4, DEFT_END)), 0, 1, 2, 3);
    else
        rig_expect_error(&r, x, DEFT_E_MEMORY, "more than memory can have");
    deft_file_close(&f);
}

Test(files, that_became_shorter)
{
    OK(&r, deft_save_npy(deft_zeros(r.cx, S(1000), DEFT_F64), path));
    deft_file *f = opened();
    cr_assert_eq(truncate(path, 4000), 0);
    rig_expect_error(&r, deft_file_load(f, NULL), DEFT_E_FORMAT, "the file became shorter");
    if (is_mapped(DEFT_F64))
        rig_expect_error(&r, deft_file_map(f, NULL), DEFT_E_FORMAT, "the file became shorter");
    deft_file_close(&f);
}

/* ---- npy headers ---- */

/* A npy file of a version with this text, and n bytes 0, 1, 2, ... behind it. */
static size_t npy_of(unsigned char *out, int major, const char *text, size_t n)
{
    const size_t size = strlen(text), at = major == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)major;
    out[7] = 0;
    for (size_t i = 8; i < at; i++) out[i] = (unsigned char)(size >> 8 * (i - 8));
    memcpy(out + at, text, size);
    for (size_t i = 0; i < n; i++) out[at + size + i] = (unsigned char)i;
    return at + size + n;
}

static deft_file *npy(int major, const char *text, size_t n)
{
    static unsigned char bytes[4096];
    store(bytes, npy_of(bytes, major, text, n));
    return opened();
}

Test(files, headers_of_numpy)
{
    deft_file *f = npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }  \n", 4);
    RIG_EXPECT(&r, deft_file_load(f, NULL), 256, 770);
    deft_file_close(&f);
    f = npy(2, "{\"shape\":(2L, 2L),\"fortran_order\":True,\"descr\":\"|u1\"}", 4);
    RIG_EXPECT(&r, deft_file_load(f, NULL), 0, 2, 1, 3);
    RIG_EXPECT(&r, deft_sum(deft_file_map(f, NULL), DEFT_AXES(0), 0), 1, 5);
    deft_file_close(&f);
    f = npy(3, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 1, 2)}", 8);
    RIG_EXPECT(&r, deft_file_load(f, NULL), 1, 1029, 515, 1543);
    cr_assert_eq(entry(f, 0).is_mappable, DF_IS_BIG_ENDIAN);
    if (DF_IS_BIG_ENDIAN)
        RIG_EXPECT(&r, deft_file_map(f, NULL), 1, 1029, 515, 1543);
    else
        rig_expect_error(&r, deft_file_map(f, NULL), DEFT_E_ARG, "of another byte order");
    deft_file_close(&f);
    f = npy(1, "{'descr': '>f8', 'fortran_order': False, 'shape': ()}", 8);
    double value;
    OK(&r, deft_item(deft_file_load(f, NULL), &value));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    cr_assert_eq(bits, UINT64_C(0x0001020304050607));
    deft_file_close(&f);
    f = npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", 3);
    RIG_EXPECT(&r, deft_file_load(f, NULL), 0, 1, 1);
    rig_expect_error(&r, deft_file_map(f, NULL), DEFT_E_FORMAT, "neither 0 nor 1");
    deft_file_close(&f);
    f = npy(1, "{'descr': '<c32', 'fortran_order': False, 'shape': (1,)}", 32);
    rig_expect_error(&r, deft_file_load(f, NULL), DEFT_E_DTYPE, "<c32, which deft does not have");
    deft_file_close(&f);
}

static void refused(const char *part)
{
    deft_file *f = (void *)path;
    const deft_status st = deft_file_open(r.cx, path, &f);
    cr_assert(st == DEFT_E_FORMAT || st == DEFT_E_SHAPE, "%d: %s", st, part);
    cr_assert(!f && strstr(deft_message(r.cx), part), "%s: %s", part, deft_message(r.cx));
}

Test(files, wrong_headers)
{
    static const char *const rows[][2] = {
        { "", "no dict" },
        { "{", "something other than a string" },
        { "{}", "not all of descr" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "a dict without end" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "something after its dict" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "a key other than" },
        { "{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "a key that stands twice" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "with fields" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "neither True nor False" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "no tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "no tuple of whole numbers" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", "a shape without end" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}",
          "more than 8 axes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
          "an extent beyond 2^63" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,)}",
          "more bytes than can be counted" },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (36028797018963968,)}",
          "asks for 36028797018963968 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
          "asks for 8 bytes of elements, and it has 4" },
        { "{'descr': '<f4", "a string without end" },
        { "{'descr' '<f4'}", "a key without a value" },
    };
    unsigned char bytes[512];
    for (size_t i = 0; i < LEN(rows); i++) {
        store(bytes, npy_of(bytes, 1, rows[i][0], 4));
        refused(rows[i][1]);
    }
    size_t n = npy_of(bytes, 4, "{}", 0);
    store(bytes, n);
    refused("version 4.0 of npy");
    n = npy_of(bytes, 2, "{}", 0);
    bytes[11] = 0x7f;
    store(bytes, n);
    refused("a header of 2130706434 bytes");
    store(bytes, 11);
    refused("it ends within its header");
    store(bytes, 9);
    refused("no npy file");
    n = npy_of(bytes, 1, "{'descr'", 0);
    bytes[8] = 200;
    store(bytes, n);
    refused("a header of 200 bytes in 18 bytes");
    store("", 0);
    refused("too short");
}

/* ---- archives ---- */

/* An archive of one member "x.npy" whose content is a npy file of four bytes. */
typedef struct archive {
    unsigned char at[1024];
    size_t n, local, data, entry, end; /* offsets */
} archive;

static void append(archive *a, const void *bytes, size_t n)
{
    memcpy(a->at + a->n, bytes, n);
    a->n += n;
}

static void number(archive *a, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) a->at[a->n++] = (unsigned char)(i < 8 ? v >> 8 * i : 0);
}

static void common(archive *a, bool deflated, uint32_t crc, size_t packed, size_t size)
{
    number(a, 20, 2);
    number(a, 0, 2);
    number(a, deflated ? 8 : 0, 2);
    number(a, 0, 4);
    number(a, crc, 4);
    number(a, packed, 4);
    number(a, size, 4);
    number(a, 5, 2);
}

static archive archive_of(bool deflated)
{
    static df_crc crc;
    archive a = { 0 };
    unsigned char content[256], packed[300] = { 1 };
    const char *const text = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}";
    const size_t n = npy_of(content, 1, text, 4), n_packed = deflated ? n + 5 : n;
    df_crc_init(&crc);
    df_crc_add(&crc, content, n);
    /* one stored block of deflate */
    packed[1] = (unsigned char)n;
    packed[3] = (unsigned char)~n;
    packed[4] = 0xff;
    memcpy(packed + 5, content, n);
    number(&a, 0x04034b50, 4);
    common(&a, deflated, crc.value, n_packed, n);
    number(&a, 0, 2);
    append(&a, "x.npy", 5);
    a.data = a.n;
    append(&a, deflated ? packed : content, n_packed);
    a.entry = a.n;
    number(&a, 0x02014b50, 4);
    number(&a, 20, 2);
    common(&a, deflated, crc.value, n_packed, n);
    number(&a, 0, 12);
    number(&a, a.local, 4);
    append(&a, "x.npy", 5);
    a.end = a.n;
    number(&a, 0x06054b50, 4);
    number(&a, 0, 4);
    number(&a, 1, 2);
    number(&a, 1, 2);
    number(&a, a.end - a.entry, 4);
    number(&a, a.entry, 4);
    number(&a, 3, 2);
    append(&a, "PK!", 3);
    return a;
}

static deft_file *archived(const archive *a)
{
    store(a->at, a->n);
    return opened();
}

Test(files, deflated_members)
{
    const archive a = archive_of(true);
    deft_file *f = archived(&a);
    RIG_EXPECT(&r, deft_file_load(f, "x"), 0, 1, 2, 3);
    cr_assert_not(entry(f, 0).is_mappable);
    rig_expect_error(&r, deft_file_map(f, "x"), DEFT_E_ARG, "are deflated");
    deft_file_close(&f);
}

/* Changes one byte of an archive, and expects a refusal when it is opened. */
static void damaged(bool deflated, size_t offset_of_entry, unsigned char value, const char *part)
{
    archive a = archive_of(deflated);
    a.at[a.entry + offset_of_entry] = value;
    store(a.at, a.n);
    refused(part);
}

Test(files, wrong_archives)
{
    archive a = archive_of(false);
    deft_file *f = archived(&a);
    RIG_EXPECT(&r, deft_file_load(f, "x"), 0, 1, 2, 3);
    RIG_EXPECT(&r, deft_file_map(f, "x"), 0, 1, 2, 3);
    deft_file_close(&f);

    damaged(false, 0, 'Q', "a damaged directory");
    damaged(false, 8, 1, "an encrypted member");
    damaged(false, 10, 12, "compressed by method 12");
    damaged(false, 23, 1, "cannot become");       /* packed and unpacked differ */
    damaged(true, 27, 0x7f, "cannot become");     /* a bomb: 2 GB of 80 bytes */
    damaged(false, 29, 9, "a damaged directory"); /* the name is longer than the entry */
    damaged(false, 43, 200, "outside the file");  /* the local header */
    damaged(false, 42, 1, "a member without a header");
    damaged(false, 46, '\0', "a damaged directory"); /* a NUL in the name */

    a = archive_of(false);
    a.at[a.data + 66] ^= 1; /* an element */
    f = archived(&a);
    rig_expect_error(&r, deft_file_load(f, "x"), DEFT_E_FORMAT, "checksum is wrong");
    deft_file_close(&f);
    a = archive_of(true);
    a.at[a.data] = 7; /* no block of deflate */
    store(a.at, a.n);
    refused("a damaged deflated member");
    a = archive_of(false);
    store(a.at, a.n - 1);
    refused("has no end");
    store(a.at, 30);
    refused("has no end");
    a.at[a.end + 10] = 9;
    store(a.at, a.n);
    refused("more members than its directory has room for");
    a = archive_of(false);
    a.at[a.end + 19] = 0x70;
    store(a.at, a.n);
    refused("a directory outside the file");
    a.at[a.end + 10] = a.at[a.end + 11] = 0xff;
    store(a.at, a.n);
    refused("has no 64-bit end");
}

/* ---- calls ---- */

Test(files, wrong_calls)
{
    deft_file *f = NULL;
    cr_assert_eq(deft_file_open(NULL, path, &f), DEFT_E_ARG);
    cr_assert_eq(deft_file_open(r.cx, "", &f), DEFT_E_ARG);
    cr_assert_eq(deft_file_open(r.cx, path, NULL), DEFT_E_ARG);
    cr_assert_eq(deft_file_open(r.cx, path, &f), DEFT_E_NOT_FOUND);
    cr_assert_eq(deft_file_open(r.cx, dir, &f), DEFT_E_IO);
    cr_assert(strstr(deft_message(r.cx), "not a regular file"), "%s", deft_message(r.cx));
    cr_assert(!deft_file_load(NULL, "x") && !deft_file_map(NULL, "x"));
    deft_file_close(NULL);
    deft_file_close(&f);
    deft_tensor *const x = rig_range(&r, 2, 0);
    cr_assert_eq(deft_save_npy(x, ""), DEFT_E_ARG);
    cr_assert_eq(deft_save_npy(NULL, path), DEFT_E_ARG);
    cr_assert_eq(deft_save_npy(x, dir), DEFT_E_IO);
    cr_assert(strstr(deft_message(r.cx), "save_npy: "), "%s", deft_message(r.cx));
    cr_assert_eq(deft_save_npz(NULL, path, NULL, 0), DEFT_E_ARG);
    const deft_named twice[2] = { { "x", x }, { "x", x } };
    cr_assert_eq(deft_save_npz(r.cx, path, twice, 2), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "one name"), "%s", deft_message(r.cx));
    cr_assert_eq(access(path, F_OK), -1, "nothing was written");
}
