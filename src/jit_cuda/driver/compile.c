/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles wanted entries to programs.
 *
 * Two thirds of NVRTC's time for a kernel are its optimizer's, and sharing a program does
 * not save them. So kernels share a program only to use no more programs than threads, and
 * to save the fixed cost of a program. Programs are divided so that they take about the
 * same time.
 *
 * With a waiter the calling thread compiles nothing: it asks the waiter at intervals
 * whether to go on. A program that is in the compiler cannot be stopped, so only programs
 * that have not begun are left out.
 */
#include "jit_cuda/driver/module.h"

#include <pthread.h>
#include <stdio.h>

#include "runtime/os.h"

enum { MOST_THREADS = 16 };

/* Estimates of NVRTC's time, in ms, measured with CUDA 13.5 for sm_90. The prelude is 6 ms
 * of PROGRAM_COSTS. For kernels of the examples the estimate is wrong by up to a half. */
#define PROGRAM_COSTS 28.0
#define ENTRY_COSTS 8.0
#define STAGE_COSTS 50.0 /* per stage after the first */
#define INS_COSTS 1.3
#define MOST_COSTS 1000.0 /* bound per program, because an interrupted run waits for the program */

/* ---- one program ---- */

static bool contracts(const df_cuda_want *w)
{
    return (w->kernel->flags & DF_KERNEL_FAST) != 0;
}

/* The index of want i's kernel among the kernels of the piece. */
static uint32_t kernel_number(df_cuda_want *const *want, const df_cuda_piece *p, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t j = p->first + 1; j <= i; j++) n += want[j]->kernel != want[j - 1]->kernel;
    return n;
}

void df_cuda_piece_name(df_cuda_want *const *want, const df_cuda_piece *p, uint32_t i, char out[64])
{
    char name[16];
    snprintf(name, sizeof name, "k%u", kernel_number(want, p, i));
    df_cuda_entry_name(name, want[i]->entry, out, 64);
}

/* Appends the text of the wants in [first, end), which are of one kernel. */
static deft_status piece_append_kernel(const df_cuda_compiler *c, df_diag *d,
                                       df_cuda_want *const *want, const df_cuda_piece *p,
                                       uint32_t first, uint32_t end, df_str *text)
{
    df_cuda_entry entry[DF_CUDA_N_PASSES * 16];
    char name[16];
    df_assert(end - first <= DF_LEN(entry));
    for (uint32_t i = first; i < end; i++) entry[i - first] = want[i]->entry;
    snprintf(name, sizeof name, "k%u", kernel_number(want, p, first));
    return df_cuda_text(d, want[first]->kernel, name, entry, end - first, c->mem, text);
}

/* The architecture to compile for. When there is none, sets *st and d. */
static int nearest_of(const df_cuda_compiler *c, df_diag *d, deft_status *st)
{
    const int nearest = df_nvrtc_nearest(c->nvrtc, c->arch);
    *st = DEFT_OK;
    if (nearest == 0)
        *st = df_fail(d, DEFT_E_BACKEND, "nvrtc: CUDA %d.%d knows no architecture up to sm_%d",
                      df_nvrtc_version(c->nvrtc) / 100, df_nvrtc_version(c->nvrtc) % 100, c->arch);
    return nearest;
}

deft_status df_cuda_build_ptx(const df_cuda_compiler *c, df_diag *d, const char *text,
                              bool may_contract, df_cubin *out)
{
    deft_status st;
    const int nearest = nearest_of(c, d, &st);
    if (st != DEFT_OK) return st;
    df_cuda_dump(c->log, text);
    return df_nvrtc_ptx(c->nvrtc, d, text, nearest, may_contract, out);
}

deft_status df_cuda_build(const df_cuda_compiler *c, df_diag *d, const char *text,
                          bool may_contract, df_cubin *out)
{
    deft_status st;
    const int nearest = nearest_of(c, d, &st);
    if (st != DEFT_OK) return st;
    df_cuda_dump(c->log, text);
    /* A cubin also runs on later GPUs of its generation. */
    if (nearest / 10 == c->arch / 10)
        return df_nvrtc_compile(c->nvrtc, d, text, nearest, may_contract, out);
    return df_nvrtc_ptx(c->nvrtc, d, text, nearest, may_contract, out);
}

static deft_status build_piece(const df_cuda_compiler *c, df_diag *d, df_cuda_want *const *want,
                               const df_cuda_piece *p, df_cubin *out)
{
    deft_status st = DEFT_OK;
    size_t n;
    const char *const prelude = df_cuda_prelude(&n);
    const uint32_t end = p->first + p->n;
    df_str text;
    df_str_init(&text, c->mem);
    df_str_putn(&text, prelude, n);
    for (uint32_t i = p->first, next; i < end; i = next) {
        for (next = i + 1; next < end && want[next]->kernel == want[i]->kernel;) next++;
        TRY(piece_append_kernel(c, d, want, p, i, next, &text));
    }
    if (!text.ok) TRY(df_fail_mem(d, "cuda text", text.n));
    TRY(df_cuda_build(c, d, text.at, contracts(want[p->first]), out));
done:
    df_str_finish(&text);
    return st;
}

