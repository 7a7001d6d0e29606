/* SPDX-License-Identifier: Apache-2.0
 *
 *     secure FOLDER   opens a cache there and prints whether the system raised the rights of this
 *                     process, and whether the cache is used
 */
#include <stdio.h>
#include <sys/auxv.h>

#include "cache/disk.h"

int main(int argc, char **argv)
{
    const df_disk_options o = { .folders = argc > 1 ? argv[1] : "" };
    df_disk *k = df_disk_open(&df_mem_system, NULL, &o);
    printf("%s, %s\n", getauxval(AT_SECURE) ? "raised" : "usual", k ? "open" : "none");
    df_disk_close(&k);
    return 0;
}
