/* SPDX-License-Identifier: Apache-2.0
 *
 * Is deft ahead of every peer in every row? Each row of the table (table.h) is one workload, which
 * deft runs in strict and in fast mode, on one thread and on two, and which each peer that knows it
 * runs as its users would: captured or compiled, on the same threads, from the same inputs. All
 * take turns, and a row's ratio is deft's median beside that of the fastest peer.
 *
 * Beside a row that memory bounds, a streaming copy or read of as many bytes takes turns too.
 *
 * `deft-bench order` is another table (table_order.c): sorting, selecting and searching in strict
 * mode beside PyTorch and NumPy, first with all sides on one thread, then on two.
 *
 * Outputs are compared with those of PyTorch in f64. A side whose outputs differ, or that fails,
 * has a row that says so and is not ok, and is nobody's reference.
 *
 *   --install     installs the peers into the build folder; else those that are there take part
 *   --venv=DIR    takes all peers from this environment
 *   --rows=GLOB   only rows with such a name
 *   --seed=N      draws sizes and elements
 *   --threads=N   of the peers, and of deft in the ratios: 1 or 2; order: only so many
 */
#include "table.h"

#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

enum { FAST, STRICT, FAST_1, STRICT_1, N_OURS };
enum { TORCH, NUMPY = 6, N_PEERS };
enum { N_STREAMS = 2 }; /* through the caches and around them */
enum {
    ROUNDS = 11,
    ROUNDS_QUICK = 5,
    PAUSE_US = 3000,     /* before a turn of ours: our own idle threads stop spinning */
    CALLS_AT_MOST = 2000 /* of a turn */
};
static const double turn_seconds = 0.01;
static const double speed_up_at_least = 1.8, of_memory_at_least = 0.9;
static const double speed_up_from = 50e-6; /* seconds on one thread */

/* What a bench runs, and its goals. */
typedef struct contest {
    const table_row *files[6]; /* the first n_files */
    int n_files;
    unsigned peers, sides; /* bit i: peer i or side i takes part */
    bool names_threads;    /* rows say how many threads all sides have */
    double fast_at_most, strict_at_most;
    double fast_first, strict_first; /* shares of the rows */
} contest;

static const contest contest_of_peers = {
    .files = { table_maps, table_moves, table_products, table_images, table_sequences,
               table_programs },
    .n_files = 6,
    .peers = (1 << N_PEERS) - 1,
    .sides = (1 << N_OURS) - 1,
    .fast_at_most = 1.1,
    .strict_at_most = 1.25,
    .fast_first = 0.95,
    .strict_first = 0.8,
};

static const contest contest_of_order = { .files = { table_order },
                                          .n_files = 1,
                                          .peers = 1 << TORCH | 1 << NUMPY,
                                          .sides = 1 << STRICT,
                                          .names_threads = true,
                                          .strict_at_most = 1,
                                          .strict_first = 1 };

static const char *const our_names[N_OURS] = { "fast", "strict", "fast, 1 thread",
                                               "strict, 1 thread" };
static const char *const peer_names[N_PEERS] = {
    [TORCH] = "torch", "torch-compile", "jax", "onnxruntime", "numba", "drjit", [NUMPY] = "numpy"
};

/* One side of a row: deft in one way, or a peer. */
typedef struct turns {
    bool is_on; /* it takes part in the row */
    int calls;  /* of a turn */
    double seconds[ROUNDS], median;
} turns;

typedef struct lead {
    int rows, first;
    double worst;
    char worst_name[64];
} lead;

typedef struct table {
    bench *b;
    const contest *c;
    deft_runtime *rt[2]; /* of the ratios; of one thread, NULL where these are the same */
    peer peers[N_PEERS];
    unsigned threads;
    lead fast, strict, second; /* second: rows that a second thread should help */
    lead memory;               /* rows that memory bounds */
} table;

typedef struct row_run {
    const table_row *row;
    const int64_t *sizes;
    table_inputs inputs;
    table_side *ours[N_OURS];
    table_outputs reference;
    table_stream *stream; /* NULL: memory does not bound the row */
    turns of_ours[N_OURS], of_peers[N_PEERS], of_streams[N_STREAMS];
    char label[64];
} row_run;