static void name_kernel(df_diag *d, const df_cuda_want *w)
{
    if (w->ops) (void)df_fail_more(d, " (a kernel of %s)", w->ops);
}

/* Finds which kernel of a refused program is refused, by compiling each alone. */
static void piece_find_refused(const df_cuda_compiler *c, df_cuda_want *const *want,
                               df_cuda_piece *p)
{
    const uint32_t end = p->first + p->n;
    for (uint32_t i = p->first, next; i < end; i = next) {
        for (next = i + 1; next < end && want[next]->kernel == want[i]->kernel;) next++;
        const df_cuda_piece alone = { .first = i, .n = next - i };
        df_diag d = { 0 };
        df_cubin code = { 0 };
        const bool is_all = alone.n == p->n;
        const deft_status st = is_all ? DEFT_E_COMPILE : build_piece(c, &d, want, &alone, &code);
        df_cubin_finish(c->nvrtc, &code);
        if (st == DEFT_OK) continue;
        if (!is_all) p->diag = d;
        name_kernel(&p->diag, want[i]);
        return;
    }
}

static void try_piece(const df_cuda_compiler *c, df_cuda_want *const *want, df_cuda_piece *p)
{
    p->st = build_piece(c, &p->diag, want, p, &p->code);
    if (p->st == DEFT_E_COMPILE) piece_find_refused(c, want, p);
    p->is_tried = true;
}

/* ---- dividing wants into programs ---- */

static double cost_of(const df_cuda_want *w)
{
    const df_kernel *const k = w->kernel;
    const uint32_t n_more = k->n_stages > 1 ? k->n_stages - 1u : 0;
    return ENTRY_COSTS + INS_COSTS * k->n_ins + STAGE_COSTS * n_more;
}

/* The end of the range of wants of one kernel that begins at i. */
static uint32_t end_of_kernel(df_cuda_want *const *want, uint32_t i, uint32_t end)
{
    uint32_t next = i + 1;
    while (next < end && want[next]->kernel == want[i]->kernel) next++;
    return next;
}

/* Sets the cost of each want to the cost of its kernel's wants together. Returns the sum
 * over all kernels. */
static double set_costs(df_cuda_want *const *want, uint32_t n)
{
    double all = 0;
    for (uint32_t i = 0, next; i < n; i = next) {
        double cost = 0;
        next = end_of_kernel(want, i, n);
        for (uint32_t j = i; j < next; j++) cost += cost_of(want[j]);
        for (uint32_t j = i; j < next; j++) want[j]->cost = cost;
        all += cost;
    }
    return all;
}

static bool costs_more(const df_cuda_want *a, const df_cuda_want *b)
{
    return a->cost > b->cost;
}

static bool is_before(const df_cuda_want *a, const df_cuda_want *b)
{
    return a->piece < b->piece;
}

/* Insertion sort. It is stable, so that wants of one kernel stay together. */
static void sort_wants(df_cuda_want **want, uint32_t n,
                       bool (*before)(const df_cuda_want *a, const df_cuda_want *b))
{
    for (uint32_t i = 1; i < n; i++) {
        df_cuda_want *const w = want[i];
        uint32_t at = i;
        for (; at > 0 && before(w, want[at - 1]); at--) want[at] = want[at - 1];
        want[at] = w;
    }
}

static uint32_t least_busy(const df_cuda_piece *piece, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (piece[i].cost < piece[best].cost) best = i;
    return best;
}

/* A program must be worth its fixed cost, and must not make others wait for long. */
static uint32_t count_pieces(double cost, uint32_t n, uint32_t n_threads)
{
    const double worth = cost / PROGRAM_COSTS, least = cost / MOST_COSTS;
    double pieces = worth < n_threads ? worth : n_threads;
    if (pieces < least) pieces = least;
    return pieces >= n ? n : pieces < 1 && n > 0 ? 1 : (uint32_t)pieces;
}

/* Divides wants that all may be contracted, or all may not. Assigns the costliest kernel
 * first, each kernel to the piece with the least cost so far. */
