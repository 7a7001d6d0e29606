/* SPDX-License-Identifier: Apache-2.0
 *
 * What capture.c and recording.c share.
 *
 * A recording is a cut of its own (history.h), together with the origin and destination
 * of everything the cut uses. Each input of the trace reads an argument of the call or a
 * tensor from outside. Each assigned tensor and each output takes a result of the cut, or
 * the value of such an input.
 *
 *   in[], outside --sources--> inputs of the trace --plan--> results --targets--> assigned, out[]
 *
 * The function sees handles of its own for its arguments, which tells an argument from
 * the same tensor reached from outside. While the function runs, its handle and the
 * caller's are bound alike (df_recording_twin). Which handles were the same tensor is a
 * guard of the recording: among arguments (same), and between arguments and tensors from
 * outside (in_held).
 *
 * All functions need the thread of the context.
 */
#ifndef DF_LAZY_CAPTURE_H
#define DF_LAZY_CAPTURE_H

#include "deft/capture.h"
#include "lazy/core/recorder.h"

enum { REASON = 240 };

/* A tensor of the call or from outside. t is borrowed; a recording holds it through
 * `held`. */
typedef struct tensor_ref {
    deft_tensor *t; /* NULL: argument number `arg` of the call */
    uint32_t arg;
} tensor_ref;

/* An entry of `places`: a tensor that the function was given or read. Entries with equal
 * cls had one value when they were recorded. */
typedef struct read_tensor {
    tensor_ref from;
    uint32_t cls;
    const df_value *was; /* its value while recording; not counted */
} read_tensor;

/* A record that read a tensor. `place`, the index in places, is found when everything is
 * recorded. */
typedef struct seen_input {
    uint32_t node, place;
    deft_tensor *t;
    df_value *v; /* not counted */
} seen_input;

/* A tensor that gets a value after a replay. `value` numbers the results of the cut
 * first, then the entries of places, whose values are passed on unchanged. */
typedef struct target {
    tensor_ref to; /* the assigned tensor; for an output its index is to.arg */
    uint32_t value;
} target;

/* A number in the arguments of the trace that each replay sets. */
typedef struct number_note {
    /* at: index among the arguments of the records while recording, of the trace
     * afterwards */
    uint32_t at, from;
    deft_dtype dtype;
    bool is_layers; /* from is an index of layer_numbers, else of the capture's parameters */
} number_note;

/* A counter of a layer, its value when the function began, and how often the function
 * advances it. */
typedef struct count_note {
    int64_t *at, first, n;
} count_note;

/* A number that a layer computes (df_layer_number). */
typedef struct layer_number {
    df_layer_source from; /* its handle `given` is NULL */
    /* which: passed to from.value. count: index of counts. param: index of the parameter
     * that is given, or DF_NONE for `given` */
    uint32_t which, count, param;
    int64_t ahead;     /* the count minus its value when the function began */
    double given, now; /* now: the number of the current replay */
} layer_number;

/* A draw of the function, whose seed and number each replay sets. */
typedef struct draw_note {
    uint32_t at, rng; /* at: like number_note.at; rng: index of rngs */
    uint64_t draw;    /* number of the draw, from the first draw of that generator */
} draw_note;

/* A generator from which the function drew: the number of its first draw, and how many
 * there were. */
typedef struct rng_note {
    deft_rng *rng;
    uint64_t first, n;
} rng_note;

