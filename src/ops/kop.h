/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel op enumeration and its facts. See kops.def.
 */
#ifndef DF_OPS_KOP_H
#define DF_OPS_KOP_H

#include "base/compiler.h"
#include "deft/dtype.h"

typedef enum df_kop {
#define KOP(name, n_src, kind) DF_K_##name,
#include "ops/kops.def"
    DF_N_KOPS
} df_kop;

typedef enum df_kop_kind {
    DF_KOP_leaf,
    DF_KOP_memory,
    DF_KOP_map,
    DF_KOP_reduce,
    DF_KOP_scan,
    DF_KOP_loop
} df_kop_kind;

/* imm of a cast from f32 to a half that holds the value: nothing is to be rounded. */
enum { DF_CAST_EXACT = 1 };

typedef struct df_kop_info {
    const char *name;
    uint8_t n_src;
    uint8_t kind; /* df_kop_kind */
} df_kop_info;

extern const df_kop_info df_kop_infos[DF_N_KOPS];

#endif
