/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole files: see out.h.
 */
#include "out.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* Devices, pipes and links are written to: a file in their place would take them away. */
static bool is_in_the_way(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

int out_open(out_file *o, const char *path)
{
    *o = (out_file){ .f = stdout };
    if (!path || strcmp(path, "-") == 0) return CLI_OK;
    if (is_in_the_way(path)) {
        *o = (out_file){ .f = fopen(path, "wb"), .path = path };
        return o->f ? CLI_OK : cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    }
    *o = (out_file){ .path = path, .is_replaced = true };
    if (df_replace_begin(&o->file, &df_mem_system, path, 0600)) {
        const int fd = dup(o->file.fd); /* fclose closes this one */
        o->f = fd >= 0 ? fdopen(fd, "wb") : NULL;
        if (o->f) return CLI_OK;
        if (fd >= 0) (void)close(fd);
    }
    const int code = cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    df_replace_finish(&o->file);
    return code;
}

int out_close(out_file *o, bool is_whole)
{
    int code = CLI_OK;
    if (!o->path) return fflush(stdout) ? cli_fail(CLI_INPUT, "could not write the output") : code;
    const bool was_written = !ferror(o->f);
    if ((fclose(o->f) != 0 || !was_written) && is_whole)
        code = cli_fail(CLI_INPUT, "%s: could not be written: %s", o->path, strerror(errno));
    if (code == CLI_OK && is_whole && o->is_replaced && !df_replace_commit(&o->file))
        code = cli_fail(CLI_INPUT, "%s: %s", o->path, strerror(errno));
    if (o->is_replaced) df_replace_finish(&o->file);
    *o = (out_file){ 0 };
    return code;
}

int out_arguments(int argc, char **argv, const char **log, const char **out)
{
    *log = *out = NULL;
    for (int i = 1; i < argc; i++) {
        if (cli_value(argv[i], "--out", out)) continue;
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            *out = argv[++i];
        else if (argv[i][0] == '-' && argv[i][1])
            return cli_fail(CLI_USAGE, "%s: unknown option %s", argv[0], argv[i]);
        else if (*log)
            return cli_fail(CLI_USAGE, "%s: two logs: %s and %s", argv[0], *log, argv[i]);
        else
            *log = argv[i];
    }
    return *log ? CLI_OK : cli_fail(CLI_USAGE, "%s: which folder or file?", argv[0]);
}
