/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler of kept.h.
 */
#include "runtime/code/kept.h"

#include <string.h>

#include "base/build_id.h"
#include "base/fork.h"
#include "base/str.h"
#include "runtime/code/machine.h"
#include "runtime/code/object.h"
#include "runtime/cpu.h"

typedef struct kept {
    const df_mem *mem;
    const df_log *log;
    df_compiler real;
    df_disk *disk;          /* NULL: none */
    df_str prefix;          /* begins all keys */
    df_fork_lock gemm_lock; /* guards gemm and gemm_code */
    df_gemm_kernel gemm[2]; /* f32, f64; fn is NULL until it is made */
    df_loaded gemm_code[2];
} kept;

/* What df_code.owner of this compiler points to. */
typedef struct owner {
    df_loaded code; /* at is NULL: the other compiler loaded the code */
    df_code other;  /* the other compiler's */
} owner;

/* ---- keys ---- */

enum { KEY_O0 = '0', KEY_O2 = '2', KEY_VARIANT = 'v', KEY_GEMM = 'g' };

static void put_u64(df_str *s, uint64_t x)
{
    df_str_putn(s, (const char *)&x, sizeof x);
}

/* Appends facts member by member, since the bytes between members are not defined. */
static void put_facts(df_str *s, const df_facts *f)
{
    put_u64(s, (uint64_t)f->rows | (uint64_t)f->all << 1 | (uint64_t)f->multiple << 2 |
                   (uint64_t)f->shares << 3);
    put_u64(s, f->seconds);
    put_u64(s, f->num_mask);
    for (int i = 0; i < DF_MAX_AXES; i++) put_u64(s, (uint64_t)f->extent[i]);
    for (int i = 0; i < DF_FACT_NUMS; i++) put_u64(s, f->num_mask >> i & 1 ? f->num[i] : 0);
    for (int i = 0; i < DF_FACT_ACCESSES; i++) df_str_putc(s, (char)(f->shares ? f->below[i] : 0));
}

/* Makes the key of a kernel, or of a variant of it. Returns false when memory runs out; the caller
 * finishes *key in both cases. */
static bool make_key(const kept *c, const df_kernel *k, const df_facts *facts, df_opt level,
                     df_str *key)
{
    df_str_init(key, c->mem);
    df_str_putn(key, c->prefix.at, c->prefix.n);
    df_str_putc(key, facts ? KEY_VARIANT : level == DF_OPT_O0 ? KEY_O0 : KEY_O2);
    if (facts) put_facts(key, facts);
    df_str_putn(key, (const char *)k->key.bytes, k->key.n);
    return key->ok;
}

static bool make_gemm_key(const kept *c, deft_dtype t, df_str *key)
{
    df_str_init(key, c->mem);
    df_str_putn(key, c->prefix.at, c->prefix.n);
    df_str_putc(key, KEY_GEMM);
    df_str_putc(key, (char)t);
    return key->ok;
}

static void make_prefix(kept *c, const df_kept_options *o)
{
    df_str_init(&c->prefix, c->mem);
    df_str_fmt(&c->prefix, "%s|%s|%u|%d|", DF_BUILD_ID, c->real.version, o->max_vector_bytes,
               o->keep_frames);
    if (o->machine)
        df_str_put(&c->prefix, o->machine);
    else
        df_machine_put(&c->prefix);
}

/* ---- loading ---- */

/* Loads an object as *out. */
static deft_status load_kept(kept *c, df_diag *d, const df_object *o, df_code *out)
{
    owner *const w = df_mem_zalloc(c->mem, sizeof *w);
    if (!w) return df_fail_mem(d, "code", sizeof *w);
    const deft_status st = df_object_load(d, o, &w->code, out);
    if (st != DEFT_OK) {
        df_mem_free(c->mem, w, sizeof *w);
        return st;
    }
    out->owner = w;
    return DEFT_OK;
}

static void kept_release(void *self, df_code *code)
{
    kept *const c = self;
    owner *const w = code->owner;
    if (w && w->code.at)
        df_object_unload(&w->code);
    else if (w)
        c->real.release(c->real.self, &w->other);
    df_mem_free(c->mem, w, sizeof *w);
    *code = (df_code){ 0 };
}

