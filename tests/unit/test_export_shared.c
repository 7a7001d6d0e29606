/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_export with as_shared: libraries that no linker has made. A program in C that includes the
 * header opens them. What is not the library of this program is refused before any of it runs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/harness.h"

#include "runtime/exported.h"

enum { N = 1000, SENTENCE = 512, MOST_BYTES = 1 << 20 };

typedef int (*open_fn)(const char *path, char *sentence, size_t n);
typedef int (*run_fn)(const float *x, float *y);

static rig r;
static char folder[64], path[96], library[128], sentence[SENTENCE];
static unsigned char file[MOST_BYTES];
static size_t n_file;

/* Compiled with the header of the exported function `f`. */
static const char caller[] =
    "#include \"f.h\"\n"
    "static f_library l;\n"
    "static char workspace[1 << 16];\n"
    "int open_it(const char *path, char *sentence, size_t n)\n"
    "{\n"
    "    const int st = f_open(&l, path, sentence, n);\n"
    "    return st ? st : l.handle && l.run && l.workspace_bytes(1) <= 65536 ? 0 : -1;\n"
    "}\n"
    "int run_it(const float *x, float *y)\n"
    "{\n"
    "    const int st = l.run(x, y, workspace, NULL);\n"
    "    f_close(&l);\n"
    "    return st;\n"
    "}\n";

static deft_status twice(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_exp(in[0]), in[0]);
    return DEFT_OK;
}

static deft_capture *exported(int64_t n, const char *name)
{
    char at[128];
    deft_tensor *in[1] = { rig_range(&r, n, 0.25f) }, *out;
    deft_capture *const c = deft_capture_create(r.cx, twice, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    snprintf(at, sizeof at, "%s/%s", folder, name);
    OK(&r, deft_export(c, at, DEFT_EXPORT(.name = "f", .as_shared = true)));
    return c;
}

static void write_all(const char *name, const void *bytes, size_t n)
{
    FILE *const f = fopen(name, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void set_up(void)
{
    rig_interpret(&r, 1);
    snprintf(folder, sizeof folder, "/tmp/deft-shared-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/caller", folder);
    snprintf(library, sizeof library, "%s/f.so", folder);
}

static void tear_down(void)
{
    char command[128];
    rig_close(&r);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(export_shared, .init = set_up, .fini = tear_down);

/* Compiles the caller with cc of the language, and loads it. */
static void *load_caller(const char *language)
{
    char source[128], command[512];
    snprintf(source, sizeof source, "%s.c", path);
    write_all(source, caller, sizeof caller - 1);
    snprintf(command, sizeof command,
             "cc %s -Wall -Wextra -Wpedantic -Werror -O1 -shared -fPIC -o %s.so %s", language, path,
             source);
    cr_assert_eq(system(command), 0, "%s", command);
    snprintf(source, sizeof source, "%s.so", path);
    void *const so = dlopen(source, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    return so;
}

static open_fn opener(void *so)
{
    open_fn fn;
    void *const at = dlsym(so, "open_it");
    memcpy(&fn, &at, sizeof fn);
    return fn;
}

static void read_library(void)
{
    FILE *const f = fopen(library, "rb");
    cr_assert(f);
    n_file = fread(file, 1, sizeof file, f);
    fclose(f);
    cr_assert(n_file > 4096 && n_file < sizeof file);
}

Test(export_shared, a_library_runs_with_the_bits_of_the_capture)
{
    static float x[N], y[N], want[N];
    run_fn run;
    deft_capture *c = exported(N, "f");
    deft_tensor *in[1] = { rig_range(&r, N, 0.25f) }, *out;
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    rig_read(&r, in[0], x, N);
    rig_read(&r, out, want, N);
    void *const so = load_caller("-std=c11");
    cr_assert_eq(opener(so)(library, sentence, sizeof sentence), 0, "%s", sentence);
    void *const at = dlsym(so, "run_it");
    memcpy(&run, &at, sizeof run);
    cr_assert_eq(run(x, y), 0);
    cr_assert_arr_eq(y, want, sizeof y);
    deft_capture_destroy(&c);
}

Test(export_shared, the_header_is_cxx_too)
{
    char command[512], name[128];
    deft_capture *c = exported(N, "f");
    snprintf(name, sizeof name, "%s.cc", path);
    write_all(name, caller, sizeof caller - 1);
    snprintf(command, sizeof command, "c++ -std=c++14 -Wall -Wextra -Werror -fsyntax-only %s",
             name);
    cr_assert_eq(system(command), 0, "%s", command);
    deft_capture_destroy(&c);
}

Test(export_shared, each_byte_that_changed_is_found)
{
    deft_capture *c = exported(N, "f");
    read_library();
    const open_fn open_it = opener(load_caller("-std=c11"));
    FILE *const f = fopen(library, "r+b");
    cr_assert(f);
    for (size_t i = 0; i < n_file; i++) {
        const int changed = file[i] ^ (1 << i % 8);
        cr_assert(fseek(f, (long)i, SEEK_SET) == 0 && fputc(changed, f) >= 0 && fflush(f) == 0);
        sentence[0] = '\0';
        const int st = open_it(library, sentence, sizeof sentence);
        cr_assert(st == DEFT_EXPORTED_FILE || st == DEFT_EXPORTED_VERSION, "byte %zu: %d", i, st);
        cr_assert(strstr(sentence, library), "byte %zu: '%s'", i, sentence);
        cr_assert(fseek(f, (long)i, SEEK_SET) == 0 && fputc(file[i], f) >= 0 && fflush(f) == 0);
    }
    fclose(f);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), 0, "%s", sentence);
    deft_capture_destroy(&c);
}

Test(export_shared, truncated_and_longer_files_are_refused)
{
    deft_capture *c = exported(N, "f");
    read_library();
    const open_fn open_it = opener(load_caller("-std=c11"));
    for (size_t n = n_file; n-- > 0; n -= n > 2048 ? n % 61 : 0) {
        cr_assert_eq(truncate(library, (off_t)n), 0);
        cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_FILE, "%zu", n);
    }
    write_all(library, file, n_file + 8);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_FILE);
    cr_assert(strstr(sentence, "is damaged"), "%s", sentence);
    unlink(library);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_FILE);
    cr_assert(strstr(sentence, "cannot be read"), "%s", sentence);
    deft_capture_destroy(&c);
}

