/* SPDX-License-Identifier: Apache-2.0
 *
 * Zip archives. Nothing in a file is trusted. Every offset and size is checked against the file
 * before it is used. No size leads to an allocation that the file could not fill.
 */
#include "lazy/files/zip.h"

/* Signatures, and sizes without the parts whose lengths vary. */
enum {
    LOCAL = 0x04034b50,
    ENTRY = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR64 = 0x07064b50,
    LOCAL_SIZE = 30,
    ENTRY_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    MAX_COMMENT = 0xffff,
    DEFLATED = 8
};

#define IN_EXTRA 0xffffffffu /* a size or an offset that stands in the extra field */

/* One byte of deflate gives at most 1032 bytes. */
#define MAX_RATIO 1032u

static uint32_t get16(const void *at)
{
    const unsigned char *const p = at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const void *at)
{
    const unsigned char *const p = at;
    return get16(p) | get16(p + 2) << 16;
}

static uint64_t get64(const void *at)
{
    const unsigned char *const p = at;
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static DF_COLD deft_status zip_wrong(const df_reader *r, const char *what)
{
    return df_fail(r->d, DEFT_E_FORMAT, "%s: %s: the archive %s", r->what, r->path, what);
}

/* ---- the directory ---- */

/* The 64-bit end, which stands before the end when that has no room for a number. */
static deft_status zip_read_end64(const df_reader *r, uint64_t end_at, uint64_t *n, df_zip *out)
{
    deft_status st = DEFT_OK;
    unsigned char at[END64_SIZE];
    if (end_at < LOCATOR_SIZE) return zip_wrong(r, "has no 64-bit end");
    TRY(df_reader_at(r, at, LOCATOR_SIZE, end_at - LOCATOR_SIZE));
    if (get32(at) != LOCATOR64) return zip_wrong(r, "has no 64-bit end");
    const uint64_t end64 = get64(at + 8);
    if (end64 > end_at - LOCATOR_SIZE || end_at - LOCATOR_SIZE - end64 < END64_SIZE)
        return zip_wrong(r, "has a 64-bit end outside the file");
    TRY(df_reader_at(r, at, END64_SIZE, end64));
    if (get32(at) != END64) return zip_wrong(r, "has no 64-bit end");
    *n = get64(at + 32);
    out->directory_size = get64(at + 40);
    out->directory_at = get64(at + 48);
done:
    return st;
}

/* Finds the end of the archive, behind which only its comment stands. */
static deft_status zip_read_end(const df_reader *r, const df_mem *mem, uint64_t *n, df_zip *out)
{
    deft_status st = DEFT_OK;
    const size_t size =
        (size_t)(r->size < MAX_COMMENT + END_SIZE ? r->size : MAX_COMMENT + END_SIZE);
    unsigned char *const tail = size ? df_mem_alloc(mem, size) : NULL;
    if (size < END_SIZE) TRY(zip_wrong(r, "is too short"));
    if (!tail) TRY(df_fail_mem(r->d, r->what, size));
    TRY(df_reader_at(r, tail, size, r->size - size));
    size_t at = size - END_SIZE;
    while (at && (get32(tail + at) != END || get16(tail + at + 20) != size - END_SIZE - at)) at--;
    const unsigned char *const end = tail + at;
    if (get32(end) != END) TRY(zip_wrong(r, "has no end: it was cut, or is no zip"));
    const uint64_t end_at = r->size - size + at;
    *n = get16(end + 10);
    out->directory_size = get32(end + 12);
    out->directory_at = get32(end + 16);
    if (*n == 0xffff || out->directory_size == IN_EXTRA || out->directory_at == IN_EXTRA)
        TRY(zip_read_end64(r, end_at, n, out));
    if (out->directory_at > end_at || out->directory_size > end_at - out->directory_at)
        TRY(zip_wrong(r, "has a directory outside the file"));
    if (*n > out->directory_size / ENTRY_SIZE)
        TRY(zip_wrong(r, "names more members than its directory has room for"));
done:
    df_mem_free(mem, tail, size);
    return st;
}

/* Takes the numbers of m that stand in the extra field [at, at + n). */
static bool zip_take_extra(df_zip_member *m, const char *at, size_t n)
{
    uint64_t *const wide[] = { &m->unpacked, &m->packed, &m->local_at };
    while (n >= 4 && get16(at + 2) <= n - 4) {
        const size_t size = get16(at + 2);
        size_t used = 0;
        for (int i = 0; get16(at) == 1 && i < 3; i++) {
            if (*wide[i] != IN_EXTRA) continue;
            if (size - used < 8) return false;
            *wide[i] = get64(at + 4 + used);
            used += 8;
        }
        at += 4 + size;
        n -= 4 + size;
    }
    return true;
}

/* Reads the entry at `from` of the directory. Returns its size; 0: it is damaged. */
static size_t zip_take_entry(const df_zip *z, size_t from, df_zip_member *m)
{
    const char *const at = z->directory + from;
    const size_t left = (size_t)z->directory_size - from;
    if (left < ENTRY_SIZE || get32(at) != ENTRY) return 0;
    const size_t name = get16(at + 28), extra = get16(at + 30);
    const size_t size = ENTRY_SIZE + name + extra + get16(at + 32);
    if (size > left || memchr(at + ENTRY_SIZE, '\0', name)) return 0;
    *m = (df_zip_member){ .name = at + ENTRY_SIZE,
                          .name_size = (uint32_t)name,
                          .method = (uint16_t)get16(at + 10),
                          .is_encrypted = get16(at + 8) & 1,
                          .crc = get32(at + 16),
                          .packed = get32(at + 20),
                          .unpacked = get32(at + 24),
                          .local_at = get32(at + 42) };
    return zip_take_extra(m, at + ENTRY_SIZE + name, extra) ? size : 0;
}

deft_status df_zip_list(const df_reader *r, const df_mem *mem, df_zip *out)
{
    deft_status st = DEFT_OK;
    uint64_t n = 0;
    size_t from = 0;
    *out = (df_zip){ .mem = mem };
    TRY(zip_read_end(r, mem, &n, out));
    if (!n) return DEFT_OK;
    out->directory = df_mem_alloc(mem, (size_t)out->directory_size);
    if (!out->directory) TRY(df_fail_mem(r->d, r->what, (size_t)out->directory_size));
    TRY(df_reader_at(r, out->directory, (size_t)out->directory_size, out->directory_at));
    for (uint64_t i = 0; i < n; i++) {
        df_zip_member m;
        const size_t size = zip_take_entry(out, from, &m);
        if (!size) TRY(zip_wrong(r, "has a damaged directory"));
        if (!df_vec_push(mem, &out->members, m)) TRY(df_fail_mem(r->d, r->what, sizeof m));
        from += size;
    }
done:
    return st;
}

void df_zip_finish(df_zip *z)
{
    if (!z->mem) return;
    df_mem_free(z->mem, z->directory, z->directory ? (size_t)z->directory_size : 0);
    df_vec_finish(z->mem, &z->members);
    *z = (df_zip){ 0 };
}

/* ---- a member ---- */

deft_status df_zip_find(const df_reader *r, const df_zip *z, const df_zip_member *m, uint64_t *at)
{
    unsigned char head[LOCAL_SIZE];
    if (m->is_encrypted) return zip_wrong(r, "has an encrypted member");
    if (m->method != 0 && m->method != DEFLATED)
        return df_fail(r->d, DEFT_E_FORMAT,
                       "%s: %s: a member is compressed by method %u, and deft reads 0 and 8",
                       r->what, r->path, m->method);
    if (m->method == 0 ? m->unpacked != m->packed : m->unpacked / MAX_RATIO > m->packed)
        return df_fail(r->d, DEFT_E_FORMAT,
                       "%s: %s: a member of %llu bytes cannot become %llu bytes", r->what, r->path,
                       (unsigned long long)m->packed, (unsigned long long)m->unpacked);
    const uint64_t limit = z->directory_at;
    if (m->local_at > limit || limit - m->local_at < LOCAL_SIZE)
        return zip_wrong(r, "has a member outside the file");
    const deft_status st = df_reader_at(r, head, LOCAL_SIZE, m->local_at);
    if (st != DEFT_OK) return st;
    if (get32(head) != LOCAL) return zip_wrong(r, "has a member without a header");
    *at = m->local_at + LOCAL_SIZE + get16(head + 26) + get16(head + 28);
    if (*at > limit || m->packed > limit - *at)
        return zip_wrong(r, "has a member outside the file");
    return DEFT_OK;
}

void df_crc_init(df_crc *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++) v = v >> 1 ^ (v & 1 ? 0xedb88320u : 0u);
        c->table[0][i] = v;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            c->table[k][i] = c->table[k - 1][i] >> 8 ^ c->table[0][c->table[k - 1][i] & 0xff];
    c->value = 0;
}

