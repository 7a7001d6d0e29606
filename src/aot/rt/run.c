/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the image of an exported program. Nothing is allocated: all that a call needs besides the
 * arrays of the caller is in the workspace, in this order:
 *
 *   slots | addresses of buffers | places of states | segments and their arguments |
 *   an area for each thread | arena
 *
 * lay_out places everything. It runs once to count bytes and once with the workspace.
 *
 * Why this file is long: the runtime part of an object is one block of code without symbols.
 */
#include "aot/rt/image.h"
#include "aot/rt/number.h"
#include "runtime/finite.h"

enum { AOT_BLOCK = 4096, TILES_BYTES = 64 << 10, MAP_GRAIN = 4096, COL_GRAIN = 256, STRIP = 16 };
enum { BLOCK_BYTES = 192 << 10, BLOCKS_PER_THREAD = 4 }; /* of loops that run in blocks */
enum { LINE = 64, MOST_THREADS = 1024, FORK_PS = 10 * 1000 * 1000, ROUTINE_PS = 2000 };

/* A segment in a call. */
typedef struct run_seg {
    const aot_seg *seg;
    aot_kargs args;
    char **ptr;      /* args.ptr; with scratch memory [thread][access] */
    int64_t *stride; /* args.stride */
    int64_t *base, *extent;
    uint64_t *num;
    uint64_t *partial;
    int64_t partial_row; /* words of a row */
    int64_t n_outer, n_inner, n_red;
    int64_t n_strides; /* n_access * n_axes */
    int64_t c_offset;  /* of a product */
    aot_product product;
    int64_t *operand; /* product: batch, then strides of A, B and C */
} run_seg;

typedef struct run {
    const aot_image *im;
    const uint64_t *args; /* the parameters of the call */
    const aot_level *level;
    const int64_t *slots;
    int64_t *own_slots;
    char **base;
    int32_t *place; /* per root of a loop: where its state is, PLACE_... */
    run_seg *segs;
    char *areas; /* of the threads */
    char *routine_work;
    int64_t routine_bytes; /* of a thread */
    int64_t area_bytes;
    int64_t product_at, scratch_at, copies_at; /* in an area */
    char *arena;
    int64_t n_threads;
    /* What a thread has in loops that run in blocks: addresses of buffers, segments, and memory. */
    char *workers;
    int64_t worker_bytes, worker_segs_at, worker_memory_at;
    const aot_threads *threads;
    const aot_launch *launch;
    int64_t n_tasks; /* of the current launch */
} run;

/* ---- the floating-point environment ---- */

/* Kernels need rounding to nearest and denormals. The state of the caller comes back afterwards. */
#if defined(__SSE2__)
typedef unsigned fp_state;

static fp_state fp_enter(void)
{
    const fp_state old = __builtin_ia32_stmxcsr();
    if ((old & ~0x3Fu) != 0x1F80u) __builtin_ia32_ldmxcsr(0x1F80u);
    return old;
}

static void fp_leave(fp_state old)
{
    if (__builtin_ia32_stmxcsr() != old) __builtin_ia32_ldmxcsr(old);
}
#else
typedef int fp_state;

static fp_state fp_enter(void)
{
    return 0;
}

static void fp_leave(fp_state old)
{
    (void)old;
}
#endif

/* ---- the processor ---- */

#if defined(__x86_64__)
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
    __asm__ volatile("cpuid"
                     : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3])
                     : "a"(leaf), "c"(sub));
}

/* What the processor and the system offer: AOT_CPU_... */
static uint32_t processor(void)
{
    enum { V2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23 };
    enum { V3 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29 };
    const uint32_t v3_more = 1u << 3 | 1u << 5 | 1u << 8;
    const uint32_t v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    uint32_t r[4], states, high;
    cpuid(0, 0, r);
    const uint32_t most = r[0];
    cpuid(1, 0, r);
    if ((r[2] & V2) != V2) return AOT_CPU_ANY;
    if ((r[2] & (uint32_t)V3) != (uint32_t)V3 || most < 7) return AOT_CPU_V2;
    __asm__ volatile("xgetbv" : "=a"(states), "=d"(high) : "c"(0));
    if ((states & 6) != 6) return AOT_CPU_V2;
    cpuid(7, 0, r);
    const uint32_t more = r[1];
    cpuid(0x80000001u, 0, r);
    if ((more & v3_more) != v3_more || !(r[2] & 1u << 5)) return AOT_CPU_V2;
    return (more & v4) == v4 && (states & 0xE0) == 0xE0 ? AOT_CPU_V4 : AOT_CPU_V3;
}
#else
static uint32_t processor(void)
{
    return AOT_CPU_ANY;
}
#endif

/* The best level that the processor can run; NULL: none. Threads may race here: all find the same
 * level. */
static const aot_level *find_level(const aot_image *im)
{
    uint32_t at = __atomic_load_n(im->level, __ATOMIC_RELAXED);
    if (at == 0) {
        const uint32_t has = processor();
        while (at < im->n_levels && im->levels[at].needs > has) at++;
        __atomic_store_n(im->level, ++at, __ATOMIC_RELAXED);
    }
    return at <= im->n_levels ? &im->levels[at - 1] : NULL;
}

/* ---- slots ---- */

static int64_t aot_slot_of(const run *r, uint32_t slot)
{
    return slot == AOT_NONE ? 0 : r->slots[slot];
}

static void compute_slots(const aot_image *im, const uint64_t *args, int64_t *slots)
{
    memcpy(slots, im->values, im->n_values * sizeof *slots);
    for (uint32_t i = 0; i < im->n_slots; i++) {
        const aot_slot *const s = &im->slots[i];
        if (s->op == AOT_SLOT_EXTENT) {
            slots[s->to] = (int64_t)args[s->a];
            continue;
        }
        const uint64_t x = (uint64_t)slots[s->a], y = (uint64_t)slots[s->b];
        const int64_t a = (int64_t)x, b = (int64_t)y;
        slots[s->to] = s->op == AOT_SLOT_ADD   ? (int64_t)(x + y)
                       : s->op == AOT_SLOT_SUB ? (int64_t)(x - y)
                       : s->op == AOT_SLOT_MUL ? (int64_t)(x * y)
                       : s->op == AOT_SLOT_MAX ? (a > b ? a : b)
                       : b > 0                 ? a / b + (a % b > 0)
                                               : 0;
    }
}

