/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared libraries with an exported program: how they are checked and opened. Headers of exported
 * programs contain this text (src/aot/header.c), so it is C and C++, and includes nothing of deft.
 *
 * A library has an ELF note of the name "deft" and the type DEFT_EXPORTED_NOTE. Its contents are a
 * deft_exported_note, and behind it two texts: the signature of the program and its levels of
 * processors. The note is read from the file, and the file is compared with it, before the library
 * is opened. So no code of a file that is refused ever runs.
 *
 * `check` is a sum of all words of the file but itself. Every change of one word changes the sum.
 * It finds damage, not attacks: a library is trusted as a program is.
 */
#ifndef DEFT_EXPORTED_OPENER
#define DEFT_EXPORTED_OPENER

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFT_EXPORTED_FORMAT = 1,        /* the version of the note, and of the calls of a library */
    DEFT_EXPORTED_NOTE = 0x74666564, /* its type */
    DEFT_EXPORTED_FILE = 6,          /* returned: the file cannot be read, or is damaged */
    DEFT_EXPORTED_VERSION = 7,       /* returned: a library of another version */
    DEFT_EXPORTED_SIGNATURE = 8      /* returned: a library of another program */
};

typedef struct deft_exported_note {
    uint32_t version, n_signature, n_levels, unused;
    uint64_t file_bytes;
    uint64_t check; /* begins at a multiple of 8 bytes in the file */
} deft_exported_note;

/* Adds a word to the sum. */
static inline uint64_t deft_exported_add(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ sum >> 32;
}

/* Reads n bytes at the offset `at`. Returns 0 when the file has no such bytes. */
static inline int deft_exported_read(FILE *f, uint64_t at, void *out, size_t n)
{
    if (at > (uint64_t)INT64_MAX / 2 || fseek(f, (long)at, SEEK_SET) != 0) return 0;
    return fread(out, 1, n, f) == n;
}

/* Finds the note. *at: where its contents begin. Returns 0 when the file has none. */
static inline int deft_exported_find(FILE *f, deft_exported_note *note, uint64_t *at)
{
    unsigned char head[64], part[56], name[8];
    uint64_t table, size;
    uint32_t type, words[3];
    uint16_t n, i;
    if (!deft_exported_read(f, 0, head, sizeof head)) return 0;
    if (memcmp(head, "\177ELF\2\1\1", 7) != 0) return 0;
    memcpy(&table, head + 32, sizeof table);
    memcpy(&n, head + 56, sizeof n);
    for (i = 0; i < n; i++) {
        if (!deft_exported_read(f, table + 56 * (uint64_t)i, part, sizeof part)) return 0;
        memcpy(&type, part, sizeof type);
        memcpy(at, part + 8, sizeof *at);
        memcpy(&size, part + 32, sizeof size);
        if (type != 4 /* PT_NOTE */ || size < 20 + sizeof *note) continue;
        if (!deft_exported_read(f, *at, words, sizeof words)) continue;
        if (!deft_exported_read(f, *at + 12, name, sizeof name)) continue;
        if (words[0] != 5 || words[2] != DEFT_EXPORTED_NOTE || memcmp(name, "deft", 5) != 0)
            continue;
        *at += 20;
        return deft_exported_read(f, *at, note, sizeof *note);
    }
    return 0;
}

/* Reads the whole file. Returns 0 when it is not the one that the note describes. */
static inline int deft_exported_is_complete(FILE *f, const deft_exported_note *note, uint64_t at)
{
    const uint64_t skipped = at + offsetof(deft_exported_note, check);
    unsigned char block[8192];
    uint64_t sum = 0, begin = 0, word;
    size_t n, i;
    if (fseek(f, 0, SEEK_SET) != 0) return 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        for (i = 0; i + 8 <= n; i += 8) {
            memcpy(&word, block + i, sizeof word);
            if (begin + i != skipped) sum = deft_exported_add(sum, word);
        }
        begin += n;
    }
    return begin == note->file_bytes && begin % 8 == 0 && sum == note->check;
}

/* Where a text of the file differs from `text`, copies the line of the file to `found` and that of
 * the text to `wanted`, each of n bytes. Returns 0 then. */
