/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares df_body_<op> for every unary, binary and ternary operator. Each is a df_body_fn (op.h).
 * Internal header of this folder.
 */
#ifndef DF_OPS_BODIES_H
#define DF_OPS_BODIES_H

#include "ops/op.h"

#define DECLARE_none(name)
#define DECLARE_leaf DECLARE_none
#define DECLARE_reduce DECLARE_none
#define DECLARE_scan DECLARE_none
#define DECLARE_view DECLARE_none
#define DECLARE_index DECLARE_none
#define DECLARE_update DECLARE_none
#define DECLARE_contract DECLARE_none
#define DECLARE_routine DECLARE_none
#define DECLARE_control DECLARE_none
#define DECLARE_map(name)                                                                          \
    uint32_t df_body_##name(df_emit *e, deft_dtype t, deft_dtype out, const uint32_t src[3],       \
                            uint32_t attr);
#define DECLARE_unary DECLARE_map
#define DECLARE_binary DECLARE_map
#define DECLARE_ternary DECLARE_map

#define OP(name, n_src, class, facets) DECLARE_##class(name)
#include "ops/ops.def"

#undef DECLARE_none
#undef DECLARE_leaf
#undef DECLARE_reduce
#undef DECLARE_scan
#undef DECLARE_view
#undef DECLARE_index
#undef DECLARE_update
#undef DECLARE_contract
#undef DECLARE_routine
#undef DECLARE_control
#undef DECLARE_map
#undef DECLARE_unary
#undef DECLARE_binary
#undef DECLARE_ternary

#endif
