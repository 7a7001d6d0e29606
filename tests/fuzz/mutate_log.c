/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes inputs of the log target so that most remain logs: lines of log_schema.def are put in,
 * repeated and left out, and fields get other values. Each second time libFuzzer changes bytes.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed);

enum { MOST = 4096 };

typedef enum kind { KIND_int, KIND_bool, KIND_string, KIND_site, KIND_plan, KIND_list } kind;

typedef struct field {
    const char *name;
    kind kind;
    bool may_be_null;
} field;

#define F(kind, name) { #name, KIND_##kind, false },
#define N(kind, name) { #name, KIND_##kind, true },
#define LINE(type, list) static const field fields_of_##type[] = { list{ NULL, KIND_int, false } };
#include "log_schema.def"
#undef LINE
#undef F
#undef N

static const struct {
    const char *name;
    const field *fields;
} types[] = {
#define LINE(type, list) { #type, fields_of_##type },
#include "log_schema.def"
#undef LINE
};

static const char *const numbers[] = {
    "0", "1", "2", "3", "7", "100", "1000000", "4611686018427387904", "9223372036854775807",
};
static const char *const texts[] = {
    "\"ok\"",
    "\"</script><script>x()\"",
    "\"\\u001b[2J\"",
    "\"a\\nb\"",
    "\"\\u009b\xc3\xa9\\u2028\"",
    "\"\\ud83d\\ude00\\u007f\"",
    "\"\"",
    "\"trace v1\\n\"",
    "\"sync\"",
    "\"x \\\\ \\\" ' & <!--\"",
};
static const char *const sites[] = {
    "\"a.c:1 (f)\"", "\"a.c:1 (f) in <b>\"", "\"a.c:2 (g) in x / y\"", "\"b.c:3 in z\"", "null",
};
static const char *const plans[] = { "\"1.1\"", "\"1.2\"", "\"2.1\"", "null" };
static const char *const lists[] = {
    "[]",
    "[null,\"a.c:1 (f)\",7]",
    "[{\"kernels\":[{\"kernel\":\"k\",\"site\":\"a.c:1 (f)\"}],\"launches\":[[{\"kind\":\"kernel\","
    "\"kernel\":0,\"records\":[0,1]}]],\"buffers\":[{\"kind\":\"t\",\"bytes\":8,\"index\":0,"
    "\"first\":0,\"last\":0}]}]",
};

/* ---- chance ---- */

static uint64_t state;

static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

static const char *value(kind k)
{
    switch (k) {
    case KIND_int: return numbers[below(DF_LEN(numbers))];
    case KIND_bool: return below(2) ? "true" : "false";
    case KIND_string: return texts[below(DF_LEN(texts))];
    case KIND_site: return sites[below(DF_LEN(sites))];
    case KIND_plan: return plans[below(DF_LEN(plans))];
    case KIND_list: return lists[below(DF_LEN(lists))];
    }
    df_unreachable();
}

/* A line of some type with about half of its fields. Bytes of it. */
static size_t make_line(char out[MOST])
{
    const size_t type = below(DF_LEN(types));
    size_t n = (size_t)snprintf(out, MOST, "{\"type\":\"%s\",\"t_ns\":%s,\"context\":%s",
                                types[type].name, value(KIND_int), value(KIND_int));
    for (const field *f = types[type].fields; f->name && n + 500 < MOST; f++) {
        if (below(2)) continue;
        const char *const v = f->may_be_null && below(4) == 0 ? "null" : value(f->kind);
        n += (size_t)snprintf(out + n, MOST - n, ",\"%s\":%s", f->name, v);
    }
    return n + (size_t)snprintf(out + n, MOST - n, "}\n");
}

/* ---- changes ---- */

/* Puts n_new bytes in place of n_old at at; n as it was when there is no room. */
static size_t replace(uint8_t *bytes, size_t n, size_t room, size_t at, size_t n_old,
                      const void *text, size_t n_new)
{
    if (n - n_old + n_new > room) return n;
    memmove(bytes + at + n_new, bytes + at + n_old, n - at - n_old);
    memcpy(bytes + at, text, n_new);
    return n - n_old + n_new;
}

/* Where the line that holds a byte begins, and where the next one does. */
static size_t some_line(const uint8_t *bytes, size_t n, size_t *line_end)
{
    size_t at = n ? below(n) : 0, last = at;
    while (at > 0 && bytes[at - 1] != '\n') at--;
    while (last < n && bytes[last] != '\n') last++;
    *line_end = last < n ? last + 1 : n;
    return at;
}

static size_t change_value(uint8_t *bytes, size_t n, size_t room)
{
    const uint8_t *const colon = n ? memchr(bytes, ':', n) : NULL;
    if (!colon) return n;
    size_t at = below(n);
    while (bytes[at] != ':') at = (at + 1) % n;
    size_t last = ++at;
    while (last < n && bytes[last] != ',' && bytes[last] != '}' && bytes[last] != '\n') last++;
    const char *const v = value((kind)below(KIND_list + 1));
    return replace(bytes, n, room, at, last - at, v, strlen(v));
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed)
{
    char text[MOST];
    size_t end;
    state = seed;
    const size_t way = below(8), at = some_line(bytes, n, &end);
    if (way == 0 || way == 1) return replace(bytes, n, room, at, 0, text, make_line(text));
    if (way == 2) return change_value(bytes, n, room);
    if (way == 3 && below(2)) return replace(bytes, n, room, at, end - at, "", 0);
    if (way == 3) {
        const size_t n_line = end - at < MOST ? end - at : MOST;
        memcpy(text, bytes + at, n_line);
        const size_t to = some_line(bytes, n, &end);
        return replace(bytes, n, room, to, 0, text, n_line);
    }
    return LLVMFuzzerMutate(bytes, n, room);
}
