/* SPDX-License-Identifier: Apache-2.0
 *
 * The plug-in deft-sites: calls of this file, addresses that are no code, and libraries whose files
 * were changed under it.
 */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/site.h"
#include "runtime/cpu.h"

/* ---- addresses ---- */

static uintptr_t caller;

static __attribute__((noinline)) int note_caller(void)
{
    caller = (uintptr_t)__builtin_return_address(0);
    return 1;
}

static bool open_resolver(df_resolver *out)
{
    const bool has = df_plugin_sites(getenv("DEFT_PLUGIN_DIR"), out);
    cr_assert(has || !HAS_LINES, "the plug-in was built and does not open");
    return has;
}

static bool known(df_resolver *r, uintptr_t site, df_source_line *out)
{
    memset(out, 0, sizeof *out);
    return r->find(r->self, site - 1, out);
}

static inline __attribute__((always_inline)) int inlined(void)
{
    return note_caller() + 1;
}

Test(resolver, a_call_of_this_file)
{
    df_resolver r;
    df_source_line p;
    if (!open_resolver(&r) || !HAS_LINES) cr_skip_test();
    /* In the table of answers each takes the place of others. */
    for (uintptr_t i = 0; i < 300; i++) (void)known(&r, (uintptr_t)qsort + i, &p);
    const int line = __LINE__ + 1;
    int sum = note_caller();
    cr_assert(known(&r, caller, &p));
    cr_expect_str_eq(p.file, "test_resolver.c");
    cr_expect_eq(p.line, line);
    cr_expect(strstr(p.function, "a_call_of_this_file"), "%s", p.function);
    sum += inlined();
    cr_assert(known(&r, caller, &p));
    cr_expect_str_eq(p.function, "inlined", "the innermost");
    cr_expect_lt(p.line, (uint32_t)line);
    cr_expect_eq(sum, 3);
    cr_assert(known(&r, caller, &p));
    cr_expect_str_eq(p.function, "inlined");
    df_resolver_close(&r);
}

Test(resolver, addresses_that_are_no_code)
{
    df_resolver r;
    df_source_line p;
    int on_stack;
    if (!open_resolver(&r)) cr_skip_test();
    char *const gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 4096);
    void *const heap = malloc(64);
    const uintptr_t no_code[] = { 0,
                                  1,
                                  2,
                                  4096,
                                  UINTPTR_MAX,
                                  df_site_of_name(0),
                                  (uintptr_t)&on_stack,
                                  (uintptr_t)&caller,
                                  (uintptr_t)gone,
                                  (uintptr_t)heap,
                                  (uintptr_t)getauxval(AT_SYSINFO_EHDR) + 0x400 };
    for (size_t i = 0; i < sizeof no_code / sizeof *no_code; i++)
        cr_expect_not(known(&r, no_code[i], &p), "%zu: %s:%u", i, p.file, p.line);
    for (uintptr_t a = 1; a; a <<= 1) (void)known(&r, a, &p);
    free(heap);
    df_resolver_close(&r);
}

/* ---- files ---- */

static char folder[] = "/tmp/deft-sites-XXXXXX";

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    FILE *const in = fopen(from, "rb"), *const out = fopen(to, "wb");
    cr_assert(in && out, "%s", from);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        cr_assert_eq(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

/* A copy of the library, loaded and called: caller is in it. */
static void *load(const char *name, char *path)
{
    char from[512];
    snprintf(from, sizeof from, VICTIMS "/%s.so", name);
    snprintf(path, 256, "%s/%s.so", folder, name);
    copy_file(from, path);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    int (*calls)(int (*)(void));
    *(void **)&calls = dlsym(so, "victim_calls");
    cr_assert_eq(calls(note_caller), 2);
    return so;
}

static bool ask(df_source_line *out)
{
    df_resolver r;
    cr_assert(open_resolver(&r));
    const bool is_known = known(&r, caller, out);
    df_resolver_close(&r);
    return is_known;
}

static void put_instead(const char *path, const void *bytes, size_t n)
{
    char other[300];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *const f = fopen(other, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n);
    fclose(f);
    cr_assert_eq(rename(other, path), 0);
}

static void without_lines(const char *what)
{
    df_source_line p;
    char text[DF_SITE_TEXT];
    cr_expect_not(ask(&p), "%s: %s:%u", what, p.file, p.line);
    df_site_text(NULL, caller, text, sizeof text);
    cr_expect(strstr(text, ".so+0x") && strstr(text, " (victim_calls+0x"), "%s: %s", what, text);
}

Test(resolver, a_library_with_and_without_its_file)
{
    df_resolver r;
    df_source_line p;
    char path[256], stripped[256];
    if (!open_resolver(&r) || !HAS_LINES) cr_skip_test();
    df_resolver_close(&r);
    cr_assert(mkdtemp(folder));
    void *const so = load("victim", path);
    cr_assert(ask(&p));
    cr_expect_str_eq(p.file, "victim.c");
    cr_expect_eq(p.line, 12);
    cr_expect_str_eq(p.function, "victim_calls");
    static const char junk[] = "\177ELF\2\1\1 and no more";
    put_instead(path, junk, sizeof junk);
    without_lines("no library any more");
    put_instead(path, "", 0);
    without_lines("empty");
    copy_file("/proc/self/exe", path);
    without_lines("another program");
    unlink(path);
    copy_file(VICTIMS "/victim_moved.so", path);
    without_lines("built anew, with the same code in other lines");
    unlink(path);
    without_lines("no file");
    mkdir(path, 0700);
    without_lines("a folder");
    rmdir(path);
    mkfifo(path, 0600);
    without_lines("a pipe");
    unlink(path);

    void *const other = load("victim_stripped", stripped);
    without_lines("stripped");
    unlink(stripped);
    dlclose(other);
    dlclose(so);
    cr_expect_not(ask(&p), "unloaded");
    rmdir(folder);
}

/* The same build id in front of debug information that is not true. */
Test(resolver, debug_information_that_is_damaged)
{
    df_resolver r;
    char path[256];
    static unsigned char bytes[1 << 20], changed[1 << 20];
    if (!open_resolver(&r) || !HAS_LINES) cr_skip_test();
    df_resolver_close(&r);
    cr_assert(mkdtemp(folder));
    void *const so = load("victim", path);
    FILE *const f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    uint32_t seed = 1;
    size_t start = 4096; /* headers and build id stay */
    for (int round = 0; round < 400; round++) {
        df_source_line p;
        memcpy(changed, bytes, n);
        for (int k = 0; k < 1 + round % 40; k++) {
            seed = seed * 1664525u + 1013904223u;
            const size_t at = start + seed / 7 % (n - start);
            changed[at] = round % 3 ? (unsigned char)(seed >> 24) : 0xff;
        }
        put_instead(path, changed, round % 5 ? n : start + seed % (n - start));
        (void)ask(&p);
        cr_assert(memchr(p.file, 0, sizeof p.file) && memchr(p.function, 0, sizeof p.function));
    }
    unlink(path);
    rmdir(folder);
    dlclose(so);
}
