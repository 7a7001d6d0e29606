/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns of Arrow: a list of levels is read from the bytes, each with its format, numbers and what
 * is missing. The column is imported, or refused with a sentence and left to the caller. Buffers
 * have room for what a level says; levels that say more are cut.
 */
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "fuzz.h"
#include "source.h"

enum { LEVELS = 10, ROOM = 1 << 20, TEXT = 32 };

static void must(bool ok)
{
    if (!ok) abort();
}

typedef struct level {
    struct ArrowSchema schema, *schemas[1];
    struct ArrowArray array, *arrays[1];
    const void *buffers[2];
    char format[TEXT];
} level;

static int n_released;
static unsigned char room[ROOM];

static void release_schema(struct ArrowSchema *s)
{
    n_released++;
    s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
    n_released++;
    a->release = NULL;
}

/* A small number, or one from the ends. Lengths that are read stay small. */
static int64_t number(source *s)
{
    const unsigned v = next(s);
    if (v == 255) return INT64_MAX;
    if (v == 254) return -1;
    if (v == 253) return INT64_MIN;
    return v % 16;
}

static void fill(level *l, source *s)
{
    const unsigned what = next(s), n = next(s) % (TEXT - 1);
    for (unsigned i = 0; i < n; i++) l->format[i] = (char)next(s);
    /* the size of a list is small, or so large that the shape overflows */
    if (!strncmp(l->format, "+w:", 3) && strspn(l->format + 3, "0123456789") < 20) {
        l->format[3] = (char)('0' + (unsigned char)l->format[3] % 3);
        l->format[4] = '\0';
    }
    l->buffers[0] = what & 1 ? room : NULL;
    l->buffers[1] = what & 2 ? NULL : room;
    l->schemas[0] = what & 4 ? NULL : &l[1].schema;
    l->arrays[0] = what & 8 ? NULL : &l[1].array;
    const unsigned form = next(s);
    l->schema = (struct ArrowSchema){ .format = what & 16 ? NULL : l->format,
                                      .n_children = form & 1,
                                      .children = l->schemas,
                                      .release = release_schema };
    l->array = (struct ArrowArray){ .length = number(s),
                                    .null_count = number(s),
                                    .offset = number(s),
                                    .n_buffers = form >> 1 & 3,
                                    .n_children = form >> 3 & 1,
                                    .buffers = form & 64 ? NULL : l->buffers,
                                    .children = l->arrays,
                                    .release = release_array };
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static deft_ctx *cx;
    static level levels[LEVELS + 1];
    source s = { bytes, n };
    if (!cx) {
        deft_runtime *rt = NULL;
        const deft_runtime_options o = { .size = sizeof o,
                                         .n_threads = 1,
                                         .tier = DEFT_TIER_INTERPRET };
        must(deft_runtime_create(&o, &rt) == DEFT_OK && deft_ctx_create(rt, NULL, &cx) == DEFT_OK);
        deft_runtime_destroy(&rt);
    }
    memset(levels, 0, sizeof levels);
    for (int i = 0; i < LEVELS; i++) fill(&levels[i], &s);
    n_released = 0;
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *valid = NULL;
    deft_tensor *const t =
        deft_from_arrow(cx, &levels[0].schema, &levels[0].array, n % 2 ? &valid : NULL);
    if (t) {
        must(!levels[0].schema.release && !levels[0].array.release);
        must(deft_rank(t) >= 1 && deft_numel(t) >= 0);
        if (valid) must(deft_numel(valid) == deft_numel(t));
    } else {
        must(n_released == 0 && deft_error(cx) != DEFT_OK && deft_message(cx)[0]);
        deft_clear(cx);
    }
    must(deft_scope_end(scope) == DEFT_OK);
    must(n_released == (t ? 2 : 0));
    return 0;
}
