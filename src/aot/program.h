/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/aot: a plan as the arrays of an image, and the parameters of the exported
 * function.
 */
#ifndef DF_AOT_PROGRAM_H
#define DF_AOT_PROGRAM_H

#include "aot/aot.h"
#include "aot/rt/image.h"
#include "base/vec.h"
#include "runtime/gpu_export.h"

typedef enum param_kind {
    PARAM_EXTENT,
    PARAM_INPUT,
    PARAM_INOUT,
    PARAM_OUTPUT,
    PARAM_NUMBER
} param_kind;

/* A parameter of the exported function. */
typedef struct parameter {
    param_kind kind;
    char name[64];
    uint32_t node;        /* of an array: the node with its dtype and extents */
    uint32_t input;       /* INPUT, INOUT: ordinal of the trace's input */
    uint32_t used_as;     /* NUMBER: bit t is set when it is used as dtype t */
    bool is_integer;      /* NUMBER: an int64_t, else a double */
    uint32_t n_draws;     /* NUMBER: it is the first of so many draws; 0: it is something else */
    uint32_t may_be;      /* OUTPUT: the parameter that it may be the same array as, or DF_NONE */
    df_aot_bounds bounds; /* EXTENT */
} parameter;

typedef struct program {
    const df_mem *mem;
    df_diag *d;
    const df_aot_options *o;
    df_arena arena;
    df_trace *t;    /* simplified */
    uint32_t *from; /* per node of t: the node of the trace that is exported */
    df_plan *plan;
    deft_status st; /* first failure */

    DF_VEC(parameter) params;
    DF_VEC(int64_t) values;
    DF_VEC(bool) is_open;   /* per value: a call computes it */
    uint32_t constant[256]; /* by hash: 1 + the slot of a constant that was made; 0: none */
    DF_VEC(aot_slot) slots;
    DF_VEC(aot_guard) guards;
    DF_VEC(aot_buf) bufs;
    DF_VEC(aot_bind) binds;
    DF_VEC(aot_num) nums;
    DF_VEC(uint32_t) list;
    DF_VEC(aot_seg) segs;
    DF_VEC(aot_launch) launches;
    DF_VEC(aot_step) steps;
    DF_VEC(aot_loop) loops;
    DF_VEC(aot_root) roots;
    DF_VEC(aot_row) rows;
    DF_VEC(aot_blocks) blocks;
    DF_VEC(aot_piece) pieces;
    DF_VEC(aot_routine) routines;
    DF_VEC(const df_kernel *) kernels; /* those of all plans, each once */
    df_str data;                       /* linked arrays, each aligned to 64 bytes */
    uint32_t arena_slot;
    uint32_t n_extents;        /* parameters that are extents; they come first */
    uint32_t *number;          /* per number of the options: its parameter */
    int64_t *probed;           /* extents.c; NULL where no extent is open */
    const df_aot_other *other; /* extents.c: the function with other extents */
    uint32_t n_other;

    /* Code for GPUs (cuda_program.c). No array above is used then but params, values and data. */
    bool has_gpu;
    df_gpu_export gpu;
    const uint32_t *gpu_input, *gpu_output; /* per input and root: its parameter, or DF_NONE */
    int64_t *gpu_linked;                    /* per linked input: where in the data it begins */
} program;

/* Makes the program of t. On failure too, program_finish frees it. */
deft_status program_make(program *p, df_diag *d, const df_mem *mem, const df_trace *t,
                         const df_aot_options *o);
void program_finish(program *p);

/* The parameter that is the extent of `axis` of a node, or DF_NONE where it is a number. */
uint32_t program_open_extent(const program *p, uint32_t node, uint32_t axis);

/* Whether the program has products of f64, or of f32. */
bool program_has_products(const program *p, bool of_f64);

/* Whether the C type of a parameter is double. */
bool program_is_double(const parameter *a);

/* Which number of the options gives an argument of the trace; DF_NONE: it is a constant. */
uint32_t program_number(const program *p, uint32_t arg);

/* How a number becomes dtype t: AOT_AS_... */
uint32_t program_as_dtype(deft_dtype t);

/* ---- the signature ---- */

/* Appends the signature of the program (signature.c). */
void signature_write(const program *p, df_str *out);

/* Parts of it, which the header shows, too: the dtype of an array, its extents as "[128, n]", and,
 * where it is not row-major, `before` and its strides. */
const char *signature_dtype(const program *p, const parameter *a);
void signature_put_shape(const program *p, const parameter *a, df_str *out);
void signature_put_strides(const program *p, const parameter *a, const char *before, df_str *out);

/* ---- files ---- */

/* The name of the program in capital letters, for the macro around its header. */
enum { HEADER_NAME = 64 };
void header_upper(const program *p, char out[HEADER_NAME]);

/* Appends the header of the program. */
void header_write(const program *p, df_str *out);

/* Appends the parameters as a C program declares them, each with a ',' and a blank after it. */
void header_parameters(const program *p, df_str *out);

/* Appends a note for each parameter, as lines of a comment. */
void header_parameter_notes(const program *p, df_str *out);

/* Appends a file of the runtime part, without the lines that include headers of deft. */
void text_put_runtime(df_str *out, const unsigned char *text, size_t n);

/* Appends the C file of the program. */
deft_status c_file_write(program *p, df_str *out);

/* ---- GPUs ---- */

/* Where an array of the program begins: an origin of the exported function, and bytes from it. */
typedef struct gpu_place {
    uint32_t origin;
    int64_t add;
} gpu_place;

/* How many parameters are arrays. */
uint32_t gpu_n_arrays(const program *p);
/* The index of a parameter among the numbers. */
uint32_t gpu_number_index(const program *p, uint32_t param);
gpu_place gpu_place_of(const program *p, df_gpu_origin o);
/* Appends the header, and the C file, of a program for GPUs. */
deft_status cuda_file_write(const program *p, df_str *header, df_str *out);

/* Appends the object, or the shared library, with the code of the kernels for each level. NULL: it
 * is not wanted. */
deft_status object_write(program *p, df_str *object, df_str *shared);

#endif
