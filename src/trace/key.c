/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of a trace as bytes: header, nodes, roots, bound on temporaries, and for each call
 * of an opaque operator its name, version and attributes. Nodes and roots have no padding and
 * contain no extents, arguments, strides or addresses, so they are copied.
 * The field arg of a node is copied too. It is equal in traces of equal structure, because
 * arguments are numbered in node order.
 */
#include "trace/opaque.h"
#include "trace/trace.h"

#include <string.h>

/* Must grow with every change of the meaning of a node, so that two builds never share a key. */
#define KEY_VERSION 1

typedef struct key_head {
    uint32_t version, flags, n_nodes, n_roots;
} key_head;
_Static_assert(sizeof(key_head) == 16, "hashed as bytes");

/* The bytes of the calls of opaque operators, which are written to `to` unless it is NULL. */
static size_t put_opaques(const df_trace *t, char *to)
{
    size_t n = 0;
    if (!t->opaques || t->opaques->n == 0) return 0;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_opaque *const x =
            t->nodes[k].op == DF_OP_call ? df_opaques_at(t->opaques, t->nodes[k].attr) : NULL;
        if (!x) continue;
        const size_t name = strlen(x->name) + 1;
        if (to) {
            memcpy(to + n, &x->version, sizeof x->version);
            memcpy(to + n + sizeof x->version, x->name, name);
            if (x->attribute_bytes)
                memcpy(to + n + sizeof x->version + name, x->attributes, x->attribute_bytes);
        }
        n += sizeof x->version + name + x->attribute_bytes;
    }
    return n;
}

deft_status df_trace_key(df_diag *d, const df_trace *t, df_key *out)
{
    const size_t nodes = t->n_nodes * sizeof *t->nodes, roots = t->n_roots * sizeof *t->roots;
    const size_t bound = t->max_temporary_bytes ? sizeof t->max_temporary_bytes : 0;
    const size_t calls = put_opaques(t, NULL);
    const size_t n = sizeof(key_head) + nodes + roots + bound + calls;
    char *const bytes = df_arena_alloc(t->arena, n, _Alignof(key_head));
    if (!bytes) return df_fail_mem(d, "key", n);
    const key_head head = { KEY_VERSION, t->flags, t->n_nodes, t->n_roots };
    memcpy(bytes, &head, sizeof head);
    if (nodes) memcpy(bytes + sizeof head, t->nodes, nodes);
    if (roots) memcpy(bytes + sizeof head + nodes, t->roots, roots);
    if (calls) (void)put_opaques(t, bytes + n - calls);
    if (bound) memcpy(bytes + n - calls - bound, &t->max_temporary_bytes, bound);
    *out = (df_key){ .hash = df_hash_bytes(bytes, n), .bytes = bytes, .n = n };
    return DEFT_OK;
}
