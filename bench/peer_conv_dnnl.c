/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN 2's convolution primitive.
 */
#include "peer_conv.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdlib.h>

void omp_set_num_threads(int n);

struct peer_conv {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t op;
    dnnl_exec_arg_t arg[3];
};

/* Memory in the layout that the primitive asks for. */
static bool add_memory(peer_conv *c, int at, dnnl_query_t what, int arg)
{
    const dnnl_memory_desc_t *const md = dnnl_primitive_desc_query_md(c->desc, what, 0);
    c->arg[at].arg = arg;
    if (!md || dnnl_memory_create(&c->arg[at].memory, md, c->engine, DNNL_MEMORY_ALLOCATE))
        return false;
    void *p = NULL;
    if (dnnl_memory_get_data_handle(c->arg[at].memory, &p) || !p) return false;
    float *const x = p;
    const size_t n = dnnl_memory_desc_get_size(md) / sizeof *x;
    for (size_t i = 0; i < n; i++) x[i] = (float)(i % 17) * 0.1f - 0.8f;
    return true;
}

static bool begin(peer_conv *c, const dnnl_dims_t x, const dnnl_dims_t w, const dnnl_dims_t y,
                  int n_w, int64_t stride, int64_t padding)
{
    dnnl_memory_desc_t mx, mw, my;
    const dnnl_dims_t strides = { stride, stride }, pad = { padding, padding };
    dnnl_convolution_desc_t conv;
    return !dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, dnnl_format_tag_any) &&
           !dnnl_memory_desc_init_by_tag(&mw, n_w, w, dnnl_f32, dnnl_format_tag_any) &&
           !dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, dnnl_format_tag_any) &&
           !dnnl_convolution_forward_desc_init(&conv, dnnl_forward_inference,
                                               dnnl_convolution_direct, &mx, &mw, NULL, &my,
                                               strides, pad, pad) &&
           !dnnl_engine_create(&c->engine, dnnl_cpu, 0) &&
           !dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags) &&
           !dnnl_primitive_desc_create(&c->desc, &conv, NULL, c->engine, NULL) &&
           !dnnl_primitive_create(&c->op, c->desc) &&
           add_memory(c, 0, dnnl_query_src_md, DNNL_ARG_SRC) &&
           add_memory(c, 1, dnnl_query_weights_md, DNNL_ARG_WEIGHTS) &&
           add_memory(c, 2, dnnl_query_dst_md, DNNL_ARG_DST);
}

peer_conv *peer_conv_open(int64_t n, int64_t in, int64_t size, int64_t out, int64_t kernel,
                          int64_t stride, int64_t padding)
{
    const int64_t wo = (size + 2 * padding - kernel) / stride + 1;
    const dnnl_dims_t x = { n, in, size, size }, y = { n, out, wo, wo };
    const dnnl_dims_t w = { out, in, kernel, kernel };
    peer_conv *c = calloc(1, sizeof *c);
    if (!begin(c, x, w, y, 4, stride, padding)) peer_conv_close(&c);
    return c;
}

void peer_conv_run(peer_conv *c, int threads)
{
    omp_set_num_threads(threads);
    dnnl_primitive_execute(c->op, c->stream, 3, c->arg);
    dnnl_stream_wait(c->stream);
}

void peer_conv_close(peer_conv **c)
{
    if (!*c) return;
    for (int i = 0; i < 3; i++)
        if ((*c)->arg[i].memory) dnnl_memory_destroy((*c)->arg[i].memory);
    if ((*c)->op) dnnl_primitive_destroy((*c)->op);
    if ((*c)->desc) dnnl_primitive_desc_destroy((*c)->desc);
    if ((*c)->stream) dnnl_stream_destroy((*c)->stream);
    if ((*c)->engine) dnnl_engine_destroy((*c)->engine);
    free(*c);
    *c = NULL;
}
