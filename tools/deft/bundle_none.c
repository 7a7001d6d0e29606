/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of deft bundle, where the tool was built without libarchive.
 */
#include "cli.h"

int cli_bundle(int argc, char **argv)
{
    (void)argc;
    return cli_fail(CLI_BACKEND,
                    "%s: this deft was built without libarchive, which writes archives: install "
                    "libarchive-dev and build it again",
                    argv[0]);
}
