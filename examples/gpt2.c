/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains GPT-2 (Radford et al. 2019) from a random start: 12 layers, 768 wide, 50,257 tokens, tied
 * head, 124,439,808 parameters. language.h has the options; the defaults are a few steps that show
 * it learns (a step is seconds on two cores and needs 3 GB).
 *
 * Tokens are words. GPT-2's own pairs of bytes were learnt from a text that is not here, so each
 * different word of the text at hand, with the blank before it, is a token, and so is each other
 * character; the first 50,256 of them. What comes after that is token 0. Rows of the table that
 * the text does not use stay: sizes and cost are GPT-2's.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "language.h"

/* Different tokens found by what they spell: open addressing. */
typedef struct words {
    language_text *text;
    int32_t *table; /* token, or 0: free */
    size_t mask;
    int64_t most; /* tokens */
    size_t used;  /* of letters */
} words;

/* The bytes of the token that begins at s: a word with the blank before it, or one character. */
static size_t token_size(const char *s)
{
    const size_t blank = *s == ' ' && isalpha((unsigned char)s[1]);
    size_t n = blank;
    while (isalpha((unsigned char)s[n])) n++;
    return n ? n : 1;
}

static int32_t number_of(words *w, const char *s, size_t size)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    size_t slot = (size_t)(h ^ h >> 32) & w->mask;
    for (; w->table[slot]; slot = (slot + 1) & w->mask) {
        const char *const known = w->text->spelling[w->table[slot]];
        if (!strncmp(known, s, size) && !known[size]) return w->table[slot];
    }
    if (w->text->n_spellings == w->most) return 0;
    char *const to = w->text->letters + w->used;
    memcpy(to, s, size);
    to[size] = 0;
    w->used += size + 1;
    w->text->spelling[w->text->n_spellings] = to;
    return w->table[slot] = (int32_t)w->text->n_spellings++;
}

static bool read_words(language_text *text, const char *path, int64_t *n_tokens)
{
    size_t size = 0;
    char *const bytes = language_file(path, &size);
    words w = { .text = text, .most = *n_tokens, .mask = 1023 };
    while (w.mask < 2 * (size_t)w.most) w.mask = 2 * w.mask + 1;
    w.table = calloc(w.mask + 1, sizeof *w.table);
    text->at = malloc((size + 1) * sizeof *text->at);
    text->spelling = malloc((size_t)w.most * sizeof *text->spelling);
    text->letters = malloc(2 * size + 2);
    const bool ok = bytes && w.table && text->at && text->spelling && text->letters;
    if (ok) text->spelling[text->n_spellings++] = "?";
    for (size_t i = 0, n; ok && i < size; i += n) {
        n = token_size(bytes + i);
        text->at[text->n++] = number_of(&w, bytes + i, n);
    }
    if (ok) text->first = number_of(&w, "\n", 1);
    for (int64_t k = text->n_spellings; ok && k < w.most; k++) text->spelling[k] = "?";
    free(w.table);
    free(bytes);
    return ok;
}

int main(int argc, char **argv)
{
    const language gpt2 = {
        .name = "gpt2",
        .defaults = { .steps = 8,
                      .batch = 4,
                      .length = 64,
                      .rate = 6e-4,
                      .seed = 1,
                      .n_write = 12,
                      .temperature = 0.8,
                      .net = transformer_gpt2() },
        .read = read_words,
    };
    return language_main(&gpt2, argc, argv);
}
