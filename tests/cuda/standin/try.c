/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-ins, opened for their tests.
 */
#include "try.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

standin in;
df_driver cu;
nvrtc rtc;
long n_faults;

bool check(bool good, const char *what, const char *file, int line)
{
    if (!good) printf("%s:%d: %s\n", file, line, what);
    n_faults += !good;
    return good;
}

bool try_open(const char *cuda_path, const char *nvrtc_path)
{
    bool good = standin_open(&in, cuda_path);
    if (!good) return false;
    void *const library = dlopen(nvrtc_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return false;
    }
#define FIND_IN(from, to, symbol)                                                                  \
    {                                                                                              \
        void *const p = dlsym(from, #symbol);                                                      \
        memcpy(&to, &p, sizeof p);                                                                 \
        if (!p) printf("no " #symbol "\n");                                                        \
        good &= p != NULL;                                                                         \
    }
#define FIND(field, symbol, parameters) FIND_IN(in.library, cu.field, symbol)
    DF_CU_REQUIRED(FIND)
    DF_CU_OPTIONAL(FIND)
#undef FIND
#define FIND(field, symbol, parameters) FIND_IN(library, rtc.field, symbol)
    NVRTC(FIND)
#undef FIND
    return good;
}

df_cu_ctx start(standin_mode mode)
{
    df_cu_ctx c = NULL;
    in.reset();
    in.when(mode, 1);
    CHECK(cu.init(0) == 0);
    CHECK(cu.ctx_retain(&c, 0) == 0);
    CHECK(cu.ctx_push(c) == 0);
    return c;
}

bool misused(const char *words)
{
    const bool is = strstr(in.misuse(), words) != NULL;
    if (!is) printf("not \"%s\": \"%s\"\n", words, in.misuse());
    in.forgive();
    return is;
}

df_cu_module load(const char *text, char *log, size_t cap)
{
    static const char *const options[] = { "-arch=sm_90", "--ptxas-options=-v", "--fmad=false" };
    static char cubin[4096], words[1 << 16];
    struct program *p = NULL;
    df_cu_module m = NULL;
    size_t size = 0;
    CHECK(rtc.create(&p, text, "t.cu", 0, NULL, NULL) == 0);
    const int r = rtc.compile(p, 3, options);
    if (CHECK(rtc.log_size(p, &size) == 0 && size <= sizeof words)) rtc.log(p, words);
    if (log)
        snprintf(log, cap, "%.1000s", words);
    else if (!CHECK(r == 0))
        printf("%.2000s\n", words);
    if (r == 0 && CHECK(rtc.cubin_size(p, &size) == 0 && size <= sizeof cubin)) {
        CHECK(rtc.cubin(p, cubin) == 0);
        CHECK(cu.module_load(&m, cubin, 0, NULL, NULL) == 0);
    }
    CHECK(rtc.destroy(&p) == 0 && !p);
    return m;
}

df_cu_module load_as(const char *text, bool is_ptx)
{
    const char *const options[] = { is_ptx ? "-arch=compute_90" : "-arch=sm_90" };
    char code[4096];
    struct program *p = NULL;
    df_cu_module m = NULL;
    size_t size = 0;
    CHECK(rtc.create(&p, text, "t.cu", 0, NULL, NULL) == 0 && rtc.compile(p, 1, options) == 0);
    CHECK((is_ptx ? rtc.ptx_size : rtc.cubin_size)(p, &size) == 0 && size <= sizeof code);
    CHECK((is_ptx ? rtc.ptx : rtc.cubin)(p, code) == 0);
    CHECK(cu.module_load(&m, code, 0, NULL, NULL) == 0);
    CHECK(rtc.destroy(&p) == 0);
    return m;
}

int launch(df_cu_fn f, unsigned blocks, unsigned threads, df_cu_stream s, void **params)
{
    return cu.launch(f, blocks, 1, 1, threads, 1, 1, 0, s, params, NULL);
}
