/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that goes back to the system when nothing is left to compile.
 */
#ifndef DF_JIT_LLVM_GIVE_BACK_H
#define DF_JIT_LLVM_GIVE_BACK_H

/* Removes the pages of libLLVM's code and constants from the memory of the process. The system
 * maps each of them again when it is next used, while other threads are in LLVM, too. Does nothing
 * while a debugger traces the process. Any thread. */
void df_llvm_give_back_pages(void);

/* Returns the free pages of the heap to the system, where libc has a function for this. Any
 * thread. */
void df_llvm_give_back_heap(void);

#endif
