/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for the driver: conditional nodes decide late, by what kernels of their graph set;
 * what a driver does not allow is misuse.
 *
 *   test_conditional LIBCUDA LIBNVRTC [LIBCUBLASLT]
 */
#include <stdio.h>
#include <string.h>

#include "try.h"

enum { IF = 0, WHILE = 1 };

/* n counts down; the handle is set while it is above 0. */
static const char text[] =
    "extern \"C\" __device__ void cudaGraphSetConditional(unsigned long long h, unsigned v);\n"
    "extern \"C\" __global__ void __launch_bounds__(32)\n"
    "down(unsigned long long h, int *n) {\n"
    "  if (threadIdx.x) return;\n"
    "  cudaGraphSetConditional(h, *n > 0);\n"
    "  *n -= 1;\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(32)\n"
    "twice(int *n) { if (!threadIdx.x) *n *= 2; }\n";

static df_cu_fn down, twice;
static df_cu_ptr p, q; /* an int each: what counts down, what is doubled */
static df_cu_ctx context;

static void begin(standin_mode mode, bool is_ptx)
{
    df_cu_module m = NULL;
    context = start(mode);
    m = load_as(text, is_ptx);
    CHECK(cu.module_fn(&down, m, "down") == 0 && cu.module_fn(&twice, m, "twice") == 0);
    CHECK(cu.mem_alloc(&p, 4) == 0 && cu.mem_alloc(&q, 4) == 0);
}

static void fill(int counts, int doubled)
{
    CHECK(cu.set_32(p, (unsigned)counts, 1, NULL) == 0);
    CHECK(cu.set_32(q, (unsigned)doubled, 1, NULL) == 0);
}

static int at(df_cu_ptr from)
{
    int out = -1;
    CHECK(cu.copy_out(&out, from, 4, NULL) == 0 && cu.stream_wait(NULL) == 0);
    return out;
}

static int add_kernel(df_cu_node *out, df_cu_graph to, const df_cu_node *after, df_cu_fn f,
                      void **params)
{
    const df_cu_kernel_node k = { f, 1, 1, 1, 32, 1, 1, 0, params, NULL };
    return cu.graph_kernel(out, to, after, after != NULL, &k);
}

static int add_node(df_cu_node *out, df_cu_graph to, const df_cu_node *after, df_cu_condition h,
                    int type, df_cu_graph *body)
{
    df_cu_node_params node = { .type = 13 };
    node.is.conditional.handle = h;
    node.is.conditional.type = type;
    node.is.conditional.size = 1;
    node.is.conditional.ctx = context;
    const int r = cu.graph_node(out, to, after, after != NULL, &node);
    if (r == 0) *body = node.is.conditional.bodies[0];
    return r;
}

/* down, then a node of that type with twice and, of a loop, down behind it. */
static df_cu_exec graph_of(int type, df_cu_graph *g, df_cu_node *inner)
{
    df_cu_condition h;
    df_cu_graph body;
    df_cu_node first, node, again;
    df_cu_exec x = NULL;
    CHECK(cu.graph_create(g, 0) == 0);
    CHECK(cu.graph_condition(&h, *g, context, 0, 0) == 0);
    void *const deciding[] = { &h, &p }, *const doubling[] = { &q };
    CHECK(add_kernel(&first, *g, NULL, down, (void **)deciding) == 0);
    CHECK(add_node(&node, *g, &first, h, type, &body) == 0);
    CHECK(add_kernel(inner, body, NULL, twice, (void **)doubling) == 0);
    if (type == WHILE) CHECK(add_kernel(&again, body, inner, down, (void **)deciding) == 0);
    CHECK(cu.graph_instantiate(&x, *g, 0) == 0);
    return x;
}

static void decides(standin_mode mode)
{
    df_cu_graph g;
    df_cu_node inner;
    begin(mode, true);
    df_cu_exec x = graph_of(IF, &g, &inner);
    for (int n = 0; n < 2; n++) {
        fill(n, 3);
        CHECK(cu.exec_launch(x, NULL) == 0);
        CHECK(at(q) == (n ? 6 : 3));
    }
    CHECK(cu.exec_destroy(x) == 0 && cu.graph_destroy(g) == 0);
    x = graph_of(WHILE, &g, &inner);
    for (int n = 0; n < 5; n++) {
        fill(n, 1);
        CHECK(cu.exec_launch(x, NULL) == 0);
        CHECK(at(q) == 1 << n && at(p) == -1);
    }
    /* A node of the body is set in the exec; what was launched before goes on as it was. */
    const df_cu_kernel_node k = { twice, 1, 1, 1, 32, 1, 1, 0, (void *[]){ &p }, NULL };
    fill(2, 1);
    CHECK(cu.exec_launch(x, NULL) == 0);
    CHECK(cu.exec_kernel(x, inner, &k) == 0);
    CHECK(at(q) == 4 && at(p) == -1);
    CHECK(cu.exec_destroy(x) == 0 && cu.graph_destroy(g) == 0);
    standin_alive left;
    in.leaks(&left);
    CHECK(left.graphs == 0 && left.execs == 0 && in.n_misuse() == 0);
}

