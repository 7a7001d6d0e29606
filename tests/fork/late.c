/* SPDX-License-Identifier: Apache-2.0
 *
 * LLVM is loaded when there is something to compile, and not before. A library that is missing,
 * cut off or of another version is no failure: kernels are interpreted, deft_runtime_compiler and
 * one line of the log say why, and nothing counts as a kernel that failed. Many threads that ask at
 * once get one start. A child that is forked while LLVM is loaded computes and may load libraries.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deft/deft.h"

static int n_wrong;

static void check(bool ok, const char *what)
{
    if (!ok) printf("wrong: %s\n", what);
    n_wrong += !ok;
}

static bool is_mapped(const char *library)
{
    char line[4400];
    bool found = false;
    FILE *const f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, library) != NULL;
    if (f) fclose(f);
    return found;
}

/* ---- a program ---- */

typedef struct program {
    deft_runtime *rt;
    deft_ctx *cx;
    atomic_int n_refusals, n_errors; /* lines of the log */
} program;

static void hear(void *user, const char *topic, const char *line)
{
    program *const p = user;
    if (strncmp(line, "no compiler, kernels are interpreted: ", 38) == 0) p->n_refusals++;
    if (strcmp(topic, "error") == 0) p->n_errors++;
}

static bool open_program(program *p, deft_tier tier)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = tier,
                                     .log = "plugin,error",
                                     .log_hook = hear,
                                     .log_user = p };
    *p = (program){ 0 };
    return deft_runtime_create(&o, &p->rt) == DEFT_OK &&
           deft_ctx_create(p->rt, NULL, &p->cx) == DEFT_OK;
}

static void close_program(program *p)
{
    deft_ctx_destroy(&p->cx);
    deft_runtime_destroy(&p->rt);
}

static bool computes(deft_ctx *cx)
{
    const float v[4] = { 1.5f, -3, 2, -0.5f };
    float out[4] = { 0 };
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(4), DEFT_F32, v, sizeof v);
    return deft_read(deft_add(deft_abs(x), x), DEFT_F32, out, sizeof out) == DEFT_OK &&
           out[0] == 3 && out[1] == 0 && out[2] == 4 && out[3] == 0;
}

static bool multiplies(deft_ctx *cx)
{
    const float v[4] = { 1, 2, 3, 4 };
    float out[4] = { 0 };
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(2, 2), DEFT_F32, v, sizeof v);
    return deft_read(deft_matmul(x, x), DEFT_F32, out, sizeof out) == DEFT_OK && out[0] == 7 &&
           out[1] == 10 && out[2] == 15 && out[3] == 22;
}

static void *ask_name(void *user)
{
    return (void *)(uintptr_t)deft_runtime_compiler(((program *)user)->rt);
}

/* ---- when it is loaded ---- */

static void loaded_when_wanted(deft_tier tier)
{
    program p;
    check(open_program(&p, tier), "a program begins");
    const float v[4] = { 1, 2, 3, 4 };
    float out[4] = { 0 };
    deft_tensor *const x = deft_from(p.cx, DEFT_SHAPE(4), DEFT_F32, v, sizeof v);
    check(deft_read(x, DEFT_F32, out, sizeof out) == DEFT_OK && out[3] == 4, "a value is read");
    check(is_mapped("deft-llvm.so"), "the plug-in is loaded with the runtime");
    check(!is_mapped("libLLVM"), "LLVM is not loaded before something is to be compiled");
    check(!is_mapped("deft-llvm-code.so"), "nor what needs it");
    check(computes(p.cx), "the values are right");
    deft_runtime_settle(p.rt);
    check(is_mapped("libLLVM"), "a kernel that is compiled loads LLVM");
    check(strncmp(deft_runtime_compiler(p.rt), "llvm ", 5) == 0, "the compiler has its name");
    check(p.n_refusals == 0 && p.n_errors == 0, "the log has no failure");
    close_program(&p);
}

static void loaded_by_its_name(void)
{
    program p;
    check(open_program(&p, DEFT_TIER_AUTO), "a program begins");
    check(strncmp(deft_runtime_compiler(p.rt), "llvm ", 5) == 0, "the name is LLVM's");
    check(is_mapped("libLLVM"), "its name loads it");
    close_program(&p);
}

