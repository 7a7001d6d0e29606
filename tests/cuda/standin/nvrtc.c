/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC's stand-in: CUDA text becomes a shared library by the C++ compiler and shim.h, and what is
 * called a cubin names its path (image.h). Libraries are kept in a folder under a hash of all they
 * depend on; they are written under another name and then renamed, so that processes may share it.
 *
 * Most programs begin with the generator's prelude: it is compiled once, shim.h included, into a
 * precompiled header (a program takes 75 ms with it, 150 ms without).
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"
#include "jit_cuda/prelude_text.h"
#include "standin_nvrtc.h"

enum {
    NO_MEMORY = 1,
    NO_PROGRAM = 2,
    BAD_INPUT = 3,
    BAD_PROGRAM = 4,
    BAD_OPTION = 5,
    DOES_NOT_COMPILE = 6,
    INTERNAL = 11,
    PRELUDE = sizeof prelude_text - 1,
    MOST_PATH = 512
};

/* An access that is not aligned is an illegal instruction: a GPU refuses it, too. */
#define FLAGS                                                                                      \
    "-std=c++17 -O1 -w -fPIC -ffp-contract=off -fno-strict-aliasing " STANDIN_UNIQUE               \
    " -fsanitize=alignment -fsanitize-undefined-trap-on-error"

/* What follows the kernels; an entry for each. */
static const char table_head[] =
    "\ntemplate <auto F> struct standin_of;\n"
    "template <typename... A, void (*F)(A...)> struct standin_of<F> {\n"
    "  static constexpr unsigned n = sizeof...(A);\n"
    "  static constexpr unsigned sizes[n + 1] = { sizeof(A)..., 0 };\n"
    "  template <unsigned... I> struct list {};\n"
    "  template <unsigned N, unsigned... I> struct make : make<N - 1, N - 1, I...> {};\n"
    "  template <unsigned... I> struct make<0, I...> { typedef list<I...> t; };\n"
    "  template <unsigned... I> static void go(void *const *p, list<I...>) { F(*(A *)p[I]...); }\n"
    "  static void call(const void *p) { go((void *const *)p, typename make<n>::t()); }\n"
    "};\n"
    "struct standin_entry { const char *name; void (*call)(const void *); const unsigned *sizes;\n"
    "  unsigned n, threads; };\n"
    "#define ENTRY(f, threads) \\\n"
    "  { #f, standin_of<f>::call, standin_of<f>::sizes, standin_of<f>::n, threads },\n"
    "extern \"C\" const standin_entry standin_entries[] = {\n";
static const char table_end[] = "{ nullptr, nullptr, nullptr, 0, 0 } };\n";

typedef struct text {
    char *at;
    size_t n;
} text;

struct program {
    text source, log;
    image image;
    bool is_compiled;
};

static _Atomic long n_compiles, fail_at;
static _Atomic int fail_code;

/* ---- texts ---- */

static void put_n(text *t, const char *s, size_t n)
{
    t->at = realloc(t->at, t->n + n + 1);
    if (!t->at) abort();
    memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0) put_n(t, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static void drop(text *t)
{
    free(t->at);
    *t = (text){ 0 };
}

/* ---- files ---- */

static bool read_file(const char *path, text *out)
{
    char part[4096];
    size_t n;
    FILE *const f = fopen(path, "r");
    if (!f) return false;
    while ((n = fread(part, 1, sizeof part, f)) > 0) put_n(out, part, n);
    fclose(f);
    return true;
}

static bool write_file(const char *path, const text *t)
{
    FILE *const f = fopen(path, "w");
    const bool good = f && fwrite(t->at, 1, t->n, f) == t->n;
    return (f && fclose(f) == 0) && good;
}

static const char *folder(void)
{
    const char *const named = getenv("DEFT_STANDIN_CACHE");
    const char *const path = named && *named ? named : STANDIN_CACHE;
    mkdir(path, 0777);
    return path;
}

/* A name of this process and call alone. */
static void own_name(char *out, const char *what)
{
    static _Atomic unsigned number;
    snprintf(out, MOST_PATH, "%s/%s.%ld.%u", folder(), what, (long)getpid(),
             atomic_fetch_add(&number, 1));
}

static uint64_t hash(uint64_t h, const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)at[i]) * 0x100000001B3ull;
    return h ^ h >> 29;
}