static void is_late(void)
{
    df_cu_graph g;
    df_cu_node inner;
    begin(STANDIN_LATE, true);
    const df_cu_exec x = graph_of(WHILE, &g, &inner);
    fill(3, 1);
    CHECK(cu.stream_wait(NULL) == 0);
    const long n = in.n_work();
    CHECK(cu.exec_launch(x, NULL) == 0 && in.n_work() == n);
    CHECK(cu.mem_free(q) == 0 && misused("m2 may still be used by a queued while"));
}

static void misuse_of_nodes(void)
{
    df_cu_condition h, unused;
    df_cu_graph g, other, body;
    df_cu_node n, inner;
    df_cu_exec x;
    char pageable[4];
    begin(STANDIN_RANDOM, true);
    CHECK(cu.graph_create(&g, 0) == 0);
    CHECK(cu.graph_create(&other, 0) == 0);
    CHECK(cu.graph_condition(&h, g, NULL, 0, 0) == 201 && misused("another context"));
    CHECK(cu.graph_condition(&h, g, context, 0, 2) == 1 && misused("flags 2"));
    CHECK(cu.graph_condition(&h, g, context, 0, 1) == 0);
    CHECK(add_node(&n, other, NULL, h, IF, &body) == 1 && misused("c1 is of g1, not of g2"));
    CHECK(add_node(&n, g, NULL, h + 16, IF, &body) == 1 && misused("is no condition"));
    CHECK(add_node(&n, g, NULL, h, 3, &body) == 1 && misused("type 3, 1 bodies"));
    CHECK(add_node(&n, g, NULL, h, IF, &body) == 0);
    CHECK(add_node(&n, g, NULL, h, IF, &body) == 1 && misused("c1 has a node"));
    df_cu_memcpy3d copy = { .src_kind = 2,
                            .src_device = p,
                            .dst_kind = 1,
                            .dst_host = pageable,
                            .width = 4,
                            .height = 1,
                            .depth = 1 };
    CHECK(cu.graph_memcpy(&inner, body, NULL, 0, &copy, context) == 1 &&
          misused("a copy of the host's memory"));
    CHECK(cu.graph_destroy(body) == 1 && misused("is a node's"));
    CHECK(cu.graph_instantiate(&x, body, 0) == 1 && misused("is a node's"));
    CHECK(cu.graph_child(&n, other, NULL, 0, g) == 1 && misused("g1 decides"));
    CHECK(cu.graph_condition(&unused, g, context, 0, 1) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 1 && misused("no node has c2"));
    CHECK(cu.graph_destroy(g) == 0);
    CHECK(add_kernel(&n, body, NULL, twice, (void *[]){ &p }) == 400 && misused("was destroyed"));
    in.set_version(12030);
    CHECK(cu.graph_condition(&h, other, context, 0, 1) == 1 && misused("has no conditions"));
    CHECK(add_node(&n, other, NULL, h, IF, &body) == 1 && misused("has no such nodes"));
}

/* A kernel that sets what it may not fails, late. */
static void misuse_of_handles(bool is_ptx, bool in_other, const char *words)
{
    df_cu_graph g, other;
    df_cu_node inner, n;
    df_cu_exec x;
    df_cu_condition h;
    begin(STANDIN_LATE, is_ptx);
    fill(1, 1);
    if (!is_ptx) {
        CHECK(cu.exec_launch(graph_of(IF, &g, &inner), NULL) == 0);
    } else {
        df_cu_graph body;
        CHECK(cu.graph_create(&g, 0) == 0);
        CHECK(cu.graph_condition(&h, g, context, 1, 1) == 0);
        CHECK(add_node(&n, g, NULL, h, IF, &body) == 0);
        void *const params[] = { &h, &p };
        if (in_other) {
            CHECK(cu.graph_create(&other, 0) == 0);
            CHECK(add_kernel(&n, other, NULL, down, (void **)params) == 0);
            CHECK(cu.graph_instantiate(&x, other, 0) == 0 && cu.exec_launch(x, NULL) == 0);
        } else {
            CHECK(launch(down, 1, 32, NULL, (void **)params) == 0);
        }
    }
    CHECK(in.n_misuse() == 0);
    CHECK(cu.stream_wait(NULL) != 0 && misused(words));
}

static void ends(void)
{
    df_cu_graph g;
    df_cu_node n;
    df_cu_condition h;
    df_cu_graph body;
    df_cu_exec x;
    begin(STANDIN_LATE, true);
    CHECK(cu.graph_create(&g, 0) == 0);
    CHECK(cu.graph_condition(&h, g, context, 1, 1) == 0);
    CHECK(add_node(&n, g, NULL, h, WHILE, &body) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 0 && cu.exec_launch(x, NULL) == 0);
    CHECK(cu.stream_wait(NULL) != 0 && misused("a loop does not end"));
}

int main(int argc, char **argv)
{
    if (argc < 3 || !try_open(argv[1], argv[2])) return 2;
    decides(STANDIN_LATE);
    decides(STANDIN_EAGER);
    decides(STANDIN_RANDOM);
    is_late();
    misuse_of_nodes();
    misuse_of_handles(true, false, "c1 is not of the graph that runs");
    misuse_of_handles(true, true, "c1 is not of the graph that runs");
    misuse_of_handles(false, false, "nothing was linked to");
    ends();
    in.reset();
    if (n_faults) printf("%ld faults\n", n_faults);
    return n_faults != 0;
}