static int aot_guards_hold(const aot_image *im, const int64_t *slots)
{
    for (uint32_t i = 0; i < im->n_guards; i++) {
        const aot_guard *const g = &im->guards[i];
        const int64_t a = slots[g->a];
        const int holds = g->kind == AOT_GUARD_EQUAL      ? a == slots[g->b]
                          : g->kind == AOT_GUARD_IS       ? a == g->want
                          : g->kind == AOT_GUARD_AT_LEAST ? a >= g->want
                                                          : a <= g->want;
        if (!holds) return 0;
    }
    return 1;
}

/* ---- the workspace ---- */

/* Takes `bytes` bytes at *at, which moves on. base NULL: they are only counted. */
static void *aot_take(char *base, int64_t *at, int64_t bytes)
{
    void *const found = base ? base + *at : NULL;
    *at += (bytes + LINE - 1) / LINE * LINE;
    return found;
}

static int64_t aot_blocks_of(int64_t n)
{
    return (n + AOT_BLOCK - 1) / AOT_BLOCK;
}

/* The products of the extents of each role. */
static void measure(const run *r, const aot_seg *g, run_seg *s)
{
    s->n_outer = s->n_inner = s->n_red = 1;
    for (uint32_t x = 0; x < g->n_axes; x++) {
        const uint32_t role = g->roles >> (2 * x) & 3;
        const int64_t extent = aot_slot_of(r, r->im->list[g->extent + x]);
        if (role == AOT_ROLE_OUTER)
            s->n_outer *= extent;
        else if (role == AOT_ROLE_RED)
            s->n_red *= extent;
        else
            s->n_inner = extent;
    }
}

/* Whether the blocks of a reduction are divided between threads. */
static int is_divided(const run *r, const run_seg *s)
{
    return (s->seg->flags & AOT_SPLIT) && r->n_threads > 1 && s->n_outer < r->n_threads &&
           s->n_inner > 0 && s->n_red > AOT_BLOCK;
}

static int64_t scratch_bytes(const run *r, const aot_bind *b)
{
    return (aot_slot_of(r, b->offset) * b->size + 2 * LINE - 1) / LINE * LINE;
}

/* The bytes that m rows of a product need. */
static int64_t product_bytes(const run *r, const aot_seg *g, int64_t m)
{
    const int has_c = r->im->binds[g->operand + 2].buf != AOT_NONE;
    return aot_product_bytes(m, aot_slot_of(r, g->n), aot_slot_of(r, g->k), (int)g->is_f64, has_c);
}

/* Places the arguments of a segment. `area` collects what each thread needs. */
static void lay_out_segment(run *r, const aot_seg *g, run_seg *s, char *base, int64_t *at)
{
    const int64_t copies = g->flags & AOT_SCRATCH ? r->n_threads : 1;
    s->n_strides = (int64_t)g->n_access * g->n_axes;
    s->ptr = aot_take(base, at, copies * g->n_access * (int64_t)sizeof *s->ptr);
    s->stride = aot_take(base, at, s->n_strides * (int64_t)sizeof *s->stride);
    s->base = aot_take(base, at, g->n_access * (int64_t)sizeof *s->base);
    s->extent = aot_take(base, at, g->n_axes * (int64_t)sizeof *s->extent);
    s->num = aot_take(base, at, g->n_num * (int64_t)sizeof *s->num);
    s->partial = NULL;
    if (g->kind == AOT_SEG_KERNEL && is_divided(r, s)) {
        s->partial_row = g->n_partial * aot_blocks_of(s->n_red) * s->n_inner;
        s->partial = aot_take(base, at, s->partial_row * s->n_outer * (int64_t)sizeof *s->partial);
    }
    if (g->kind == AOT_SEG_PRODUCT)
        s->operand =
            aot_take(base, at, (g->n_batch + 3 * (g->n_batch + 2)) * (int64_t)sizeof(int64_t));
}

static int64_t aot_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- the workspace of loops that run in blocks ---- */

/* Programs without such loops do not have this code. */
#if defined(AOT_BLOCKS)

/* The rows of a block, which lies in a group. */
static int64_t aot_block_rows(const run *r, const aot_blocks *b)
{
    const int64_t most = aot_most(BLOCK_BYTES / b->bytes, 1);
    const int64_t fair = aot_most(b->n_rows / (r->n_threads * BLOCKS_PER_THREAD), b->least);
    const int64_t want = aot_least(aot_least(most, fair), b->group);
    const int64_t parts = (b->group + want - 1) / want, even = (b->group + parts - 1) / parts;
    return aot_least(aot_round_up(even, b->unit), b->group);
}

/* The bytes of a buffer's piece of a block. Rows of vectors may be read a little beyond. */
static int64_t aot_piece_bytes(int64_t row_bytes, int64_t rows)
{
    return (row_bytes * rows + 2 * LINE - 1) / LINE * LINE;
}

/* The bytes of the two values of a state in a block. */
static int64_t aot_state_bytes(const run *r, uint32_t root, int64_t rows)
{
    return 2 * aot_piece_bytes(r->im->roots[root].row_bytes, rows);
}

/* The bytes that a block of a loop needs. */
static int64_t aot_block_bytes(const run *r, const aot_loop *l)
{
    const aot_blocks *const b = &r->im->blocks[l->blocks];
    const int64_t rows = aot_block_rows(r, b);
    int64_t sum = 0;
    for (uint32_t i = b->piece; i < b->piece + b->n_pieces; i++)
        sum += aot_piece_bytes(r->im->pieces[i].row_bytes, rows);
    for (uint32_t i = l->root; i < l->root + l->n_roots; i++) sum += aot_state_bytes(r, i, rows);
    return sum;
}

/* Places what one worker has, from `base` on. Returns its bytes. */
static int64_t aot_lay_out_worker(run *r, char *base)
{
    const aot_image *const im = r->im;
    run w = *r;
    int64_t at = 0, memory = 0;
    run_seg counted;
    w.n_threads = 1;
    (void)aot_take(base, &at, im->n_bufs * (int64_t)sizeof *r->base);
    r->worker_segs_at = at;
    run_seg *const segs = aot_take(base, &at, im->n_segs * (int64_t)sizeof *segs);
    for (uint32_t i = 0; i < im->n_segs; i++) {
        const aot_seg *const g = &im->segs[i];
        run_seg *const s = base ? &segs[i] : &counted;
        if (g->per_row == 0) continue;
        s->seg = g;
        measure(r, g, s);
        lay_out_segment(&w, g, s, base, &at);
    }
    r->worker_memory_at = at;
    for (uint32_t i = 0; i < im->n_steps; i++) {
        if (im->steps[i].kind != AOT_STEP_LOOP) continue;
        const aot_loop *const l = &im->loops[im->steps[i].a];
        if (l->blocks != AOT_NONE) memory = aot_most(memory, aot_block_bytes(r, l));
    }
    return at + memory;
}