/* ---- peers ---- */

static void start_peer(table *t, int i, unsigned threads)
{
    char peer_option[64], threads_option[64], venv[512];
    char python[] = "python3", script[] = BENCH_SOURCE_ROOT "/bench/peers/table.py";
    char install[] = "--install";
    snprintf(peer_option, sizeof peer_option, "--peer=%s", peer_names[i]);
    snprintf(threads_option, sizeof threads_option, "--threads=%u", threads);
    bench_environment_option(t->b, venv, sizeof venv);
    peer_start(&t->peers[i], peer_names[i],
               (char *const[]){ python, script, venv, peer_option, threads_option,
                                t->b->install ? install : NULL, NULL });
}

/* All import their libraries at the same time. */
static void open_peers(table *t, unsigned threads)
{
    for (int i = 0; i < N_PEERS; i++)
        if (t->c->peers >> i & 1) start_peer(t, i, threads);
    for (int i = 0; i < N_PEERS; i++) {
        if (!(t->c->peers >> i & 1)) continue;
        peer_wait_for_start(&t->peers[i]);
        if (*t->peers[i].why) fprintf(stderr, "%s: %s\n", peer_names[i], t->peers[i].why);
    }
}

static void outputs_path(char *path, size_t n, const char *name)
{
    snprintf(path, n, BENCH_BUILD_ROOT "/bench-peers-%s.outputs", name);
}

/* What a peer cannot do in one row says nothing about the next. */
static bool peer_works(const peer *p)
{
    return *p->version;
}

/* Gives the row to all peers, which answer "none" where they do not know it. */
static void load_peers(table *t, row_run *r)
{
    char text[512], sizes[256] = "";
    const char *const path = BENCH_BUILD_ROOT "/bench-peers.inputs";
    table_inputs_text(&r->inputs, text, sizeof text);
    size_t at = 0;
    for (int i = 0; i < TABLE_SIZES; i++)
        at += (size_t)snprintf(sizes + at, sizeof sizes - at, "%s%lld", i ? "," : "",
                               (long long)r->sizes[i]);
    const bool saved = table_inputs_save(&r->inputs, path);
    for (int i = 0; i < N_PEERS; i++) {
        peer *const p = &t->peers[i];
        if (!peer_works(p)) continue;
        *p->why = 0;
        if (!saved)
            peer_fails(p, "the inputs could not be written to %s", path);
        else
            peer_tell(p, "load %s %s %s %s", r->row->name, path, sizes, text);
    }
    for (int i = 0; i < N_PEERS; i++) {
        peer *const p = &t->peers[i];
        if (!peer_works(p) || *p->why) continue;
        const char *const answer = peer_heard(p);
        r->of_peers[i].is_on = !answer || strcmp(answer, "none") != 0;
    }
    remove(path);
}

static void ask_outputs(table *t, const row_run *r, const char *word, int from, int to)
{
    char path[512];
    for (int i = from; i < to; i++) {
        outputs_path(path, sizeof path, peer_names[i]);
        if (r->of_peers[i].is_on) peer_tell(&t->peers[i], "%s %s", word, path);
    }
    for (int i = from; i < to; i++)
        if (r->of_peers[i].is_on) peer_answer(&t->peers[i], NULL);
}

/* ---- outputs ---- */

static double outputs_apart(const row_run *r, const table_outputs *o)
{
    if (!(r->row->flags & TABLE_RANDOM))
        return table_apart(o, &r->reference, r->row->flags & TABLE_ON_AVERAGE);
    return table_moments_apart(o, r->row->flags & TABLE_STANDARD) * r->row->tolerance;
}

static void failed_row(const table *t, const row_run *r, const char *name, const char *why)
{
    char label[128];
    snprintf(label, sizeof label, "%s, %s", r->label, name);
    bench_row_without(t->b, label, NAN, "us", name, why, 1);
}

