/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/aot: the code and the tables of an exported program, before they are an ELF file.
 *
 *   text     the exported functions, the runtime part, the kernels of each level
 *   rodata   the arrays of the image, and linked values
 *   tables   the image itself, and tables of addresses
 *   (bss)    8 bytes: the level that this processor takes
 *
 * Relocations name symbols of this header. Those of text are R_X86_64_PC32 to an address in the
 * tables, and R_X86_64_PLT32 to a memory function. Those of the tables are R_X86_64_64.
 */
#ifndef DF_AOT_CODE_H
#define DF_AOT_CODE_H

#include <string.h>

#include "aot/program.h"
#include "runtime/code/callees.h"

/* Sections, then the symbols of objects, in this order. */
enum { SYM_NONE, SYM_TEXT, SYM_RODATA, SYM_TABLES, SYM_BSS, SYM_FIRST_GLOBAL };
enum { SYM_RUN = SYM_FIRST_GLOBAL, SYM_WORKSPACE, SYM_MEMCPY, SYM_MEMMOVE, SYM_MEMSET, N_SYMBOLS };

enum { CODE_BSS_BYTES = 8 };

/* Where an exported function is in the text. */
typedef struct code_function {
    int64_t at, size;
} code_function;

/* NAME, NAME_workspace_bytes, and those that take all their arguments as one array. */
enum { CODE_FUNCTIONS = 4 };
#define CODE_CALL "deft_exported_call"
#define CODE_CALL_WORKSPACE "deft_exported_workspace_bytes"

typedef struct code_writer {
    program *p;
    df_diag *d;
    deft_status st;
    df_str text, rodata, tables, rela_text, rela_tables;
    const char *levels;         /* with ',' between them */
    int64_t math[DF_N_CALLEES]; /* where a function of libm is in the text; -1: not yet */
    int64_t run, workspace;     /* of the runtime part */
    int64_t routine;            /* of it; -1: the program has no routines */
    int64_t image;              /* in the tables */
    code_function function[CODE_FUNCTIONS];
} code_writer;

static inline void code_align(df_str *s, size_t to, char with)
{
    while (s->ok && s->n % to != 0) df_str_putc(s, with);
}

static inline void code_put_word(df_str *s, int64_t word, size_t bytes)
{
    df_str_putn(s, (const char *)&word, bytes);
}

/* Appends a name to the names of a file. Returns where it begins among them. */
static inline uint32_t code_put_name(df_str *names, const char *name)
{
    const uint32_t at = (uint32_t)names->n;
    df_str_putn(names, name, strlen(name) + 1);
    return at;
}

/* Appends a relocatable object. */
deft_status object_file_write(const code_writer *w, df_str *out);

/* Appends a shared library with a note (runtime/exported.h). It needs no other library: memory
 * functions are those of the program that opens it. out must be empty. */
deft_status shared_file_write(const code_writer *w, df_str *out);

#endif