static inline int deft_exported_same(FILE *f, uint64_t at, uint32_t n_stored, const char *text,
                                     char *found, char *wanted, size_t n)
{
    const size_t n_text = strlen(text);
    size_t line = 0, i, k;
    int c;
    found[0] = wanted[0] = '\0';
    if (fseek(f, (long)at, SEEK_SET) != 0) return 0;
    for (i = 0; i <= n_text || i <= n_stored; i++) {
        c = i < n_stored ? fgetc(f) : 0;
        if (c == (i < n_text ? (unsigned char)text[i] : 0)) {
            if (c == '\n') line = i + 1;
            continue;
        }
        for (k = 0; line + k < n_text && text[line + k] != '\n' && k + 1 < n; k++)
            wanted[k] = text[line + k];
        wanted[k] = '\0';
        if (line < n_stored && fseek(f, (long)(at + line), SEEK_SET) == 0) {
            for (k = 0; line + k < n_stored && k + 1 < n; k++) {
                if ((c = fgetc(f)) < ' ' || c > '~') break;
                found[k] = (char)c;
            }
            found[k] = '\0';
        }
        return 0;
    }
    return 1;
}

/* Checks a library. signature NULL: that of any program. Returns 0, or one of the numbers above
 * with a sentence of at most n bytes. */
static inline int deft_exported_examine(FILE *f, const char *path, const char *signature,
                                        deft_exported_note *note, uint64_t *at, char *sentence,
                                        size_t n)
{
    char found[80], wanted[80];
    if (!deft_exported_find(f, note, at)) {
        (void)snprintf(sentence, n, "%s is no library with an exported program", path);
        return DEFT_EXPORTED_FILE;
    }
    if (note->version != DEFT_EXPORTED_FORMAT) {
        (void)snprintf(sentence, n, "%s has version %u of the format, and %d is needed", path,
                       note->version, (int)DEFT_EXPORTED_FORMAT);
        return DEFT_EXPORTED_VERSION;
    }
    if (!deft_exported_is_complete(f, note, *at)) {
        (void)snprintf(sentence, n, "%s is damaged: it is not the file that was written", path);
        return DEFT_EXPORTED_FILE;
    }
    if (signature && !deft_exported_same(f, *at + sizeof *note, note->n_signature, signature, found,
                                         wanted, sizeof found)) {
        (void)snprintf(sentence, n, "%s is another program: it has '%s' where '%s' is needed", path,
                       found, wanted);
        return DEFT_EXPORTED_SIGNATURE;
    }
    return 0;
}

/* Opens a library that was checked, and finds its two functions. */
static inline int deft_exported_load(const char *path, const char *const names[2],
                                     void *functions[2], void **handle, char *sentence, size_t n)
{
    char here[4096];
    int i;
    if (strlen(path) + 3 > sizeof here) {
        (void)snprintf(sentence, n, "the path of a library has more than %d bytes",
                       (int)sizeof here);
        return DEFT_EXPORTED_FILE;
    }
    /* The system looks elsewhere for names without a '/'. */
    (void)snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    *handle = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    for (i = 0; *handle && i < 2; i++)
        if (!(functions[i] = dlsym(*handle, names[i]))) break;
    if (*handle && i == 2) return 0;
    {
        const char *const why = dlerror();
        (void)snprintf(sentence, n, "%s cannot be opened: %s", path, why ? why : "no reason");
    }
    if (*handle) (void)dlclose(*handle);
    *handle = NULL;
    return DEFT_EXPORTED_FILE;
}

/* Checks a library and opens it. Returns 0, or a number with a sentence. */
static inline int deft_exported_open(const char *path, const char *signature,
                                     const char *const names[2], void *functions[2], void **handle,
                                     char *sentence, size_t n)
{
    deft_exported_note note;
    uint64_t at;
    FILE *const f = fopen(path, "rb");
    *handle = NULL;
    if (n > 0) sentence[0] = '\0';
    if (!f) {
        (void)snprintf(sentence, n, "%s cannot be read", path);
        return DEFT_EXPORTED_FILE;
    }
    const int st = deft_exported_examine(f, path, signature, &note, &at, sentence, n);
    (void)fclose(f);
    return st ? st : deft_exported_load(path, names, functions, handle, sentence, n);
}

#endif