/* Whether the outputs are those of the reference; else a row says so. */
static bool agrees(const table *t, const row_run *r, const char *name, const table_outputs *o)
{
    const double d = outputs_apart(r, o);
    char why[128];
    if (d <= r->row->tolerance) return true;
    snprintf(why, sizeof why, "its outputs are %.2g apart from the reference, allowed are %.2g", d,
             r->row->tolerance);
    failed_row(t, r, name, why);
    return false;
}

static bool read_peer(row_run *r, int i, const table_outputs *like, table_outputs *o)
{
    char path[512];
    outputs_path(path, sizeof path, peer_names[i]);
    const bool ok = table_outputs_load(o, like, path);
    remove(path);
    return ok || (r->of_peers[i].is_on = false);
}

/* The outputs of eager PyTorch in f64. */
static bool make_reference(table *t, row_run *r, const table_outputs *like)
{
    if (r->row->flags & TABLE_RANDOM) return true;
    if (!r->of_peers[TORCH].is_on) return false;
    ask_outputs(t, r, "reference", TORCH, TORCH + 1);
    if (*t->peers[TORCH].why) return false;
    return read_peer(r, TORCH, like, &r->reference);
}

static void compare_ours(table *t, row_run *r, table_outputs *like)
{
    table_outputs o[N_OURS] = { { 0 } };
    for (int i = 0; i < N_OURS; i++) {
        if (!r->ours[i]) continue;
        r->of_ours[i].is_on = table_side_outputs(r->ours[i], &o[i]);
        if (!r->of_ours[i].is_on)
            failed_row(t, r, our_names[i], table_side_why(r->ours[i]));
        else if (!like->n)
            *like = o[i], like->v = NULL;
    }
    const bool has_reference = like->n && make_reference(t, r, like);
    for (int i = 0; i < N_OURS; i++) {
        if (r->of_ours[i].is_on && !has_reference)
            failed_row(t, r, our_names[i], "there is no reference to compare outputs with");
        if (r->of_ours[i].is_on)
            r->of_ours[i].is_on = has_reference && agrees(t, r, our_names[i], &o[i]);
        table_outputs_free(&o[i]);
    }
}

static void compare_peers(table *t, row_run *r, const table_outputs *like)
{
    ask_outputs(t, r, "check", 0, N_PEERS);
    for (int i = 0; i < N_PEERS; i++) {
        table_outputs o;
        turns *const y = &r->of_peers[i];
        if (!y->is_on) continue;
        if (*t->peers[i].why)
            y->is_on = false, failed_row(t, r, peer_names[i], t->peers[i].why);
        else if (!read_peer(r, i, like, &o))
            failed_row(t, r, peer_names[i], "its outputs have another number of elements");
        else
            y->is_on = agrees(t, r, peer_names[i], &o), table_outputs_free(&o);
    }
}

/* ---- turns ---- */

static int calls_for(double seconds)
{
    const double n = ceil(turn_seconds / fmax(seconds, 1e-9));
    return n > CALLS_AT_MOST ? CALLS_AT_MOST : (int)n;
}

static double our_turn(table_side *s, int calls)
{
    table_side_run(s, 1);
    const double start = bench_now();
    table_side_run(s, calls);
    return (bench_now() - start) / calls;
}

static void warm_up(table *t, row_run *r)
{
    for (int i = 0; i < N_OURS; i++) {
        if (!r->of_ours[i].is_on) continue;
        table_side_warm_up(r->ours[i]);
        r->of_ours[i].calls = calls_for(our_turn(r->ours[i], 3));
    }
    for (int i = 0; i < N_PEERS; i++) {
        double seconds = 1;
        turns *const y = &r->of_peers[i];
        if (y->is_on && peer_asked(&t->peers[i], &seconds, "warm"))
            y->calls = calls_for(seconds);
        else
            y->is_on = false;
    }
}

static void peers_turn(peer *p, turns *y, int round)
{
    double t = 0;
    peer_go_on(p);
    if (peer_asked(p, &t, "time %d", y->calls))
        y->seconds[round] = t / y->calls;
    else
        y->is_on = false;
    peer_stop(p);
}

