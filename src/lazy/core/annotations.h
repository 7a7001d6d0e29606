/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of gradient marks, which goes with the records (annotations.c).
 */
#ifndef DF_LAZY_ANNOTATIONS_H
#define DF_LAZY_ANNOTATIONS_H

#include "lazy/core/lazy.h"

typedef struct df_custom {
    struct df_custom *next;
    deft_backward_fn backward;
    void *user;
    uint32_t n_in, n_out;
    const struct df_custom *batch_of; /* what this is for many examples of; NULL: nothing */
    df_map_each_fn map_each;          /* with batch_of: runs a function for each example */
    bool is_ours;      /* its functions are deft's: what they record belongs to the call's site */
    bool may_work;     /* each runs once: in no loop, branch or vmap, and not for one either */
    uint32_t record[]; /* n_in records, then n_out */
} df_custom;

/* Adds m to the list. false, with the error recorded, when there is no memory. */
bool df_grad_annotation_add(deft_ctx *cx, df_grad_annotation m);
/* deft_cond has recorded its first branch from `then` on, the other from `otherwise` to now; the
 * conds follow. false: an error. */
bool df_grad_annotate_branches(deft_ctx *cx, uint32_t record, uint32_t then, uint32_t otherwise);
/* The branches that cond k chooses between. */
const df_grad_annotation *df_grad_branches(const deft_ctx *cx, uint32_t k);
/* Record i becomes map[i], or goes: DF_NONE; of i records below[i] stay. Before they move. */
void df_grad_annotations_renumber(deft_ctx *cx, const uint32_t *map, const uint32_t *below);
/* The custom function of which record k is a result; NULL: none. */
const df_custom *df_grad_custom_of(const deft_ctx *cx, uint32_t k);

#endif
