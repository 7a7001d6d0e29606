/* SPDX-License-Identifier: Apache-2.0
 *
 * The storage for the sentence of a failure. A context owns one df_diag and passes it down to the
 * functions that it calls. Compiler threads have their own and return it with the job. There are no
 * thread-local variables.
 */
#ifndef DF_BASE_DIAG_H
#define DF_BASE_DIAG_H

#include "base/compiler.h"
#include "deft/status.h"

#define DF_DIAG_TEXT 512

typedef struct df_diag {
    deft_status status; /* of the failure in text */
    uint32_t node;      /* index + 1 of the node of the trace that failed in a run; 0: none */
    uintptr_t site;     /* call site of the mistake (base/site.h); 0: not known */
    char text[DF_DIAG_TEXT];
} df_diag;

/* Writes a sentence, truncated to fit, and returns status. Sets node and site to 0. With d NULL,
 * only returns status. An argument may be the old text of d. */
deft_status df_fail(df_diag *d, deft_status status, const char *fmt, ...) DF_PRINTF(3, 4);

/* Appends to the sentence of an earlier df_fail and returns its status. With d NULL the status is
 * not known, and the function returns DEFT_E_INTERNAL. */
deft_status df_fail_more(df_diag *d, const char *fmt, ...) DF_PRINTF(2, 3);

/* Writes "<what>: could not get <bytes> bytes" and returns DEFT_E_MEMORY. */
deft_status df_fail_mem(df_diag *d, const char *what, size_t bytes);
/* Whether a verifier found no defect. DEFT_E_MEMORY counts too: the verifier could not finish. */
DF_INLINE bool df_verify_passed(deft_status st)
{
    return st == DEFT_OK || st == DEFT_E_MEMORY;
}

/* Sets status to DEFT_OK and removes the sentence, node and site. */
void df_diag_clear(df_diag *d);

#endif
