/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes. Every acting call returns one; the sentence that explains it is in
 * deft_message(). Codes are never renumbered.
 */
#ifndef DEFT_STATUS_H
#define DEFT_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DEFT_API __attribute__((visibility("default")))
#define DEFT_MUST_CHECK __attribute__((warn_unused_result))
#else
#define DEFT_API
#define DEFT_MUST_CHECK
#endif

/* Marks a parameter or result whose ownership moves. Expands to nothing. */
#define DEFT_OWN

#ifdef __cplusplus
extern "C" {
#endif

typedef enum deft_status {
    DEFT_OK = 0,
    DEFT_E_ARG = 1,          /* an argument has no meaning here: NULL, bad flag, bad size */
    DEFT_E_SHAPE = 2,        /* shapes do not fit together */
    DEFT_E_DTYPE = 3,        /* the op has no rule for these dtypes */
    DEFT_E_RANGE = 4,        /* an axis, index, bound or number lies outside what is allowed */
    DEFT_E_STATE = 5,        /* a handle whose scope has ended, two contexts, a call out of order */
    DEFT_E_MEMORY = 6,       /* memory could not be had */
    DEFT_E_LIMIT = 7,        /* a configured bound was reached */
    DEFT_E_COMPILE = 8,      /* the compiler refused a kernel and no slower path was allowed */
    DEFT_E_BACKEND = 9,      /* a plug-in, driver or device is missing or failed */
    DEFT_E_INTERRUPTED = 10, /* deft_interrupt() was called */
    DEFT_E_NOT_FOUND = 11,   /* no such file or name */
    DEFT_E_IO = 12,          /* the system failed to read or write */
    DEFT_E_FORMAT = 13,      /* a file or text is not what it claims to be */
    DEFT_E_INTERNAL = 14,    /* a fault of deft itself: please report it */
    DEFT_E_NAN = 15          /* a value is NaN, and was asked not to be */
} deft_status;

/* A constant, static sentence for a code ("shapes do not fit together"). Any thread. */
DEFT_API const char *deft_status_text(deft_status status);

#ifdef __cplusplus
}
#endif
#endif
