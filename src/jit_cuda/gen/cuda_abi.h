/* SPDX-License-Identifier: Apache-2.0
 *
 * How a generated CUDA kernel is called: its entries, the words it takes, its grids. The generator
 * writes by this file and whoever launches reads it; nothing here needs a driver, a GPU or a CUDA
 * header.
 *
 * Passes. MAIN does a whole segment. A SPLIT kernel has PART and FIN too, launched one after the
 * other: PART reduces each block of DF_BLOCK elements into `partial`, FIN joins the blocks of each
 * row, in place in `partial`, and does what is left. `partial` is
 *
 *   word ((o * n_slots + slot) * n_blocks + b) * inner + i
 *
 * for row o, block b and INNER index i (inner is 1 in ROW); slots count as in runtime/device.h.
 *
 * Entries. One pass has an entry for each set of flags that was asked for; all give equal bits:
 *
 *   NARROW  positions and offsets are 32 bits wide: df_cuda_facts found it so
 *   WIDE    MAP: a thread's groups are as many neighbours along INNER as fill 16 bytes of the
 *           widest dtype, one access each; else one element. ROW, MAIN and PART: its two
 *           neighbours of each 64 along the row in one. COL, MAIN and PART: it has several
 *           columns, one access in each row. df_cuda_facts found them aligned
 *   LONG    ROW, MAIN: a thread block per row, its 8 warps taking blocks of DF_BLOCK in turn.
 *           Without it: a warp per row, for rows of at most DF_CUDA_WARP_ROW elements
 *   MANY    segments of one kernel in one grid, from a table in global memory
 *
 * Words. A segment's arguments are 8-byte words in the order of df_cuda_layout: addresses and INDEX
 * bases, strides that are DF_STEP_ANY, extents, numbers, the fault words, `partial`. Without MANY
 * they are the entry's one parameter, by value (df_cuda_by_value: 4 KB of them fit). With MANY the
 * parameter is a df_cuda_many.
 *
 *   table   | words of segment 0 | words of segment 1 | ...
 *   first   | 0 | first thread block of segment 1 | ...
 *
 * Grids are one-dimensional: threads as df_cuda_threads says, thread blocks as many as one likes,
 * df_cuda_blocks at most to the good: kernels stride over what there is to do. With NARROW, no more
 * than 2^30 threads.
 *
 * SCRATCH. The address is that of DF_CUDA_TEAMS(entry) * thread blocks of the segment times the
 * row's length elements, 16-byte aligned: one row for each team of threads.
 *
 * Faults. fault[0] must be 0 before a launch; the first check that fails writes {id + 1, index,
 * extent}, and it stays.
 *
 * What lies in memory is what plan.h allows in parallel: an element is read before it is written in
 * place by the thread that writes it, and stages of a row are kept apart by barriers. Between
 * launches on one stream nothing else is needed.
 *
 * The order of reductions (base/limits.h) by threads:
 *
 *   ROW  a warp per block: thread t holds accumulators 2t and 2t + 1
 *   COL  32 INNER x 16: thread y holds accumulators y, y + 16, y + 32, y + 48 of its columns
 *
 * A scan in ROW is one chain in one warp: 64 elements are computed side by side, then go through
 * the chain in order. In COL, and in LOOP, the thread of a column goes along it.
 */
#ifndef DF_JIT_CUDA_CUDA_ABI_H
#define DF_JIT_CUDA_CUDA_ABI_H

#include "runtime/device.h"

enum {
    DF_CUDA_WARP_ROW = 16 * 4096, /* elements of a row that one warp may take */
    DF_CUDA_WARP_DEPTH = 5,       /* block results that then wait to be joined, at most */
    DF_CUDA_DEPTH = 24,           /* and in any other pass: rows of fewer than 2^36 elements */
    DF_CUDA_WARPS = 8,            /* of a thread block, but in COL and LOOP */
    DF_CUDA_TILE = 32,            /* COL: threads of a thread block along INNER */
    DF_CUDA_TILE_Y = 16,          /* and along what is reduced */
    DF_CUDA_PARAM_BYTES = 4096,
    DF_CUDA_SHARED_BYTES = 48 << 10 /* without asking for more */
};

typedef enum df_cuda_pass {
    DF_CUDA_MAIN,
    DF_CUDA_PART,
    DF_CUDA_FIN,
    DF_CUDA_N_PASSES
} df_cuda_pass;

enum { DF_CUDA_NARROW = 1, DF_CUDA_WIDE = 2, DF_CUDA_LONG = 4, DF_CUDA_MANY = 8 };

