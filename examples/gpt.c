/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a small transformer to go on with a text, one character after the other, and lets it
 * write. language.h has the options.
 */
#include <stdlib.h>
#include <string.h>

#include "language.h"

/* Numbers of characters, in the order of their bytes. */
static bool read_characters(language_text *text, const char *path, int64_t *n_tokens)
{
    size_t size = 0;
    int32_t number[256] = { 0 };
    char *const bytes = language_file(path, &size);
    text->at = malloc((size + 1) * sizeof *text->at);
    text->spelling = malloc(256 * sizeof *text->spelling);
    text->letters = calloc(256, 2);
    const bool ok = bytes && text->at && text->spelling && text->letters;
    for (size_t i = 0; ok && i < size; i++) number[(unsigned char)bytes[i]] = 1;
    for (int b = 0; ok && b < 256; b++) {
        if (!number[b]) continue;
        text->letters[2 * b] = (char)b;
        number[b] = (int32_t)text->n_spellings;
        text->spelling[text->n_spellings++] = &text->letters[2 * b];
    }
    for (size_t i = 0; ok && i < size; i++) text->at[i] = number[(unsigned char)bytes[i]];
    text->n = ok ? (int64_t)size : 0;
    text->first = number['\n'];
    *n_tokens = text->n_spellings;
    free(bytes);
    return ok;
}

int main(int argc, char **argv)
{
    const language characters = {
        .name = "gpt",
        .defaults = { .steps = 400,
                      .batch = 12,
                      .length = 64,
                      .rate = 2e-3,
                      .seed = 1,
                      .n_write = 400,
                      .temperature = 0.8,
                      .net = { .layers = 4, .width = 128, .heads = 4 } },
        .read = read_characters,
    };
    return language_main(&characters, argc, argv);
}