Test(export_shared, another_version_is_refused_by_its_number)
{
    deft_capture *c = exported(N, "f");
    read_library();
    const open_fn open_it = opener(load_caller("-std=c11"));
    FILE *const f = fopen(library, "rb");
    deft_exported_note note;
    uint64_t at;
    cr_assert(f && deft_exported_find(f, &note, &at));
    fclose(f);
    file[at + offsetof(deft_exported_note, version)] = 2;
    write_all(library, file, n_file);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_VERSION);
    cr_assert(strstr(sentence, "has version 2 of the format, and 1 is needed"), "%s", sentence);
    deft_capture_destroy(&c);
}

Test(export_shared, another_program_is_refused_by_its_parameter)
{
    deft_capture *c = exported(N, "f"), *other = exported(N + 1, "other");
    const open_fn open_it = opener(load_caller("-std=c11"));
    snprintf(library, sizeof library, "%s/other.so", folder);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_SIGNATURE);
    cr_assert(strstr(sentence, "it has 'read in0 f32[1001]' where 'read in0 f32[1000]' is needed"),
              "%s", sentence);
    deft_capture_destroy(&other);
    deft_capture_destroy(&c);
}

Test(export_shared, code_of_other_libraries_never_runs)
{
    static const char text[] = "#include <stdlib.h>\n"
                               "__attribute__((constructor)) static void run(void) { "
                               "setenv(\"DEFT_TEST_RAN\", \"1\", 1); }\n";
    char command[512], source[128];
    deft_capture *c = exported(N, "f");
    const open_fn open_it = opener(load_caller("-std=c11"));
    snprintf(source, sizeof source, "%s/run.c", folder);
    write_all(source, text, sizeof text - 1);
    snprintf(library, sizeof library, "%s/run.so", folder);
    snprintf(command, sizeof command, "cc -shared -fPIC -o %s %s", library, source);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(open_it(library, sentence, sizeof sentence), DEFT_EXPORTED_FILE);
    cr_assert(strstr(sentence, "is no library with an exported program"), "%s", sentence);
    cr_assert(!getenv("DEFT_TEST_RAN"));
    void *const so = dlopen(library, RTLD_NOW); /* which would have run it */
    cr_assert(so && getenv("DEFT_TEST_RAN"));
    dlclose(so);
    deft_capture_destroy(&c);
}