typedef struct df_recording {
    deft_capture *capture;
    df_cut made;
    /* cut: the cut has been made; committed: the function has returned; whole: it can be
     * replayed; is_trial: the cut is not run (df_capture_run) */
    bool cut, committed, whole, is_trial;
    bool has_trace; /* the trace of the cut is complete */
    bool lacks_memory;
    uint64_t used;
    uint32_t n_in, n_out;
    df_arena own;       /* owns the arrays per argument */
    df_shape *in_shape; /* per argument */
    uint8_t *in_dtype;
    uint8_t *in_face, *out_face; /* per input and per output */
    uint8_t mixed;               /* the context's policy of mixed precision */
    /* per argument: whether it is wrapped memory that assignments write */
    bool *in_memory;
    bool *in_assigned;             /* per argument: whether the function assigns to it */
    uint32_t *same;                /* per argument: the first argument that is the same handle */
    uint32_t *in_held;             /* per argument: its index in held; DF_NONE: not held */
    deft_tensor *const *caller;    /* while recording: the handles of the call */
    DF_VEC(df_value *) in_value;   /* per argument: its value while recording; not counted */
    DF_VEC(deft_tensor *) reached; /* handles of the caller that the function used directly */
    DF_VEC(seen_input) seen;
    DF_VEC(read_tensor) places;
    DF_VEC(df_value *) results; /* per want: its result while recording; not counted */
    /* per want: the tensor whose memory is written, or whose value gives its memory
     * (df_want.giver); t NULL and arg DF_NONE: none */
    DF_VEC(tensor_ref) wanted;
    /* per input of the trace: its index in places; DF_NONE: wrapped memory that is only
     * written */
    DF_VEC(uint32_t) sources;
    DF_VEC(target) assigned;
    DF_VEC(target) outputs;
    /* indices in places of values that become values of targets unchanged */
    DF_VEC(uint32_t) passed;
    DF_VEC(number_note) numbers;
    DF_VEC(layer_number) layer_numbers;
    DF_VEC(count_note) counts;
    DF_VEC(draw_note) draws;
    DF_VEC(rng_note) rngs;
    DF_VEC(deft_tensor *) held; /* tensors from outside, each kept once for this recording */
    DF_VEC(df_value *) found;   /* per entry of places: its value in the current replay */
    DF_VEC(df_value *) values;  /* per input: its value in the current replay */
    DF_VEC(df_want) want;
    /* while recording: the handles that the function sees, and those of its outputs */
    deft_tensor **in, **out;
} recording;

/* A parameter of a capture: i when is_int, else f. is_large: the bits of i are those of a u64. */
typedef struct param {
    char *name;
    size_t size;
    bool is_int, is_large;
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
    uintptr_t site, call_site; /* call sites of deft_capture_create and of the latest call */
    /* running: a call is in progress; doomed: the capture is destroyed after the call */
    bool running, doomed;
    deft_capture_stats stats;
    char reason[REASON], logged[REASON];
};

/* Stores why the latest call runs the function instead of replaying a recording. */
void df_capture_because(deft_capture *c, const char *fmt, ...) DF_PRINTF(2, 3) DF_COLD;

/* An empty recording for a call with the n_in arguments in[] and n_out outputs. NULL when
 * memory runs out. The caller owns it. in[] must outlive the run of the function. */
recording *df_recording_create(deft_capture *c, deft_tensor *const *in, size_t n_in, size_t n_out);
/* Destroys r, which may be NULL. Gives back the tensors that it keeps. */
void df_recording_destroy(recording *r);
/* Notes that an assigned tensor, or an output, takes the value v of the step that has
 * just been committed. When v is neither a result nor a value in places, the recording
 * cannot be replayed. */
void df_recording_target(deft_ctx *cx, recording *r, bool output, tensor_ref to, const df_value *v);
/* The callbacks of every recording. */
extern const df_recorder df_capture_recorder;
/* Runs the function of c as a step, whose records r notes. Sets out[0..r->n_out). Where
 * r->is_trial, the step ends when r has its trace: nothing is computed, everything is rolled back,
 * and the status is that of a failure. A trial succeeded when r->has_trace and r->whole. */
deft_status df_capture_run(deft_capture *c, recording *r, deft_tensor **out);
/* A handle of the innermost scope with the value v, of which it gets a reference of its own. NULL
 * when memory runs out. */
deft_tensor *df_capture_handle(deft_ctx *cx, df_value *v);
/* The tensor that input k of the recording's trace reads; t NULL and arg DF_NONE: memory that is
 * only written. */
tensor_ref df_recording_source(const recording *r, uint32_t k);
/* Makes the caller's handles of all arguments LIVE again. Called when the function has
 * ended. */
void df_recording_reveal(deft_ctx *cx);
/* Makes the caller's handles of all arguments UNSEEN, until the function uses them
 * directly. Called before the function runs. */
void df_recording_hide(recording *r);
/* Called when the call fails: resets the counters and generators that its function has
 * advanced. */
void df_recording_take_back(recording *r);
/* The index of the first argument that is the same handle as argument i. */
uint32_t df_recording_same(deft_tensor *const *in, uint32_t i);
/* The index in r->held of the handle t; DF_NONE when it is not there. */
uint32_t df_recording_held(const recording *r, const deft_tensor *t);

#endif
