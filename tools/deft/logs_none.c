/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of the commands that read structured logs, where the tool was built without jansson.
 */
#include "cli.h"

static int no_logs(const char *command)
{
    return cli_fail(CLI_BACKEND,
                    "%s: this deft was built without jansson, which reads structured logs: "
                    "install libjansson-dev and build it again",
                    command);
}

int cli_stats(int argc, char **argv)
{
    (void)argc;
    return no_logs(argv[0]);
}

int cli_perfetto(int argc, char **argv)
{
    (void)argc;
    return no_logs(argv[0]);
}

int cli_bundle(int argc, char **argv)
{
    (void)argc;
    return no_logs(argv[0]);
}

int cli_report(int argc, char **argv)
{
    (void)argc;
    return no_logs(argv[0]);
}
