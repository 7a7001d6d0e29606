/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of libcuda-standin share. Data goes so:
 *
 *   device.c   GPUs and contexts
 *   memory.c   allocations, pinned memory; what an address is
 *   virtual.c  addresses and memory apart: cuMemCreate, cuMemMap
 *   copy.c     copies and fills
 *   module.c   modules, launches
 *   graph.c    graphs and capture; conditional.c: nodes that decide (plan.h)
 *   work.c     streams and events: queues of work, and when it is done
 *   state.c    objects, misuse, the record, faults on demand
 *
 * Every call is enter() ... leave(), which hold one lock. A handle is no address: it has the kind,
 * the generation (resets so far) and the ordinal, so that a stale one is known.
 *
 * Why this file is long: it is one list of what the parts give one another.
 */
#ifndef TEST_CUDA_STANDIN_STATE_H
#define TEST_CUDA_STANDIN_STATE_H

#include "jit_cuda/driver/driver.h"
#include "standin.h"

#define STANDIN_API __attribute__((visibility("default")))

#define PROTOTYPE(field, symbol, parameters) STANDIN_API df_cu_result symbol parameters;
DF_CU_REQUIRED(PROTOTYPE)
DF_CU_OPTIONAL(PROTOTYPE)
STANDIN_MORE(PROTOTYPE)
#undef PROTOTYPE
#define PROTOTYPE(name, result, parameters) STANDIN_API result standin_##name parameters;
STANDIN_CALLS(PROTOTYPE)
#undef PROTOTYPE

typedef enum call {
#define CALL(field, symbol, parameters) C_##symbol,
    DF_CU_REQUIRED(CALL) DF_CU_OPTIONAL(CALL) STANDIN_MORE(CALL)
#undef CALL
        N_CALLS
} call;

enum {
    BAD_VALUE = 1,
    NO_INIT = 3,
    BAD_DEVICE = 101,
    BAD_IMAGE = 200,
    BAD_CONTEXT = 201,
    BAD_HANDLE = 400,
    NOT_FOUND = 500,
    BAD_ADDRESS = 700,
    PEER_ENABLED = 704,
    BAD_ALIGNMENT = 716,
    BAD_LAUNCH = 719,
    BAD_CAPTURE = 900,
    BROKEN_CAPTURE = 901
};

/* ---- objects ---- */

typedef enum kind {
    STREAM,
    EVENT,
    MODULE,
    FN,
    GRAPH,
    NODE,
    EXEC,
    PHYSICAL, /* cuMemCreate's */
    CONDITION,
    N_KINDS
} kind;

typedef struct object {
    kind kind;
    bool alive;
    int gpu;
    uint32_t number; /* from 1 */
} object;

/* size bytes, zeroed, that begin with an object. */
void *object_new(kind k, int ordinal, size_t size);
void *handle_of(const void *object);
/* The object of a handle, alive and of the current context; NULL: misuse was told. */
void *object_get(kind k, const void *handle);
void *object_get_any(kind k, const void *handle); /* of any context */
/* Each of a kind, dead ones too; *at from 0. NULL: no more. */
void *object_next(kind k, uint32_t *at);
const char *object_name(const void *object); /* "s1"; good until four more */

/* ---- calls ---- */

enum { BARE, NEEDS_CONTEXT }; /* BARE: neither cuInit nor a context */

/* 0: the call goes on, with the lock held. Else what it gives. */
int enter(call c, int needs);
int leave(int code);
int current(void); /* GPU of the current context */
const char *call_name(void);

/* Tells and counts; gives code. */
int misuse(int code, const char *fmt, ...) DF_PRINTF(2, 3);
void record(const char *fmt, ...) DF_PRINTF(1, 2); /* after the call's name */
void record_work(const char *fmt, ...) DF_PRINTF(1, 2);
uint32_t chance(uint32_t below);
void *grab(size_t n); /* zeroed; aborts without memory */
standin_mode mode(void);

/* ---- GPUs ---- */

typedef struct gpu {
    standin_gpu is;
    int retained;
    int poison; /* what every call gives, or 0 */
    uint64_t used;
    uint32_t peers; /* bit of each GPU whose memory this one's kernels reach */
} gpu;

gpu *gpu_of(int ordinal);
int n_gpus(void);
void device_reset(void);
void device_leaks(standin_alive *out);
int contexts_top(void); /* -1: none */
bool context_is(df_cu_ctx c, int ordinal);

/* ---- memory ---- */

/* Device memory that is there: [base, base + size) in a mapping of its own. */
typedef struct piece {
    uint64_t base, size;
    uint64_t asked; /* bytes of the allocation */
    char *map;
    size_t map_size;
    int gpu;
    uint32_t number;
    bool is_mapped; /* by cuMemMap */
    bool is_access; /* cuMemSetAccess was called; always for plain memory */
    bool is_open;
    object *physical;
} piece;

