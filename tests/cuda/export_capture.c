/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_export for GPUs of a captured function: rows of x at indices, times a parameter of the
 * capture, plus a tensor from outside. tests/cuda/run_export compiles what it writes with
 * export_main.c, which knows the function as `taken`. Then what such an export refuses.
 *
 *   export_capture FOLDER
 */
#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

static deft_tensor *w;

static deft_status taken(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const rows = deft_take(in[0], in[1], 0);
    out[0] = deft_add(deft_mul(rows, deft_param_f(cx, "scale")), w);
    return DEFT_OK;
}

/* Whether the export fails with a sentence that has `part`. */
static bool refuses(deft_ctx *cx, deft_capture *c, const char *path, deft_export_options o,
                    const char *part)
{
    o.size = sizeof o;
    const deft_status st = deft_export(c, path, &o);
    const bool good = st == DEFT_E_ARG && strstr(deft_message(cx), part);
    if (!good) printf("not \"%s\": %d %s\n", part, (int)st, deft_message(cx));
    deft_clear(cx);
    return good;
}

int main(int argc, char **argv)
{
    static float x[40 * 30], added[30];
    static const int64_t index[7] = { 3, 1, 39, 0, 0, 12, 5 };
    static const char *const inputs[] = { "x", "index" }, *const outputs[] = { "out" };
    static const deft_export_extent open = { "n", 0, 0 };
    char path[4096];
    deft_ctx *cx = NULL;
    deft_tensor *in[2], *out;
    bool good = argc == 2 && deft_ctx_create(NULL, NULL, &cx) == DEFT_OK;
    if (!good) return 1;
    for (int i = 0; i < 30; i++) added[i] = 0.5f * (float)i;
    (void)snprintf(path, sizeof path, "%s/taken", argv[1]);
    const deft_scope s = deft_scope_begin(cx);
    in[0] = deft_from(cx, DEFT_SHAPE(40, 30), DEFT_F32, x, sizeof x);
    in[1] = deft_from(cx, DEFT_SHAPE(7), DEFT_I64, index, sizeof index);
    w = deft_from(cx, DEFT_SHAPE(30), DEFT_F32, added, sizeof added);
    deft_capture *c = deft_capture_create(cx, taken, NULL);
    good = deft_capture_set_f(c, "scale", 3.0) == DEFT_OK &&
           deft_capture_call(c, in, 2, &out, 1) == DEFT_OK &&
           deft_export(c, path,
                       DEFT_EXPORT(.as_cuda = true, .architectures = "90", .multiprocessors = 4,
                                   .inputs = inputs, .outputs = outputs)) == DEFT_OK;
    if (!good) printf("%s\n", deft_message(cx));
    deft_clear(cx);
    (void)snprintf(path, sizeof path, "%s/refused", argv[1]);
    good &= refuses(cx, c, path, (deft_export_options){ .as_cuda = true, .as_c = true },
                    "kinds of output");
    good &= refuses(cx, c, path, (deft_export_options){ .as_cuda = true, .multiprocessors = -1 },
                    "no -1 multiprocessors");
    good &= refuses(cx, c, path, (deft_export_options){ .as_c = true, .architectures = "90" },
                    "are for as_cuda");
    good &= refuses(cx, c, path, (deft_export_options){ .as_cuda = true, .architectures = "x" },
                    "no list of architectures");
    good &= refuses(cx, c, path,
                    (deft_export_options){ .as_cuda = true, .extents = &open, .n_extents = 1 },
                    "no open extents, and n is one");
    deft_capture_destroy(&c);
    good &= deft_scope_end(s) == DEFT_OK;
    deft_ctx_destroy(&cx);
    return good ? 0 : 1;
}