static void aot_lay_out_workers(run *r, char *base, int64_t *at)
{
    r->worker_bytes = 0;
    if (r->im->n_blocks == 0) return;
    r->worker_bytes = aot_lay_out_worker(r, NULL);
    r->workers = aot_take(base, at, r->worker_bytes * r->n_threads);
    for (int64_t t = 0; base && t < r->n_threads; t++)
        (void)aot_lay_out_worker(r, r->workers + r->worker_bytes * t);
}

/* The bytes of a product in a loop that runs in blocks: a block has few of its rows. */
static int64_t product_block_bytes(const run *r, const aot_seg *g)
{
    int64_t most = 0;
    const int64_t m = aot_slot_of(r, g->m);
    for (uint32_t i = 0; i < r->im->n_blocks; i++) {
        const int64_t rows = aot_least(aot_block_rows(r, &r->im->blocks[i]) * g->per_row, m);
        const int64_t last = rows > 0 && m % rows ? m % rows : rows;
        most = aot_most(most, product_bytes(r, g, rows));
        most = aot_most(most, product_bytes(r, g, last));
    }
    return most;
}
#else
static void aot_lay_out_workers(run *r, char *base, int64_t *at)
{
    (void)r, (void)base, (void)at;
}

static int64_t product_block_bytes(const run *r, const aot_seg *g)
{
    (void)r, (void)g;
    return 0;
}
#endif

/* Returns the bytes of the workspace that come before the arena. */
static int64_t aot_lay_out(run *r, char *base)
{
    const aot_image *const im = r->im;
    int64_t at = 0, tiles = 0, scratch = 0, product = 0, copies = 0, routine = 0;
    run_seg counted;
    (void)aot_take(base, &at, im->n_slots ? im->n_values * (int64_t)sizeof(int64_t) : 0);
    r->base = aot_take(base, &at, im->n_bufs * (int64_t)sizeof *r->base);
    r->place = aot_take(base, &at, im->n_roots * (int64_t)sizeof *r->place);
    r->segs = aot_take(base, &at, im->n_segs * (int64_t)sizeof *r->segs);
    for (uint32_t i = 0; i < im->n_segs; i++) {
        const aot_seg *const g = &im->segs[i];
        run_seg *const s = base ? &r->segs[i] : &counted;
        s->seg = g;
        measure(r, g, s);
        lay_out_segment(r, g, s, base, &at);
        int64_t own = 0;
        for (uint32_t k = 0; g->flags & AOT_SCRATCH && k < g->n_access; k++) {
            const aot_bind *const b = &im->binds[g->bind + k];
            if (b->kind == AOT_ACCESS_SCRATCH && b->same == k) own += scratch_bytes(r, b);
        }
        scratch = aot_most(scratch, own);
        if (g->flags & AOT_TILES) tiles = TILES_BYTES;
        if (g->kind == AOT_SEG_ROUTINE) {
            const aot_routine *const x = &im->routines[g->routine];
            routine = aot_most(routine, aot_routine_bytes(x, aot_slot_of(r, x->n)));
        }
        if (g->kind != AOT_SEG_PRODUCT) continue;
        product = aot_most(product, product_bytes(r, g, aot_slot_of(r, g->m)));
        if (g->per_row > 0) product = aot_most(product, product_block_bytes(r, g));
        copies = aot_most(copies, g->n_access * (int64_t)sizeof(char *) +
                                      s->n_strides * (int64_t)sizeof(int64_t));
    }
    r->scratch_at = LINE + tiles;
    r->product_at = r->scratch_at + scratch;
    r->copies_at = r->product_at + (product + LINE - 1) / LINE * LINE;
    r->area_bytes = r->copies_at + (copies + LINE - 1) / LINE * LINE;
    r->areas = aot_take(base, &at, r->area_bytes * r->n_threads);
    r->routine_bytes = aot_round_up(routine, LINE);
    r->routine_work = aot_take(base, &at, r->routine_bytes * r->n_threads);
    aot_lay_out_workers(r, base, &at);
    return at;
}

/* ---- arguments ---- */

static uint64_t aot_number_of(const run *r, const aot_num *n)
{
    if (n->slot == AOT_NONE && n->parameter == AOT_NONE) return n->bits;
    if (n->slot == AOT_NONE)
        return aot_bits_of_given(r->args[n->parameter], n->bits, n->as, n->bytes, n->is_integer);
    const int64_t v = r->slots[n->slot];
    if (n->as == AOT_AS_INTEGER) return aot_bits_of_integer((uint64_t)v + n->bits, n->bytes);
    const float f = (float)v; /* rounded once */
    return aot_bits_of_float(n->as == AOT_AS_F32 ? (double)f : (double)v, n->as);
}

static char *aot_address(const run *r, const aot_bind *b)
{
    return b->buf == AOT_NONE ? NULL
                              : r->base[b->buf] + aot_slot_of(r, b->offset) * (int64_t)b->size;
}

static char *area_of(const run *r, int64_t thread)
{
    return r->areas + r->area_bytes * thread;
}

/* Gives each thread its own scratch memory. */
static void aot_bind_scratch(const run *r, const aot_seg *g, run_seg *s)
{
    for (int64_t t = 0; t < r->n_threads; t++) {
        char **const ptr = s->ptr + t * g->n_access;
        char *at = area_of(r, t) + r->scratch_at;
        if (t > 0) memcpy(ptr, s->ptr, g->n_access * sizeof *ptr);
        for (uint32_t i = 0; i < g->n_access; i++) {
            const aot_bind *const b = &r->im->binds[g->bind + i];
            if (b->kind != AOT_ACCESS_SCRATCH) continue;
            ptr[i] = at;
            if (b->same == i)
                at += scratch_bytes(r, b);
            else
                ptr[i] = ptr[b->same];
        }
    }
}