void df_crc_add(df_crc *c, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t v = ~c->value;
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t low = get32(p) ^ v, high = get32(p + 4);
        v = c->table[7][low & 0xff] ^ c->table[6][low >> 8 & 0xff] ^ c->table[5][low >> 16 & 0xff] ^
            c->table[4][low >> 24] ^ c->table[3][high & 0xff] ^ c->table[2][high >> 8 & 0xff] ^
            c->table[1][high >> 16 & 0xff] ^ c->table[0][high >> 24];
    }
    while (n--) v = v >> 8 ^ c->table[0][(v ^ *p++) & 0xff];
    c->value = ~v;
}

deft_status df_zip_open(df_zip_stream *s, const df_reader *r, const df_mem *mem, const df_zip *z,
                        const df_zip_member *m)
{
    s->r = r;
    s->mem = mem;
    s->inflate = NULL;
    s->in_at = s->in_n = 0;
    s->packed_left = m->packed;
    s->left = m->unpacked;
    s->crc = m->crc;
    df_crc_init(&s->sum);
    const deft_status st = df_zip_find(r, z, m, &s->at);
    if (st != DEFT_OK || m->method == 0) return st;
    df_diag d = { 0 };
    const deft_status opened = df_inflate_open(&d, mem, &s->inflate);
    if (opened == DEFT_OK) return DEFT_OK;
    return df_fail(r->d, opened, "%s: %s: %s", r->what, r->path, d.text);
}

