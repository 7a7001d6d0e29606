/* SPDX-License-Identifier: Apache-2.0
 *
 * The base layer: allocation, arenas, vectors, strings, hashing, diagnostics, log, environment.
 * Every growing structure is also run with its first, second, ... allocation failing.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/counted.h"
#include "base/diag.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vec.h"
#include "support/fail_mem.h"

/* Ends a test's use of f: nothing live, nothing misused. */
static void finish(fail_mem **f)
{
    const fail_mem_counts n = fail_mem_count(*f);
    cr_assert(n.faults == 0, "%s", fail_mem_fault(*f));
    cr_assert(n.live_blocks == 0 && n.live_bytes == 0, "%zu blocks of %zu bytes leaked",
              n.live_blocks, n.live_bytes);
    fail_mem_destroy(f);
}

Test(mem, system_allocates_zeroes_resizes_and_frees)
{
    const df_mem *const m = &df_mem_system;
    unsigned char *p = df_mem_zalloc(m, 1000);
    cr_assert(p && (uintptr_t)p % (2 * sizeof(void *)) == 0);
    for (size_t i = 0; i < 1000; i++) cr_assert(p[i] == 0);
    memset(p, 7, 1000);
    p = m->resize(m->user, p, 1000, 100000);
    cr_assert(p && p[0] == 7 && p[999] == 7);
    cr_assert(m->resize(m->user, p, 100000, 0) == NULL);
    df_mem_free(m, NULL, 0);
    cr_assert(df_mem_alloc(m, SIZE_MAX / 2 + 1) == NULL);
}

/* The instrument itself: a test allocator that notices nothing would prove nothing. */
Test(mem, fail_mem_notices_misuse)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    char *p = df_mem_alloc(m, 10), *const q = df_mem_alloc(m, 20);
    cr_assert(fail_mem_count(f).live_blocks == 2 && fail_mem_count(f).live_bytes == 30);
    df_mem_free(m, p, 11);
    cr_assert(fail_mem_count(f).faults == 1);
    df_mem_free(m, p, 10);
    cr_assert(fail_mem_count(f).faults == 2, "a double free passed");
    q[20] = 1;
    df_mem_free(m, q, 20);
    cr_assert(fail_mem_count(f).faults == 3, "a write past the end passed");
    char local[16];
    df_mem_free(m, local, 16);
    cr_assert(fail_mem_count(f).faults == 4, "a foreign pointer passed");
    cr_assert(strstr(fail_mem_fault(f), "another size"));

    fail_mem_at(f, 2, false);
    p = df_mem_alloc(m, 1);
    cr_assert(p != NULL);
    cr_assert(m->resize(m->user, p, 1, 2) == NULL, "the second call did not fail");
    cr_assert(fail_mem_count(f).failed == 1);
    p = m->resize(m->user, p, 1, 2);
    cr_assert(p != NULL, "a failed resize lost the old block, or failing did not end");
    fail_mem_at(f, 1, true);
    cr_assert(!df_mem_alloc(m, 1) && !df_mem_zalloc(m, 1));
    df_mem_free(m, p, 2);
    cr_assert(fail_mem_count(f).live_blocks == 0 && fail_mem_count(f).peak_bytes == 30);
    fail_mem_destroy(&f);
    cr_assert(f == NULL);
}