static void bind_segment(const run *r, const aot_seg *g, run_seg *s)
{
    const uint32_t *const list = r->im->list;
    for (uint32_t x = 0; x < g->n_axes; x++) s->extent[x] = aot_slot_of(r, list[g->extent + x]);
    for (uint32_t i = 0; i < g->n_access; i++) {
        const aot_bind *const b = &r->im->binds[g->bind + i];
        s->ptr[i] = aot_address(r, b);
        s->base[i] = b->kind == AOT_ACCESS_INDEX ? aot_slot_of(r, b->offset) : 0;
        for (uint32_t x = 0; x < g->n_axes; x++)
            s->stride[i * g->n_axes + x] = aot_slot_of(r, list[b->stride + x]);
    }
    for (uint32_t i = 0; i < g->n_num; i++) s->num[i] = aot_number_of(r, &r->im->nums[g->num + i]);
    if (g->flags & AOT_SCRATCH) aot_bind_scratch(r, g, s);
    s->args = (aot_kargs){
        .ptr = s->ptr, .stride = s->stride, .base = s->base, .extent = s->extent, .num = s->num
    };
}

/* ---- products ---- */

/* The epilogue of a product, on one thread. */
typedef struct tail {
    const run *r;
    const run_seg *s;
    int64_t thread;
    int64_t row0; /* the row of the kernel that is row 0 of the product */
} tail;

/* Runs the epilogue over a tile of C. Its access to C reads the tile instead. The axes of the
 * kernel are columns, then rows, then INNER, which has columns too (fuser/plan.h). */
static void run_tail(void *user, const char *tile, int64_t ld, int64_t o0, int64_t o1, int64_t i0,
                     int64_t i1)
{
    const tail *const e = user;
    const run_seg *const s = e->s;
    const aot_seg *const g = s->seg;
    const uint32_t inner = g->n_axes - 1;
    char **const ptr = (char **)(void *)(area_of(e->r, e->thread) + e->r->copies_at);
    int64_t *const stride = (int64_t *)(void *)(ptr + g->n_access);
    int64_t *const c = stride + (int64_t)g->c_access * g->n_axes;
    aot_kargs a = s->args;
    int64_t column = s->extent[inner], n_rows = 1;
    o0 += e->row0;
    o1 += e->row0;
    memcpy(ptr, s->ptr, g->n_access * sizeof *ptr);
    memcpy(stride, s->stride, (size_t)s->n_strides * sizeof *stride);
    c[inner] = 1;
    for (uint32_t x = inner; x-- > g->n_column_axes; n_rows *= s->extent[x]) c[x] = ld * n_rows;
    for (uint32_t x = g->n_column_axes; x-- > 0; column *= s->extent[x]) c[x] = column;
    const int64_t piece = g->n_column_axes > 0 ? s->extent[inner] : i1;
    const int64_t size = g->is_f64 ? 8 : 4;
    /* The kernel counts rows from the start of C, which need not exist. */
    ptr[g->c_access] = (char *)((uintptr_t)tile - (uintptr_t)((o0 * ld + i0) * size));
    a.ptr = ptr;
    a.stride = stride;
    a.fault = (int64_t *)(void *)area_of(e->r, e->thread);
    a.work = area_of(e->r, e->thread) + LINE;
    const aot_kernel fn = e->r->level->kernels[3 * g->kernel];
    for (int64_t i = i0, end; i < i1; i = end) {
        const int64_t at = i / piece, row = at * n_rows, first = at * piece;
        end = first + piece < i1 ? first + piece : i1;
        fn(&a, row + o0, row + o1, i - first, end - first);
    }
}

static void bind_product(const run *r, const aot_seg *g, run_seg *s)
{
    const aot_bind *const b = &r->im->binds[g->operand];
    const uint32_t rank = g->n_batch + 2;
    int64_t *const batch = s->operand, *stride = s->operand + g->n_batch;
    aot_product *const p = &s->product;
    *p = (aot_product){ .m = aot_slot_of(r, g->m),
                        .n = aot_slot_of(r, g->n),
                        .k = aot_slot_of(r, g->k),
                        .n_batch = 1,
                        .batch_rank = g->n_batch,
                        .is_f64 = g->is_f64,
                        .batch = batch,
                        .a = aot_address(r, &b[0]),
                        .b = aot_address(r, &b[1]),
                        .c = aot_address(r, &b[2]),
                        .epilogue = g->kernel == AOT_NONE ? NULL : run_tail };
    for (uint32_t i = 0; i < g->n_batch; i++)
        p->n_batch *= batch[i] = aot_slot_of(r, r->im->list[g->batch + i]);
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < rank; i++)
            stride[k * rank + i] =
                b[k].buf == AOT_NONE ? 0 : aot_slot_of(r, r->im->list[b[k].stride + i]);
    p->a_stride = stride;
    p->b_stride = stride + rank;
    p->c_stride = stride + 2 * rank;
}

static void product_share(const run *r, const run_seg *s, int64_t part, int64_t parts)
{
    tail e = { r, s, part, 0 };
    aot_product p = s->product;
    p.user = &e;
    r->level->product[p.is_f64](&p, part, parts, area_of(r, part) + r->product_at);
}

/* ---- launches ---- */

static int64_t aot_share(int64_t n, int64_t part, int64_t parts, int64_t grain)
{
    const int64_t units = (n + grain - 1) / grain;
    const int64_t at = (units / parts * part + units % parts * part / parts) * grain;
    return at < n ? at : n;
}

/* Runs share `part` of a segment. */
static void segment_share(const run *r, const run_seg *s, int64_t part, int64_t parts)
{
    const aot_seg *const g = s->seg;
    if (g->kind != AOT_SEG_KERNEL || s->n_outer <= 0 || s->n_inner <= 0) return;
    const aot_kernel *const fn = &r->level->kernels[3 * g->kernel];
    aot_kargs a = s->args;
    a.fault = (int64_t *)(void *)area_of(r, part);
    a.work = area_of(r, part) + LINE;
    if (g->flags & AOT_SCRATCH) a.ptr = s->ptr + part * g->n_access;
    if (s->partial && parts > 1) {
        const int64_t n = aot_blocks_of(s->n_red);
        const int64_t b0 = aot_share(n, part, parts, 1), b1 = aot_share(n, part + 1, parts, 1);
        for (int64_t o = 0; o < s->n_outer && b0 < b1; o++) {
            a.partial = s->partial + o * s->partial_row;
            fn[1](&a, o, o + 1, b0, b1);
        }
        return;
    }
    if (s->n_outer >= parts || g->mode == AOT_MODE_ROW || (g->flags & AOT_WHOLE_ROWS)) {
        const int64_t grain = g->flags & AOT_TILES && s->n_outer >= STRIP * parts ? STRIP : 1;
        const int64_t o0 = aot_share(s->n_outer, part, parts, grain);
        const int64_t o1 = aot_share(s->n_outer, part + 1, parts, grain);
        if (o0 < o1) fn[0](&a, o0, o1, 0, s->n_inner);
        return;
    }
    const int64_t grain = g->mode == AOT_MODE_MAP ? MAP_GRAIN : COL_GRAIN;
    const int64_t i0 = aot_share(s->n_inner, part, parts, grain);
    const int64_t i1 = aot_share(s->n_inner, part + 1, parts, grain);
    if (i0 < i1) fn[0](&a, 0, s->n_outer, i0, i1);
}

