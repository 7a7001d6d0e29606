/* SPDX-License-Identifier: Apache-2.0
 *
 * deft doctor: what was found on this machine. deft ops: the table of ops. The doctor changes
 * nothing and never fails: what is missing is a line.
 */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/env.h"
#include "cache/disk.h"
#include "cache/folder.h"
#include "deft/deft.h"
#include "runtime/cpu.h"
#include "runtime/matmul.h"

/* ---- doctor ---- */

/* The first line of path, or of it the first that starts with key; cut at n. */
static bool line_of(const char *path, const char *key, char *out, size_t n)
{
    FILE *const f = fopen(path, "r");
    bool found = false;
    while (f && !found && fgets(out, (int)n, f))
        found = !key || strncmp(out, key, strlen(key)) == 0;
    if (f) fclose(f);
    if (found) out[strcspn(out, "\n")] = '\0';
    return found;
}

static const char *after_colon(const char *line)
{
    const char *const colon = strchr(line, ':');
    return colon ? colon + 1 + strspn(colon + 1, " \t") : line;
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = strstr(list, word); p; p = strstr(p + n, word))
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
    return false;
}

static void show_cpu(FILE *f)
{
    static const char *const known[] = { "sse4_2",   "avx2",     "fma",   "avx512f", "avx512bw",
                                         "avx512dq", "avx512vl", "asimd", "sve" };
    static char line[1 << 14];
    const char *const info = "/proc/cpuinfo";
    fprintf(f, "cpu        %s\n",
            line_of(info, "model name", line, sizeof line) ? after_colon(line) : "unknown");
    if (!line_of(info, "flags", line, sizeof line) && !line_of(info, "Features", line, sizeof line))
        line[0] = '\0';
    fprintf(f, "features  ");
    for (size_t i = 0; i < DF_LEN(known); i++)
        if (has_word(line, known[i])) fprintf(f, " %s", known[i]);
    fprintf(f, "%s\n", line[0] ? "" : " unknown");
}

static void show_compiler(FILE *f)
{
    df_diag d = { 0 };
    df_compiler c = { 0 };
    void *plugin = NULL;
    if (df_plugin_open(&d, &df_mem_system, NULL, NULL, 0, &c, &plugin) == DEFT_OK) {
        fprintf(f, "compiler   %s\n", c.name);
        fprintf(f, "vectors    %u bytes: %u f32\n", c.vector_bytes, c.vector_bytes / 4);
    } else {
        fprintf(f, "compiler   none: kernels are interpreted (%s)\n", d.text);
        fprintf(f, "vectors    as the interpreter was compiled\n");
    }
    df_plugin_close(&c, &plugin);
}

static void show_sites(FILE *f)
{
    df_resolver r;
    if (!df_plugin_sites(df_env("DEFT_PLUGIN_DIR"), &r)) {
        fprintf(f, "sites      as module+offset: no deft-sites.so\n");
        return;
    }
    fprintf(f, "sites      by source line, where there is debug information\n");
    df_resolver_close(&r);
}

static void show_device(FILE *f)
{
    df_diag d = { 0 };
    df_device *dev = NULL;
    const df_cpu_options o = { .tier = DF_TIER_INTERP };
    if (df_cpu_create(&d, &df_mem_system, NULL, &o, &dev) != DEFT_OK) {
        fprintf(f, "device     failed: %s\n", d.text);
        return;
    }
    fprintf(f, "threads    %u\n", dev->limits.n_threads);
    fprintf(f, "caches     L1 %lld KiB, L2 %lld KiB\n", (long long)(dev->limits.l1_bytes >> 10),
            (long long)(dev->limits.l2_bytes >> 10));
    df_cpu_destroy(&dev);
}

/* A folder or pack of compiled code, and whether it is used. */
static void show_layer(FILE *f, const char *path, bool is_first)
{
    char why[DF_FOLDER_WHY];
    bool is_file = false;
    errno = 0;
    const int fd = df_folder_open_layer(path, false, !is_first, &is_file, why);
    if (fd >= 0)
        fprintf(f, "kept code  %s%s\n", path, is_file ? ", a pack" : is_first ? "" : ", only read");
    else if (is_first && errno == ENOENT)
        fprintf(f, "kept code  %s, which is not there yet\n", path);
    else
        fprintf(f, "kept code  none: %s\n", why);
    if (fd >= 0) close(fd);
}