Test(arena, alignment_contents_and_growth)
{
    fail_mem *f = fail_mem_create();
    df_arena a;
    df_arena_init(&a, fail_mem_get(f));
    cr_assert(fail_mem_count(f).calls == 0 && a.total == 0, "init took memory");
    df_arena_finish(&a);

    for (size_t align = 1; align <= 4096; align *= 2)
        for (size_t size = 0; size < 40; size += 13) {
            df_arena_alloc(&a, 1, 1);
            char *const p = df_arena_alloc(&a, size, align);
            cr_assert(p && (uintptr_t)p % align == 0, "align %zu, size %zu", align, size);
            memset(p, 1, size);
        }
    /* No two blocks overlap: each keeps its own pattern. */
    unsigned char *block[500];
    for (size_t i = 0; i < 500; i++) {
        block[i] = df_arena_alloc(&a, i, 8);
        memset(block[i], (int)(i & 255), i);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t j = 0; j < i; j++) cr_assert(block[i][j] == (i & 255));
    /* Larger than any chunk, and back to small. */
    char *const big = df_arena_zalloc(&a, 3 << 20, 64);
    cr_assert(big && big[0] == 0 && big[(3 << 20) - 1] == 0);
    cr_assert(strcmp(df_arena_strdup(&a, "text"), "text") == 0);
    const int n[3] = { 1, 2, 3 };
    cr_assert(memcmp(df_arena_copy(&a, n, sizeof n, _Alignof(int)), n, sizeof n) == 0);
    const int64_t *const fresh = df_arena_new(&a, int64_t, 9);
    for (int i = 0; i < 9; i++) cr_assert(fresh[i] == 0);
    cr_assert(a.total == fail_mem_count(f).live_bytes);

    df_arena_reset(&a);
    cr_assert(fail_mem_count(f).live_blocks == 1 && a.total == fail_mem_count(f).live_bytes);
    const size_t calls = fail_mem_count(f).calls;
    cr_assert(df_arena_alloc(&a, 100, 16) && fail_mem_count(f).calls == calls,
              "reset gave no room back");
    df_arena_finish(&a);
    cr_assert(fail_mem_count(f).live_blocks == 0);
    df_arena_reset(&a);
    cr_assert(df_arena_alloc(&a, 1, 1) != NULL, "not usable after finish");
    df_arena_finish(&a);
    finish(&f);
}

Test(arena, few_allocations_for_many_objects)
{
    fail_mem *f = fail_mem_create();
    df_arena a;
    df_arena_init(&a, fail_mem_get(f));
    for (int i = 0; i < 100000; i++) cr_assert(df_arena_alloc(&a, 24, 8));
    cr_assert(fail_mem_count(f).calls <= 12, "%zu chunks for 2.4 MB", fail_mem_count(f).calls);
    cr_assert(a.total < 5u << 20);
    df_arena_finish(&a);
    finish(&f);
}

Test(arena, survives_each_failed_allocation)
{
    fail_mem *f = fail_mem_create();
    size_t n = 0;
    bool whole = false;
    while (!whole) {
        cr_assert(++n < 50, "never succeeds");
        df_arena a;
        df_arena_init(&a, fail_mem_get(f));
        fail_mem_at(f, n, false);
        whole = true;
        for (size_t i = 1; i <= 64; i++) {
            char *const p = df_arena_alloc(&a, i * 100, 64);
            if (p)
                memset(p, 1, i * 100);
            else
                whole = false;
        }
        df_arena_finish(&a);
        cr_assert(fail_mem_count(f).live_blocks == 0);
    }
    cr_assert(n > 3 && fail_mem_count(f).failed == n - 1);
    fail_mem_at(f, 0, false);
    df_arena a;
    df_arena_init(&a, fail_mem_get(f));
    cr_assert(df_arena_alloc(&a, SIZE_MAX, 1) == NULL);
    cr_assert(df_arena_alloc(&a, SIZE_MAX - 20, 64) == NULL);
    cr_assert(df_arena_alloc(&a, 1, 1) != NULL);
    cr_assert(df_arena_alloc(&a, SIZE_MAX - 20, 64) == NULL);
    df_arena_finish(&a);
    finish(&f);
}

struct odd_size {
    char byte[3];
};