static void finish_divided(const run *r, const run_seg *s)
{
    aot_kargs a = s->args;
    a.fault = (int64_t *)(void *)area_of(r, 0);
    a.work = area_of(r, 0) + LINE;
    for (int64_t o = 0; o < s->n_outer; o++) {
        a.partial = s->partial + o * s->partial_row;
        r->level->kernels[3 * s->seg->kernel + 2](&a, o, o + 1, 0, s->n_inner);
    }
}

static void launch_task(void *data, int index)
{
    const run *const r = data;
    const aot_launch *const l = r->launch;
    const fp_state fp = fp_enter();
    for (uint32_t i = l->first; i < l->first + l->n - l->n_after; i++)
        segment_share(r, &r->segs[i], index, r->n_tasks);
    fp_leave(fp);
}

static void product_task(void *data, int index)
{
    const tail *const e = data;
    const fp_state fp = fp_enter();
    product_share(e->r, e->s, index, e->r->n_tasks);
    fp_leave(fp);
}

/* ---- routines ---- */

typedef struct routine_run {
    const run *r;
    aot_routine_job job;
    int64_t n_tasks;
} routine_run;

static void routine_task(void *data, int index)
{
    const routine_run *const x = data;
    const run *const r = x->r;
    const fp_state fp = fp_enter();
    if (r->im->routine(&x->job, index, x->n_tasks, r->routine_work + r->routine_bytes * index))
        *(int64_t *)(void *)area_of(r, index) = 1;
    fp_leave(fp);
}

static void aot_run_routine(const run *r, const aot_seg *g, const aot_threads *threads)
{
    const aot_routine *const what = &r->im->routines[g->routine];
    const aot_bind *const operand = &r->im->binds[g->operand];
    const uint32_t *const list = r->im->list + what->list;
    routine_run x = { .r = r, .n_tasks = 1 };
    aot_routine_job *const j = &x.job;
    int64_t n = aot_slot_of(r, what->n);
    j->what = what;
    j->a = aot_address(r, &operand[0]);
    j->b = aot_address(r, &operand[1]);
    j->c = aot_address(r, &operand[2]);
    j->n = n;
    j->m = aot_slot_of(r, what->m);
    j->first = aot_slot_of(r, what->first);
    j->first = aot_most(aot_least(j->first, j->n - j->m), 0);
    j->step = aot_slot_of(r, what->step);
    j->b_step = aot_slot_of(r, what->b_step);
    if (what->op >= AOT_ADD) n = 1;
    for (uint32_t i = 0; i < what->rank; i++) {
        n *= j->extent[i] = aot_slot_of(r, list[i]);
        j->a_stride[i] = aot_slot_of(r, list[what->rank + i]);
        j->b_stride[i] = aot_slot_of(r, list[2 * what->rank + i]);
        j->c_stride[i] = aot_slot_of(r, list[3 * what->rank + i]);
    }
    if (r->n_threads > 1 && (double)n * ROUTINE_PS > FORK_PS) x.n_tasks = r->n_threads;
    if (x.n_tasks > 1)
        threads->run(threads->user, (int)x.n_tasks, routine_task, &x);
    else
        routine_task(&x, 0);
}

/* The estimated time of the kernels of a launch, in ps. */
static double launch_ps(const run *r, const aot_launch *l)
{
    double sum = 0;
    for (uint32_t i = l->first; i < l->first + l->n - l->n_after; i++) {
        const run_seg *const s = &r->segs[i];
        if (s->seg->kind != AOT_SEG_KERNEL) continue;
        const double elements =
            (double)s->n_outer * (double)s->n_inner * (double)(s->n_red > 0 ? s->n_red : 1);
        sum += elements * s->seg->picoseconds;
    }
    return sum;
}

static void aot_run_launch(run *r, const aot_launch *l, const aot_threads *threads)
{
    r->launch = l;
    r->n_tasks = r->n_threads > 1 && launch_ps(r, l) > FORK_PS ? r->n_threads : 1;
    if (r->n_tasks > 1) threads->run(threads->user, (int)r->n_tasks, launch_task, r);
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        const run_seg *const s = &r->segs[i];
        const int is_after = i >= l->first + l->n - l->n_after;
        if (s->seg->kind == AOT_SEG_PRODUCT) {
            const double ps = (double)s->product.m * (double)s->product.n * (double)s->product.k *
                              (double)s->product.n_batch * 20;
            const int64_t before = r->n_tasks;
            tail e = { r, s, 0, 0 };
            r->n_tasks = r->n_threads > 1 && ps > FORK_PS ? r->n_threads : 1;
            if (r->n_tasks > 1)
                threads->run(threads->user, (int)r->n_tasks, product_task, &e);
            else
                product_share(r, s, 0, 1);
            r->n_tasks = before;
        } else if (s->seg->kind == AOT_SEG_ROUTINE) {
            aot_run_routine(r, s->seg, threads);
        } else if (r->n_tasks <= 1 || is_after) {
            segment_share(r, s, 0, 1);
        } else if (s->partial) {
            finish_divided(r, s);
        }
    }
}

/* ---- calls ---- */

static int has_fault(const run *r)
{
    for (int64_t t = 0; t < r->n_threads; t++)
        if (*(const int64_t *)(const void *)area_of(r, t) != 0) return 1;
    return 0;
}

static void aot_find_buffers(const run *r, const uint64_t *args)
{
    for (uint32_t i = 0; i < r->im->n_bufs; i++) {
        const aot_buf *const b = &r->im->bufs[i];
        r->base[i] = b->kind == AOT_BUF_PARAMETER ? (char *)(uintptr_t)args[b->index]
                     : b->kind == AOT_BUF_DATA
                         ? (char *)(uintptr_t)r->im->data + aot_slot_of(r, b->index)
                     : b->kind == AOT_BUF_TEMPORARY ? r->arena + aot_slot_of(r, b->index)
                                                    : NULL;
    }
}

