/* SPDX-License-Identifier: Apache-2.0 */
#include "faces.h"
#include "bits.h"
#include "oracle.h"
#include "base/bits.h"
#include "int_ref.h"

#include "half_ref.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void *oracle_alloc(size_t n)
{
    void *const p = malloc(n ? n : 1);
    if (p) return p;
    fprintf(stderr, "oracle: no memory for %zu bytes\n", n);
    exit(2);
}

bool oracle_takes(oracle_asked *a, const char *argument)
{
    if (!strcmp(argument, "--quick"))
        a->is_quick = true, a->count = a->quick;
    else if (!strcmp(argument, "--full"))
        a->is_full = true, a->count = a->full;
    else if (argument[0] == '-')
        return false;
    else
        *(a->n_numbers++ ? &a->seed : &a->count) = strtoull(argument, NULL, 10);
    return true;
}

double oracle_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double oracle_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- paths ---- */

static void give_up(const oracle_path *p, const char *what, deft_status st)
{
    fprintf(stderr, "oracle: path %s: %s: %s\n", p->name, what, deft_status_text(st));
    exit(2);
}

/* With DEFT_LOG set the library's log goes to stderr. */
static void log_line(void *user, const char *topic, const char *line)
{
    if (getenv("DEFT_LOG")) fprintf(stderr, "%s: %s: %s\n", (const char *)user, topic, line);
}

uint64_t oracle_least(uint64_t usual)
{
    return getenv("DEFT_TEST_GPU") ? 1 : usual;
}

static bool have_plugin(void)
{
    char path[4096];
    const char *const dir = getenv("DEFT_PLUGIN_DIR");
    if (!dir) return false;
    snprintf(path, sizeof path, "%.*s/deft-llvm.so", (int)strcspn(dir, ":"), dir);
    return access(path, F_OK) == 0;
}

/* DEFT_TEST_GPU=N: the reference, and one way to run on that GPU, where every kernel is compiled
 * anew. */
static size_t leave_gpu(oracle_path *path, size_t n)
{
    const char *const gpu = getenv("DEFT_TEST_GPU");
    if (!gpu || n < 2) return n;
    path[1] = (oracle_path){
        .name = "gpu", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .device = DEFT_CUDA(atoi(gpu))
    };
    return 2;
}

deft_ctx *oracle_context(const oracle_path *p, const deft_ctx_options *more)
{
    deft_ctx_options o = { 0 };
    deft_ctx *cx = NULL;
    if (more) o = *more;
    o.size = sizeof o;
    o.no_fusion |= p->no_fusion != 0;
    o.no_simplify |= p->no_simplify != 0;
    o.numerics = p->numerics;
    o.device = p->device;
    const deft_status st = deft_ctx_create(p->rt, &o, &cx);
    if (st != DEFT_OK) give_up(p, "ctx_create", st);
    return cx;
}

size_t oracle_open(oracle_path *path, size_t n)
{
    size_t left = 0;
    n = test_bits_are_asked() ? 1 : leave_gpu(path, n);
    for (size_t i = 0; i < n; i++) {
        oracle_path p = path[i];
        const deft_runtime_options ro = { .size = sizeof ro,
                                          .n_threads = p.n_threads,
                                          .tier = p.tier,
                                          .variant_launches = p.variant_launches,
                                          .max_vector_bytes = p.max_vector_bytes,
                                          .log = p.log,
                                          .log_hook = p.log || getenv("DEFT_LOG") ? log_line : NULL,
                                          .log_user = (void *)(uintptr_t)p.name };
        if (p.streams) {
            setenv("DEFT_STREAM_BYTES", "1", 1);
            setenv("DEFT_LAST_CACHE", "1099511627776", 1); /* results of no operand stream, too */
        }
        deft_status st = deft_runtime_create(&ro, &p.rt);
        if (p.streams) unsetenv("DEFT_STREAM_BYTES"), unsetenv("DEFT_LAST_CACHE");
        if (st != DEFT_OK) give_up(&p, "runtime_create", st);
        const char *const compiler = deft_runtime_compiler(p.rt);
        if (p.tier != DEFT_TIER_INTERPRET && !strncmp(compiler, "interpreter", 11)) {
            fprintf(stderr, "path %s left out: %s\n", p.name, compiler);
            if (have_plugin()) exit(1); /* a compiler that is there and not used is a failure */
            deft_runtime_destroy(&p.rt);
            continue;
        }
        p.cx = oracle_context(&p, NULL);
        path[left++] = p;
    }
    return left;
}

