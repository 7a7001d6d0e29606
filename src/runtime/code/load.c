/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps the code of objects: pages are writable while the code is copied, and executable afterwards.
 */
#include "runtime/code/object.h"

#include <math.h>
#include <string.h>

#include "runtime/code/callees.h"
#include "runtime/os.h"

/* ---- the functions outside ---- */

uint32_t df_callee_find(const char *name)
{
    static const char *const names[DF_N_CALLEES] = {
#define CALLEE(n, type) #n,
#include "runtime/code/callees.def"
    };
    uint32_t i = 0;
    while (i < DF_N_CALLEES && strcmp(names[i], name) != 0) i++;
    return i;
}

uintptr_t df_callee_address(uint32_t i)
{
    const uintptr_t addresses[DF_N_CALLEES] = {
#define CALLEE(n, type) (uintptr_t)(type) n,
#include "runtime/code/callees.def"
    };
    return i < DF_N_CALLEES ? addresses[i] : 0;
}

/* ---- objects ---- */

bool df_object_is_sound(const void *block, size_t n)
{
    const df_object *const o = block;
    if (n < sizeof *o || n > DF_OBJECT_MAX || o->size != n) return false;
    const uint64_t head = sizeof *o + (uint64_t)o->n_calls * sizeof *o->calls;
    if (o->n_calls > DF_N_CALLEES || head > o->body || o->body % DF_OBJECT_ALIGN != 0 ||
        o->body > n || o->body_size != n - o->body || o->piece[0].size == 0 ||
        o->slot_reads > o->body_size)
        return false;
    for (int i = 0; i < DF_CODE_PIECES; i++)
        if (o->piece[i].at > o->body_size || o->piece[i].size > o->body_size - o->piece[i].at)
            return false;
    for (uint32_t i = 0; i < o->n_calls; i++)
        if (o->calls[i].callee >= DF_N_CALLEES || o->body_size < sizeof(uint64_t) ||
            o->calls[i].slot > o->body_size - sizeof(uint64_t))
            return false;
    return true;
}

/* POSIX allows object pointers as function pointers. C has no conversion between them. */
static df_kernel_fn function_at(const df_object *o, int i, const char *body)
{
    df_kernel_fn fn = NULL;
    const char *const p = body + o->piece[i].at;
    if (o->piece[i].size > 0) memcpy(&fn, &p, sizeof fn);
    return fn;
}

deft_status df_object_load(df_diag *d, const df_object *o, df_loaded *out, df_code *code)
{
    char *const at = df_os_map(o->body_size);
    if (!at) return df_fail_mem(d, "code", o->body_size);
    memcpy(at, (const char *)o + o->body, o->body_size);
    for (uint32_t i = 0; i < o->n_calls; i++) {
        const uint64_t address = df_callee_address(o->calls[i].callee);
        memcpy(at + o->calls[i].slot, &address, sizeof address);
    }
    __builtin___clear_cache(at, at + o->body_size); /* not every machine sees the stores at once */
    if (!df_os_make_code(at, o->body_size)) {
        df_os_unmap(at, o->body_size);
        return df_fail(d, DEFT_E_BACKEND, "the system does not permit new machine code");
    }
    *out = (df_loaded){ .at = at, .size = o->body_size };
    *code = (df_code){ .main = function_at(o, 0, at),
                       .part = function_at(o, 1, at),
                       .fin = function_at(o, 2, at),
                       .body = o->piece[3].size > 0 ? at + o->piece[3].at : NULL,
                       .bytes = o->body_size };
    for (int i = 0; i < DF_CODE_PIECES; i++) code->size[i] = o->piece[i].size;
    return DEFT_OK;
}

void df_object_unload(df_loaded *l)
{
    if (l->at) df_os_unmap(l->at, l->size);
    *l = (df_loaded){ 0 };
}
