/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries and folders of disk.h.
 *
 * A file is a head, the value, and the code of the key. The head says how long both are, and has
 * the hash of all that follows the hash. Numbers are in the order of the machine: entries of
 * another kind of machine have another key.
 *
 * Keys are long, and most of their bytes are 0. The code of a key begins with its length. For each
 * 8 bytes of the key, a byte of bits says which of them are not 0, and these follow. Different keys
 * have different codes. So codes are compared, and none is ever decoded. Files of version 1 have
 * the key itself; a key of their build is not looked for any more.
 */
#include "cache/disk.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/env.h"
#include "base/hash.h"
#include "cache/folder.h"
#include "cache/pack.h"

enum { MAX_FOLDERS = 8 };

#define MAGIC "deftkept"
#define VERSION 2
#define MAX_BYTES ((uint64_t)512 << 20)
#define MAX_DAYS 60

typedef struct head {
    char magic[8];
    df_hash hash; /* of all bytes behind it */
    uint64_t version, n_key, n_value;
} head;
_Static_assert(sizeof(head) == 48, "a format of files");

#define HASHED offsetof(head, version)

/* A folder, or a pack, which is only read. */
typedef struct layer {
    int folder;    /* when pack is NULL */
    df_pack *pack; /* owned */
} layer;

struct df_disk {
    const df_mem *mem;
    const df_log *log;
    layer layers[MAX_FOLDERS]; /* open ones; the first one may be written to when `writes` */
    uint32_t n_layers;
    bool first_is_own; /* layers[0] is the first of the options, and a folder */
    df_folder_limits limits;
    atomic_bool writes, told_damage;
    _Atomic uint64_t hits, misses, damaged, added, removed;
    _Atomic uint64_t unswept; /* bytes that were written since the last sweep */
};

/* ---- folders ---- */

void df_disk_list(const char *asked, df_str *out)
{
    const char *const folders = asked ? asked : df_env("DEFT_CACHE_DIR");
    const char *const caches = df_env("XDG_CACHE_HOME"), *const home = df_env("HOME");
    if (folders)
        df_str_put(out, folders);
    else if (caches && *caches == '/') /* the standard ignores relative paths */
        df_str_fmt(out, "%s/deft", caches);
    else if (home && *home == '/')
        df_str_fmt(out, "%s/.cache/deft", home);
}

static void add_layer(df_disk *k, const char *path, bool is_first)
{
    char why[DF_FOLDER_WHY];
    layer l = { 0 };
    bool is_file = false;
    l.folder = df_folder_open_layer(path, is_first, !is_first, &is_file, why);
    if (l.folder < 0) {
        df_logf(k->log, cache, "no code is kept in %s", why);
        return;
    }
    if (is_file && !(l.pack = df_pack_open(k->mem, l.folder))) {
        df_logf(k->log, cache, "no code is read from %s: it is damaged or no pack", path);
        return;
    }
    if (is_first) k->first_is_own = !is_file;
    k->layers[k->n_layers++] = l;
}

df_disk *df_disk_open(const df_mem *mem, const df_log *log, const df_disk_options *o)
{
    if (getauxval(AT_SECURE)) return NULL;
    df_disk *k = df_mem_zalloc(mem, sizeof *k);
    if (!k) return NULL;
    k->mem = mem;
    k->log = log;
    k->limits = (df_folder_limits){ .max_bytes = o->max_bytes ? o->max_bytes : MAX_BYTES,
                                    .max_days = o->max_days ? o->max_days : MAX_DAYS };
    df_str list;
    df_str_init(&list, mem);
    df_disk_list(o->folders, &list);
    bool is_first = true;
    for (char *at = list.at; at && *at && k->n_layers < MAX_FOLDERS; is_first = false) {
        char *const path = at;
        at += strcspn(at, ":");
        if (*at) *at++ = '\0';
        if (*path) add_layer(k, path, is_first);
    }
    df_str_finish(&list);
    atomic_store(&k->writes, k->first_is_own);
    if (k->n_layers == 0) df_disk_close(&k);
    return k;
}

void df_disk_close(df_disk **out)
{
    df_disk *const k = *out;
    *out = NULL;
    if (!k) return;
    for (uint32_t i = 0; i < k->n_layers; i++) {
        if (!k->layers[i].pack) close(k->layers[i].folder);
        df_pack_close(&k->layers[i].pack);
    }
    df_mem_free(k->mem, k, sizeof *k);
}

/* ---- keys ---- */

/* The code of a key. */
typedef struct key_code {
    unsigned char *at;
    size_t n, size; /* bytes of the code; bytes that were allocated */
} key_code;

/* Returns false when memory runs out. */
static bool code_key(const df_mem *mem, const void *key, size_t n, key_code *out)
{
    const unsigned char *const from = key;
    const uint64_t length = n;
    out->size = sizeof length + n + n / 8 + 1;
    out->at = df_mem_alloc(mem, out->size);
    if (!out->at) return false;
    memcpy(out->at, &length, sizeof length);
    unsigned char *to = out->at + sizeof length;
    for (size_t i = 0; i < n; i += 8) {
        const size_t in_word = n - i < 8 ? n - i : 8;
        unsigned char *const mask = to++;
        unsigned bits = 0;
        for (size_t k = 0; k < in_word; k++) {
            const unsigned is_set = from[i + k] != 0;
            *to = from[i + k];
            to += is_set;
            bits |= is_set << k;
        }
        *mask = (unsigned char)bits;
    }
    out->n = (size_t)(to - out->at);
    df_assert(out->n <= out->size);
    return true;
}

static void free_code(const df_mem *mem, key_code *c)
{
    df_mem_free(mem, c->at, c->size);
}