void oracle_close(oracle_path *path, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        deft_ctx_destroy(&path[i].cx);
        deft_runtime_destroy(&path[i].rt);
    }
}

/* ---- numbers ---- */

uint64_t oracle_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t oracle_mix(uint64_t a, uint64_t b)
{
    uint64_t s = a ^ b * 0xff51afd7ed558ccdu;
    return oracle_next(&s);
}

static const double special_floats[] = {
    0.0,
    -0.0,
    INFINITY,
    -INFINITY,
    NAN,
    1,
    -1,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.5,
    FLT_MIN,
    -FLT_MIN,
    0x1p-149,
    -0x1p-149,
    0x1.fffffcp-127,
    FLT_MAX,
    -FLT_MAX,
    FLT_EPSILON,
    2147483648.0,
    -2147483648.0,
    -2147483904.0,
    2147483520.0,
    4294967296.0,
    9223372036854775808.0,
    -9223372036854775808.0,
    1e19,
    254.5,
    255,
    255.5,
    256,
    -0.99,
    16777216,
    16777217,
    8388607.5,
    3.14159265358979,
    1.5707963267949,
    1e-20,
    88.72,
    88.73,
    -87.4,
    -103.9,
    -104.1,
    127.9,
    128,
    -149.5,
    1e10,
    -3e7,
    0x1p100,
    0.9999999,
    1.0000001,
    1e-4,
    -17,
    7,
    709.7,
    709.8,
    -745.2,
};
static const double special_doubles[] = {
    DBL_MAX, -DBL_MAX,     DBL_MIN, 0x1p-1074,          -0x1p-1074, 1e300,     -1e-300,
    0x1p53,  0x1p52 + 0.5, 1e40,    4503599627370495.5, 0x1p1000,   -0x1p-600,
};
static const int64_t special_ints[] = {
    0,     0,      1,        -1,  2,   -2,   3,     7,         -7,        8,
    9,     15,     16,       17,  31,  32,   33,    -31,       63,        64,
    65,    127,    128,      255, 256, -128, 65536, INT32_MIN, INT32_MAX, INT32_MIN + 1,
    46341, -46341, 16777217,
};
static const int64_t special_longs[] = {
    INT64_MIN,        INT64_MAX,  INT64_MIN + 1, 4294967296,  -4294967297,
    9007199254740993, 2147483648, 3037000500,    -3037000500,
};

#define LEN(a) (sizeof(a) / sizeof *(a))

static double hard_float(uint64_t *s, bool wide)
{
    const uint64_t r = oracle_next(s);
    const uint64_t v = oracle_next(s);
    if (r % 3 == 0) {
        const size_t all = LEN(special_floats) + (wide ? LEN(special_doubles) : 0);
        const size_t k = v % all;
        return k < LEN(special_floats) ? special_floats[k]
                                       : special_doubles[k - LEN(special_floats)];
    }
    const double u = (double)(v >> 11) * 0x1p-53 * 2 - 1;
    if (r % 3 == 1) return u * 4;
    const int reach = wide ? 1000 : 120;
    return ldexp(u, (int)(r / 3 % (uint64_t)(2 * reach)) - reach);
}

static int64_t hard_int(uint64_t *s, bool wide)
{
    const uint64_t r = oracle_next(s);
    const uint64_t v = oracle_next(s);
    if (r % 3 == 0) {
        const size_t all = LEN(special_ints) + (wide ? LEN(special_longs) : 0);
        const size_t k = v % all;
        return k < LEN(special_ints) ? special_ints[k] : special_longs[k - LEN(special_ints)];
    }
    if (r % 3 == 1) return (int64_t)(v % 41) - 20;
    return wide ? (int64_t)v : (int32_t)(uint32_t)v;
}

static const double special_halves[] = {
    0x1p-14,      0x1p-24,       -0x1p-24,  0x1.ffcp-15, 65504,       -65504, 32768,
    0x1p-133,     -0x1p-133,     0x1p-126,  0x1.fep127,  -0x1.fep127, 2048,   2047,
    1.0009765625, 0.99951171875, 1.0078125, 0.99609375,  256,         255,
};

static uint16_t hard_half(deft_dtype t, uint64_t *s)
{
    const uint64_t r = oracle_next(s), v = oracle_next(s);
    if (r % 6 == 0) return half_bits(t, special_halves[v % LEN(special_halves)]);
    if (r % 6 == 1) return (uint16_t)v;
    if (r % 6 == 2) return half_bits(t, ldexp((double)(int64_t)v, -72 - (int)(r / 6 % 25)));
    return half_bits(t, hard_float(s, false));
}

