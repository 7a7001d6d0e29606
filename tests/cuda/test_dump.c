/* SPDX-License-Identifier: Apache-2.0
 *
 * DEFT_CUDA_DUMP: what is compiled is written as it is, once, and what cannot be written stops
 * nothing.
 *
 *   test_dump LIBNVRTC-STANDIN
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit_cuda/driver/module.h"
#include "holds.h"

static char folder[] = "/tmp/deft-dump-XXXXXX", told[256];

static void hear(void *user, const char *topic, const char *text)
{
    (void)user;
    if (strcmp(topic, "error") == 0) snprintf(told, sizeof told, "%s", text);
}

/* How many files there are; one of them in `path`. */
static int count(char path[600])
{
    int n = 0;
    DIR *const d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, 600, "%s/%s", folder, e->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

static void compile(const df_cuda_compiler *c, const char *text)
{
    df_diag d = { 0 };
    df_cubin code = { 0 };
    const deft_status st = df_cuda_build(c, &d, text, false, &code);
    if (st != DEFT_OK) printf("%s\n", d.text);
    EXPECT(st == DEFT_OK);
    df_cubin_finish(c->nvrtc, &code);
}

static bool holds(const char *path, const char *text)
{
    char got[512] = "";
    FILE *const f = fopen(path, "r");
    const size_t n = f ? fread(got, 1, sizeof got - 1, f) : 0;
    if (f) fclose(f);
    return n == strlen(text) && strcmp(got, text) == 0;
}

int main(int argc, char **argv)
{
    static const char one[] = "extern \"C\" __global__ void k(int *p) { *p = 1; }\n",
                      two[] = "extern \"C\" __global__ void k(int *p) { *p = 2; }\n";
    char path[600] = "";
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    df_log log;
    if (argc != 2 || !mkdtemp(folder)) return 2;
    df_log_init(&log, "error", hear, NULL);
    if (df_nvrtc_open(&d, &df_mem_system, argv[1], &nv) != DEFT_OK) return 2;
    const df_cuda_compiler c = { &df_mem_system, nv, &log, 90 };
    unsetenv("DEFT_CUDA_DUMP");
    compile(&c, one);
    setenv("DEFT_CUDA_DUMP", "", 1);
    compile(&c, one);
    EXPECT(count(path) == 0);
    setenv("DEFT_CUDA_DUMP", folder, 1);
    compile(&c, one);
    EXPECT(count(path) == 1 && holds(path, one) && strstr(path, ".cu"));
    compile(&c, one);
    EXPECT(count(path) == 1 && told[0] == 0);
    compile(&c, two);
    EXPECT(count(path) == 2);
    setenv("DEFT_CUDA_DUMP", "/nowhere/at/all", 1);
    compile(&c, one);
    EXPECT(strstr(told, "DEFT_CUDA_DUMP: /nowhere/at/all/") && strstr(told, "No such file"));
    while (count(path) > 0) unlink(path);
    rmdir(folder);
    df_nvrtc_close(&nv);
    return n_faults == 0 ? 0 : 1;
}
