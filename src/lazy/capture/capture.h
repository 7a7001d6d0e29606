/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to capture.c and recording.c.
 *
 * A recording is one made cut of its own (history.h) and, beside it, where everything comes from
 * and goes to: each input of the trace reads an argument of the call or a tensor from outside;
 * each assigned tensor and each output takes a result of the cut, or such an input.
 *
 *   in[], outside --sources--> inputs of the trace --plan--> results --targets--> assigned, out[]
 *
 * The function sees handles of its own for its arguments, so that an argument is told apart from
 * the same tensor reached from outside. While it runs, each of them and the caller's handle are
 * bound alike (df_recording_twin). What held then as to which handles are one is a guard: among
 * arguments (same), and between arguments and tensors from outside (in_held).
 */
#ifndef DF_LAZY_CAPTURE_H
#define DF_LAZY_CAPTURE_H

#include "deft/capture.h"
#include "lazy/core/recorder.h"

enum { REASON = 240 };

/* A tensor of the call or from outside. */
typedef struct tensor_ref {
    deft_tensor *t; /* NULL: argument `arg` */
    uint32_t arg;
} tensor_ref;

/* A tensor that the function was given or read; those of one class were one tensor. */
typedef struct read_tensor {
    tensor_ref from;
    uint32_t cls;
    const df_value *was; /* while recording; not counted */
} read_tensor;

/* A record that read a tensor: its place, which is found when all is recorded. */
typedef struct seen_input {
    uint32_t node, place;
    deft_tensor *t;
    df_value *v; /* not counted */
} seen_input;

/* Results of the cut are numbered first, then places, whose values are passed on. */
typedef struct target {
    tensor_ref to; /* assigned; for an output: its index in to.arg */
    uint32_t value;
} target;

typedef struct number_note {
    uint32_t at, from; /* at: of the records while recording, of the trace afterwards */
    deft_dtype dtype;
    bool is_layers; /* from: which of layer_numbers; else a parameter */
} number_note;

/* A count of a layer's. */
typedef struct count_note {
    int64_t *at, first, n;
} count_note;

/* A number of a layer's (df_layer_number). */
typedef struct layer_number {
    df_layer_source from;         /* without the handle `given` */
    uint32_t which, count, param; /* count: in counts. param: what is given; DF_NONE: `given` */
    int64_t ahead;                /* of the count when the call began */
    double given, now;            /* now: of a replay */
} layer_number;

typedef struct draw_note {
    uint32_t at, rng; /* at as above; rng: in rngs */
    uint64_t draw;    /* since the first one of that rng */
} draw_note;

typedef struct rng_note {
    deft_rng *rng;
    uint64_t first, n;
} rng_note;

typedef struct df_recording {
    deft_capture *capture;
    df_cut made;
    bool cut, committed, whole; /* whole: may be replayed */
    uint64_t used;
    uint32_t n_in, n_out;
    df_arena own;       /* all that is per argument */
    df_shape *in_shape; /* per argument */
    uint8_t *in_dtype;
    uint8_t mixed;                 /* the context's policy */
    bool *in_memory;               /* per argument: memory that assignments write */
    bool *in_assigned;             /* per argument: its binding is replaced */
    uint32_t *same;                /* per argument: the first argument that is the same handle */
    uint32_t *in_held;             /* per argument: which of held it is; DF_NONE: none */
    deft_tensor *const *caller;    /* while recording: the handles of the call */
    DF_VEC(df_value *) in_value;   /* per argument, while recording; not counted */
    DF_VEC(deft_tensor *) reached; /* handles of the call that were used by themselves */
    DF_VEC(seen_input) seen;
    DF_VEC(read_tensor) places;
    DF_VEC(df_value *) results; /* of the wants while recording; not counted */
    DF_VEC(tensor_ref) wanted;  /* per want: the assigned tensor; arg DF_NONE: none */
    DF_VEC(uint32_t) sources;   /* per input of the trace: a place; DF_NONE: memory only written */
    DF_VEC(target) assigned;
    DF_VEC(target) outputs;
    DF_VEC(uint32_t) passed; /* places whose values targets take as they are */
    DF_VEC(number_note) numbers;
    DF_VEC(layer_number) layer_numbers;
    DF_VEC(count_note) counts;
    DF_VEC(draw_note) draws;
    DF_VEC(rng_note) rngs;
    DF_VEC(deft_tensor *) held; /* tensors from outside, each kept once for this */
    DF_VEC(df_value *) found;   /* of a replay, per place */
    DF_VEC(df_value *) values;  /* of a replay, per input */
    DF_VEC(df_want) want;
    deft_tensor **in, **out; /* while recording: what the function sees, and its outputs' handles */
} recording;

typedef struct param {
    char *name;
    size_t size;
    bool is_int;
    double f;
    int64_t i;
} param;

struct deft_capture {
    deft_ctx *cx;
    deft_capture_fn fn;
    void *user;
    DF_VEC(param) params;
    recording *recordings[DEFT_MAX_RECORDINGS];
    uint64_t serial;
    uintptr_t site, call_site; /* where it was made; of the latest call */
    bool running, doomed;      /* a call is under way; which ends with the capture's end */
    deft_capture_stats stats;
    char reason[REASON], logged[REASON];
};

/* Why the latest call runs C code. */
void df_capture_because(deft_capture *c, const char *fmt, ...) DF_PRINTF(2, 3) DF_COLD;

recording *df_recording_create(deft_capture *c, deft_tensor *const *in, size_t n_in, size_t n_out);
void df_recording_destroy(recording *r);
/* What was assigned, or an output, takes the value v of the step that has just been committed. */
void df_recording_target(deft_ctx *cx, recording *r, bool output, tensor_ref to, const df_value *v);
/* The functions of every recording. */
extern const df_recorder df_capture_recorder;
/* The function has ended, or what is recorded is computed in its middle: all handles of the caller
 * wake. */
void df_recording_reveal(deft_ctx *cx);
/* The function is about to run: the caller's handles sleep until it uses them by themselves. */
void df_recording_hide(recording *r);
/* The call fails: what its function counted and drew is taken back. */
void df_recording_take_back(recording *r);
/* The first argument that is the same handle as argument i. */
uint32_t df_recording_same(deft_tensor *const *in, uint32_t i);
/* Which of the tensors from outside argument t is; DF_NONE: none. */
uint32_t df_recording_held(const recording *r, const deft_tensor *t);

#endif
