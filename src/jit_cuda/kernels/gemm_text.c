/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of a product: `product` of gemm.cu, or `product_mma` of gemm_mma.cu, with the
 * numbers of its configuration. With an epilogue, the body of that kernel becomes a
 * function of a few neighbours of C. The body is that of any MAP kernel, except that its
 * access to C reads the tile.
 */
#include "jit_cuda/kernels/gemm.h"

#include "jit_cuda/gemm_prelude.h"
#include "jit_cuda/kernels/gemm_tile.h"
#include "jit_cuda/gen/gen.h"
#include "ops/shape.h"

_Static_assert(DF_CUDA_GEMM_WORDS == 47 && DF_CUDA_GEMM_THREADS == 256, "gemm.cu has them too");

/* longest epilogue, in instructions, that leaves room for other thread blocks */
enum { SHORT = 16 };

const char *df_cuda_gemm_prelude(size_t *n)
{
    *n = sizeof gemm_mma_text - 1;
    return (const char *)gemm_mma_text;
}

static uint32_t lanes_of(const df_cuda_gemm_config *v, const df_kernel *epilogue)
{
    if (!(v->flags & DF_CUDA_WIDE)) return 1;
    return epilogue ? df_cuda_lanes(epilogue)
                    : (uint32_t)(16 / deft_dtype_size((deft_dtype)v->dtype));
}

static void put_epilogue(df_cuda_gen *g, const df_cuda_gemm_config *v)
{
    const char *const index = v->flags & DF_CUDA_NARROW ? "i32" : "i64";
    const char *const t = df_cuda_type(v->dtype);
    df_cuda_open(g,
                 "template <typename I, int V> DEV void %s_tile(const u64 *w, I o, I r0, "
                 "const %s *tile)",
                 g->name, t);
    df_cuda_gen_words(g);
    df_cuda_consts(g);
    df_cuda_map_body(g);
    df_cuda_close(g);
    df_cuda_open(g, "struct %s_epilogue", g->name);
    df_cuda_open(g, "DEV void run(const u64 *w, i64 o, i64 r0, const %s *tile)", t);
    df_cuda_line(g, "%s_tile<%s, %u>(w, (%s)o, (%s)r0, tile);", g->name, index, lanes_of(v, g->k),
                 index, index);
    df_cuda_close(g);
    g->depth--;
    df_cuda_line(g, "};");
}

/* The name in gemm.cu of how elements are stored. */
static const char *elements(uint8_t t)
{
    if (df_is_half((deft_dtype)t)) return t == DEFT_F16 ? "from_f16" : "from_bf16";
    return t == DEFT_F64 ? "as_is<f64>" : "as_is<f32>";
}

static const char *flag(const df_cuda_gemm_config *v, uint8_t bit)
{
    return v->flags & bit ? "true" : "false";
}

static void put_entry(df_cuda_gen *g, const df_cuda_gemm_config *v, const df_kernel *epilogue)
{
    const df_cuda_tile *const tile = df_cuda_gemm_tile(v);
    const char *const a = elements(v->a_dtype), *const b = elements(v->b_dtype);
    const uint32_t n_words =
        DF_CUDA_GEMM_WORDS + (epilogue ? df_cuda_layout(epilogue, NULL, NULL) : 0);
    df_str_fmt(g->out, "extern \"C\" __global__ void __launch_bounds__(%d, %u) %s(",
               DF_CUDA_GEMM_THREADS, epilogue && epilogue->n_ins > SHORT ? 1u : tile->together,
               g->name);
    df_cuda_open(g, "const one<%u> a)", n_words);
    if (v->flags & DF_CUDA_GEMM_MMA)
        df_str_fmt(g->out, "    product_mma<%s, %u, %u, %u, ", a, tile->bm, tile->bn, tile->bk);
    else
        df_str_fmt(g->out, "    product<%s, %s, %u, %u, %u, %u, %u, ", a, b, tile->bm, tile->bn,
                   tile->bk, tile->tm, tile->tn);
    df_str_fmt(g->out, "%u, %u, %u, %s, %s%s>(a.w);\n", v->a, v->b, lanes_of(v, epilogue),
               flag(v, DF_CUDA_GEMM_STORE), epilogue ? g->name : "no_epilogue",
               epilogue ? "_epilogue" : "");
    df_cuda_close(g);
}

deft_status df_cuda_gemm_text(df_diag *d, const df_cuda_gemm_config *v, const df_kernel *epilogue,
                              const char *name, const df_mem *mem, df_str *out)
{
    df_str s;
    df_cuda_gen g = {
        .k = epilogue, .name = name, .out = &s, .tile = "tile", .tile_access = v->c_access
    };
    deft_status st = DEFT_OK;
    df_str_init(&s, mem);
    df_assert(v->tile < DF_CUDA_N_TILES && !epilogue == !(v->flags & DF_CUDA_GEMM_EPILOGUE));
    if (epilogue) {
        TRY(df_cuda_check(&g, d));
        if (epilogue->mode != DF_MODE_MAP || v->c_access >= epilogue->n_access)
            TRY(df_fail(d, DEFT_E_COMPILE, "cuda: mode %u, access %u: no epilogue of a product",
                        epilogue->mode, v->c_access));
        put_epilogue(&g, v);
    }
    put_entry(&g, v, epilogue);
    if (s.ok) df_str_putn(out, s.at ? s.at : "", s.n);
    if (!s.ok || !out->ok) TRY(df_fail_mem(d, "cuda text", s.n));
done:
    df_str_finish(&s);
    return st;
}
