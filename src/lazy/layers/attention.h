/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention: between the public call (attention_call.c) and the computation (attention.c).
 */
#ifndef DF_LAZY_ATTENTION_H
#define DF_LAZY_ATTENTION_H

#include "lazy/calls/control.h"

/* What the caller's mask is. */
typedef enum df_mask_kind { DF_MASK_NONE = 0, DF_MASK_VISIBLE = 1, DF_MASK_ADDED = 2 } df_mask_kind;

/* Which keys a query sees, and what its scores are, beyond the tag of the scan. */
typedef struct df_manner {
    df_mask_kind mask;
    bool is_causal;  /* without a tag */
    bool is_at_end;  /* the last query is at the last key; else the first one at the first */
    bool has_window; /* keys as far as the window are not seen */
    bool has_cap;    /* scores are capped */
} df_manner;

/* Records the attention of in. It holds q, which is scaled, k and v, with equal batch axes and
 * dtypes. The mask, the window and the cap come after them, as far as `how` has them. A body must
 * be open. Returns the result, or NULL with the error recorded. Thread of the context. */
deft_tensor *df_attend(deft_ctx *cx, deft_tensor *const *in, size_t n, df_loop_tag tag,
                       const df_manner *how, uintptr_t site);

#endif