Test(vec, grows_keeps_its_elements_and_refuses_overflow)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    DF_VEC(int64_t) v = { 0 };
    for (int64_t i = 0; i < 10000; i++) cr_assert(df_vec_push(m, &v, i * i));
    for (int64_t i = 0; i < 10000; i++) cr_assert(v.at[i] == i * i);
    cr_assert(v.n == 10000 && v.cap >= v.n && fail_mem_count(f).calls < 16);
    cr_assert(df_vec_reserve(m, &v, 5000) && v.cap >= 15000 && v.n == 10000);
    const size_t calls = fail_mem_count(f).calls;
    cr_assert(df_vec_reserve(m, &v, 5000) && fail_mem_count(f).calls == calls);
    const size_t cap = v.cap;
    cr_assert(!df_vec_reserve(m, &v, SIZE_MAX));
    cr_assert(!df_vec_reserve(m, &v, SIZE_MAX / 8));
    cr_assert(v.cap == cap && v.n == 10000 && v.at[9999] == 9999 * 9999);
    df_vec_finish(m, &v);
    cr_assert(!v.at && !v.n && !v.cap);

    size_t n = 0;
    for (bool whole = false; !whole;) {
        cr_assert(++n < 50);
        DF_VEC(struct odd_size) odd = { 0 };
        fail_mem_at(f, n, false);
        whole = true;
        for (size_t i = 0; i < 1000; i++) {
            if (!df_vec_reserve(m, &odd, 1)) {
                whole = false;
                continue; /* nothing changed: the next round must work */
            }
            memset(&odd.at[odd.n++], (int)(i & 127), 3);
        }
        cr_assert(odd.n == 1000 - (whole ? 0 : 1));
        df_vec_finish(m, &odd);
    }
    cr_assert(n > 3);
    finish(&f);
}

Test(str, builds_text_and_failure_is_sticky)
{
    fail_mem *f = fail_mem_create();
    df_str s;
    df_str_init(&s, fail_mem_get(f));
    cr_assert(s.ok && !s.at && s.n == 0);
    df_str_put(&s, "");
    cr_assert(s.at && s.at[0] == '\0');
    df_str_put(&s, "one ");
    df_str_putc(&s, '2');
    df_str_putn(&s, " three!", 6);
    df_str_fmt(&s, " %d %s", 4, "five");
    cr_assert(s.ok && strcmp(s.at, "one 2 three 4 five") == 0 && s.n == strlen(s.at));
    for (int i = 0; i < 2000; i++) df_str_fmt(&s, "[%04d]", i);
    cr_assert(s.ok && s.n == 18 + 6 * 2000 && s.at[s.n] == '\0');
    cr_assert(strcmp(s.at + s.n - 6, "[1999]") == 0 && strncmp(s.at + 18, "[0000][0001]", 12) == 0);
    df_str_fmt(&s, "%*d", 100000, 1); /* longer than doubling gives */
    cr_assert(s.ok && s.n == 18 + 12000 + 100000 && s.at[s.n - 1] == '1');
    df_str_finish(&s);
    cr_assert(s.ok && !s.at && s.n == 0);

    size_t n = 0;
    for (bool whole = false; !whole;) {
        cr_assert(++n < 20);
        fail_mem_at(f, n, false);
        for (int i = 0; i < 100; i++) {
            const size_t before = s.n;
            const bool was_ok = s.ok;
            df_str_fmt(&s, "%d of many;", i);
            cr_assert(was_ok || (!s.ok && s.n == before), "appended after a failure");
            cr_assert(!s.at || strlen(s.at) == s.n);
        }
        whole = s.ok;
        df_str_finish(&s);
    }
    cr_assert(n > 3);
    finish(&f);
}

Test(hash, published_values_and_spread)
{
    /* Known answers of XXH3-128 (seed 0): a changed hash would orphan every stored key. */
    const df_hash empty = df_hash_bytes("", 0);
    cr_assert(empty.lo == 0x6001C324468D497Full && empty.hi == 0x99AA06D3014798D8ull);
    unsigned char bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    const df_hash whole = df_hash_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        cr_assert(!df_hash_equal(df_hash_bytes(bytes, sizeof bytes), whole), "byte %zu ignored", i);
        bytes[i] ^= 1;
        cr_assert(!df_hash_equal(df_hash_bytes(bytes, i), whole), "length %zu ignored", i);
    }
    cr_assert(df_hash_equal(df_hash_bytes(bytes, sizeof bytes), whole));
    cr_assert(df_mix(df_mix(0, 1), 2) != df_mix(df_mix(0, 2), 1), "order is ignored");
}