/* Loads the code of k from the folders. Returns false when they do not have it. */
static bool find_code(kept *c, const df_kernel *k, const df_facts *facts, df_opt level,
                      df_code *out)
{
    df_str key;
    void *value = NULL;
    size_t n = 0;
    bool found = false;
    if (!c->disk) return false;
    if (make_key(c, k, facts, level, &key) && df_disk_find(c->disk, key.at, key.n, &value, &n)) {
        found = df_object_is_sound(value, n) && load_kept(c, NULL, value, out) == DEFT_OK;
        df_mem_free(c->mem, value, n);
    }
    df_str_finish(&key);
    return found;
}

static void keep_code(kept *c, const df_kernel *k, const df_facts *facts, df_opt level,
                      const df_object *o)
{
    df_str key;
    if (!c->disk) return;
    if (make_key(c, k, facts, level, &key)) df_disk_add(c->disk, key.at, key.n, o, o->size);
    df_str_finish(&key);
}

/* ---- compiling ---- */

/* Links, loads and keeps kernel number i of the ELF object. */
static deft_status take_kernel(kept *c, df_diag *d, const df_str *elf, uint32_t i,
                               const df_kernel *k, const df_facts *facts, df_opt level,
                               df_code *out)
{
    char text[DF_CODE_PIECES][DF_CODE_NAME];
    const char *names[DF_CODE_PIECES] = { NULL };
    df_object *o = NULL;
    const int n = df_code_has_parts(k, facts) ? DF_CODE_PIECES : 1;
    for (int e = 0; e < n; e++) {
        df_code_name(text[e], i, e);
        names[e] = text[e];
    }
    deft_status st = df_object_make(d, c->mem, elf->at, elf->n, names, &o);
    if (st == DEFT_OK) st = load_kept(c, d, o, out);
    if (st == DEFT_OK) keep_code(c, k, facts, level, o);
    if (o) df_mem_free(c->mem, o, o->size);
    return st;
}

/* Lets the other compiler make and load the code of one kernel. */
static deft_status compile_there(kept *c, df_diag *d, const df_kernel *k, const df_facts *facts,
                                 df_opt level, df_code *out)
{
    owner *const w = df_mem_zalloc(c->mem, sizeof *w);
    if (!w) return df_fail_mem(d, "code", sizeof *w);
    const deft_status st = facts ? c->real.specialize(c->real.self, d, k, facts, &w->other)
                                 : c->real.compile(c->real.self, d, &k, 1, level, &w->other);
    if (st != DEFT_OK) {
        df_mem_free(c->mem, w, sizeof *w);
        return st;
    }
    *out = w->other;
    out->owner = w;
    return DEFT_OK;
}

/* Compiles n kernels as one module. On failure, the codes that are there must be released. */
static deft_status compile_here(kept *c, df_diag *d, const df_kernel *const *k,
                                const df_facts *facts, uint32_t n, df_opt level, df_code *out)
{
    df_str elf;
    df_str_init(&elf, c->mem);
    deft_status st = c->real.object(c->real.self, d, k, facts, n, level, &elf);
    if (st == DEFT_OK && !elf.ok) st = df_fail_mem(d, "object", elf.n);
    for (uint32_t i = 0; i < n && st == DEFT_OK; i++) {
        df_diag why = { 0 };
        st = take_kernel(c, &why, &elf, i, k[i], facts, level, &out[i]);
        if (st != DEFT_OK) {
            df_logf(c->log, compile, "%s; the other loader is used", why.text);
            st = compile_there(c, d, k[i], facts, level, &out[i]);
        }
    }
    df_str_finish(&elf);
    return st;
}

static deft_status kept_compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                                df_opt level, df_code *out)
{
    kept *const c = self;
    memset(out, 0, n * sizeof *out);
    const deft_status st = compile_here(c, d, k, NULL, n, level, out);
    for (uint32_t i = 0; i < n && st != DEFT_OK; i++)
        if (out[i].main) kept_release(c, &out[i]);
    return st;
}

