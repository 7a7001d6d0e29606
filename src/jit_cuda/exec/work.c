/* SPDX-License-Identifier: Apache-2.0
 *
 * External work: its function is called for the queue's stream, or for a stream that is
 * captured.
 *
 * A captured graph is launched again only for a call that is equal in everything the
 * function can see. That is function, user, key, addresses, and the dtypes and extents in
 * `form`. All of these are words that are compared one by one. The numbers that the tree
 * sees are hashes of some of them, and decide nothing.
 *
 * A capture affects this thread alone (THREAD_LOCAL). Driver calls that a graph could not
 * repeat make the capture fail at once: an allocation, for example, or a copy that waits.
 * Then the work is enqueued without a capture. Other threads may go on calling the driver.
 */
#include "jit_cuda/exec/work.h"

#include <stdio.h>

#include "base/hash.h"
#include "replay/tree.h"

enum { THREAD_LOCAL = 1, ABOUT_BYTES = 16384, NAME = 48, FIXED_WORDS = 5, MOST = 8 };

struct df_cuda_captured {
    df_cuda_device *c;
    df_cu_graph graph;
    df_cu_exec exec;
    struct df_cuda_captured *next;
    /* the call it was captured for; then, in the first of a list, the latest call that was
     * not found */
    uint64_t *words;
    size_t n; /* words of each of the two calls */
    bool has_other;
    char name[NAME];
};

/* ---- what a work is ---- */

static size_t n_words(const df_work *w)
{
    return FIXED_WORDS + (size_t)w->n_in + w->n_out + w->n_form;
}

static uint64_t word(const df_cuda_work *r, size_t i)
{
    const df_work *const w = r->w;
    const uint64_t fixed[FIXED_WORDS] = { (uintptr_t)w->fn, (uintptr_t)w->user, w->key, w->n_in,
                                          w->n_out };
    if (i < FIXED_WORDS) return fixed[i];
    i -= FIXED_WORDS;
    if (i < w->n_in) return (uintptr_t)w->in[i];
    i -= w->n_in;
    if (i < w->n_out) return (uintptr_t)r->at[i];
    return (uint64_t)w->form[i - w->n_out];
}

uint64_t df_cuda_work_id(const df_work *w)
{
    return df_mix((uintptr_t)w->fn, (uintptr_t)w->user) | DF_CUDA_WORK;
}

uint64_t df_cuda_work_variant(const df_work *w)
{
    uint64_t h = w->n_in;
    for (uint32_t i = 0; i < w->n_form; i++) h = df_mix(h, (uint64_t)w->form[i]);
    return h;
}

/* ---- without a capture ---- */

static deft_status call(df_cuda_work *r, df_diag *d, df_cu_stream stream)
{
    const df_work *const w = r->w;
    r->n_calls++;
    const deft_status st = w->fn(stream, w->in, r->at, w->user);
    return st == DEFT_OK ? st : df_fail(d, st, "%s: its function failed", w->name);
}

static deft_status note(const df_cuda_work *r, df_diag *d)
{
    const df_launch_note n = { .owner = r->w->owner, .site = r->w->site, .ops = r->w->name };
    return df_queue_launched(r->q, d, &n);
}

deft_status df_cuda_work_new_result(df_cuda_work *r, df_diag *d, uint32_t i)
{
    if (!r->own[i]) {
        const deft_status st = df_gpu_buffer(r->q, d, r->w->out_bytes[i], &r->own[i]);
        if (st != DEFT_OK) return st;
    }
    r->at[i] = r->own[i]->data;
    return DEFT_OK;
}

void df_cuda_work_enqueue(df_cuda_work *r)
{
    r->status = call(r, r->d, df_queue_stream(r->q));
    if (r->status == DEFT_OK) r->status = note(r, r->d);
}

deft_status df_cuda_work_plain(df_cuda_work *r)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->w->n_out; i++) TRY(df_cuda_work_new_result(r, r->d, i));
    TRY(df_gpu_enter(r->c->gpu, r->d));
    df_cuda_work_enqueue(r);
    df_gpu_leave(r->c->gpu);
done:
    return st;
}

/* ---- with a capture ---- */

/* Whether an error of cuStreamEndCapture describes the capture, which has then ended. */
static bool is_of_capture(df_cu_result result)
{
    return result >= 900 && result <= 908;
}

