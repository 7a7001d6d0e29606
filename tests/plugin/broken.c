/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of plug-ins that are not whole: each prefix of a good one, and each with a flipped bit in
 * its headers. What is cut off must be refused; what passes must not end the process that opens it,
 * which is a child here.
 *
 * usage: plugin_broken FOLDER [STEP]   every STEP-th length and bit
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/elf_file.h"

static unsigned n_cases, n_refused, n_opened, n_wrong;
static char path[] = "/tmp/deft-broken-XXXXXX";

static void put(const char *data, size_t n)
{
    FILE *const f = fopen(path, "w");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) exit(2);
}

/* Opens the file in a child; false: that ended by a signal. */
static bool opens_or_fails(void)
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &no_core);
        _exit(dlopen(path, RTLD_NOW | RTLD_LOCAL) ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status);
}

static void check(const char *data, size_t n, bool must_refuse, const char *what, size_t at)
{
    char why[300] = "";
    put(data, n);
    n_cases++;
    if (!df_elf_file_check(path, why, sizeof why)) {
        n_refused++;
        if (strncmp(why, path, strlen(path)) == 0 && strlen(why) > strlen(path) + 4) return;
        printf("wrong: %s %zu: refused with \"%s\"\n", what, at, why);
    } else {
        n_opened++;
        if (!must_refuse && opens_or_fails()) return;
        printf("wrong: %s %zu: %s\n", what, at, must_refuse ? "not refused" : "ended by a signal");
    }
    n_wrong++;
}

int main(int argc, char **argv)
{
    static char data[8 << 20];
    char from[4096];
    const size_t step = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    snprintf(from, sizeof from, "%s/deft-llvm.so", argc > 1 ? argv[1] : ".");
    FILE *const f = fopen(from, "r");
    const size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    const int fd = mkstemp(path);
    if (!f || n < sizeof(ElfW(Ehdr)) || n == sizeof data || fd < 0 || step == 0) return 2;
    fclose(f);
    close(fd);
    check(data, n, false, "whole", n);
    if (n_refused) printf("wrong: the whole file is refused\n");
    n_wrong += n_refused;

    ElfW(Ehdr) head;
    memcpy(&head, data, sizeof head);
    const size_t n_heads = head.e_phoff + head.e_phnum * sizeof(ElfW(Phdr));
    for (size_t at = 0; at < n_heads && at < n; at += step) check(data, at, true, "cut at", at);
    for (size_t at = n_heads; at < n; at += 997 * step) check(data, at, true, "cut at", at);
    check(data, n - 1, true, "cut at", n - 1);
    for (size_t bit = 0; bit < n_heads * 8; bit += step) {
        data[bit / 8] ^= (char)(1 << bit % 8);
        check(data, n, false, "flipped bit", bit);
        data[bit / 8] ^= (char)(1 << bit % 8);
    }
    unlink(path);
    printf("%u files: %u refused, %u passed, %u wrong\n", n_cases, n_refused, n_opened, n_wrong);
    return n_wrong != 0;
}