typedef struct pinned {
    char *at;
    size_t size;
    uint32_t number;
} pinned;

piece *piece_at(uint64_t p);
void piece_add(const piece *p);
void piece_drop(piece *p);
/* All of [p, p + n) is there; *gpu, unless NULL: whose. Says nothing. */
bool is_there(uint64_t p, uint64_t n, int *gpu);
bool in_device_range(uint64_t p); /* a piece or reserved addresses */
pinned *pinned_at(const void *p, size_t n);
/* Makes what is there accessible until the call leaves. open_at: what p points into, if the GPU
 * reaches it and it is not open; false: nothing. */
void open_range(uint64_t p, uint64_t n);
bool open_at(uint64_t p, int gpu);
void close_all(void);
const char *address_name(uint64_t p); /* "m1+256"; good until four more */
const char *host_name(const void *p); /* "pageable", "h1+0" */
void memory_reset(void);
void memory_leaks(standin_alive *out);
void virtual_reset(void);
void virtual_leaks(standin_alive *out);
bool is_reserved(uint64_t p);

/* ---- work ---- */

typedef struct stream stream;

/* A point in a stream that an event was recorded at. Counted. */
typedef struct mark {
    int refs;
    bool is_done;
    stream *in;
    uint64_t time; /* microseconds that never were */
} mark;

typedef enum op_kind {
    OP_COPY,
    OP_SET,
    OP_KERNEL,
    OP_RECORD,
    OP_WAIT,
    OP_CALL,
    OP_EMPTY,
    OP_DECIDE
} op_kind;

typedef struct side {
    bool is_host;
    uint64_t at; /* address of the first byte */
    uint64_t pitch, height;
} side;

/* A piece of work. Owns `bytes` and `inner`. */
typedef struct op {
    op_kind kind;
    int gpu;
    struct op *next;
    side dst, src;
    uint64_t width, height, depth; /* bytes, rows, planes */
    uint32_t value, element;       /* SET */
    void *bytes;                   /* staged source, parameters or arguments; or NULL */
    size_t n_bytes;
    object *fn; /* KERNEL */
    uint32_t n_blocks, n_threads, shared;
    mark *mark;         /* RECORD, WAIT; NULL: until the word at dst is `value`, or more */
    int (*run)(void *); /* CALL */
    const char *what;   /* CALL: its name */
    struct run *in_run; /* of a graph's; counted */
    object *condition;  /* DECIDE */
    bool turns;
    struct plan *inner; /* in a stream: its body's steps */
} op;

struct stream {
    object o;
    bool is_blocking; /* waits for the default stream, and it for this */
    op *first, **end;
    object *capture;  /* the graph that work goes to; or NULL */
    int capture_mode; /* 2: relaxed */
    bool is_broken;   /* the capture */
};

/* NULL and 1 are the default stream. NULL: misuse was told. */
stream *stream_get(const void *handle);
/* Takes o and what it owns. In a capture it becomes a node. */
int put_work(stream *s, op *o);
mark *mark_new(stream *in); /* the caller's */
void mark_drop(mark *m);
op *mark_op(op_kind k, mark *m);
op *op_copy(const op *o);
void op_free(op *o);
void run_stream(stream *s); /* all of it */
void run_gpu(int gpu);
void run_some(void); /* by chance */
/* The first work, not done yet, that may use these bytes; NULL: none. */
const op *work_on(uint64_t p, uint64_t n, bool is_host);
const op *work_of(const object *module); /* a launch of one of its kernels */
const char *op_name(const op *o);
void work_reset(void);
void poison(int gpu, int code);

int run_copy(const op *o); /* 0 or a result */
int run_set(const op *o);
int run_kernel(const op *o);
/* run(o), which may touch the memory of its GPU; else BAD_ADDRESS, or what else it did wrong. */
int guard(int (*run_op)(const op *o), const op *o);
/* What nodes of graphs do, looked at as the calls are: 0, or misuse was told. */
int copy_op(const df_cu_memcpy3d *c, df_cu_ctx context, op **out);
int set_op(const df_cu_memset_node *m, df_cu_ctx context, op **out);
int kernel_op(const df_cu_kernel_node *k, op **out);
const char *fn_name(const object *fn);
const object *module_of(const object *fn);
int capture_work(stream *s, op *o);
/* In a capture, what waits is refused, and breaks it. 0: not in one. */
int refuse_capture(stream *s);
bool is_captured(void); /* some stream, not in relaxed mode */
void graph_reset(void);
int driver_version(void);

#endif
