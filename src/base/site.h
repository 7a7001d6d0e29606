/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites as text. A call site is a return address: it lies just behind the call, so that
 * "addr2line -e module offset-1" names the line.
 */
#ifndef DF_BASE_SITE_H
#define DF_BASE_SITE_H

#include "base/compiler.h"

#define DF_SITE_TEXT 160

/* "heat+0x1f3", and where the dynamic symbol table has a name for it, as in libraries and programs
 * linked with -rdynamic, "sim.so+0x1f3 (advance+0x21)". "the start" for 0. Written into buf, which
 * is returned. */
const char *df_site_text(uintptr_t site, char *buf, size_t n);

#endif