/* Of the compiler, its flags, shim.h and a text. */
static void put_key(char *out, const char *kind, const char *at, size_t n)
{
    static const char how[] = STANDIN_CXX " " FLAGS;
    text shim = { 0 };
    read_file(STANDIN_SHIM "/shim.h", &shim);
    uint64_t h[2] = { 0xCBF29CE484222325ull, 0x84222325CBF29CE4ull };
    for (int i = 0; i < 2; i++) {
        h[i] = hash(h[i], how, sizeof how);
        h[i] = hash(h[i], shim.at ? shim.at : "", shim.n);
        h[i] = hash(h[i], table_head, sizeof table_head);
        h[i] = hash(h[i], at, n);
    }
    snprintf(out, MOST_PATH, "%s/%s%016llx%016llx", folder(), kind, (unsigned long long)h[0],
             (unsigned long long)h[1]);
    drop(&shim);
}

/* Runs the compiler; what it says goes to log. */
static bool run(text *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool run(text *log, const char *format, ...)
{
    char command[4 * MOST_PATH], words[MOST_PATH];
    own_name(words, "log");
    int n = snprintf(command, sizeof command, "%s ", STANDIN_CXX);
    va_list args;
    va_start(args, format);
    n += vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    snprintf(command + n, sizeof command - (size_t)n, " > '%s' 2>&1", words);
    const bool good = system(command) == 0;
    if (log) read_file(words, log);
    unlink(words);
    return good;
}

/* Where several processes want one file made, one makes it and the others wait. Without a lock (-1)
 * each makes its own. */
static void name_lock(char *out, const char *path)
{
    snprintf(out, MOST_PATH + 16, "%s.lock", path);
}

static int begin_making(const char *path)
{
    char name[MOST_PATH + 16];
    name_lock(name, path);
    const int lock = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (lock >= 0) (void)flock(lock, LOCK_EX);
    return lock;
}

static void end_making(const char *path, int lock)
{
    char name[MOST_PATH + 16];
    name_lock(name, path);
    unlink(name);
    if (lock >= 0) close(lock);
}

/* ---- kernels in a text ---- */

static const char *skip(const char *p)
{
    while (isspace((unsigned char)*p)) p++;
    return p;
}

static bool take(const char **p, const char *word)
{
    const char *const at = skip(*p);
    const size_t n = strlen(word);
    if (strncmp(at, word, n) != 0 || isalnum((unsigned char)at[n]) || at[n] == '_') return false;
    *p = at + n;
    return true;
}

/* `extern "C"` is read; on success a line of the table, and usage for the log, are put. */
static bool take_kernel(const char **p, text *table, text *log, const char *arch)
{
    char name[128];
    size_t n = 0;
    const char *threads = "0"; /* an expression, to the first ',' or ')' */
    bool is_kernel = false;
    for (bool more = true; more;) {
        more = take(p, "void");
        if (take(p, "__global__")) more = is_kernel = true;
        if (take(p, "__launch_bounds__")) {
            more = true;
            threads = skip(*p) + 1;
            *p += strcspn(*p, ")");
            if (**p) ++*p;
        }
    }
    const char *const at = skip(*p);
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    if (!is_kernel || n == 0 || n >= sizeof name || *skip(at + n) != '(') return false;
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    put(table, "ENTRY(%s, %.*s)\n", name, (int)strcspn(threads, ",)"), threads);
    put(log,
        "ptxas info    : Compiling entry function '%s' for '%s'\n"
        "ptxas info    : Function properties for %s\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32 registers, 1024 bytes smem, 400 bytes cmem[0]\n",
        name, arch, name);
    return true;
}

static void find_kernels(const char *p, text *table, text *log, const char *arch)
{
    static const char word[] = "extern \"C\"";
    while ((p = strstr(p, word))) {
        p += sizeof word - 1;
        take_kernel(&p, table, log, arch);
    }
}

/* ---- compiling ---- */

/* The header that is shim.h and the prelude, precompiled. out: its path, without .gch. */
static bool have_prelude(char *out)
{
    char compiled[MOST_PATH + 8], own[MOST_PATH];
    put_key(out, "prelude-", (const char *)prelude_text, PRELUDE);
    strcat(out, ".h");
    snprintf(compiled, sizeof compiled, "%s.gch", out);
    if (access(compiled, R_OK) == 0) return true;
    const int lock = begin_making(compiled);
    bool good = access(compiled, R_OK) == 0;
    if (!good) {
        text t = { 0 };
        own_name(own, "prelude");
        put(&t, "#include \"shim.h\"\n");
        put_n(&t, (const char *)prelude_text, PRELUDE);
        good = write_file(own, &t) && rename(own, out) == 0 &&
               run(NULL, FLAGS " -I'" STANDIN_SHIM "' -x c++-header '%s' -o '%s'", out, own) &&
               rename(own, compiled) == 0;
        drop(&t);
    }
    end_making(compiled, lock);
    return good;
}

/* Texts that define macros are expanded first: a macro may make kernels. */
static bool expand(const text *source, text *out, text *log)
{
    char from[MOST_PATH], to[MOST_PATH];
    own_name(from, "from");
    own_name(to, "to");
    const bool good = write_file(from, source) &&
                      run(log, "-E -P -DDF_SHIM=1 -x c++ '%s' -o '%s'", from, to) &&
                      read_file(to, out);
    unlink(from);
    unlink(to);
    return good;
}

static bool build(const text *body, const text *table, bool has_prelude, text *log,
                  const char *library)
{
    char from[MOST_PATH], to[MOST_PATH], prelude[MOST_PATH];
    text t = { 0 };
    own_name(from, "from");
    own_name(to, "to");
    const bool use = has_prelude && have_prelude(prelude);
    const size_t skipped = use ? PRELUDE : 0;
    put(&t, "#include \"%s\"\n", use ? prelude : "shim.h");
    put_n(&t, body->at + skipped, body->n - skipped);
    put_n(&t, table_head, sizeof table_head - 1);
    if (table->n) put_n(&t, table->at, table->n);
    put_n(&t, table_end, sizeof table_end - 1);
    const bool good =
        write_file(from, &t) &&
        run(log, FLAGS " -I'" STANDIN_SHIM "' -shared -nostdlib -x c++ '%s' -lm -lc -lgcc -o '%s'",
            from, to) &&
        rename(to, library) == 0;
    drop(&t);
    unlink(from);
    unlink(to);
    return good;
}

/* As build, unless the library is there. */
static bool have_library(const text *body, const text *table, bool has_prelude, text *log,
                         const char *library)
{
    if (access(library, R_OK) == 0) return true;
    const int lock = begin_making(library);
    const bool good = access(library, R_OK) == 0 || build(body, table, has_prelude, log, library);
    end_making(library, lock);
    return good;
}

static int32_t number_of(const char *arch)
{
    return (int32_t)strtol(strchr(arch, '_') + 1, NULL, 10);
}

/* arch: "sm_90", "compute_90". */
static int compile(struct program *p, const char *arch)
{
    char library[MOST_PATH];
    text body = { 0 }, table = { 0 }, usage = { 0 };
    const bool has_prelude =
        p->source.n > PRELUDE && memcmp(p->source.at, prelude_text, PRELUDE) == 0;
    const char *const own = p->source.at + (has_prelude ? PRELUDE : 0);
    const bool is_macro = strstr(own, "#define") != NULL;
    int r = 0;
    if (is_macro && !expand(&p->source, &body, &p->log)) r = DOES_NOT_COMPILE;
    if (!is_macro) put_n(&body, p->source.at, p->source.n);
    if (!r) {
        find_kernels(is_macro ? body.at : own, &table, &usage, arch);
        put_key(library, "", p->source.at, p->source.n);
        strcat(library, ".so");
        if (!have_library(&body, &table, has_prelude && !is_macro, &p->log, library))
            r = DOES_NOT_COMPILE;
    }
    if (!r) {
        memcpy(p->image.magic, IMAGE_MAGIC, sizeof p->image.magic);
        p->image.arch = number_of(arch);
        p->image.is_ptx = arch[0] == 'c';
        snprintf(p->image.path, sizeof p->image.path, "%s", library);
        if (usage.n) put_n(&p->log, usage.at, usage.n);
        p->is_compiled = true;
    }
    drop(&body);
    drop(&table);
    drop(&usage);
    return r;
}

/* ---- the library ---- */

static const int known_archs[] = { 75, 80, 86, 87, 89, 90, 100, 103, 120 };
enum { N_ARCHS = sizeof known_archs / sizeof known_archs[0] };

const char *nvrtcGetErrorString(int code)
{
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
    };
    return code >= 0 && code <= DOES_NOT_COMPILE ? names[code] : "NVRTC_ERROR_INTERNAL_ERROR";
}