static void show_cache(FILE *f)
{
    df_str list;
    df_str_init(&list, &df_mem_system);
    df_disk_list(NULL, &list);
    if (list.n == 0) fprintf(f, "kept code  none: DEFT_CACHE_DIR is empty, or there is no home\n");
    for (char *at = list.at; at && *at;) {
        char *const path = at;
        at += strcspn(at, ":");
        if (*at) *at++ = '\0';
        if (*path) show_layer(f, path, path == list.at);
    }
    df_str_finish(&list);
}

static void show_blas(FILE *f)
{
    df_diag d = { 0 };
    df_blas *blas = NULL;
    if (df_blas_open(&d, &df_mem_system, &blas) == DEFT_OK)
        fprintf(f, "blas       found: may serve matmuls in fast mode\n");
    else
        fprintf(f, "blas       none: %s\n", d.text);
    df_blas_close(&blas);
}

void cli_doctor_print(FILE *f)
{
    static const char *const variables[] = {
        "DEFT_CACHE_DIR",     "DEFT_LOG",       "DEFT_TIER",         "DEFT_NUM_THREADS",
        "DEFT_PLUGIN_DIR",    "DEFT_TRACE_DIR", "DEFT_TRACE_INPUTS", "DEFT_VARIANTS",
        "DEFT_PERF",          "DEFT_GDB",       "DEFT_STATS",        "DEFT_CUDA_DRIVER",
        "DEFT_CUDA_BLOCKING", "DEFT_NVRTC",     "DEFT_CUBLASLT",     "DEFT_CUDA_TABLE",
        "DEFT_STREAM_BYTES",  "DEFT_LAST_CACHE"
    };
    char line[256];
    fprintf(f, "deft       %s, build %s\n", deft_version(), DF_BUILD_ID);
    show_compiler(f);
    show_sites(f);
    show_cpu(f);
    show_device(f);
    show_blas(f);
    show_cache(f);
    cli_doctor_cuda(f);
    const char *const huge = "/sys/kernel/mm/transparent_hugepage/enabled";
    fprintf(f, "huge pages %s\n", line_of(huge, NULL, line, sizeof line) ? line : "unknown");
    for (size_t i = 0; i < DF_LEN(variables); i++) {
        const char *const value = getenv(variables[i]);
        if (value) fprintf(f, "variable   %s=%s\n", variables[i], value);
    }
}

int cli_doctor(int argc, char **argv)
{
    if (argc > 1) return cli_fail(CLI_USAGE, "doctor: unknown argument %s", argv[1]);
    cli_doctor_print(stdout);
    return CLI_OK;
}

/* ---- ops ---- */

static const char *class_name(uint8_t cls)
{
    static const char *const names[] = {
        "leaf", "unary", "binary", "ternary",  "reduce",  "scan",
        "view", "index", "update", "contract", "routine", "control"
    };
    _Static_assert(DF_LEN(names) == DF_CLASS_control + 1, "a name per class");
    return names[cls];
}

static const char *rule_name(uint8_t rule)
{
    static const char *const names[] = { "any",      "same",    "arith",   "floating", "wide",
                                         "integral", "compare", "boolean", "test",     "cast",
                                         "bits",     "select",  "index",   "scatter",  "to index",
                                         "count",    "free",    "but last" };
    _Static_assert(DF_LEN(names) == DF_DTYPE_but_last + 1, "a name per rule");
    return names[rule];
}

int cli_ops(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--json") == 0) return cli_ops_json();
    if (argc > 1) return cli_fail(CLI_USAGE, "ops: unknown argument %s", argv[1]);
    printf("%-12s %-9s %-8s %-9s %s\n", "op", "class", "operands", "dtypes", "meaning");
    for (int i = 0; i < DF_N_OPS; i++) {
        const df_op_info *const op = &df_op_infos[i];
        printf("%-12s %-9s %-8u %-9s %s\n", op->name, class_name(op->cls), (unsigned)op->n_src,
               rule_name(op->dtype_rule), op->doc);
    }
    return CLI_OK;
}