static int step_launches(run *r, const aot_step *step)
{
    for (uint32_t i = step->c; i < step->c + step->d; i++) {
        if (r->im->segs[i].kernel != AOT_NONE) bind_segment(r, &r->im->segs[i], &r->segs[i]);
        if (r->im->segs[i].kind == AOT_SEG_PRODUCT) bind_product(r, &r->im->segs[i], &r->segs[i]);
    }
    for (uint32_t i = step->a; i < step->a + step->b; i++) {
        const aot_launch *const l = &r->im->launches[i];
        if (l->n > 0) aot_run_launch(r, l, r->threads);
        if (l->checks && has_fault(r)) return AOT_INDEX;
    }
    return AOT_OK;
}

static void aot_copy(const run *r, uint32_t to, uint32_t from, uint32_t bytes)
{
    if (r->base[to] != r->base[from])
        memcpy(r->base[to], r->base[from], (size_t)aot_slot_of(r, bytes));
}

static void write_number(const run *r, const aot_step *step)
{
    const uint64_t bits = aot_number_of(r, &r->im->nums[step->b]);
    const uint32_t half = (uint32_t)bits;
    const uint16_t quarter = (uint16_t)bits;
    const uint8_t byte = (uint8_t)bits;
    const void *const from = step->c == 8   ? (const void *)&bits
                             : step->c == 4 ? (const void *)&half
                             : step->c == 2 ? (const void *)&quarter
                                            : (const void *)&byte;
    memcpy(r->base[step->a], from, step->c);
}

static int is_true(const run *r, uint32_t buf)
{
    return *(const uint8_t *)r->base[buf] != 0;
}

/* ---- loops in blocks of rows ---- */

#if defined(AOT_BLOCKS)
typedef struct block_loop {
    const run *r;
    const aot_loop *loop;
    const aot_blocks *blocks;
    const aot_step *body;
    int64_t rows, n_blocks, most;
} block_loop;

/* A thread takes rows [first, end) through the iterations. */
typedef struct worker {
    const block_loop *b;
    run r; /* its own addresses of buffers, segments and area */
    int64_t first, end, number;
    char *memory;
} worker;

/* The address at which row 0 would be, when row w->first is at `at`. */
static char *aot_block_origin(const worker *w, char *at, int64_t row_bytes)
{
    return (char *)((uintptr_t)at - (uintptr_t)(w->first * row_bytes));
}

/* The memory for a block of state i: that of its first or second value. For the number of roots,
 * the end of all that. */
static char *aot_state_piece(const worker *w, uint32_t i, int second)
{
    const uint32_t root = w->b->loop->root;
    char *at = w->memory;
    for (uint32_t k = 0; k < i; k++) at += aot_state_bytes(&w->r, root + k, w->b->rows);
    return second ? at + aot_state_bytes(&w->r, root + i, w->b->rows) / 2 : at;
}

/* Sets the addresses of all buffers that move for iteration w->number. */
static void aot_move_buffers(worker *w)
{
    const aot_image *const im = w->r.im;
    const aot_loop *const l = w->b->loop;
    for (uint32_t i = l->row; i < l->row + l->n_rows; i++) {
        const aot_row *const x = &im->rows[i];
        w->r.base[x->buf] = w->r.base[x->of] + aot_slot_of(&w->r, x->first) +
                            w->number * aot_slot_of(&w->r, x->step);
    }
    for (uint32_t i = 0; i < l->n_roots; i++) {
        const aot_root *const x = &im->roots[l->root + i];
        const int has_two = !(x->flags & AOT_ROOT_IN_PLACE), odd = (int)(w->number & 1);
        if (x->state == AOT_NONE) {
            w->r.base[x->next] = w->r.base[x->out] + w->number * aot_slot_of(&w->r, x->bytes);
            continue;
        }
        w->r.base[x->state] =
            aot_block_origin(w, aot_state_piece(w, i, has_two && odd), x->row_bytes);
        w->r.base[x->next] =
            aot_block_origin(w, aot_state_piece(w, i, has_two && !odd), x->row_bytes);
    }
}

static void aot_run_block_kernel(const worker *w, const run_seg *s)
{
    const int64_t i0 = w->first * s->seg->per_row, i1 = w->end * s->seg->per_row;
    aot_kargs a = s->args;
    a.fault = (int64_t *)(void *)area_of(&w->r, 0);
    a.work = area_of(&w->r, 0) + LINE;
    const aot_kernel fn = w->r.level->kernels[3 * s->seg->kernel];
    if (s->seg->flags & AOT_BY_INNER)
        fn(&a, 0, 1, i0, i1);
    else
        fn(&a, i0, i1, 0, s->n_inner);
}

static int64_t aot_batch_offset(const aot_product *p, const int64_t *stride, int64_t entry)
{
    int64_t offset = 0;
    for (uint32_t i = p->batch_rank; i-- > 0; entry /= p->batch[i])
        offset += entry % p->batch[i] * stride[i];
    return offset;
}

static void aot_run_block_product(const worker *w, const run_seg *s)
{
    const aot_product *const all = &s->product;
    const uint32_t rank = all->batch_rank;
    const int64_t size = all->is_f64 ? 8 : 4, last = w->end * s->seg->per_row;
    for (int64_t at = w->first * s->seg->per_row, next; at < last; at = next) {
        const int64_t entry = at / all->m, m0 = at % all->m;
        aot_product p = *all;
        tail e = { &w->r, s, 0, at };
        next = aot_least(last, (entry + 1) * all->m);
        p.m = next - at;
        p.n_batch = 1;
        p.batch_rank = 0;
        p.a += (aot_batch_offset(all, all->a_stride, entry) + m0 * all->a_stride[rank]) * size;
        p.b += aot_batch_offset(all, all->b_stride, entry) * size;
        if (p.c)
            p.c += (aot_batch_offset(all, all->c_stride, entry) + m0 * all->c_stride[rank]) * size;
        p.a_stride += rank;
        p.b_stride += rank;
        p.c_stride += rank;
        p.user = &e;
        w->r.level->product[p.is_f64](&p, 0, 1, area_of(&w->r, 0) + w->r.product_at);
    }
}

