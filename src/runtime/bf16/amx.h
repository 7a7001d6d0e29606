/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: the state of the tiles of AMX in a thread. The system stores it when
 * it switches threads or delivers a signal, unless the tiles are released. So a thread configures
 * them before a task and releases them after it.
 */
#ifndef DF_RUNTIME_AMX_H
#define DF_RUNTIME_AMX_H

/* Configures all eight tiles with 16 rows of 64 bytes. Only after df_matmul_enable_tiles was true,
 * and where the compiler has the intrinsics. */
void df_amx_begin(void);
/* Releases them. */
void df_amx_end(void);

#endif