Test(diag, writes_cuts_and_appends)
{
    df_diag d;
    df_diag_clear(&d);
    cr_assert(d.status == DEFT_OK && d.text[0] == '\0');
    cr_assert(df_fail(&d, DEFT_E_SHAPE, "matmul: a is [%d,%d]", 4, 8) == DEFT_E_SHAPE);
    cr_assert(df_fail_more(&d, ", b is [%d,%d]", 9, 2) == DEFT_E_SHAPE);
    cr_assert_str_eq(d.text, "matmul: a is [4,8], b is [9,2]");
    cr_assert(df_fail(&d, DEFT_E_ARG, "step: %s", d.text) == DEFT_E_ARG, "own text as argument");
    cr_assert_str_eq(d.text, "step: matmul: a is [4,8], b is [9,2]");
    df_fail(&d, DEFT_E_ARG, "%1000d", 7);
    cr_assert(d.status == DEFT_E_ARG && strlen(d.text) == DF_DIAG_TEXT - 1);
    df_fail_more(&d, "more");
    cr_assert(strlen(d.text) == DF_DIAG_TEXT - 1);
    df_fail(&d, DEFT_E_ARG, "%500d", 7);
    df_fail_more(&d, "%s", "twelve and more characters");
    cr_assert(strlen(d.text) == DF_DIAG_TEXT - 1 && strncmp(d.text + 500, "twelve and ", 11) == 0);
    cr_assert(df_fail_mem(&d, "plan", 4096) == DEFT_E_MEMORY);
    cr_assert_str_eq(d.text, "plan: could not get 4096 bytes");
    cr_assert(df_fail(NULL, DEFT_E_IO, "lost %d", 1) == DEFT_E_IO);
    cr_assert(df_fail_more(NULL, "lost") != DEFT_OK && df_fail_mem(NULL, "x", 1) == DEFT_E_MEMORY);
    df_diag_clear(&d);
    cr_assert(d.status == DEFT_OK && d.text[0] == '\0');
}

Test(status, every_code_has_its_own_sentence)
{
    for (int i = DEFT_OK; i <= DEFT_E_NAN; i++) {
        const char *const text = deft_status_text((deft_status)i);
        cr_assert(strlen(text) > 5);
        cr_assert(strcmp(text, deft_status_text((deft_status)(DEFT_E_NAN + 1))) != 0,
                  "code %d has none", i);
        for (int j = 0; j < i; j++) cr_assert(strcmp(text, deft_status_text((deft_status)j)) != 0);
    }
}

typedef struct lines {
    int n;
    char topic[32];
    char last[2048];
} lines;

static void hook(void *user, const char *topic, const char *line)
{
    lines *const l = user;
    l->n++;
    snprintf(l->topic, sizeof l->topic, "%s", topic);
    snprintf(l->last, sizeof l->last, "%s", line);
}

static uint32_t topics(const char *spec)
{
    lines l = { 0 };
    df_log log;
    df_log_init(&log, spec, hook, &l);
    cr_assert(l.n == 0, "%s: %s", spec, l.last);
    return log.on;
}

