/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows an entry with HELD keeps in shared memory, in which rooms, and what its launches ask
 * for. shim_cases runs such entries.
 */
#include <string.h>

#include "base/limits.h"
#include "holds.h"
#include "jit_cuda/exec/device_internal.h"
#include "jit_cuda/gen/held.h"
#include "support/hand_kernel.h"

enum { MOST = 16, OPERAND = 0, SCRATCH = 1, OUT = 2 };

/* A copy of hand_softmax, to be changed. */
typedef struct subject {
    df_kernel k;
    df_access access[MOST];
    df_ins ins[MOST];
} subject;

static void make(subject *s)
{
    *s = (subject){ .k = hand_softmax };
    memcpy(s->access, hand_softmax.access, hand_softmax.n_access * sizeof *s->access);
    memcpy(s->ins, hand_softmax.ins, hand_softmax.n_ins * sizeof *s->ins);
    s->k.access = s->access;
    s->k.ins = s->ins;
}

static void add(subject *s, df_ins what)
{
    s->ins[s->k.n_ins++] = what;
}

static df_cuda_held held(const subject *s)
{
    return df_cuda_held_of(&s->k);
}

static bool keeps(const subject *s, uint32_t access)
{
    const df_cuda_held h = held(s);
    return df_cuda_held_row_of(&h, access) != NULL;
}

/* ---- what is kept ---- */

static void check_rows(void)
{
    subject s;
    make(&s);
    EXPECT(keeps(&s, OPERAND) && keeps(&s, SCRATCH) && !keeps(&s, OUT));
    s.k.mode = DF_MODE_COL;
    EXPECT(held(&s).n == 0);
    make(&s);
    s.access[OPERAND].step[1] = DF_STEP_ZERO; /* one element for the whole row */
    EXPECT(!keeps(&s, OPERAND) && keeps(&s, SCRATCH));
    make(&s);
    s.ins[2].op = DF_K_load_at; /* one stage alone loads it in order */
    EXPECT(!keeps(&s, OPERAND));
}

/* The last stage stores where the first two load. */
static void check_changes(void)
{
    subject s;
    make(&s);
    EXPECT(s.access[OUT].same_as == OPERAND && keeps(&s, OPERAND));
    s.ins[8].stage = 1;
    EXPECT(keeps(&s, OPERAND)); /* each element after it was read */
    s.ins[8].level = DF_LEVEL_ROW;
    EXPECT(!keeps(&s, OPERAND));
    s.ins[8].stage = 0;
    s.ins[8].level = DF_LEVEL_ELEM;
    EXPECT(!keeps(&s, OPERAND));
    s.access[OUT].same_as = OUT;
    EXPECT(keeps(&s, OPERAND));
    s.access[3] = s.access[OUT]; /* through an access between them */
    s.access[OUT].same_as = OPERAND;
    s.access[3].same_as = OUT;
    s.k.n_access = 4;
    s.ins[8].imm = 3;
    EXPECT(!keeps(&s, OPERAND));
}

static void check_too_many(void)
{
    static df_access access[DF_CUDA_HELD_ROWS + 1];
    static df_ins body[2 * (DF_CUDA_HELD_ROWS + 1)];
    df_kernel k = hand_softmax;
    k.access = access;
    k.ins = body;
    for (uint32_t i = 0; i <= DF_CUDA_HELD_ROWS; i++) {
        access[i] = hand_softmax.access[OPERAND];
        access[i].same_as = i;
        body[2 * i] = ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, i);
        body[2 * i + 1] = ins(DF_K_load, DEFT_F32, 1, DF_LEVEL_ELEM, 0, 0, i);
    }
    k.n_access = DF_CUDA_HELD_ROWS;
    k.n_ins = 2 * k.n_access;
    EXPECT(df_cuda_held_of(&k).n == DF_CUDA_HELD_ROWS);
    k.n_access = DF_CUDA_HELD_ROWS + 1;
    k.n_ins = 2 * k.n_access;
    EXPECT(df_cuda_held_of(&k).n == 0);
}

/* ---- rooms ---- */

static void check_rooms(void)
{
    subject s;
    make(&s);
    EXPECT(held(&s).n_rooms == 1); /* stage 1 writes an element when it has read it */
    add(&s, ins(DF_K_load, DEFT_F32, 1, DF_LEVEL_ELEM, 0, 0, OPERAND));
    EXPECT(held(&s).n_rooms == 2); /* and once more behind that */
    make(&s);
    add(&s, ins(DF_K_load, DEFT_F32, 2, DF_LEVEL_ELEM, 0, 0, OPERAND));
    EXPECT(held(&s).n_rooms == 2);
    make(&s);
    s.ins[4].stage = 2; /* stored when nobody reads the operand any longer */
    EXPECT(held(&s).n_rooms == 1);
    make(&s);
    s.access[SCRATCH].dtype = DEFT_F64;
    EXPECT(held(&s).n_rooms == 2);
    make(&s);
    s.ins[6].op = DF_K_load_at; /* elements of other threads */
    EXPECT(held(&s).n_rooms == 2);
    make(&s);
    s.ins[4].level = DF_LEVEL_ROW;
    EXPECT(held(&s).n_rooms == 2);
}