static uint32_t split_into_pieces(df_cuda_want **want, uint32_t n, uint32_t n_threads,
                                  df_cuda_piece *out)
{
    const uint32_t n_pieces = count_pieces(set_costs(want, n), n, n_threads);
    uint32_t begin = 0, n_used = 0;
    for (uint32_t i = 0; i < n_pieces; i++) out[i] = (df_cuda_piece){ .st = DEFT_OK };
    sort_wants(want, n, costs_more);
    for (uint32_t i = 0, next; i < n; i = next) {
        const uint32_t to = least_busy(out, n_pieces);
        next = end_of_kernel(want, i, n);
        for (uint32_t j = i; j < next; j++) want[j]->piece = to;
        out[to].n += next - i;
        out[to].cost += want[i]->cost;
    }
    sort_wants(want, n, is_before);
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (out[i].n == 0) continue;
        out[n_used] = out[i];
        out[n_used].first = begin;
        begin += out[n_used++].n;
    }
    return n_used;
}

uint32_t df_cuda_pieces(df_cuda_want **want, uint32_t n, uint32_t n_threads, df_cuda_piece *out)
{
    uint32_t n_strict = 0;
    while (n_strict < n && !contracts(want[n_strict])) n_strict++;
    const uint32_t n_pieces = split_into_pieces(want, n_strict, n_threads, out);
    const uint32_t n_fast =
        split_into_pieces(want + n_strict, n - n_strict, n_threads, out + n_pieces);
    for (uint32_t i = n_pieces; i < n_pieces + n_fast; i++) out[i].first += n_strict;
    return n_pieces + n_fast;
}

/* ---- compiling in parallel ---- */

typedef struct crew {
    const df_cuda_compiler *c;
    df_cuda_want *const *want;
    df_cuda_piece *piece;
    uint32_t n;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t ended;
    uint32_t next, n_done; /* indices of pieces */
    bool stops;
} crew;

static void *crew_compile(void *user)
{
    crew *const c = user;
    pthread_mutex_lock(&c->lock);
    while (c->next < c->n && !c->stops) {
        df_cuda_piece *const p = &c->piece[c->next++];
        pthread_mutex_unlock(&c->lock);
        try_piece(c->c, c->want, p);
        pthread_mutex_lock(&c->lock);
        c->n_done++;
        pthread_cond_signal(&c->ended);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static uint32_t count_entries(const crew *c, uint32_t n)
{
    uint32_t entries = 0;
    for (uint32_t i = 0; i < n; i++) entries += c->piece[i].n;
    return entries;
}

/* Waits until all pieces are tried or w stops the wait. */
static void crew_wait(crew *c, df_waiter *w)
{
    const uint64_t begun = df_os_now_ns();
    uint64_t told = begun;
    pthread_mutex_lock(&c->lock);
    while (c->n_done < c->n && !c->stops) {
        const uint64_t until = told + DF_WAITER_NS;
        df_os_cond_wait_until(&c->ended, &c->lock, until);
        if (df_os_now_ns() < until) continue;
        const uint32_t now = c->n_done < c->n ? c->n_done : c->n - 1;
        const df_cuda_want *const busy = c->want[c->piece[now].first];
        const df_waiting waiting = { .ops = busy->ops ? busy->ops : "",
                                     .site = busy->site,
                                     .n_done = count_entries(c, c->n_done),
                                     .n = count_entries(c, c->n),
                                     .elapsed_ns = df_os_now_ns() - begun };
        pthread_mutex_unlock(&c->lock);
        if (!w->go_on(w->user, &waiting)) w->stopped = true;
        pthread_mutex_lock(&c->lock);
        c->stops |= w->stopped;
        told = df_os_now_ns();
    }
    pthread_mutex_unlock(&c->lock);
}

uint32_t df_cuda_compile_threads(void)
{
    const uint32_t n = df_os_n_cpus();
    return n < MOST_THREADS ? n : MOST_THREADS;
}

deft_status df_cuda_compile(const df_cuda_compiler *c, df_diag *d, df_cuda_want *const *want,
                            df_cuda_piece *piece, uint32_t n, uint32_t most, df_waiter *w)
{
    crew all = { .c = c, .want = want, .piece = piece, .n = n };
    pthread_t thread[MOST_THREADS];
    uint32_t n_threads = 0;
    if (most > MOST_THREADS) most = MOST_THREADS;
    const uint32_t wanted = n < most ? n : most;
    pthread_mutex_init(&all.lock, NULL);
    df_os_cond_init(&all.ended);
    while (n_threads < (w ? wanted : wanted - 1) &&
           df_os_thread(&thread[n_threads], crew_compile, &all, -1))
        n_threads++;
    if (w && n_threads > 0)
        crew_wait(&all, w);
    else
        (void)crew_compile(&all);
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(thread[i], NULL);
    pthread_cond_destroy(&all.ended);
    pthread_mutex_destroy(&all.lock);
    if (w && w->stopped && all.n_done < n)
        return df_fail(d, DEFT_E_INTERRUPTED, "interrupted while %u of %u programs were compiled",
                       n - all.n_done, n);
    return DEFT_OK;
}