static void open_stream(table *t, row_run *r)
{
    if (!(r->row->flags & TABLE_MEMORY) || r->row->flags & TABLE_PARTLY) return;
    if (!r->of_ours[FAST].is_on) return;
    r->stream = table_stream_open(table_side_bytes(r->ours[FAST]), t->threads);
    for (int i = 0; i < N_STREAMS; i++)
        r->of_streams[i] =
            (turns){ .is_on = true, .calls = calls_for(table_stream_turn(r->stream, i, 1)) };
}

static void take_median(turns *y, int rounds)
{
    if (y->is_on) y->median = bench_median(y->seconds, (size_t)rounds);
}

/* Only the side whose turn it is runs. */
static void take_turns(table *t, row_run *r, int rounds)
{
    for (int i = 0; i < N_PEERS; i++) peer_stop(&t->peers[i]);
    for (int k = 0; k < rounds; k++) {
        for (int i = 0; i < N_OURS; i++)
            if (r->of_ours[i].is_on) {
                usleep(PAUSE_US);
                r->of_ours[i].seconds[k] = our_turn(r->ours[i], r->of_ours[i].calls);
            }
        for (int i = 0; i < N_PEERS; i++)
            if (r->of_peers[i].is_on) {
                usleep(PAUSE_US);
                peers_turn(&t->peers[i], &r->of_peers[i], k);
            }
        for (int i = 0; i < N_STREAMS; i++)
            if (r->of_streams[i].is_on) {
                usleep(PAUSE_US);
                turns *const y = &r->of_streams[i];
                y->seconds[k] = table_stream_turn(r->stream, i, y->calls);
            }
    }
    for (int i = 0; i < N_PEERS; i++) peer_go_on(&t->peers[i]);
    for (int i = 0; i < N_OURS; i++) take_median(&r->of_ours[i], rounds);
    for (int i = 0; i < N_PEERS; i++) take_median(&r->of_peers[i], rounds);
    for (int i = 0; i < N_STREAMS; i++) take_median(&r->of_streams[i], rounds);
}

/* ---- rows ---- */

static int best_peer(const row_run *r)
{
    int best = -1;
    for (int i = 0; i < N_PEERS; i++)
        if (r->of_peers[i].is_on && (best < 0 || r->of_peers[i].median < r->of_peers[best].median))
            best = i;
    return best;
}

static void count(lead *l, const char *name, double ratio, bool first)
{
    l->rows++;
    l->first += first;
    if (ratio <= l->worst) return;
    l->worst = ratio;
    snprintf(l->worst_name, sizeof l->worst_name, "%s", name);
}

/* Bytes of inputs and outputs by the time in fast mode, or in strict mode alone, in GB/s. */
static double speed_of(const row_run *r)
{
    const int side = r->of_ours[FAST].is_on ? FAST : STRICT;
    if (!r->of_ours[side].is_on) return 0;
    const table_bytes bytes = table_side_bytes(r->ours[side]);
    return (bytes.read + bytes.written) * 1e-9 / r->of_ours[side].median;
}

/* All times of the row: members of its line in JSON, else a line of its own. */
static const char *all_times(const table *t, const row_run *r, char *text, size_t n)
{
    const bool json = t->b->json;
    size_t at = (size_t)snprintf(text, n, json ? ",\"us\":{" : " ");
    const char *comma = "";
    for (int i = 0; i < N_OURS + N_PEERS && at < n; i++) {
        const turns *const y = i < N_OURS ? &r->of_ours[i] : &r->of_peers[i - N_OURS];
        const char *const name = i < N_OURS ? our_names[i] : peer_names[i - N_OURS];
        if (!y->is_on) continue;
        at += (size_t)snprintf(text + at, n - at, json ? "%s\"%s\":%.5g" : "%s %s %.5g;", comma,
                               name, y->median * 1e6);
        comma = json ? "," : "";
    }
    if (at < n) snprintf(text + at, n - at, json ? "},\"gb_s\":%.4g" : " %.3g GB/s", speed_of(r));
    return text;
}

