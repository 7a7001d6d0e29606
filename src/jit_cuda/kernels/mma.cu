/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of halves by tensor cores, with sums in f32: one instruction of sm_80. Its twin
 * for the shim adds in order, with one rounding for each product. This text follows the
 * prelude.
 */
#define UNROLL _Pragma("unroll")

/* How elements are stored: f32 itself, or a kind of halves. */
enum { IS_F32, IS_F16, IS_BF16 };

/* c += a b. a is 16 by 16, b is 16 by 8, c is 16 by 8 of f32. With g = lane / 4 and t =
 * lane % 4, a lane has these elements:
 *
 *   a   rows g and g + 8, columns 2t and 2t + 1; then the same with columns 8 further on
 *   b   rows 2t and 2t + 1 of column g; then rows 8 further on
 *   c   rows g and g + 8, columns 2t and 2t + 1 */
#ifdef DF_SHIM
template <int KIND> DEV f32 half_value(u32 word, u32 high)
{
    const u16 h = (u16)(word >> 16 * high);
    return KIND == IS_BF16 ? f32_of((u32)h << 16) : cast_f16_f32(h);
}
template <int KIND> DEV void multiply(f32 *c, const u32 *a, u32 b0, u32 b1)
{
    static u32 all[512][6];
    const u32 t = threadIdx.x, warp = t & ~31u, g = t % 32 / 4, q = t % 4;
    for (u32 i = 0; i < 4; i++) all[t][i] = a[i];
    all[t][4] = b0;
    all[t][5] = b1;
    __syncwarp();
    for (u32 i = 0; i < 4; i++)
        for (u32 k = 0; k < 16; k++) {
            const u32 from = warp + g * 4 + k % 8 / 2, with = warp + (2 * q + i % 2) * 4 + k % 8 / 2;
            c[i] = fmaf(half_value<KIND>(all[from][i / 2 + k / 8 * 2], k % 2),
                        half_value<KIND>(all[with][4 + k / 8], k % 2), c[i]);
        }
    __syncwarp();
}
#else
template <int KIND> DEV void multiply(f32 *c, const u32 *a, u32 b0, u32 b1)
{
    if (KIND == IS_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

DEV i32 lane_g() { return (i32)threadIdx.x % 32 / 4; }
DEV i32 lane_t() { return (i32)threadIdx.x % 4; }

DEV u32 pair(const u16 *at) { return *(const u32 *)at; }
DEV u32 pair(u16 low, u16 high) { return (u32)low | (u32)high << 16; }