/* ---- entries ---- */

/* The name of the file for a key: its hash, in hex. */
static void name_entry(char name[DF_FOLDER_NAME], const void *key, size_t n)
{
    const df_hash h = df_hash_bytes(key, n);
    (void)snprintf(name, DF_FOLDER_NAME, "%016llx%016llx", (unsigned long long)h.hi,
                   (unsigned long long)h.lo);
}

/* Whether the n bytes of a file are an entry that was written in full. */
static bool read_head(const char *file, size_t n, head *h)
{
    if (n < sizeof *h) return false;
    memcpy(h, file, sizeof *h);
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->version < 1 || h->version > VERSION)
        return false;
    const size_t rest = n - sizeof *h;
    if (h->n_key > rest || h->n_value != rest - h->n_key) return false;
    return df_hash_equal(h->hash, df_hash_bytes(file + HASHED, n - HASHED));
}

bool df_disk_is_entry(const void *file, size_t n)
{
    head h;
    return read_head(file, n, &h);
}

static void note_damage(df_disk *k, const char *name)
{
    atomic_fetch_add(&k->damaged, 1);
    if (!atomic_exchange(&k->told_damage, true))
        df_logf(k->log, cache, "the entry %s is damaged or cannot be read, and counts as missing",
                name);
}

/* Copies the value out of the file, when the file is an entry for the key. */
static bool take_value(df_disk *k, const char *name, const char *file, size_t n_file,
                       const key_code *key, void **value, size_t *n)
{
    head h;
    if (!read_head(file, n_file, &h)) {
        note_damage(k, name);
        return false;
    }
    if (h.version != VERSION || h.n_key != key->n ||
        memcmp(file + n_file - key->n, key->at, key->n) != 0)
        return false;
    const size_t n_value = n_file - sizeof h - key->n; /* as the head says */
    void *const copy = df_mem_alloc(k->mem, n_value ? n_value : 1);
    if (!copy) return false;
    memcpy(copy, file + sizeof h, n_value);
    *value = copy;
    *n = n_value;
    return true;
}

bool df_disk_find(df_disk *k, const void *key, size_t n_key, void **value, size_t *n)
{
    char name[DF_FOLDER_NAME];
    bool found = false;
    key_code code;
    name_entry(name, key, n_key);
    if (!code_key(k->mem, key, n_key, &code)) return false;
    for (uint32_t i = 0; i < k->n_layers && !found; i++) {
        const layer *const l = &k->layers[i];
        void *file = NULL;
        size_t n_file = 0;
        const bool is_own = i == 0 && k->first_is_own;
        const df_folder_result r =
            l->pack ? df_pack_read(l->pack, name, &file, &n_file)
                    : df_folder_read(k->mem, l->folder, name, !is_own, is_own, &file, &n_file);
        if (r == DF_FOLDER_REFUSED) note_damage(k, name);
        if (r != DF_FOLDER_OK) continue;
        found = take_value(k, name, file, n_file, &code, value, n);
        df_mem_free(k->mem, file, n_file);
    }
    free_code(k->mem, &code);
    atomic_fetch_add(found ? &k->hits : &k->misses, 1);
    return found;
}

/* Sweeps the folder once a day, and when this process has written much. */
static void sweep_at_times(df_disk *k, uint64_t written)
{
    const uint64_t before = atomic_fetch_add(&k->unswept, written);
    const uint64_t much = k->limits.max_bytes / 8;
    const bool is_first = before == 0, has_much = before < much && before + written >= much;
    if (has_much || (is_first && !df_folder_is_swept(k->layers[0].folder))) {
        atomic_store(&k->unswept, 1);
        atomic_fetch_add(&k->removed, df_folder_sweep(k->mem, k->layers[0].folder, &k->limits));
    }
}

/* Writes a file of `size` bytes, which has room for the value and the code. */
static void write_entry(df_disk *k, const char *name, const key_code *key, const void *value,
                        size_t n, char *file, size_t size)
{
    int error = 0;
    head h = { .magic = MAGIC, .version = VERSION, .n_key = key->n, .n_value = n };
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, value, n);
    memcpy(file + sizeof h + n, key->at, key->n);
    h.hash = df_hash_bytes(file + HASHED, size - HASHED);
    memcpy(file, &h, sizeof h);
    if (df_folder_write(k->layers[0].folder, name, file, size, &error)) {
        atomic_fetch_add(&k->added, 1);
        sweep_at_times(k, size);
    } else if (atomic_exchange(&k->writes, false)) {
        df_logf(k->log, cache, "no more code is kept: writing failed: %s", strerror(error));
    }
}

void df_disk_add(df_disk *k, const void *key, size_t n_key, const void *value, size_t n)
{
    char name[DF_FOLDER_NAME];
    key_code code;
    if (!atomic_load_explicit(&k->writes, memory_order_relaxed) || n_key > DF_FOLDER_MAX_FILE ||
        n > DF_FOLDER_MAX_FILE || !code_key(k->mem, key, n_key, &code))
        return;
    const size_t size = sizeof(head) + n + code.n;
    char *const file = size <= DF_FOLDER_MAX_FILE ? df_mem_alloc(k->mem, size) : NULL;
    name_entry(name, key, n_key);
    if (file) write_entry(k, name, &code, value, n, file, size);
    df_mem_free(k->mem, file, size);
    free_code(k->mem, &code);
}

df_disk_stats df_disk_stats_get(const df_disk *k)
{
    return (df_disk_stats){ .hits = atomic_load(&k->hits),
                            .misses = atomic_load(&k->misses),
                            .damaged = atomic_load(&k->damaged),
                            .added = atomic_load(&k->added),
                            .removed = atomic_load(&k->removed) };
}
