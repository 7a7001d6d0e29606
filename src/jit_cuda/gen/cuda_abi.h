/* SPDX-License-Identifier: Apache-2.0
 *
 * How a generated CUDA kernel is called: its entries, its argument words, its grids. The
 * generator and the code that launches kernels both follow this file. It needs no driver,
 * no GPU and no CUDA header.
 *
 * Phases. MAIN computes a complete segment. A kernel that can split its reduction (SPLIT)
 * also has PART and FIN, which are launched one after the other in place of MAIN. PART
 * reduces each block of DF_BLOCK elements into `partial`. FIN joins the blocks of each row,
 * in place in `partial`, and computes the rest. `partial` is an array of 8-byte words with
 * this index:
 *
 *   ((o * n_slots + slot) * n_blocks + b) * inner + i
 *
 * Here o is the row, b the block and i the INNER index; inner is 1 in ROW. Slots are
 * numbered as runtime/device.h says.
 *
 * Entries. A phase has an entry for each set of flags that was requested. All give equal
 * bits:
 *
 *   NARROW  Positions and offsets are 32 bits wide; df_cuda_facts has checked that they fit.
 *   WIDE    Neighbours are one access; df_cuda_facts has checked that they are aligned.
 *           MAP: a thread's pack is as many neighbours along INNER as fill 16 bytes of the widest
 *           dtype. Without WIDE it is one element.
 *           ROW, MAIN and PART: a thread's two neighbours of each 64 along the row.
 *           COL, MAIN and PART: a thread has several columns, one access in each row.
 *   LONG    ROW, MAIN: a thread block per row, whose 8 warps take blocks of DF_BLOCK in turn.
 *           Without LONG: a warp per row, for rows of at most DF_CUDA_WARP_ROW elements.
 *   MANY    Several segments of one kernel in one grid, from a table in global memory.
 *   HELD    ROW, MAIN: rows that stages share stay in shared memory (gen/held.h), of which a launch
 *           has df_cuda_shared_bytes. df_cuda_holds says whether a segment's rows fit. With LONG
 *           the thread block may have fewer warps, df_cuda_team_threads.
 *
 * Argument words. The arguments of a segment are 8-byte words in the order of
 * df_cuda_layout. They are addresses and INDEX bases, strides that are DF_STEP_ANY,
 * extents, numbers, the address of the fault words, and `partial`. Without MANY they are
 * the one parameter of the entry, by value, when they fit in 4 KB (df_cuda_by_value). With
 * MANY the parameter is a df_cuda_many:
 *
 *   table   | words of segment 0 | words of segment 1 | ...
 *   first   | 0 | first thread block of segment 1 | ...
 *
 * Grids are one-dimensional. df_cuda_threads gives the threads of a thread block. Any
 * number of thread blocks is correct, because kernels stride over their work; more than
 * df_cuda_blocks gain nothing. With NARROW there may be no more than 2^30 threads.
 *
 * SCRATCH. The address is that of one row for each team of threads, 16-byte aligned. So it
 * has DF_CUDA_TEAMS(entry) * thread blocks of the segment * df_cuda_scratch_row(row length)
 * elements. HELD needs none, and reads no such address.
 *
 * Faults. fault[0] must be 0 before a launch. The first check that fails writes {id + 1,
 * index, extent}, which later failures do not overwrite.
 *
 * Order in memory. The accesses of a segment may run in parallel as plan.h says. An element
 * that is written in place is read first, by the thread that writes it. Barriers separate
 * the stages of a row. Launches of one stream need nothing more between them.
 *
 * The order of reductions (base/limits.h), by threads:
 *
 *   ROW   a warp per block: thread t holds accumulators 2t and 2t + 1
 *   COL   32 INNER x 16: thread y holds accumulators y, y + 16, y + 32, y + 48 of its columns
 *
 * A scan in ROW is one chain in one warp: 64 elements are computed side by side and then
 * joined in order. In COL, and in LOOP, the thread of a column runs along the column.
 */
#ifndef DF_JIT_CUDA_CUDA_ABI_H
#define DF_JIT_CUDA_CUDA_ABI_H

#include "runtime/device.h"

enum {
    DF_CUDA_WARP_ROW = 16 * 4096, /* elements of the longest row that one warp reduces */
    DF_CUDA_WARP_DEPTH = 5,       /* block results of such a row that wait to be joined, at most */
    /* the same for any other reduction: rows of fewer than 2^36 elements */
    DF_CUDA_DEPTH = 24,
    DF_CUDA_WARPS = 8,   /* warps of a thread block, but not in COL and LOOP */
    DF_CUDA_TILE = 32,   /* COL: threads of a thread block along INNER */
    DF_CUDA_TILE_Y = 16, /* and along the reduced axes */
    DF_CUDA_PARAM_BYTES = 4096,
    DF_CUDA_SHARED_BYTES = 48 << 10 /* available without a request to the driver */
};

typedef enum df_cuda_pass {
    DF_CUDA_MAIN,
    DF_CUDA_PART,
    DF_CUDA_FIN,
    DF_CUDA_N_PASSES
} df_cuda_pass;

enum {
    DF_CUDA_NARROW = 1,
    DF_CUDA_WIDE = 2,
    DF_CUDA_LONG = 4,
    DF_CUDA_MANY = 8,
    DF_CUDA_HELD = 16,
    DF_CUDA_N_FLAGS = 32 /* sets of flags */
};

typedef struct df_cuda_entry {
    uint8_t pass;  /* df_cuda_pass */
    uint8_t flags; /* DF_CUDA_NARROW and so on */
} df_cuda_entry;

/* Elements of a SCRATCH row: even, so that neighbours in every row are one access. */
DF_INLINE int64_t df_cuda_scratch_row(int64_t length)
{
    return length + (length & 1);
}