static void aot_run_block_iteration(worker *w)
{
    const aot_step *const body = w->b->body;
    aot_move_buffers(w);
    for (uint32_t i = body->c; i < body->c + body->d; i++) {
        const aot_seg *const g = &w->r.im->segs[i];
        run_seg *const s = &w->r.segs[i];
        if (g->kernel != AOT_NONE) bind_segment(&w->r, g, s);
        if (g->kind == AOT_SEG_PRODUCT) {
            bind_product(&w->r, g, s);
            aot_run_block_product(w, s);
        } else {
            aot_run_block_kernel(w, s);
        }
    }
}

/* Whether the values that iteration n reads for a group are finite. */
static int aot_has_finite_values(const worker *w, int64_t group, int64_t n)
{
    const run *const r = &w->r;
    const aot_loop *const l = w->b->loop;
    const aot_blocks *const b = w->b->blocks;
    const uint32_t *const extent = r->im->list + b->batch, *const stride = extent + b->n_batch;
    const int64_t row = aot_slot_of(r, b->row);
    int64_t at = aot_slot_of(r, b->offset);
    for (uint32_t i = b->n_batch; i-- > 0;) {
        const int64_t e = aot_slot_of(r, extent[i]);
        at += group % e * aot_slot_of(r, stride[i]);
        group /= e;
    }
    const char *from = r->base[b->values];
    for (uint32_t i = l->row; i < l->row + l->n_rows; i++) {
        const aot_row *const x = &r->im->rows[i];
        if (x->buf == b->values)
            from = r->base[x->of] + aot_slot_of(r, x->first) + n * aot_slot_of(r, x->step);
    }
    const float *const v = (const float *)(const void *)from + at;
    if (row == b->width) return df_are_finite(v, (int64_t)b->keys * b->width);
    for (int64_t i = 0; i < b->keys; i++)
        if (!df_are_finite(v + i * row, b->width)) return 0;
    return 1;
}

/* How many iterations the block needs. The others would leave the states as they are
 * (src/runtime/exec/exec_masked.c says why), but for a -0 in the sum. */
static int64_t aot_block_iterations(const worker *w)
{
    const aot_blocks *const b = w->b->blocks;
    const int64_t most = w->b->most, group = w->first / b->group;
    if (b->keys == 0) return most;
    const int64_t n = aot_least((w->end - group * b->group - 1) / b->keys + 1, most);
    for (int64_t i = n; i < most; i++)
        if (!aot_has_finite_values(w, group, i)) return most;
    return n;
}

static void aot_run_block(worker *w)
{
    const block_loop *const b = w->b;
    const aot_root *const root = w->r.im->roots + b->loop->root;
    const int64_t rows = w->end - w->first, n = aot_block_iterations(w);
    for (uint32_t i = 0; i < b->loop->n_roots; i++)
        if (root[i].state != AOT_NONE)
            memcpy(aot_state_piece(w, i, 0), w->r.base[root[i].init] + w->first * root[i].row_bytes,
                   (size_t)(rows * root[i].row_bytes));
    for (w->number = 0; w->number < n; w->number++) aot_run_block_iteration(w);
    for (uint32_t i = 0; i < b->loop->n_roots; i++) {
        if (root[i].state == AOT_NONE) continue;
        const int64_t bytes = rows * root[i].row_bytes;
        char *const at = aot_state_piece(w, i, (n & 1) && !(root[i].flags & AOT_ROOT_IN_PLACE));
        float *const sum = (float *)(void *)at;
        for (int64_t k = 0; n < b->most && i == AOT_MASKED_SUM && k < bytes / 4; k++)
            sum[k] += 0.0f;
        memcpy(w->r.base[root[i].out] + w->first * root[i].row_bytes, at, (size_t)bytes);
    }
}

static void aot_block_task(void *data, int index)
{
    const block_loop *const b = data;
    const run *const r = b->r;
    const int64_t group = b->blocks->group, per_group = (group + b->rows - 1) / b->rows;
    char *const own = r->workers + r->worker_bytes * index;
    worker w = { .b = b, .r = *r };
    w.r.n_threads = 1;
    w.r.areas = area_of(r, index);
    w.r.base = (char **)(void *)own;
    w.r.segs = (run_seg *)(void *)(own + r->worker_segs_at);
    memcpy(w.r.base, r->base, r->im->n_bufs * sizeof *r->base);
    w.r.base[b->loop->number] = (char *)&w.number;
    w.memory = own + r->worker_memory_at;
    const fp_state fp = fp_enter();
    for (int64_t k = index; k < b->n_blocks; k += r->n_tasks) {
        const int64_t in_group = k % per_group * b->rows;
        char *piece = aot_state_piece(&w, b->loop->n_roots, 0);
        w.first = k / per_group * group + in_group;
        w.end = w.first + aot_least(b->rows, group - in_group);
        for (uint32_t i = b->blocks->piece; i < b->blocks->piece + b->blocks->n_pieces; i++) {
            const aot_piece *const x = &r->im->pieces[i];
            w.r.base[x->buf] = aot_block_origin(&w, piece, x->row_bytes);
            piece += aot_piece_bytes(x->row_bytes, b->rows);
        }
        aot_run_block(&w);
    }
    fp_leave(fp);
}

/* Runs a loop in blocks. Returns 0 when there are too few of them. */
static int aot_run_in_blocks(run *r, const aot_loop *l, const aot_step *body)
{
    if (l->blocks == AOT_NONE) return 0;
    const aot_blocks *const x = &r->im->blocks[l->blocks];
    block_loop b = { .r = r,
                     .loop = l,
                     .blocks = x,
                     .body = body,
                     .rows = aot_block_rows(r, x),
                     .most = aot_slot_of(r, l->most) };
    b.n_blocks = (int64_t)(x->n_rows / x->group) * ((x->group + b.rows - 1) / b.rows);
    if (b.n_blocks < r->n_threads) return 0;
    r->n_tasks = r->n_threads;
    if (r->n_tasks > 1)
        r->threads->run(r->threads->user, (int)r->n_tasks, aot_block_task, &b);
    else
        aot_block_task(&b, 0);
    return 1;
}
#else
static int aot_run_in_blocks(run *r, const aot_loop *l, const aot_step *body)
{
    (void)r, (void)l, (void)body;
    return 0;
}
#endif

/* ---- loops ---- */

enum { PLACE_ELSEWHERE, PLACE_OUT, PLACE_OWN };

