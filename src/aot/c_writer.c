/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines and braces of generated C, and the names of types.
 */
#include <stdarg.h>
#include <stdio.h>

#include "aot/c_gen.h"

/* The room is twice that of the longest line, a load along DF_MAX_AXES axes. */
static void writer_put(df_aot_c *g, const char *end, const char *fmt, va_list args)
{
    char text[768];
    for (uint32_t i = 0; i < g->depth; i++) df_str_put(g->out, "    ");
    const int n = vsnprintf(text, sizeof text, fmt, args);
    df_assert(n >= 0 && (size_t)n < sizeof text);
    df_str_putn(g->out, text, (size_t)n);
    df_str_put(g->out, end);
}

void df_aot_line(df_aot_c *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    writer_put(g, "\n", fmt, args);
    va_end(args);
}

void df_aot_open(df_aot_c *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    writer_put(g, " {\n", fmt, args);
    va_end(args);
    g->depth++;
}

void df_aot_brace(df_aot_c *g)
{
    df_aot_line(g, "{");
    g->depth++;
}

void df_aot_close(df_aot_c *g)
{
    df_assert(g->depth > 0);
    g->depth--;
    df_aot_line(g, "}");
}

const char *df_aot_type(uint8_t dtype)
{
    static const char *const names[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) #cuda,
#include "ops/dtypes.def"
    };
    df_assert(dtype < DF_LEN(names));
    return names[dtype];
}