/* SCRATCH rows per thread block. */
#define DF_CUDA_TEAMS(entry) ((entry).flags & DF_CUDA_LONG ? 1 : DF_CUDA_WARPS)

/* The parameter of an entry with MANY. */
typedef struct df_cuda_many {
    const uint64_t *table; /* n segments, df_cuda_layout words each */
    const uint32_t *first; /* index of each segment's first thread block, ascending from 0 */
    uint32_t n;
    uint32_t n_blocks; /* thread blocks of the grid */
} df_cuda_many;

/* ---- argument words ---- */

typedef enum df_cuda_word_kind {
    DF_CUDA_WORD_PTR,    /* address of `access`; for SCRATCH see above */
    DF_CUDA_WORD_BASE,   /* base of `access`, an INDEX */
    DF_CUDA_WORD_STRIDE, /* stride of `access` along `axis`, in elements */
    DF_CUDA_WORD_EXTENT, /* extent of `axis` */
    DF_CUDA_WORD_NUM,    /* value of number slot `access` */
    DF_CUDA_WORD_FAULT,  /* address of three i64 fault words; kernels with CHECKS */
    DF_CUDA_WORD_PARTIAL /* address of `partial`; SPLIT kernels */
} df_cuda_word_kind;

typedef struct df_cuda_word {
    uint32_t kind; /* df_cuda_word_kind */
    uint32_t access, axis;
} df_cuda_word;

/* Calls f for each word in order, with at = 0, 1, ...; f may be NULL. Returns the number of
 * words. */
uint32_t df_cuda_layout(const df_kernel *k, void (*f)(void *user, uint32_t at, df_cuda_word w),
                        void *user);
/* Writes the df_cuda_layout words of a segment. a: arguments as for the CPU, with addresses
 * of the device. */
void df_cuda_fill(const df_kernel *k, const df_kargs *a, uint64_t *words);
/* Whether the words fit an entry without MANY. */
bool df_cuda_by_value(const df_kernel *k);

/* ---- launches ---- */

/* The flags that a segment allows, without MANY. LONG is set when its rows need it. */
uint8_t df_cuda_facts(const df_kernel *k, const df_kargs *a);
/* Whether entry `by` may replace entry `want` with equal bits. facts: the flags that every
 * segment allows, and LONG when one of them needs it. MAIN may replace PART and FIN
 * together.
 *
 * An entry with HELD replaces no other: its rows might not fit.
 *
 * A FAST kernel accepts only `want` itself. The compiler may contract its entries in
 * different ways, so they may differ in bits, and what happens to be compiled must never
 * decide a result. */
bool df_cuda_may_substitute(const df_kernel *k, uint8_t facts, df_cuda_entry by,
                            df_cuda_entry want);
/* Neighbours that a thread of an entry with WIDE takes at once. They are fewer in MAP for
 * very long bodies, and in COL for all but short ones. 1: WIDE means nothing for k. */
uint32_t df_cuda_lanes(const df_kernel *k);
/* Packs whose loads a thread of an entry of MAP issues before it computes any of them. More
 * than one only for short bodies, which leave registers for it. 1 in other modes. */
uint32_t df_cuda_packs(const df_kernel *k, uint8_t flags);
/* Threads of a thread block, at most. */
uint32_t df_cuda_threads(const df_kernel *k, df_cuda_pass pass);
/* Threads of a thread block that have work in a segment with many rows: fewer than
 * df_cuda_threads with HELD and LONG, where a warp has a block of DF_BLOCK elements. A power of
 * two, of 32 at least. Up to df_cuda_threads any gives equal bits in an entry with LONG. */
uint32_t df_cuda_team_threads(const df_kernel *k, df_cuda_entry e, const df_kargs *a);
/* Bytes of shared memory that a launch asks for; 0 without HELD. Those of several segments in one
 * grid are the most that one of them needs. */
int64_t df_cuda_shared_bytes(const df_kernel *k, df_cuda_entry e, const df_kargs *a);
/* Whether an entry with HELD, and `more` of NARROW, WIDE, LONG and MANY, may run a segment. */
bool df_cuda_holds(const df_kernel *k, uint8_t more, const df_kargs *a);
/* Thread blocks that have work. 0: nothing is to be launched. */
int64_t df_cuda_blocks(const df_kernel *k, df_cuda_entry e, const df_kargs *a);
/* 8-byte words of `partial` for a SPLIT segment. */
int64_t df_cuda_partial_words(const df_kernel *k, const df_kargs *a);
/* Returns DEFT_E_LIMIT when a reduction has more blocks than DF_CUDA_DEPTH allows. */
deft_status df_cuda_fits(df_diag *d, const df_kernel *k, const df_kargs *a);

/* ---- text ---- */

/* Returns DEFT_E_COMPILE when df_cuda_text would refuse k, whatever the entries. */
deft_status df_cuda_can(df_diag *d, const df_kernel *k);
/* The text that every program begins with: types, the meaning of each op, reductions. *n:
 * its length. */
const char *df_cuda_prelude(size_t *n);
/* Writes the name of entry e of the kernel `name`, for example name_main_nw. A cap of 32 is
 * enough for names of 12 characters. */
void df_cuda_entry_name(const char *name, df_cuda_entry e, char *out, size_t cap);
/* Appends the text of k's entries to a program that begins with the prelude. The text
 * depends only on the kernel, its name and the entries. Returns DEFT_E_COMPILE when k
 * cannot be generated, and d says why. Any thread. */
deft_status df_cuda_text(df_diag *d, const df_kernel *k, const char *name,
                         const df_cuda_entry *entry, uint32_t n, const df_mem *mem, df_str *out);

#endif