Test(log, topics_hook_and_cut)
{
    const uint32_t all = (1u << DF_LOG_N_TOPICS) - 1, cache = 1u << DF_LOG_cache;
    cr_assert(topics(NULL) == 0 && topics("") == 0 && topics(",,") == 0);
    cr_assert(topics("cache") == cache && topics("+cache") == cache);
    cr_assert(topics("all") == all && topics("+all,-cache") == (all & ~cache));
    cr_assert(topics("-cache, all") == all && topics("cache,-all") == 0);
    cr_assert(topics("fusion,guards,-cache") == (1u << DF_LOG_fusion | 1u << DF_LOG_guards));

    lines l = { 0 };
    df_log log;
    df_log_init(&log, "cach,why,fusio", hook, &l);
    cr_assert(l.n == 1 && strstr(l.last, "cach, fusio") && log.on == 1u << DF_LOG_why);
    df_logf(&log, cache, "not %d", 1);
    cr_assert(l.n == 1, "an off topic wrote");
    df_logf(&log, why, "kernel %d", 3);
    cr_assert(l.n == 2);
    cr_assert_str_eq(l.last, "kernel 3");
    cr_assert_str_eq(l.topic, "why");
    df_logf(&log, why, "%1500d", 1);
    cr_assert(strlen(l.last) == 1023, "not cut: %zu", strlen(l.last));

    df_log_init(&log, "all,nonsense", NULL, NULL);
    cr_assert(log.on == 0, "topics on without a hook");
    df_logf(&log, why, "nobody hears");
    df_log *const none = NULL;
    df_logf(none, why, "nobody hears");
    for (int i = 0; i < DF_LOG_N_TOPICS; i++)
        cr_assert(topics(df_log_topic_name((df_log_topic)i)) == 1u << i);
    cr_assert_str_eq(df_log_topic_name(DF_LOG_N_TOPICS), "?");
}

static bool flag_of(const char *value, bool fallback)
{
    setenv("DEFT_TEST_VAR", value, 1);
    return df_env_flag("DEFT_TEST_VAR", fallback);
}

static int64_t int_of(const char *value)
{
    setenv("DEFT_TEST_VAR", value, 1);
    return df_env_int("DEFT_TEST_VAR", -7);
}

Test(env, flags_numbers_and_fallbacks)
{
    unsetenv("DEFT_TEST_VAR");
    cr_assert(!df_env("DEFT_TEST_VAR"));
    cr_assert(df_env_flag("DEFT_TEST_VAR", true) && !df_env_flag("DEFT_TEST_VAR", false));
    cr_assert(df_env_int("DEFT_TEST_VAR", 5) == 5);
    cr_assert(!flag_of("0", true) && !flag_of("no", true) && !flag_of("OFF", true));
    cr_assert(!flag_of("False", true) && flag_of("1", false) && flag_of("yes", false));
    cr_assert(flag_of("", true) && !flag_of("", false));
    cr_assert_str_eq(df_env("DEFT_TEST_VAR"), "");
    cr_assert(int_of("42") == 42 && int_of("-3") == -3 && int_of("0x10") == 16);
    cr_assert(int_of("9223372036854775807") == INT64_MAX);
    cr_assert(int_of("9223372036854775808") == -7, "overflow taken for a number");
    cr_assert(int_of("") == -7 && int_of("4x") == -7 && int_of("many") == -7);
}

typedef struct counted_int {
    df_counted ref;
    int destroyed;
} counted_int;

static void counted_destroy(df_counted *self)
{
    ((counted_int *)self)->destroyed++;
}

Test(counted, last_drop_destroys_once)
{
    counted_int v = { 0 };
    df_counted_init(&v.ref, counted_destroy);
    df_counted *a = &v.ref, *b = df_counted_ref(a);
    df_counted_drop(&a);
    cr_assert(!a && v.destroyed == 0);
    df_counted_drop(&b);
    cr_assert(!b && v.destroyed == 1);
    df_counted_drop(&b);
    cr_assert(v.destroyed == 1);
}

Test(compiler, checked_arithmetic_and_bits)
{
    int64_t r = 0;
    cr_assert(df_mul_i64(1ll << 31, 1ll << 31, &r) && r == 1ll << 62);
    cr_assert(!df_mul_i64(1ll << 32, 1ll << 31, &r) && !df_mul_i64(INT64_MIN, -1, &r));
    cr_assert(df_add_i64(INT64_MAX - 1, 1, &r) && r == INT64_MAX);
    cr_assert(!df_add_i64(INT64_MAX, 1, &r) && !df_add_i64(INT64_MIN, -1, &r));
    cr_assert(df_ctz64(1ull << 63) == 63 && df_ctz64(1) == 0 && df_popcount(UINT64_MAX) == 64);
    cr_assert(df_min_i64(-1, 1) == -1 && df_max_i64(-1, 1) == 1);
}
