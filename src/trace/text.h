/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the text form that the printer and the parser share: which attributes follow an
 * operator, and numbers as text. Internal header of this folder. docs/trace-format.md has the
 * grammar.
 */
#ifndef DF_TRACE_TEXT_H
#define DF_TRACE_TEXT_H

#include "trace/trace.h"

/* The attributes that follow the operands of a node. */
typedef enum df_text_form {
    DF_TEXT_none,
    DF_TEXT_input,  /* strides=[..] ordinal=k wrapped sole aligned */
    DF_TEXT_value,  /* a number of the node's dtype (operator num) */
    DF_TEXT_cst,    /* a number: f32 when the node's dtype is a float, else i32 */
    DF_TEXT_axis,   /* axis=k */
    DF_TEXT_axes,   /* axes=[..] */
    DF_TEXT_reduce, /* axes=[..] keepdims */
    DF_TEXT_perm,   /* perm=[..] */
    DF_TEXT_slice,  /* start=[..] step=[..] */
    DF_TEXT_pair,   /* axes=[a,b] offset=k (operator diagonal) */
    DF_TEXT_random, /* word=k seed=k draw=k */
    DF_TEXT_power,  /* power=k */
    DF_TEXT_order,  /* descending; operator topk: first=k */
    DF_TEXT_which,  /* zeros */
    DF_TEXT_loop,   /* most=k, then the loop's tag (df_text_put_loop) */
    DF_TEXT_call,   /* name@version results=k attributes=hex, where these are not 1 and none */
    DF_TEXT_index   /* index=k */
} df_text_form;

/* The form of the attributes of an operator. */
df_text_form df_text_form_of(df_op op);

/* Appends a number of dtype t, given by its bits. Floats are written as [-]0x1.8p+3, [-]inf, nan or
 * nan:0x7fc00001 (a NaN by its bits), all other numbers in decimal. */
void df_text_put_number(df_str *out, deft_dtype t, uint64_t bits);

/* Appends the tag that the attr of a loop contains, which names the computation of the loop:
 * " attention from=f16 causal scaled". Appends nothing for a loop without a tag. */
void df_text_put_loop(df_str *out, uint32_t attr);

/* Reads the n characters at text as a number of dtype t and stores its bits. Floats may also be
 * decimal integers. Returns false when the text is no number, or when t cannot hold the number
 * exactly. */
bool df_text_get_number(const char *text, size_t n, deft_dtype t, uint64_t *bits);

#endif