int nvrtcVersion(int *major, int *minor)
{
    *major = 12;
    *minor = 4;
    return 0;
}

int nvrtcGetNumSupportedArchs(int *n)
{
    *n = N_ARCHS;
    return 0;
}

int nvrtcGetSupportedArchs(int *archs)
{
    memcpy(archs, known_archs, sizeof known_archs);
    return 0;
}

int nvrtcCreateProgram(struct program **out, const char *source, const char *name, int n_headers,
                       const char *const *headers, const char *const *names)
{
    (void)name, (void)headers, (void)names;
    if (n_headers || !source) return BAD_INPUT;
    struct program *const p = calloc(1, sizeof *p);
    if (!p) return NO_MEMORY;
    put_n(&p->source, source, strlen(source));
    *out = p;
    return 0;
}

int nvrtcDestroyProgram(struct program **p)
{
    if (!*p) return BAD_PROGRAM;
    drop(&(*p)->source);
    drop(&(*p)->log);
    free(*p);
    *p = NULL;
    return 0;
}

static const char *arch_of(const char *option)
{
    static const char *const heads[] = { "-arch=sm_", "--gpu-architecture=sm_", "-arch=compute_" };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strncmp(option, heads[i], strlen(heads[i])) == 0) return strchr(option, '=') + 1;
    return NULL;
}