/* Reads more of the member into `in`, which is used up. */
static deft_status zip_fill(df_zip_stream *s)
{
    const size_t n = s->packed_left < sizeof s->in ? (size_t)s->packed_left : sizeof s->in;
    const deft_status st = df_reader_at(s->r, s->in, n, s->at);
    if (st != DEFT_OK) return st;
    s->at += n;
    s->packed_left -= n;
    s->in_at = 0;
    s->in_n = n;
    return DEFT_OK;
}

static deft_status zip_inflate(df_zip_stream *s, unsigned char *dst, size_t n)
{
    deft_status st = DEFT_OK;
    bool ended = false;
    while (n) {
        if (!s->in_n && s->packed_left) TRY(zip_fill(s));
        const unsigned char *in = s->in + s->in_at;
        const size_t in_before = s->in_n, out_before = n;
        const deft_status ran = df_inflate_run(s->inflate, &in, &s->in_n, &dst, &n, &ended);
        s->in_at += in_before - s->in_n;
        if (ran == DEFT_E_MEMORY) TRY(df_fail_mem(s->r->d, s->r->what, 1 << 15));
        if (ran != DEFT_OK) TRY(zip_wrong(s->r, "has a damaged deflated member"));
        if (n && (ended || (in_before == s->in_n && out_before == n)))
            TRY(zip_wrong(s->r, "has a deflated member that is shorter than it says"));
    }
done:
    return st;
}

