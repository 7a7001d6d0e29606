/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of a report: what embed.py made of page.html, with the data in its middle. Data is JSON
 * in a block that no browser runs: all but ASCII and every '<' is escaped, so that no text in it
 * can end the block. The page puts it in place as text, never as markup.
 */
#include "parts.h"

#include <string.h>

#include "report_page.h"

typedef struct sink {
    FILE *f;
} sink;

static int put(const char *text, size_t n, void *user)
{
    FILE *const f = ((sink *)user)->f;
    for (size_t i = 0; i < n;) {
        const char *const bad = memchr(text + i, '<', n - i);
        const size_t part = bad ? (size_t)(bad - text) - i : n - i;
        if (fwrite(text + i, 1, part, f) != part) return -1;
        if (bad && fputs("\\u003c", f) < 0) return -1;
        i += part + (bad != NULL);
    }
    return 0;
}

bool report_write_data(FILE *f, const json_t *data)
{
    sink s = { f };
    return json_dump_callback(data, put, &s, JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
}

bool report_write_page(FILE *f, const json_t *data)
{
    return fwrite(report_page_head, 1, sizeof report_page_head, f) == sizeof report_page_head &&
           report_write_data(f, data) &&
           fwrite(report_page_tail, 1, sizeof report_page_tail, f) == sizeof report_page_tail &&
           fflush(f) == 0 && !ferror(f);
}