static deft_status kept_specialize(void *self, df_diag *d, const df_kernel *k,
                                   const df_facts *facts, df_code *out)
{
    kept *const c = self;
    *out = (df_code){ 0 };
    return compile_here(c, d, &k, facts, 1, DF_OPT_O2, out);
}

static bool kept_recall(void *self, const df_kernel *k, const df_facts *facts, df_opt level,
                        df_code *out)
{
    return find_code(self, k, facts, level, out);
}

/* ---- products ---- */

/* The value of a kept micro-kernel is its object, and this behind it. Rows of 0 and no object: the
 * code generator has none for this machine, which it need not be started again to say. */
typedef struct gemm_shape {
    uint32_t mr, nr;
} gemm_shape;

/* In a forked child, a missing thread may have been making a micro-kernel, which is leaked. */
static void lock_gemm(kept *c)
{
    if (!df_fork_lock_take(&c->gemm_lock)) return;
    memset(c->gemm, 0, sizeof c->gemm);
    memset(c->gemm_code, 0, sizeof c->gemm_code);
}

/* Loads the micro-kernel for t. The caller holds gemm_lock. */
static deft_status load_gemm(kept *c, df_diag *d, deft_dtype t, const df_object *o,
                             gemm_shape shape)
{
    df_code code;
    df_gemm_kernel *const g = &c->gemm[t == DEFT_F64];
    const deft_status st = df_object_load(d, o, &c->gemm_code[t == DEFT_F64], &code);
    if (st != DEFT_OK) return st;
    *g = (df_gemm_kernel){ .mr = shape.mr, .nr = shape.nr, .size = code.size[0] };
    memcpy(&g->fn, &code.main, sizeof g->fn); /* the one pointer stands for either function */
    return DEFT_OK;
}

/* The same from the folders. Returns false when they do not have it. */
static bool find_gemm(kept *c, deft_dtype t)
{
    df_str key;
    char *value = NULL;
    size_t n = 0;
    bool found = false;
    if (make_gemm_key(c, t, &key) && df_disk_find(c->disk, key.at, key.n, (void **)&value, &n)) {
        gemm_shape shape;
        if (n >= sizeof shape) memcpy(&shape, value + n - sizeof shape, sizeof shape);
        if (n == sizeof shape) {
            found = shape.mr == 0;
        } else if (n > sizeof shape && df_object_is_sound(value, n - sizeof shape)) {
            found = load_gemm(c, NULL, t, (const df_object *)(void *)value, shape) == DEFT_OK;
        }
        df_mem_free(c->mem, value, n);
    }
    df_str_finish(&key);
    return found;
}

/* o: NULL when there is none. */
static void keep_gemm(kept *c, deft_dtype t, const df_object *o, gemm_shape shape)
{
    df_str key, value;
    if (!c->disk) return;
    df_str_init(&value, c->mem);
    if (o) df_str_putn(&value, (const char *)o, o->size);
    df_str_putn(&value, (const char *)&shape, sizeof shape);
    if (make_gemm_key(c, t, &key) && value.ok)
        df_disk_add(c->disk, key.at, key.n, value.at, value.n);
    df_str_finish(&key);
    df_str_finish(&value);
}

/* Makes the micro-kernel for t and loads it here. The caller holds gemm_lock. */
static deft_status make_gemm(kept *c, df_diag *d, deft_dtype t)
{
    const char *const names[DF_CODE_PIECES] = { DF_GEMM_SYMBOL };
    df_gemm_kernel made = { 0 };
    df_object *o = NULL;
    df_str elf;
    deft_status st = DEFT_OK;
    df_str_init(&elf, c->mem);
    st = c->real.gemm_object(c->real.self, d, t, &made, &elf);
    if (st == DEFT_E_BACKEND) keep_gemm(c, t, NULL, (gemm_shape){ 0 });
    if (st != DEFT_OK) goto done;
    if (!elf.ok) TRY(df_fail_mem(d, "object", elf.n));
    TRY(df_object_make(d, c->mem, elf.at, elf.n, names, &o));
    const gemm_shape shape = { made.mr, made.nr };
    TRY(load_gemm(c, d, t, o, shape));
    keep_gemm(c, t, o, shape);
done:
    if (o) df_mem_free(c->mem, o, o->size);
    df_str_finish(&elf);
    return st;
}