deft_status df_zip_read(df_zip_stream *s, void *dst, size_t n)
{
    deft_status st = DEFT_OK;
    if (n > s->left) return zip_wrong(s->r, "has a member that is too short for its header");
    if (s->inflate) {
        TRY(zip_inflate(s, dst, n));
    } else {
        TRY(df_reader_at(s->r, dst, n, s->at));
        s->at += n;
    }
    df_crc_add(&s->sum, dst, n);
    s->left -= n;
    if (!s->left && s->sum.value != s->crc)
        return zip_wrong(s->r, "has a member whose checksum is wrong");
done:
    return st;
}

void df_zip_close(df_zip_stream *s)
{
    df_inflate_close(&s->inflate);
}

/* ---- writing ---- */

static void zip_put(df_str *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) df_str_putc(out, (char)(v >> (8 * i) & 0xff));
}

/* Version, flags, method, time, date: of a local header and of an entry. 1 January 1980. */
static void zip_put_common(df_str *out, const df_zip_member *m)
{
    zip_put(out, 45, 2);      /* 4.5: 64-bit sizes */
    zip_put(out, 1 << 11, 2); /* the name is UTF-8 */
    zip_put(out, 0, 2);
    zip_put(out, 0, 2);
    zip_put(out, 1 << 5 | 1, 2);
    zip_put(out, m->crc, 4);
    zip_put(out, IN_EXTRA, 4);
    zip_put(out, IN_EXTRA, 4);
    zip_put(out, m->name_size, 2);
}

void df_zip_put_local(df_str *out, const df_zip_member *m)
{
    zip_put(out, LOCAL, 4);
    zip_put_common(out, m);
    zip_put(out, 20, 2); /* bytes of the extra field */
    df_str_putn(out, m->name, m->name_size);
    zip_put(out, 1, 2);
    zip_put(out, 16, 2);
    zip_put(out, m->unpacked, 8);
    zip_put(out, m->packed, 8);
}

void df_zip_put_entry(df_str *out, const df_zip_member *m)
{
    zip_put(out, ENTRY, 4);
    zip_put(out, 3 << 8 | 45, 2); /* made on Unix */
    zip_put_common(out, m);
    zip_put(out, 28, 2);
    zip_put(out, 0, 6); /* no comment, disk 0, no attributes */
    zip_put(out, (uint64_t)0100644 << 16, 4);
    zip_put(out, IN_EXTRA, 4);
    df_str_putn(out, m->name, m->name_size);
    zip_put(out, 1, 2);
    zip_put(out, 24, 2);
    zip_put(out, m->unpacked, 8);
    zip_put(out, m->packed, 8);
    zip_put(out, m->local_at, 8);
}

void df_zip_put_end(df_str *out, uint64_t n, uint64_t at, uint64_t size)
{
    zip_put(out, END64, 4);
    zip_put(out, END64_SIZE - 12, 8);
    zip_put(out, 3 << 8 | 45, 2);
    zip_put(out, 45, 2);
    zip_put(out, 0, 8);
    zip_put(out, n, 8);
    zip_put(out, n, 8);
    zip_put(out, size, 8);
    zip_put(out, at, 8);
    zip_put(out, LOCATOR64, 4);
    zip_put(out, 0, 4);
    zip_put(out, at + size, 8);
    zip_put(out, 1, 4);
    zip_put(out, END, 4);
    zip_put(out, 0, 4);
    zip_put(out, n < 0xffff ? n : 0xffff, 2);
    zip_put(out, n < 0xffff ? n : 0xffff, 2);
    zip_put(out, size < IN_EXTRA ? size : IN_EXTRA, 4);
    zip_put(out, at < IN_EXTRA ? at : IN_EXTRA, 4);
    zip_put(out, 0, 2);
}