/* Sets where iteration n of at most `most` stores its results. */
static void place_results(const run *r, const aot_loop *l, int64_t n, int64_t most)
{
    for (uint32_t i = 0; i < l->n_roots; i++) {
        const aot_root *const x = &r->im->roots[l->root + i];
        if (x->same != i) continue;
        char *const out = r->base[x->out];
        if (x->state == AOT_NONE) {
            r->base[x->next] = out + n * aot_slot_of(r, x->bytes);
            continue;
        }
        int32_t *const place = &r->place[l->root + i];
        /* Without a test, the last iteration stores in `out`. */
        if (x->flags & AOT_ROOT_IN_PLACE)
            *place = PLACE_OUT;
        else if (*place == PLACE_ELSEWHERE)
            *place = (most - n) % 2 == 1 ? PLACE_OUT : PLACE_OWN;
        else
            *place = *place == PLACE_OUT ? PLACE_OWN : PLACE_OUT;
        r->base[x->next] = *place == PLACE_OUT ? out : r->arena + aot_slot_of(r, x->own);
    }
}

/* Passes the results of iteration n to the states and rows. */
static void pass_on(const run *r, const aot_loop *l, int64_t n)
{
    for (uint32_t i = 0; i < l->n_roots; i++) {
        const aot_root *const x = &r->im->roots[l->root + i];
        char *const from = r->base[r->im->roots[l->root + x->same].next];
        const int64_t bytes = aot_slot_of(r, x->bytes);
        if (x->state != AOT_NONE)
            r->base[x->state] = from;
        else if (x->same != i)
            memcpy(r->base[x->out] + n * bytes, from, (size_t)bytes);
    }
}

static int aot_run_steps(run *r, uint32_t first, uint32_t n);

static int aot_run_loop(run *r, uint32_t at)
{
    const aot_step *const step = &r->im->steps[at];
    const aot_loop *const l = &r->im->loops[step->a];
    const aot_root *const root = r->im->roots + l->root;
    const int64_t most = aot_slot_of(r, l->most);
    int st = AOT_OK;
    if (aot_run_in_blocks(r, l, step + 1)) return AOT_OK;
    for (uint32_t i = 0; i < l->n_roots; i++) {
        if (root[i].state == AOT_NONE) continue;
        r->base[root[i].state] = r->base[root[i].init];
        r->place[l->root + i] = PLACE_ELSEWHERE;
    }
    for (int64_t n = 0; n < most; n++) {
        memcpy(r->base[l->number], &n, sizeof n);
        for (uint32_t i = l->row; i < l->row + l->n_rows; i++) {
            const aot_row *const w = &r->im->rows[i];
            r->base[w->buf] =
                r->base[w->of] + aot_slot_of(r, w->first) + n * aot_slot_of(r, w->step);
        }
        if (l->test != AOT_NONE) {
            st = aot_run_steps(r, at + 1, step->n_first);
            if (st != AOT_OK) return st;
            if (!is_true(r, l->test)) break;
        }
        place_results(r, l, n, most);
        st = aot_run_steps(r, at + 1 + step->n_first, step->n_second);
        if (st != AOT_OK) return st;
        pass_on(r, l, n);
    }
    for (uint32_t i = 0; i < l->n_roots; i++)
        if (root[i].state != AOT_NONE) aot_copy(r, root[i].out, root[i].state, root[i].bytes);
    return AOT_OK;
}

/* Runs n steps from step `first` on. */
static int aot_run_steps(run *r, uint32_t first, uint32_t n)
{
    int st = AOT_OK;
    for (uint32_t at = first; at < first + n && st == AOT_OK;) {
        const aot_step *const s = &r->im->steps[at];
        if (s->kind == AOT_STEP_LAUNCHES) st = step_launches(r, s);
        if (s->kind == AOT_STEP_COPY) aot_copy(r, s->a, s->b, s->c);
        if (s->kind == AOT_STEP_NUMBER) write_number(r, s);
        if (s->kind == AOT_STEP_LOOP) st = aot_run_loop(r, at);
        if (s->kind == AOT_STEP_COND)
            st = is_true(r, s->a) ? aot_run_steps(r, at + 1, s->n_first)
                                  : aot_run_steps(r, at + 1 + s->n_first, s->n_second);
        at += 1 + s->n_first + s->n_second;
    }
    return st;
}

/* Fills in the slots of r; own: memory for them. Returns 0 when a guard does not hold. */
static int aot_begin(run *r, const aot_image *im, const uint64_t *args, int64_t *own)
{
    r->im = im;
    r->args = args;
    r->slots = im->values;
    if (im->n_slots == 0) return 1;
    compute_slots(im, args, own);
    r->slots = own;
    return aot_guards_hold(im, own);
}

enum { MOST_COUNTED = 4096 };

AOT_API int64_t deft_aot_workspace(const aot_image *im, const int64_t *extents, int64_t n_threads)
{
    /* A program with open extents has few slots; the exporter sees to it (aot/program.c). */
    int64_t slots[MOST_COUNTED];
    run r;
    if (n_threads < 1) n_threads = 1;
    if (n_threads > MOST_THREADS) n_threads = MOST_THREADS;
    r.n_threads = n_threads;
    if (im->n_values > MOST_COUNTED && im->n_slots > 0) return -1;
    if (!aot_begin(&r, im, (const uint64_t *)(const void *)extents, slots)) return -1;
    return aot_lay_out(&r, NULL) + aot_slot_of(&r, im->arena) + LINE;
}

AOT_API int deft_aot_run(const aot_image *im, const uint64_t *args)
{
    run r;
    char *ws = (char *)(uintptr_t)args[im->n_parameters];
    const aot_threads *const threads = (const aot_threads *)(uintptr_t)args[im->n_parameters + 1];
    r.n_threads = threads && threads->n > 1 ? threads->n : 1;
    if (r.n_threads > MOST_THREADS) r.n_threads = MOST_THREADS;
    if (!ws) return AOT_ARGUMENT;
    ws += -(uintptr_t)ws & (LINE - 1);
    r.level = find_level(im);
    if (!r.level) return AOT_PROCESSOR;
    if (!aot_begin(&r, im, args, (int64_t *)(void *)ws)) return AOT_EXTENT;
    r.arena = ws + aot_lay_out(&r, ws);
    r.threads = threads;
    aot_find_buffers(&r, args);
    for (int64_t t = 0; t < r.n_threads; t++) memset(area_of(&r, t), 0, 3 * sizeof(int64_t));
    const fp_state fp = fp_enter();
    const int st = aot_run_steps(&r, 0, im->n_steps);
    fp_leave(fp);
    return st;
}