static void ratio_row(table *t, const row_run *r, int side, int best, lead *l, double goal)
{
    char label[128], text[1024];
    const turns *const y = &r->of_ours[side];
    if (!(t->c->sides >> side & 1)) return;
    const size_t at = (size_t)snprintf(label, sizeof label, "%s, %s", r->label, our_names[side]);
    if (t->c->names_threads)
        snprintf(label + at, sizeof label - at, ", %u thread%s", t->threads,
                 t->threads > 1 ? "s" : "");
    if (!y->is_on || best < 0) {
        if (y->is_on)
            bench_row_without(t->b, label, y->median * 1e6, "us", "best peer", "no peer ran", goal);
        count(l, r->row->name, INFINITY, false);
        return;
    }
    const double its = r->of_peers[best].median;
    if (t->b->json) t->b->more = all_times(t, r, text, sizeof text);
    bench_row(t->b, label, y->median * 1e6, "us", peer_names[best], its * 1e6, BENCH_RATIO_AT_MOST,
              goal);
    count(l, r->row->name, y->median / its, y->median <= its);
}

static void speed_up_row(table *t, const row_run *r, int two, int one)
{
    char label[128];
    const turns *const y = &r->of_ours[two], *const x = &r->of_ours[one];
    if (!y->is_on || !x->is_on) return;
    if (r->row->flags & TABLE_MEMORY || x->median < speed_up_from) return;
    snprintf(label, sizeof label, "%s, %s: one thread", r->label, our_names[two]);
    bench_row(t->b, label, x->median * 1e6, "us", "two threads", y->median * 1e6,
              BENCH_RATIO_AT_LEAST, speed_up_at_least);
    const double ratio = x->median / y->median;
    count(&t->second, r->row->name, speed_up_at_least / ratio, ratio >= speed_up_at_least);
}

/* The time of the faster way to stream as many bytes, beside ours. */
static void memory_row(table *t, const row_run *r, int side)
{
    char label[128];
    const turns *const y = &r->of_ours[side], *const x = r->of_streams;
    if (!r->stream || !y->is_on) return;
    const int best = x[1].median < x[0].median;
    snprintf(label, sizeof label, "%s, %s: streaming", r->label, our_names[side]);
    bench_row(t->b, label, x[best].median * 1e6, "us", our_names[side], y->median * 1e6,
              BENCH_RATIO_AT_LEAST, of_memory_at_least);
    const double ratio = x[best].median / y->median;
    count(&t->memory, r->row->name, of_memory_at_least / ratio, ratio >= of_memory_at_least);
}

static void rows_of(table *t, const row_run *r)
{
    char text[1024];
    const int best = best_peer(r);
    if (!t->b->json) printf("%s\n", all_times(t, r, text, sizeof text));
    ratio_row(t, r, FAST, best, &t->fast, t->c->fast_at_most);
    ratio_row(t, r, STRICT, best, &t->strict, t->c->strict_at_most);
    speed_up_row(t, r, FAST, FAST_1);
    speed_up_row(t, r, STRICT, STRICT_1);
    memory_row(t, r, FAST);
    memory_row(t, r, STRICT);
}

/* ---- a row ---- */

/* A draw that depends on the name, so that one seed takes different columns of the lists. */
static unsigned draw_of(const char *name, uint64_t seed)
{
    uint64_t h = 14695981039346656037u ^ seed;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return (unsigned)((h >> 32) % TABLE_DRAWS);
}

static void label_of(row_run *r)
{
    size_t at = (size_t)snprintf(r->label, sizeof r->label, "%s", r->row->name);
    for (int i = 0; i < TABLE_SIZES && r->sizes[i] && at < sizeof r->label; i++)
        at += (size_t)snprintf(r->label + at, sizeof r->label - at, "%c%lld", i ? 'x' : ' ',
                               (long long)r->sizes[i]);
}