static deft_status kept_gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    kept *const c = self;
    df_gemm_kernel *const g = &c->gemm[t == DEFT_F64];
    deft_status st = DEFT_OK;
    lock_gemm(c);
    if (!g->fn) st = make_gemm(c, d, t);
    if (!g->fn && st == DEFT_E_COMPILE) st = c->real.gemm(c->real.self, d, t, g);
    if (st == DEFT_OK) *out = *g;
    df_fork_lock_give(&c->gemm_lock);
    return st;
}

static bool kept_recall_gemm(void *self, deft_dtype t, df_gemm_kernel *out)
{
    kept *const c = self;
    df_gemm_kernel *const g = &c->gemm[t == DEFT_F64];
    lock_gemm(c);
    const bool found = g->fn || (c->disk && find_gemm(c, t));
    if (found) *out = *g;
    df_fork_lock_give(&c->gemm_lock);
    return found;
}

/* ---- calls that go through ---- */

static deft_status kept_start(void *self, df_diag *d)
{
    return df_compiler_start(&((kept *)self)->real, d);
}

static const char *kept_describe(void *self, uint32_t *vector_bytes)
{
    const df_compiler *const c = &((kept *)self)->real;
    return c->describe(c->self, vector_bytes);
}

static deft_status kept_show(void *self, df_diag *d, const df_kernel *k, const char *target,
                             bool assembly, df_str *out)
{
    const df_compiler *const c = &((kept *)self)->real;
    return c->show(c->self, d, k, target, assembly, out);
}

static void *kept_show_debugger(void *self, const char *name, const void *start, size_t size)
{
    const df_compiler *const c = &((kept *)self)->real;
    return c->show_debugger(c->self, name, start, size);
}

static void kept_hide_debugger(void *self, void *shown)
{
    const df_compiler *const c = &((kept *)self)->real;
    c->hide_debugger(c->self, shown);
}

static void kept_give_back(void *self)
{
    const df_compiler *const c = &((kept *)self)->real;
    c->give_back(c->self);
}

/* ---- life ---- */

static void destroy_kept(void *self)
{
    kept *const c = self;
    if (!c) return;
    for (int i = 0; i < 2; i++) df_object_unload(&c->gemm_code[i]);
    if (c->real.destroy) c->real.destroy(c->real.self);
    df_fork_lock_finish(&c->gemm_lock);
    df_str_finish(&c->prefix);
    df_mem_free(c->mem, c, sizeof *c);
}

void df_kept_open(const df_mem *mem, const df_log *log, const df_kept_options *o, df_compiler *out)
{
    if (!out->object || !df_object_is_offered()) return;
    kept *const c = df_mem_zalloc(mem, sizeof *c);
    if (!c) return;
    c->mem = mem;
    c->log = log;
    c->real = *out;
    c->disk = o->disk;
    make_prefix(c, o);
    if (!c->prefix.ok || !df_fork_lock_init(&c->gemm_lock)) {
        df_str_finish(&c->prefix);
        df_mem_free(mem, c, sizeof *c);
        return;
    }
    *out = (df_compiler){ .name = c->real.name,
                          .version = c->real.version,
                          .self = c,
                          .vector_bytes = c->real.vector_bytes,
                          .start = c->real.start ? kept_start : NULL,
                          .describe = c->real.describe ? kept_describe : NULL,
                          .compile = kept_compile,
                          .specialize = c->real.specialize ? kept_specialize : NULL,
                          .recall = c->disk ? kept_recall : NULL,
                          .recall_gemm = c->disk ? kept_recall_gemm : NULL,
                          .release = kept_release,
                          .show = c->real.show ? kept_show : NULL,
                          .gemm = c->real.gemm_object ? kept_gemm : c->real.gemm,
                          .show_debugger = c->real.show_debugger ? kept_show_debugger : NULL,
                          .hide_debugger = c->real.hide_debugger ? kept_hide_debugger : NULL,
                          .give_back = c->real.give_back ? kept_give_back : NULL,
                          .destroy = destroy_kept };
}
