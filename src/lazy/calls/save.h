/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls that write files share.
 */
#ifndef DF_LAZY_SAVE_H
#define DF_LAZY_SAVE_H

#include "lazy/core/lazy.h"
#include "lazy/files/writer.h"

/* Checks that the list holds n usable tensors of cx with names, for the acting call `what`. */
deft_status df_check_named(deft_ctx *cx, const char *what, const char *path, const deft_named *list,
                           size_t n);
/* Writes the elements of v in row-major order, wherever they are. */
deft_status df_write_value(deft_ctx *cx, df_writer *w, df_value *v);

#endif