static void run_row(table *t, const table_row *row)
{
    row_run r = { .row = row, .sizes = row->sizes[draw_of(row->name, t->b->seed)] };
    table_outputs like = { 0 };
    label_of(&r);
    table_inputs_make(&r.inputs, row->inputs, r.sizes, t->b->seed);
    if (r.inputs.why) {
        failed_row(t, &r, "deft", r.inputs.why);
    } else {
        for (int i = 0; i < N_OURS; i++)
            if (t->rt[i / 2] && t->c->sides >> i & 1)
                r.ours[i] = table_side_open(row, t->rt[i / 2], i % 2 ? DEFT_STRICT : DEFT_FAST,
                                            &r.inputs, r.sizes);
        load_peers(t, &r);
        compare_ours(t, &r, &like);
        if (like.n) compare_peers(t, &r, &like);
        warm_up(t, &r);
        open_stream(t, &r);
        take_turns(t, &r, t->b->quick ? ROUNDS_QUICK : ROUNDS);
        rows_of(t, &r);
    }
    for (int i = 0; i < N_OURS; i++) table_side_close(&r.ours[i]);
    table_stream_close(&r.stream);
    table_outputs_free(&r.reference);
    table_inputs_free(&r.inputs);
}

/* ---- the summary ---- */

static void lead_rows(bench *b, const char *what, const lead *l, double share, double worst)
{
    char label[128];
    if (!l->rows) return;
    snprintf(label, sizeof label, "first, %s", what);
    bench_row(b, label, l->first, "rows", "of", l->rows, BENCH_RATIO_AT_LEAST, share);
    snprintf(label, sizeof label, "worst, %s", what);
    if (isinf(l->worst))
        bench_row_without(b, label, NAN, "", l->worst_name, "this row has no ratio", worst);
    else
        bench_row(b, label, l->worst, "", l->worst_name, 1, BENCH_RATIO_AT_MOST, worst);
}

/* l counts by which factor each way is below its goal. */
static void least_rows(bench *b, const char *reached, const char *least, const lead *l, double goal)
{
    char label[64];
    if (!l->rows) return;
    snprintf(label, sizeof label, "%s %g", reached, goal);
    bench_row(b, label, l->first, "ways", "of", l->rows, BENCH_RATIO_AT_LEAST, 1);
    bench_row(b, least, goal / l->worst, "", l->worst_name, 1, BENCH_VALUE_AT_LEAST, goal);
}

static void summary(table *t)
{
    lead_rows(t->b, "fast", &t->fast, t->c->fast_first, t->c->fast_at_most);
    lead_rows(t->b, "strict", &t->strict, t->c->strict_first, t->c->strict_at_most);
    least_rows(t->b, "second thread gives", "least of a second thread", &t->second,
               speed_up_at_least);
    least_rows(t->b, "share of a streaming copy or read is", "least share of streaming", &t->memory,
               of_memory_at_least);
}

/* Runs all rows. The ratios are those of as many threads. */
static void run_contest(bench *b, const contest *c, unsigned threads)
{
    static table t;
    t = (table){ .b = b, .c = c, .threads = threads };
    for (unsigned i = 0; i < (threads > 1 ? 2 : 1); i++)
        t.rt[i] = bench_runtime_with(i ? 1 : threads, DEFT_TIER_FULL, 0, TABLE_VARIANT_LAUNCHES);
    if (!strncmp(deft_runtime_compiler(t.rt[0]), "interpreter", 11))
        fprintf(stderr, "deft has no compiler here: %s\n", deft_runtime_compiler(t.rt[0]));
    void (*const before)(int) = signal(SIGPIPE, SIG_IGN); /* a peer's death is not ours */
    open_peers(&t, threads);
    for (int f = 0; f < c->n_files; f++)
        for (const table_row *row = c->files[f]; row->name; row++)
            if (!b->rows || fnmatch(b->rows, row->name, 0) == 0) run_row(&t, row);
    summary(&t);
    for (int i = 0; i < N_PEERS; i++) peer_close(&t.peers[i]);
    signal(SIGPIPE, before);
    for (int i = 0; i < 2; i++) deft_runtime_destroy(&t.rt[i]);
}

void bench_peers(bench *b)
{
    run_contest(b, &contest_of_peers, b->threads ? b->threads : 2);
}

void bench_order(bench *b)
{
    for (unsigned threads = 1; threads <= 2; threads++)
        if (!b->threads || b->threads == threads) run_contest(b, &contest_of_order, threads);
}
