/* SPDX-License-Identifier: Apache-2.0
 *
 * What printer and parser share: which attributes follow an op, and numbers as text. Private to
 * this folder. The grammar is in docs/trace-format.md.
 */
#ifndef DF_TRACE_TEXT_H
#define DF_TRACE_TEXT_H

#include "trace/trace.h"

typedef enum df_text_form {
    DF_TEXT_none,
    DF_TEXT_input,  /* strides=[..] ordinal=k wrapped sole aligned */
    DF_TEXT_value,  /* a number of the record's dtype: num */
    DF_TEXT_cst,    /* a number: f32 (floats) or i32 */
    DF_TEXT_axis,   /* axis=k */
    DF_TEXT_axes,   /* axes=[..] */
    DF_TEXT_reduce, /* axes=[..] keepdims */
    DF_TEXT_perm,   /* perm=[..] */
    DF_TEXT_slice,  /* start=[..] step=[..] */
    DF_TEXT_pair,   /* axes=[a,b] offset=k: diagonal */
    DF_TEXT_random, /* word=k seed=k draw=k */
    DF_TEXT_power,  /* power=k */
    DF_TEXT_order,  /* descending */
    DF_TEXT_which,  /* zeros */
    DF_TEXT_loop    /* most=k, and what it is said to compute */
} df_text_form;

df_text_form df_text_form_of(df_op op);

/* Floats: [-]0x1.8p+3, [-]inf, nan, nan:0x7fc00001 (a NaN by its bits). Others: decimal. */
void df_text_put_number(df_str *out, deft_dtype t, uint64_t bits);

/* " attention from=f16 causal scaled"; nothing where nothing is said of the loop. */
void df_text_put_loop(df_str *out, uint32_t attr);

/* The n characters at text as a value of t. Floats also take decimal integers. false when they are
 * no number or t cannot hold exactly that number. */
bool df_text_get_number(const char *text, size_t n, deft_dtype t, uint64_t *bits);

#endif
