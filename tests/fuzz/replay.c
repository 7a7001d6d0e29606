/* SPDX-License-Identifier: Apache-2.0
 *
 * replay FOLDER: calls a fuzz target with each file of the folder, under any compiler.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

const bool fuzz_all_ways = true;

static int replay(const char *folder, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const f = fopen(path, "rb");
    uint8_t *bytes = malloc(1 << 20);
    if (!f || !bytes) return 1;
    const size_t n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    /* Exactly as large as the file, so that a sanitizer sees reading past its end. */
    bytes = realloc(bytes, n + !n);
    printf("%s\n", name);
    fflush(stdout);
    const int code = bytes ? LLVMFuzzerTestOneInput(bytes, n) : 1;
    free(bytes);
    return code;
}

int main(int argc, char **argv)
{
    struct dirent **names = NULL;
    int code = 0, n_files = 0;
    const int n = argc == 2 ? scandir(argv[1], &names, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.' && code == 0)
            code = replay(argv[1], names[i]->d_name), n_files++;
        free(names[i]);
    }
    free(names);
    if (n_files == 0) fprintf(stderr, "replay: which folder?\n");
    return n_files == 0 || code != 0;
}
