/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a failure's sentence goes. A context owns one and hands it down; compile threads have their
 * own and give it back with the job. No thread-locals.
 */
#ifndef DF_BASE_DIAG_H
#define DF_BASE_DIAG_H

#include "base/compiler.h"
#include "deft/status.h"

#define DF_DIAG_TEXT 512

typedef struct df_diag {
    deft_status status; /* of the sentence in text */
    uint32_t node;      /* one more than the node of the trace that failed as it ran; 0: no node */
    uintptr_t site;     /* the call that made the mistake (base/site.h); 0: not known */
    char text[DF_DIAG_TEXT];
} df_diag;

/* Writes the sentence (cut, never overflowing) and returns status. Node and site are then not
 * known. d may be NULL: the sentence is dropped. */
deft_status df_fail(df_diag *d, deft_status status, const char *fmt, ...) DF_PRINTF(3, 4);

/* Appends to the sentence of an earlier df_fail and returns its status (DEFT_E_INTERNAL when d is
 * NULL and the status therefore lost). */
deft_status df_fail_more(df_diag *d, const char *fmt, ...) DF_PRINTF(2, 3);

/* Out of memory: "<what>: could not get <bytes> bytes". */
deft_status df_fail_mem(df_diag *d, const char *what, size_t bytes);

void df_diag_clear(df_diag *d);

#endif