/* ---- launches ---- */

static void check_sizes(void)
{
    subject s;
    make(&s);
    const df_cuda_held one = held(&s);
    s.access[SCRATCH].dtype = DEFT_F64;
    const df_cuda_held two = held(&s);
    EXPECT(df_cuda_held_bytes(&one, 0) == 0);
    EXPECT(df_cuda_held_bytes(&one, 1) == 16); /* 2 f32, whole accesses */
    EXPECT(df_cuda_held_bytes(&one, 5) == 32);
    EXPECT(df_cuda_held_bytes(&two, 5) == 32 + 48);
    EXPECT(df_cuda_held_bytes(&one, INT64_C(1) << 40) == INT64_MAX);
}

static bool asks_for(int64_t length, unsigned flags, uint32_t n_threads, int64_t bytes)
{
    const df_cuda_entry e = { DF_CUDA_MAIN, (uint8_t)flags };
    const int64_t extent[] = { 3, length };
    const df_kargs a = { .extent = extent };
    return df_cuda_team_threads(&hand_softmax, e, &a) == n_threads &&
           df_cuda_shared_bytes(&hand_softmax, e, &a) == bytes;
}

static void check_launches(void)
{
    enum { BOTH = DF_CUDA_HELD | DF_CUDA_LONG };
    EXPECT(asks_for(100, 0, 256, 0));
    EXPECT(asks_for(100, DF_CUDA_LONG, 256, 0));
    EXPECT(asks_for(100, DF_CUDA_HELD, 256, 8 * 400)); /* a row for each warp */
    EXPECT(asks_for(100, BOTH, 32, 400));
    EXPECT(asks_for(DF_BLOCK, BOTH, 32, 4 * DF_BLOCK));
    EXPECT(asks_for(DF_BLOCK + 1, BOTH, 64, 4 * DF_BLOCK + 16));
    EXPECT(asks_for(2 * DF_BLOCK + 4, BOTH, 128, 8 * DF_BLOCK + 16)); /* 3 blocks: a power of two */
    EXPECT(asks_for(0, BOTH, 32, 0));
}

static unsigned chosen(const df_kernel *k, int64_t rows, int64_t length)
{
    static const df_gpu_properties g = { .n_sms = 100, .threads_per_sm = 2048 };
    const int64_t extent[] = { rows, length }, stride[] = { length, 1, 0, 0, length, 1 };
    char *ptr[] = { 0, 0, 0 };
    const df_kargs a = { .extent = extent, .stride = stride, .ptr = ptr };
    return df_cuda_choose(&g, k, &a).flags & (DF_CUDA_HELD | DF_CUDA_LONG);
}

/* Rows of the 8 warps of a thread block, then one for the thread block, then none. */
static void check_choice(void)
{
    subject s;
    make(&s);
    EXPECT(chosen(&s.k, 100000, 1000) == DF_CUDA_HELD);
    EXPECT(chosen(&s.k, 100000, 2000) == (DF_CUDA_HELD | DF_CUDA_LONG));
    EXPECT(chosen(&s.k, 100000, 12000) == (DF_CUDA_HELD | DF_CUDA_LONG));
    EXPECT(chosen(&s.k, 100000, 13000) == 0);
    EXPECT(chosen(&s.k, 100, 13000) == DF_CUDA_LONG);
    s.k.n_ins = 2; /* a maximum alone */
    EXPECT(chosen(&s.k, 100000, 1000) == 0);
}

/* What holds rows stands in for nothing; anything that a strict kernel has stands in for it. */
static void check_substitutes(void)
{
    const df_cuda_entry with = { DF_CUDA_MAIN, DF_CUDA_HELD }, without = { DF_CUDA_MAIN, 0 };
    df_kernel k = hand_softmax;
    EXPECT(df_cuda_may_substitute(&k, 0, without, with));
    EXPECT(!df_cuda_may_substitute(&k, 0, with, without));
    EXPECT(df_cuda_may_substitute(&k, 0, with, with));
    k.flags |= DF_KERNEL_FAST;
    EXPECT(!df_cuda_may_substitute(&k, 0, without, with));
}

int main(void)
{
    check_rows();
    check_changes();
    check_too_many();
    check_rooms();
    check_sizes();
    check_launches();
    check_choice();
    check_substitutes();
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