static bool is_known(const char *option)
{
    static const char *const known[] = { "--ptxas-options=-v", "-default-device", "-w",
                                         "--fmad=true",        "--fmad=false",    "--minimal" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(option, known[i]) == 0) return true;
    return false;
}

int nvrtcCompileProgram(struct program *p, int n, const char *const *options)
{
    const char *arch = NULL;
    const long count = atomic_fetch_add(&n_compiles, 1) + 1;
    if (!p) return BAD_PROGRAM;
    if (count == atomic_load(&fail_at)) {
        put(&p->log, "error: fails, as asked\n");
        return atomic_load(&fail_code);
    }
    for (int i = 0; i < n; i++) {
        if (arch_of(options[i]))
            arch = arch_of(options[i]);
        else if (!is_known(options[i]))
            return BAD_OPTION;
    }
    if (!arch) return BAD_OPTION;
    for (int i = 0; i < N_ARCHS; i++)
        if (known_archs[i] == number_of(arch)) return compile(p, arch);
    return BAD_OPTION;
}

int nvrtcGetProgramLogSize(struct program *p, size_t *size)
{
    *size = p->log.n + 1;
    return 0;
}

int nvrtcGetProgramLog(struct program *p, char *out)
{
    memcpy(out, p->log.at ? p->log.at : "", p->log.n + 1);
    return 0;
}

static int get_size(const struct program *p, bool is_ptx, size_t *size)
{
    if (!p->is_compiled || p->image.is_ptx != is_ptx) return BAD_PROGRAM;
    *size = sizeof p->image;
    return 0;
}

static int get(const struct program *p, bool is_ptx, char *out)
{
    if (!p->is_compiled || p->image.is_ptx != is_ptx) return BAD_PROGRAM;
    memcpy(out, &p->image, sizeof p->image);
    return 0;
}

int nvrtcGetCUBINSize(struct program *p, size_t *size)
{
    return get_size(p, false, size);
}

int nvrtcGetCUBIN(struct program *p, char *out)
{
    return get(p, false, out);
}

int nvrtcGetPTXSize(struct program *p, size_t *size)
{
    return get_size(p, true, size);
}

int nvrtcGetPTX(struct program *p, char *out)
{
    return get(p, true, out);
}

/* ---- control ---- */

long standin_nvrtc_count(void)
{
    return atomic_load(&n_compiles);
}

void standin_nvrtc_fail(long n, int code)
{
    atomic_store(&fail_code, code);
    atomic_store(&fail_at, n ? atomic_load(&n_compiles) + n : 0);
}
