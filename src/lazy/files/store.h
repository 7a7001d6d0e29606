/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores what a cut is about to run as two files: the program as NAME.trace and the
 * values of its inputs as NAME.safetensors. `deft run NAME.trace
 * --inputs=NAME.safetensors` runs them (docs/cli.md). The files are complete when the
 * call returns, because the run may overwrite the inputs, or crash.
 */
#ifndef DF_LAZY_STORE_H
#define DF_LAZY_STORE_H

#include "lazy/core/history.h"

typedef struct df_store {
    const df_mem *mem; /* borrowed */
    const df_trace *t; /* borrowed */
    df_str text;       /* the content of NAME.trace */
    df_str header;     /* the header of NAME.safetensors */
    uint64_t bytes;    /* size of both files together */
} df_store;

/* Prepares the contents of the files. t must live as long as s, and the host must be able
 * to read its inputs. The caller calls df_store_finish, also after a failure. */
deft_status df_store_init(df_store *s, df_diag *d, const df_mem *mem, const df_trace *t);
void df_store_finish(df_store *s); /* frees the contents */

/* Creates and writes both files in folder dir, an open directory or AT_FDCWD, with mode
 * 0600. On failure neither file is left. A file that exists already is a failure, and
 * stays unchanged. A limit on the size of files raises no signal. */
deft_status df_store_write(const df_store *s, df_diag *d, int dir, const char *name);

/* Stores the files that deft_store_next has asked for, before m runs. cx->store_path must
 * be set. The request ends with this call, also when writing fails. Only when the inputs
 * cannot be copied to the host does the request stay. On failure cx->diag has the
 * sentence. */
deft_status df_store_asked(deft_ctx *cx, const df_cut *m);
/* Cancels the request of deft_store_next, if there is one. */
void df_store_forget(deft_ctx *cx);

#endif