static void never_loaded(void)
{
    program p;
    check(open_program(&p, DEFT_TIER_INTERPRET), "a program begins");
    check(computes(p.cx), "the values are right");
    deft_runtime_settle(p.rt);
    check(!is_mapped("libLLVM"), "an interpreting program loads no LLVM");
    close_program(&p);
}

static program shared;
static atomic_int n_right;

static void *ask(void *user)
{
    deft_ctx *cx = NULL;
    (void)user;
    const char *const name = deft_runtime_compiler(shared.rt);
    if (deft_ctx_create(shared.rt, NULL, &cx) != DEFT_OK) return NULL;
    n_right += computes(cx) && multiplies(cx) && strncmp(name, "llvm ", 5) == 0;
    deft_ctx_destroy(&cx);
    return NULL;
}

static void many_at_once(void)
{
    enum { N = 6 };
    pthread_t thread[N];
    int n = 0;
    check(open_program(&shared, DEFT_TIER_FULL), "a program begins");
    for (; n < N && pthread_create(&thread[n], NULL, ask, NULL) == 0; n++) {
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    check(n == N && n_right == N, "threads that ask at once get one compiler");
    close_program(&shared);
}

/* ---- without ---- */

/* named: what the reason has in it. */
static void refused(deft_tier tier, const char *named)
{
    program p;
    pthread_t t;
    void *name = NULL;
    check(open_program(&p, tier), "a program begins without LLVM");
    check(computes(p.cx) && multiplies(p.cx), "the values are right without LLVM");
    deft_runtime_settle(p.rt);
    check(computes(p.cx) && multiplies(p.cx), "and again");
    check(strncmp(deft_runtime_compiler(p.rt), "interpreter: no code generator: ", 32) == 0,
          "deft_runtime_compiler says why");
    check(pthread_create(&t, NULL, ask_name, &p) == 0 && pthread_join(t, &name) == 0 &&
              name == (const void *)deft_runtime_compiler(p.rt),
          "one text for all threads");
    check(strstr(deft_runtime_compiler(p.rt), named) != NULL, "and names what is not there");
    check(p.n_refusals == 1, "one line of the log says why");
    check(p.n_errors == 0, "no kernel failed");
    char why[4096];
    (void)deft_explain(p.cx, why, sizeof why);
    check(strstr(why, "no code generator") == NULL, "nor does deft_explain say so");
    check(!is_mapped("libLLVM"), "LLVM is not loaded");
    check(dlopen("libresolv.so.2", RTLD_NOW) != NULL, "other libraries can be loaded");
    close_program(&p);
}

/* The first most bytes of a file; in them each word `from` becomes `to`, which is as long. */
typedef struct change {
    size_t most;
    const char *from, *to; /* NULL: none */
} change;

static bool copy(const char *from, const char *to, change c)
{
    FILE *const in = fopen(from, "r"), *const out = fopen(to, "w");
    bool ok = in && out && fseek(in, 0, SEEK_END) == 0;
    const long end = ok ? ftell(in) : 0;
    size_t n = end > 0 ? (size_t)end : 0;
    char *const data = malloc(n + 1);
    ok = ok && data && fseek(in, 0, SEEK_SET) == 0 && fread(data, 1, n, in) == n;
    if (n > c.most) n = c.most;
    const size_t length = c.from ? strlen(c.from) : 0;
    for (size_t i = 0; ok && c.from && i + length < n; i++)
        if (memcmp(data + i, c.from, length) == 0) memcpy(data + i, c.to, length);
    ok = ok && fwrite(data, 1, n, out) == n;
    free(data);
    if (in) fclose(in);
    return (out ? fclose(out) == 0 : false) && ok;
}

/* A folder with the plug-in and a changed copy of the library that needs LLVM; most is 0: without
 * that. */
static void without(change c, const char *named)
{
    char folder[] = "/tmp/deft-late-XXXXXX", from[4096], to[2][64];
    char before[4096];
    const change whole = { SIZE_MAX, NULL, NULL };
    const char *const listed = getenv("DEFT_PLUGIN_DIR");
    const int n = listed ? (int)strcspn(listed, ":") : 0;
    snprintf(before, sizeof before, "%s", listed ? listed : "");
    if (!mkdtemp(folder)) exit(2);
    snprintf(from, sizeof from, "%.*s/deft-llvm.so", n, before);
    snprintf(to[0], sizeof to[0], "%s/deft-llvm.so", folder);
    snprintf(to[1], sizeof to[1], "%s/deft-llvm-code.so", folder);
    if (!copy(from, to[0], whole)) exit(2);
    snprintf(from, sizeof from, "%.*s/deft-llvm-code.so", n, before);
    if (c.most && !copy(from, to[1], c)) exit(2);
    setenv("DEFT_PLUGIN_DIR", folder, 1);
    refused(DEFT_TIER_AUTO, named);
    refused(DEFT_TIER_FULL, named);
    unlink(to[0]);
    unlink(to[1]);
    rmdir(folder);
}

static void missing(void)
{
    without((change){ 0, NULL, NULL }, "deft-llvm-code.so");
}

static void cut_off(void)
{
    without((change){ 3000, NULL, NULL }, "deft-llvm-code.so");
}

/* What the loader has mapped by the time it finds these it takes out again, marks of the first
 * constructor among them. */
static void without_llvm(void)
{
    without((change){ SIZE_MAX, "libLLVM", "libXXXX" }, "libXXXX");
}

static void without_a_symbol(void)
{
    without((change){ SIZE_MAX, "LLVMContextCreate", "LLVMContextCreatX" }, "LLVMContextCreatX");
}

/* ---- forks ---- */

/* The address sanitizer's own malloc stays locked in a child when another thread was in it. */
#ifdef __SANITIZE_ADDRESS__
static const bool forks_meanwhile = false;
#else
static const bool forks_meanwhile = true;
#endif

/* Forks again and again while another thread loads LLVM. Each child computes with a runtime of its
 * own, and loads a library. */
static void forked_meanwhile(void)
{
    enum { N = 12 };
    program p;
    pthread_t t;
    check(open_program(&p, DEFT_TIER_AUTO), "a program begins");
    check(pthread_create(&t, NULL, ask_name, &p) == 0, "a thread loads LLVM");
    for (int i = 0; i < N; i++) {
        int status = -1;
        if (i < 4) (void)poll(NULL, 0, i);
        const pid_t pid = fork();
        if (pid == 0) {
            program own;
            (void)alarm(30);
            const bool ok = dlopen("libm.so.6", RTLD_NOW) && open_program(&own, DEFT_TIER_FULL) &&
                            computes(own.cx) && multiplies(own.cx);
            _exit(ok ? 42 : 1);
        }
        check(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
                  WEXITSTATUS(status) == 42,
              "a child that was forked meanwhile computes");
    }
    void *name = NULL;
    check(pthread_join(t, &name) == 0 && strncmp(name, "llvm ", 5) == 0, "it was loaded");
    check(computes(p.cx), "the values are right");
    close_program(&p);
}

/* ---- all ---- */

static void lazily(void)
{
    loaded_when_wanted(DEFT_TIER_AUTO);
}

static void waiting(void)
{
    loaded_when_wanted(DEFT_TIER_FULL);
}

/* Each in a process of its own: what is loaded stays. */
static void run(const char *name, void (*test)(void))
{
    int status = -1;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(120);
        test();
        fflush(stdout);
        _exit(n_wrong ? 1 : 0);
    }
    const bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    printf("%s: %s\n", name, ok ? "as it should be" : "wrong");
    n_wrong += !ok;
}

int main(void)
{
    char file[4096];
    const char *const listed = getenv("DEFT_PLUGIN_DIR");
    snprintf(file, sizeof file, "%.*s/deft-llvm-code.so", listed ? (int)strcspn(listed, ":") : 0,
             listed ? listed : "");
    if (access(file, R_OK) != 0) return 77;
    run("loaded when wanted", lazily);
    run("loaded when wanted, waiting", waiting);
    run("loaded by its name", loaded_by_its_name);
    run("never loaded", never_loaded);
    run("many at once", many_at_once);
    run("missing", missing);
    run("cut off", cut_off);
    run("without LLVM", without_llvm);
    run("without a symbol", without_a_symbol);
    /* A child of qemu that was forked beside other threads ends with a failed assert of qemu. */
    if (forks_meanwhile && !getenv("MESON_EXE_WRAPPER")) run("forked meanwhile", forked_meanwhile);
    return n_wrong != 0;
}
