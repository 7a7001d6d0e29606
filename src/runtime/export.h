/* SPDX-License-Identifier: Apache-2.0
 *
 * What the export of a trace is asked for, and the plug-in that does it (src/aot/aot.h).
 */
#ifndef DF_RUNTIME_EXPORT_H
#define DF_RUNTIME_EXPORT_H

#include "base/str.h"
#include "runtime/cpu.h"
#include "trace/trace.h"

/* An input of the trace. */
typedef struct df_aot_input {
    const char *name; /* of the parameter; NULL: in0, in1, ... */
    const void *data; /* row-major: the exported program contains these values, and has no such
                       * parameter. NULL: the caller passes the array. */
} df_aot_input;

/* An axis of an input whose extent is a parameter. Extents of other nodes that are equal because
 * they met in an operator are the same parameter. */
typedef struct df_aot_open_axis {
    const char *name;
    uint32_t input, axis;
} df_aot_open_axis;

/* An axis of an input that is open, or was found to be. */
typedef struct df_aot_found_axis {
    uint32_t param; /* which extent: axes of one parameter have one number */
    const char *name;
    uint32_t input, axis;
} df_aot_found_axis;

/* The extents that a parameter may have. */
typedef struct df_aot_bounds {
    int64_t least, most; /* most 0: there is no bound */
} df_aot_bounds;

/* The exported function once more, as it was recorded with other extents. The trace has the nodes
 * of the exported one, and its arguments, except for numbers that are parameters. */
typedef struct df_aot_other {
    const df_trace *t;
    const int64_t *extent; /* per parameter */
} df_aot_other;

/* Records the function that is exported with other extents. The exporter calls `run` once, with the
 * n open axes of n_params extents. What it gives must live until the export has ended. Where it
 * fails, the export fails. */
typedef struct df_aot_trials {
    deft_status (*run)(void *user, const df_aot_found_axis *axis, uint32_t n, uint32_t n_params,
                       const df_aot_other **other, uint32_t *n_other, df_aot_bounds *bounds);
    void *user;
} df_aot_trials;

/* A number of the trace that is a parameter. Numbers of one name are one parameter. */
typedef struct df_aot_number {
    const char *name;
    uint32_t arg;    /* index in df_trace.args */
    bool is_integer; /* the parameter is an int64_t, else a double */
    /* The number is the sum of the parameter, which is an integer, and this: the number of a draw
     * after the first one. */
    uint64_t add;
    uint32_t n_draws; /* the parameter is the first of so many draws; 0: it is something else */
} df_aot_number;

/* Code for GPUs (runtime/gpu_export.h). */
typedef struct df_aot_gpu {
    const df_gpu_plugin *plugin; /* an open plug-in for GPUs; df_plugin_export opens one itself */
    const char *architectures;   /* as in df_gpu_export_options */
    int n_sms;
} df_aot_gpu;

typedef struct df_aot_options {
    const char *name;          /* of the exported function: a C identifier */
    const df_aot_input *input; /* per input of the trace; NULL: all are passed */
    /* The inputs, and the roots, in the order of their parameters; NULL: as they are numbered. */
    const uint32_t *input_order, *root_order;
    const char *const *output; /* per root: the name of its parameter, or NULL: out0, out1, ...
                                  * NULL: all have those names */
    const df_aot_open_axis *open;
    uint32_t n_open;
    const df_aot_trials *trials; /* NULL: only the trace says how extents follow from open ones */
    const df_aot_number *number;
    uint32_t n_numbers;
    /* The levels of processors, with a ',' between them: x86-64, x86-64-v2, -v3, -v4. NULL:
     * x86-64-v4,x86-64-v3,x86-64 */
    const char *levels;
    bool wants_object, wants_shared, wants_c;
    /* The C file, which is wanted then, has code for GPUs, and the header is another one. NULL: for
     * processors. */
    const df_aot_gpu *gpu;
} df_aot_options;

/* What was asked for. The caller initializes and finishes the strings. */
typedef struct df_aot_files {
    df_str header, object, shared, c;
} df_aot_files;

/* The plug-in deft-aot.so exports this as DF_PLUGIN_AOT_SYMBOL: df_aot_export of
 * src/aot/aot.h for a host, which must be of the same build. */
typedef deft_status (*df_plugin_aot_fn)(const char *build_id, df_diag *d, const df_mem *mem,
                                        const df_trace *t, const df_aot_options *o,
                                        df_aot_files *out);
#define DF_PLUGIN_AOT_SYMBOL "df_plugin_aot"

/* Opens the plug-in and exports t. Returns DEFT_E_BACKEND when there is no usable plug-in. */
deft_status df_plugin_export(df_diag *d, const df_mem *mem, const df_log *log, const df_trace *t,
                             const df_aot_options *o, df_aot_files *out);

#endif
