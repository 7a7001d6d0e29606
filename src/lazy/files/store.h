/* SPDX-License-Identifier: Apache-2.0
 *
 * What a cut is about to run, for looking at elsewhere: a program and the values of its inputs as
 * two files, NAME.trace and NAME.safetensors, for `deft run NAME.trace --inputs=NAME.safetensors`
 * (docs/cli.md). They are whole before this returns: what comes next may overwrite the inputs, or
 * crash.
 */
#ifndef DF_LAZY_STORE_H
#define DF_LAZY_STORE_H

#include "lazy/core/history.h"

typedef struct df_store {
    const df_mem *mem;
    const df_trace *t;
    df_str text, header;
    uint64_t bytes; /* of both files */
} df_store;

/* Lays the files out; t, whose inputs have their memory, must stay. Finish it in any case. */
deft_status df_store_init(df_store *s, df_diag *d, const df_mem *mem, const df_trace *t);
void df_store_finish(df_store *s);

/* Creates and writes them in folder dir, an open directory or AT_FDCWD, with mode 0600. On failure
 * neither is left; a file that is there is one, and stays. No signal comes of a file that may not
 * grow. */
deft_status df_store_write(const df_store *s, df_diag *d, int dir, const char *name);

/* m runs next, and deft_store_next asked for it: stores it. */
deft_status df_store_asked(deft_ctx *cx, const df_cut *m);
void df_store_forget(deft_ctx *cx); /* it is not asked for any more */

#endif