void oracle_fill(deft_dtype t, void *dst, size_t n, uint64_t seed, oracle_kind kind)
{
    uint64_t s = seed;
    const bool hard = kind == ORACLE_HARD;
    for (size_t i = 0; i < n; i++) {
        const double f = hard ? 0 : ((double)(oracle_next(&s) >> 11) * 0x1p-53 * 6 - 3);
        const int64_t k = hard ? 0 : (int64_t)(oracle_next(&s) % 19) - 9;
        switch (t) {
        CASES_OF_FACES:
            break;
        case DEFT_BOOL:
            ((uint8_t *)dst)[i] = (uint8_t)(oracle_next(&s) >> 60 & 1);
            break;
        INT_REF_CASES:
            int_ref_put(t, dst, i,
                        hard                              ? hard_int(&s, int_ref_bits(t) == 64)
                        : int_ref_is_unsigned(t) && k < 0 ? -k
                                                          : k);
            break;
        case DEFT_F32: ((float *)dst)[i] = (float)(hard ? hard_float(&s, false) : f); break;
        case DEFT_F64: ((double *)dst)[i] = hard ? hard_float(&s, true) : f; break;
        case DEFT_F16:
        case DEFT_BF16: ((uint16_t *)dst)[i] = hard ? hard_half(t, &s) : half_bits(t, f); break;
        }
    }
}

/* ---- comparison ---- */

/* Elements may lie at any address. */
static uint64_t bits_at(deft_dtype t, const void *data, size_t i, bool *nan)
{
    const size_t size = deft_dtype_size(t);
    const uint64_t u = df_bits_load((const char *)data + i * size, size);
    *nan = (t == DEFT_F32 && (u & 0x7fffffffu) > 0x7f800000u) ||
           (t == DEFT_F64 && (u & 0x7fffffffffffffffu) > 0x7ff0000000000000u) ||
           (half_is(t) && isnan(half_value(t, (uint16_t)u)));
    return u;
}

size_t oracle_difference(deft_dtype t, const void *a, const void *b, size_t n)
{
    if (n == 0 || memcmp(a, b, n * deft_dtype_size(t)) == 0) return n;
    for (size_t i = 0; i < n; i++) {
        bool na, nb;
        const uint64_t x = bits_at(t, a, i, &na), y = bits_at(t, b, i, &nb);
        if (x != y && !(na && nb)) return i;
    }
    return n;
}

void oracle_canonical(deft_dtype t, void *data, size_t n)
{
    if (t != DEFT_F32 && t != DEFT_F64 && !half_is(t)) return;
    const size_t size = deft_dtype_size(t);
    const uint64_t nan = half_is(t)      ? half_bits(t, (double)NAN)
                         : t == DEFT_F32 ? 0x7fc00000u
                                         : 0x7ff8000000000000u;
    for (size_t i = 0; i < n; i++) {
        bool is;
        (void)bits_at(t, data, i, &is);
        if (is) df_bits_store((char *)data + i * size, nan, size);
    }
}

const char *oracle_text(deft_dtype t, const void *data, size_t i, char *buf, size_t n)
{
    bool nan;
    const uint64_t u = bits_at(t, data, i, &nan);
    float f;
    double d;
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
        snprintf(buf, n, "%u", (unsigned)u);
        break;
    INT_REF_CASES:
        if (int_ref_is_signed(t))
            snprintf(buf, n, "%lld", (long long)int_ref_wrap(t, (int64_t)u));
        else
            snprintf(buf, n, "%llu", (unsigned long long)u);
        break;
    case DEFT_F32:
        memcpy(&f, &u, sizeof f);
        snprintf(buf, n, "0x%08x (%.9g)", (unsigned)u, (double)f);
        break;
    case DEFT_F64:
        memcpy(&d, &u, sizeof d);
        snprintf(buf, n, "0x%016llx (%.17g)", (unsigned long long)u, d);
        break;
    case DEFT_F16:
    case DEFT_BF16:
        snprintf(buf, n, "0x%04x (%.9g)", (unsigned)u, half_value(t, (uint16_t)u));
        break;
    }
    return buf;
}

const char *oracle_shape_text(const deft_shape *s, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "[");
    for (uint32_t i = 0; i < s->rank && at < n; i++)
        at += (size_t)snprintf(buf + at, n - at, "%s%lld", i ? "," : "", (long long)s->dim[i]);
    if (at < n) snprintf(buf + at, n - at, "]");
    return buf;
}

int64_t oracle_numel(const deft_shape *s)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}