static deft_status capture(df_diag *d, df_cuda_work *r, df_cu_stream stream, df_cu_graph *out)
{
    const df_driver *const dr = r->c->driver;
    df_cu_graph graph = NULL;
    df_cu_result result = dr->capture_begin(stream, THREAD_LOCAL);
    if (result) return df_queue_fail(r->q, d, result, "cuStreamBeginCapture for %s", r->w->name);
    deft_status st = call(r, d, stream);
    result = dr->capture_end(stream, &graph);
    if (result && !is_of_capture(result)) (void)dr->capture_end(stream, &graph);
    if (st == DEFT_OK && result)
        st = df_queue_fail(r->q, d, result, "cuStreamEndCapture of %s", r->w->name);
    if (st == DEFT_OK)
        *out = graph;
    else if (graph)
        (void)dr->graph_destroy(graph);
    return st;
}

deft_status df_cuda_capture(df_diag *d, df_cuda_work *r, df_cu_stream stream,
                            df_cuda_captured **out)
{
    deft_status st = DEFT_OK;
    df_cuda_captured *g = df_mem_zalloc(r->c->mem, sizeof *g);
    if (!g) return df_fail_mem(d, "graph", sizeof *g);
    g->c = r->c;
    g->n = n_words(r->w);
    g->words = df_mem_alloc(r->c->mem, 2 * g->n * sizeof *g->words);
    if (!g->words) TRY(df_fail_mem(d, "graph", 2 * g->n * sizeof *g->words));
    for (size_t i = 0; i < g->n; i++) g->words[i] = word(r, i);
    (void)snprintf(g->name, sizeof g->name, "%s", r->w->name);
    TRY(capture(d, r, stream, &g->graph));
    const df_cu_result result = g->c->driver->graph_instantiate(&g->exec, g->graph, 0);
    if (result) TRY(df_queue_fail(r->q, d, result, "cuGraphInstantiate of %s", r->w->name));
    *out = g;
    g = NULL;
done:
    df_cuda_captured_destroy(&g);
    return st;
}

static void destroy(df_cuda_captured *g)
{
    const df_mem *const mem = g->c->mem;
    if (g->exec) (void)g->c->driver->exec_destroy(g->exec);
    if (g->graph) (void)g->c->driver->graph_destroy(g->graph);
    df_mem_free(mem, g->words, g->words ? 2 * g->n * sizeof *g->words : 0);
    df_mem_free(mem, g, sizeof *g);
}

void df_cuda_captured_destroy(df_cuda_captured **list)
{
    while (*list) {
        df_cuda_captured *const g = *list;
        *list = g->next;
        destroy(g);
    }
}

size_t df_cuda_captured_bytes(const df_cuda_captured *g)
{
    return sizeof *g + 2 * g->n * sizeof *g->words + ABOUT_BYTES;
}

const char *df_cuda_captured_name(const df_cuda_captured *g)
{
    return g->name;
}

static bool are(const uint64_t *words, size_t n, const df_cuda_work *r)
{
    if (n != n_words(r->w)) return false;
    for (size_t i = 0; i < n; i++)
        if (words[i] != word(r, i)) return false;
    return true;
}

bool df_cuda_captured_find(df_cuda_captured **list, const df_cuda_work *r)
{
    df_cuda_captured **at = list;
    while (*at && !are((*at)->words, (*at)->n, r)) at = &(*at)->next;
    df_cuda_captured *const g = *at;
    if (!g) return false;
    *at = g->next;
    g->next = *list;
    *list = g;
    g->has_other = false;
    return true;
}

bool df_cuda_captured_is_due(df_cuda_captured *list, const df_cuda_work *r)
{
    uint32_t n = 0;
    uint64_t *const other = list->words + list->n;
    for (const df_cuda_captured *g = list; g; g = g->next) n++;
    if (n < MOST || list->n != n_words(r->w)) return true;
    if (list->has_other && are(other, list->n, r)) return true;
    list->has_other = true;
    for (size_t i = 0; i < list->n; i++) other[i] = word(r, i);
    return false;
}

df_cuda_captured *df_cuda_captured_add(df_cuda_captured **list, df_cuda_captured *g)
{
    df_cuda_captured **at = list;
    uint32_t n = 1;
    g->next = *list;
    *list = g;
    for (; (*at)->next; at = &(*at)->next) n++;
    if (n <= MOST) return NULL;
    df_cuda_captured *const last = *at;
    *at = NULL;
    return last;
}

deft_status df_cuda_captured_launch(df_cuda_captured *g, df_diag *d, const df_cuda_work *r)
{
    const df_cu_result result = g->c->driver->exec_launch(g->exec, df_queue_stream(r->q));
    if (result) return df_queue_fail(r->q, d, result, "cuGraphLaunch of %s", r->w->name);
    (void)note(r, NULL); /* errors of the work are reported by later calls */
    return DEFT_OK;
}