typedef struct df_cuda_entry {
    uint8_t pass;  /* df_cuda_pass */
    uint8_t flags; /* DF_CUDA_NARROW and so on */
} df_cuda_entry;

/* SCRATCH rows per thread block */
#define DF_CUDA_TEAMS(entry) ((entry).flags & DF_CUDA_LONG ? 1 : DF_CUDA_WARPS)

/* The parameter of an entry with MANY. */
typedef struct df_cuda_many {
    const uint64_t *table; /* n segments, df_cuda_layout words each */
    const uint32_t *first; /* the first thread block of each, ascending from 0 */
    uint32_t n;
    uint32_t n_blocks; /* of the grid */
} df_cuda_many;

/* ---- words ---- */

typedef enum df_cuda_word_kind {
    DF_CUDA_WORD_PTR,    /* of `access`; SCRATCH: see above */
    DF_CUDA_WORD_BASE,   /* of `access`, an INDEX */
    DF_CUDA_WORD_STRIDE, /* of `access` along `axis`, elements */
    DF_CUDA_WORD_EXTENT, /* of `axis` */
    DF_CUDA_WORD_NUM,    /* number slot `access` */
    DF_CUDA_WORD_FAULT,  /* address of three i64 words; kernels with CHECKS */
    DF_CUDA_WORD_PARTIAL /* address; SPLIT kernels */
} df_cuda_word_kind;

typedef struct df_cuda_word {
    uint32_t kind; /* df_cuda_word_kind */
    uint32_t access, axis;
} df_cuda_word;

/* Calls f for each word in order, at: 0, 1, ...; f may be NULL. Returns how many there are. */
uint32_t df_cuda_layout(const df_kernel *k, void (*f)(void *user, uint32_t at, df_cuda_word w),
                        void *user);
/* The words of a segment, df_cuda_layout of them. a: as for the CPU, with addresses of the device.
 */
void df_cuda_fill(const df_kernel *k, const df_kargs *a, uint64_t *words);
/* Whether they fit an entry without MANY. */
bool df_cuda_by_value(const df_kernel *k);

/* ---- launches ---- */

/* The flags, MANY aside, that a segment allows, and LONG where its rows need it. */
uint8_t df_cuda_facts(const df_kernel *k, const df_kargs *a);
/* Whether entry `by` may go where `want` was chosen, and all bits stay. facts: what each of the
 * segments allows, and LONG where one needs it. MAIN stands for PART and FIN together. In a FAST
 * kernel only `want` itself: contracted as the compiler likes, entries may differ in bits there,
 * and what happens to be compiled must never choose a result. */
bool df_cuda_may_substitute(const df_kernel *k, uint8_t facts, df_cuda_entry by,
                            df_cuda_entry want);
/* Neighbours that a thread of an entry with WIDE takes at once: in MAP fewer for very long bodies,
 * in COL for any but short ones. 1: WIDE means nothing for k. */
uint32_t df_cuda_lanes(const df_kernel *k);
/* Groups of neighbours that a thread of an entry of MAP reads before it goes on with any, where it
 * has so many left: short bodies have registers for it. 1 in other modes. */
uint32_t df_cuda_packs(const df_kernel *k, uint8_t flags);
/* Threads of a thread block. */
uint32_t df_cuda_threads(const df_kernel *k, df_cuda_pass pass);
/* Thread blocks that have something to do; 0: nothing is to be launched. */
int64_t df_cuda_blocks(const df_kernel *k, df_cuda_entry e, const df_kargs *a);
/* 8-byte words of `partial` for a SPLIT segment. */
int64_t df_cuda_partial_words(const df_kernel *k, const df_kargs *a);
/* DEFT_E_LIMIT when a reduction has more blocks than fit DF_CUDA_DEPTH. */
deft_status df_cuda_fits(df_diag *d, const df_kernel *k, const df_kargs *a);

/* ---- text ---- */

/* DEFT_E_COMPILE: df_cuda_text would refuse k, whatever the entries. */
deft_status df_cuda_can(df_diag *d, const df_kernel *k);
/* What every program begins with: types, the meaning of each op, reductions. */
const char *df_cuda_prelude(size_t *n);
/* The name of entry e of the kernel that is called `name`: name_main_nw and the like. cap: 32 do
 * for names of 12. */
void df_cuda_entry_name(const char *name, df_cuda_entry e, char *out, size_t cap);
/* Appends k's entries to a program that begins with the prelude. Same kernel and entries, same
 * text. DEFT_E_COMPILE: it holds what cannot be generated, and d says what. Any thread. */
deft_status df_cuda_text(df_diag *d, const df_kernel *k, const char *name,
                         const df_cuda_entry *entry, uint32_t n, const df_mem *mem, df_str *out);

#endif
