/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/fuser: the state of one df_fuse and what its files share.
 *
 * Words used throughout:
 *   class  the dimension an axis runs over. Axes that meet in an op share one (dims.c).
 *   map    how a node's element is found from loop indices: per axis off + coef * loop (maps.c).
 *   val    something stored: a node's value in memory of its own. A val is *plain* when its kernel
 *          writes all of it, element by element; update results are not.
 *   head   one store of a kernel: which node is evaluated at which map, and where it goes.
 *   group  what becomes one segment: heads over one loop space, a matmul with its epilogue, or a
 *          routine alone.
 *   cone   all (node, map) pairs a group must evaluate, down to what it loads (cone.c).
 *
 * Order of work (plan.c):
 *   dims -> vals that must exist -> groups, in node order (group.c), again while sharing asks for
 *   more vals -> places and ordering of writes (storage.c) -> launches (launch.c) -> kernel bodies
 *   (body.c, axes.c) -> memory (memory.c).
 * size: the state of one pass, shared by all its stages.
 */
#ifndef DF_FUSER_FUSE_H
#define DF_FUSER_FUSE_H

#include "base/vec.h"
#include "fuser/plan.h"
#include "ops/shape.h"

#define MAX_LOOPS DF_MAX_AXES
#define SPECIAL MAX_LOOPS /* driver: the computed index of take and gather */
#define N_DRIVERS (MAX_LOOPS + 1)
#define FIXED (-1) /* axis with no driver: always at its offset */

enum { SLOT_ZERO = 0, SLOT_ONE = 1 }; /* the first two slots of every plan */
enum { CLS_ONE = 0 };                 /* the class of axes that are structurally 1 */

/* ---- hash index: from a hash to the numbers stored under it ---- */

typedef struct table_entry {
    uint64_t hash;
    uint32_t value, epoch;
} table_entry;

typedef struct table {
    table_entry *at;
    uint32_t cap, n, epoch; /* entries of another epoch are free */
} table;

void df_table_clear(table *t);
void df_table_finish(table *t, const df_mem *mem);
bool df_table_add(table *t, const df_mem *mem, uint64_t hash, uint32_t value);
/* Candidates under hash one after the other: start with *pos = UINT32_MAX; DF_NONE ends. */
uint32_t df_table_next(const table *t, uint64_t hash, uint32_t *pos);

/* ---- maps ---- */

typedef struct index_map {
    uint8_t linear; /* 1: one row-major element number, off[0] + sum of lcoef[d] * d */
    uint8_t rank;
    int8_t axis[DEFT_MAX_RANK]; /* driver or FIXED */
    uint8_t pad[2];
    df_slot off[DEFT_MAX_RANK], coef[DEFT_MAX_RANK];
    df_slot lcoef[N_DRIVERS];
} index_map;

/* Where a map lands in memory. */
typedef struct location {
    df_slot off;
    df_slot stride[N_DRIVERS];
} location;

/* ---- loop spaces ---- */

typedef struct space {
    uint8_t n;
    uint8_t order[MAX_LOOPS]; /* loops from outermost to innermost as the ops see them */
    bool red[MAX_LOOPS];
    uint32_t cls[MAX_LOOPS]; /* DF_NONE: private to the group */
    df_slot extent[MAX_LOOPS];
} space;

/* ---- vals, heads, groups ---- */

typedef enum storage_kind { STORAGE_TEMP, STORAGE_ROOT, STORAGE_INTO } storage_kind;

typedef struct storage {
    uint32_t kind;
    uint32_t index; /* root or input ordinal */
    uint32_t node;  /* dtype, rank and extents */
    df_slot stride[DEFT_MAX_RANK];
    uint32_t donor; /* input ordinal or DF_NONE */
    bool keep;      /* the donor's contents are part of the value */
    bool unused;    /* a matmul result that only its epilogue reads */
    uint32_t buf;
    uint32_t first, last; /* launches */
} storage;

typedef struct val {
    uint32_t node;
    uint32_t group; /* that writes it (the value of an update); DF_NONE until planned */
    uint32_t map;   /* what its group writes of it: its axes over the loops */
    uint32_t level;
    uint32_t place;
    uint32_t root;    /* root ordinal or DF_NONE */
    uint32_t over;    /* update: val written over in place, or DF_NONE */
    uint32_t over_by; /* the update that writes over it in place, or DF_NONE */
    uint32_t frames;  /* update: groups that fill the rest, first of a list; DF_NONE */
    uint32_t readers; /* first of a list of loads; DF_NONE */
    bool visible;     /* consumers of node load it */
    bool plain;
    bool loose;    /* update in place that does not come after all that wrote there before it */
    bool staged;   /* update: written by a copy of what another kernel computed (hazards.c) */
    uint8_t apart; /* update in place beyond all that `over` wrote: along axis apart - 1; 0: not */
} val;

typedef struct head {
    uint32_t expr; /* node evaluated */
    uint32_t map;  /* its axes over the loops */
    uint32_t dest; /* the axes of the place's node over the loops */
    uint32_t val;
    uint32_t next; /* head of the same group or DF_NONE */
    uint32_t item; /* in the group's cone */
} head;

typedef enum item_kind {
    IT_MAP,
    IT_REDUCE,
    IT_SCAN,
    IT_NUM, /* num, cst, count, empty: no index */
    IT_IOTA,
    IT_RANDOM,
    IT_TAKE,  /* src[0]: the index; loads from val (or input node base) at base_map */
    IT_LOAD,  /* from val */
    IT_INPUT, /* from the input node */
    IT_TILE   /* the matmul's result, inside its epilogue */
} item_kind;

typedef struct item {
    uint32_t node, map;
    uint32_t src[3];
    uint32_t val;      /* IT_LOAD, IT_TAKE; DF_NONE: base is an input */
    uint32_t base;     /* IT_TAKE: node that is loaded */
    uint32_t base_map; /* IT_TAKE */
    uint8_t kind;
    bool elem;     /* depends on a RED loop */
    uint8_t stage; /* earliest */
    uint8_t need;  /* ELEM items: bit per stage it is needed in */
} item;

typedef struct group {
    uint32_t kind; /* df_seg_kind */
    space sp;
    uint32_t first_head, last_head, n_heads;
    uint32_t level; /* while grouping; after ordering: its launch */
    uint32_t node;  /* of its first head: for messages */
    uint32_t size;  /* ops in its cone */
    bool dead;      /* joined into another */
    bool checks;
    bool relies; /* pays was asked: rows and total must stay on their side */
    bool frame;
    bool after; /* runs when the rest of its launch has ended */
    /* matmul, routine */
    uint32_t n_operands;
    uint32_t product; /* val */
    uint32_t mm_val[2], mm_node[2], mm_map[2];
    /* the final cone, in order of nodes */
    item *items;
    uint32_t n_items;
    uint32_t n_stages;
    bool has_red, has_scan;
    uint32_t first_edge;
    uint32_t n_before;
    uint32_t next_frame;
} group;

typedef struct load {
    uint32_t group, item; /* item: index in its cone; DF_NONE: an operand of a matmul or
                           * a routine, or looked up */
    uint32_t operand;     /* of a matmul or a routine: which, over its own axes; or DF_NONE */
    uint32_t map;
    uint32_t next; /* load of the same memory or DF_NONE */
    bool is_old;   /* of what was there before the val that lists it, which writes elsewhere */
} load;

/* A load of the newest contents, in no list yet. */
DF_INLINE load load_of(uint32_t gi, uint32_t item_at, uint32_t operand, uint32_t map)
{
    return (load){ gi, item_at, operand, map, DF_NONE, false };
}

typedef struct edge {
    uint32_t to, next;
} edge;

/* What a map touches of a node as loops run. */
typedef struct df_box {
    bool is_box;
    df_slot start[DEFT_MAX_RANK], extent[DEFT_MAX_RANK];
    bool whole[DEFT_MAX_RANK];
} df_box;

/* Why memory cannot be written over. why NULL: nothing is known against it. */
typedef struct hazard {
    uint32_t reader; /* node that reads the old contents, or holds them; DF_NONE */
    const char *why; /* static; continues a sentence that begins with the reader */
} hazard;

/* ---- the cone being worked on ---- */

typedef struct cone {
    space sp;
    uint32_t group; /* DF_NONE: a head alone */
    uint32_t level; /* vals at or above it are not loaded; UINT32_MAX: all are */
    bool strict;    /* such a val is a failure (a join being tried) rather than recomputed */
    bool grow;      /* the space may get roles and loops from the reductions found */
    bool failed;
    const char *why;               /* static, or in p->tmp */
    bool has_red, has_scan, multi; /* multi: element-level work after the first stage */
    uint32_t n_ops;
    uint32_t n_stages;
    DF_VEC(head) heads;
    DF_VEC(item) items;
    DF_VEC(uint32_t) heap;
    DF_VEC(uint32_t) order; /* items as popped: falling nodes */
    DF_VEC(uint32_t) marks; /* nodes that must be stored first */
    table seen;
} cone;

/* ---- the pass ---- */

typedef struct pass {
    df_diag *diag;
    const df_trace *t;
    const df_limits *lim;
    const df_mem *mem;
    bool fuse;
    df_arena tmp;
    df_plan *plan;
    deft_status st; /* sticky: first shortage of memory */

    DF_VEC(df_slot_def) slots;
    DF_VEC(int64_t) now; /* value of each slot on the trace at hand */
    table slot_index;
    DF_VEC(df_guard) guards;
    table guard_index;
    DF_VEC(index_map) maps;
    table map_index;

    uint32_t *axis0; /* per node: first of its entries in axis_cls */
    uint32_t *axis_cls;
    DF_VEC(uint32_t) cls_parent;
    DF_VEC(uint32_t) cls_node;
    DF_VEC(uint32_t) cls_axis;
    uint8_t *full;      /* per slice node: axes taken whole */
    uint8_t *unit;      /* per slice node: axes of step 1 */
    uint8_t *live;      /* bit 0: evaluated; bit 1: its dims matter */
    df_slot *in_stride; /* per input and axis, filled on first use */
    uint8_t *in_seen;

    uint32_t *node_val; /* visible val or DF_NONE */
    uint8_t *must;      /* nodes to be stored, kept from round to round */
    float *cost;        /* per element, down to what is loaded */
    uint32_t *touch;    /* last group that evaluated or loaded the node */
    uint32_t *root_val; /* per root */

    DF_VEC(val) vals;
    DF_VEC(head) heads;
    DF_VEC(group) groups;
    DF_VEC(storage) places;
    DF_VEC(load) loads;
    DF_VEC(edge) edges;
    DF_VEC(uint32_t) stack;
    DF_VEC(df_why) whys; /* at most one per pair and decision */
    table why_index;
    DF_VEC(df_copied) copied;
    uint32_t *in_readers; /* per input: first load */
    uint32_t *in_over;    /* per input: the update that writes over it in place, or DF_NONE */
    cone c;

    DF_VEC(df_kernel) kernels;
    table kernel_index;
    DF_VEC(df_seg) segs;
    DF_VEC(df_launch) launches;
    DF_VEC(df_plan_buf) bufs;
    DF_VEC(df_region) regions;
    DF_VEC(uint32_t) from;
    uint32_t *in_buf;
    uint32_t n_levels;
    uint32_t *seen; /* marks of path searches, per group */
    uint32_t n_seen, seen_mark;
    int64_t search_left;
    bool has_checks, checks_first;
    uint32_t n_checked;        /* the plan's */
    uint32_t n_repeated;       /* groups done again for want of memory */
    const uint64_t *part_most; /* bounds of plans within parts, by df_subplan.serial; NULL: none */
    uint32_t n_fused;          /* of such plans, by now */
} pass;

DF_INLINE const df_node *node_of(const pass *p, uint32_t n)
{
    return &p->t->nodes[n];
}

DF_INLINE uint8_t class_of_op(const pass *p, uint32_t n)
{
    return df_op_infos[p->t->nodes[n].op].cls;
}

/* ---- plan.c ---- */

/* A pass over t with a plan to fill in, *out, which is the caller's. */
deft_status df_fuse_begin(pass *p, df_diag *d, const df_trace *t, const df_limits *limits,
                          const df_mem *mem, bool fuse, df_plan **out);
deft_status df_fuse_copy_out(pass *p); /* what the pass made, into its plan */
void df_fuse_end(pass *p);

/* ---- slots.c ---- */
bool df_fuse_slots_init(pass *p);
void df_fuse_put_slot(pass *p, df_slot_def s); /* behind all others, whether known or not */
df_slot df_fuse_const(pass *p, int64_t v);
df_slot df_fuse_node_extent(pass *p, uint32_t node, uint32_t axis); /* the source, not the class */
df_slot df_fuse_arg(pass *p, uint32_t arg);
df_slot df_fuse_stride(pass *p, uint32_t input, uint32_t axis);
df_slot df_fuse_add(pass *p, df_slot a, df_slot b);
df_slot df_fuse_sub(pass *p, df_slot a, df_slot b);
df_slot df_fuse_mul(pass *p, df_slot a, df_slot b);
df_slot df_fuse_max(pass *p, df_slot a, df_slot b);
df_slot df_fuse_round_up(pass *p, df_slot a, int64_t unit); /* to a multiple of unit */
void df_fuse_guard(pass *p, df_guard_kind kind, uint32_t a, uint32_t b, int64_t want);
/* Why a and b (the same: why a) were fused or not. Of decisions on one pair the last counts; one
 * made again keeps its first reason. */
void df_fuse_why(pass *p, uint32_t a, uint32_t b, const char *what, const char *fmt, ...)
    DF_PRINTF(5, 6);
const char *df_fuse_name(const pass *p, uint32_t node);

/* The slots, guards and decisions of a plan that was made for a part of p->t, and translated to it,
 * become p's; its first slot is *slot0 there. */
deft_status df_fuse_splice(pass *p, df_plan *plan, df_slot *slot0);

/* Bytes of what lives while part i runs, beside what its plans take. */
int64_t df_fuse_around_bytes(const df_plan *plan, uint32_t i, const int64_t *slots);

/* ---- outline.c ---- */
/* A plan of parts, for a trace with control. */
deft_status df_fuse_outline(pass *p);

/* ---- dims.c ---- */
deft_status df_fuse_dims(pass *p);
uint32_t df_fuse_cls(const pass *p, uint32_t node, uint32_t axis);
df_slot df_fuse_cls_extent(pass *p, uint32_t cls);
df_slot df_fuse_axis_extent(pass *p, uint32_t node, uint32_t axis);
df_slot df_fuse_numel(pass *p, uint32_t node);
void df_fuse_contiguous(pass *p, uint32_t node, df_slot stride[DEFT_MAX_RANK]);
/* Strides of an input, with the guards that make them simple. */
const df_slot *df_fuse_input_strides(pass *p, uint32_t input);

/* ---- maps.c ---- */
uint32_t df_map_intern(pass *p, const index_map *m);
index_map df_map_blank(uint32_t rank); /* every axis FIXED at 0 */
uint32_t df_map_zero(pass *p, uint32_t rank);
uint32_t df_map_identity(pass *p, uint32_t rank); /* axis j driven by loop j */
/* The operand's map of view node at map m. DF_NONE when there is none: the operand (or, with *self
 * set, the view itself) must be stored. */
uint32_t df_map_view(pass *p, uint32_t node, uint32_t m, bool *self);
uint32_t df_map_operand(pass *p, uint32_t node, uint32_t operand, uint32_t m); /* elementwise ops */
uint32_t df_map_rename(pass *p, uint32_t m, const uint8_t to[MAX_LOOPS]);
/* Whether a map's image is a box: step 1 along axes of their own, or fixed. */
bool df_map_is_box(const index_map *m);
location df_map_locate(pass *p, uint32_t m, const df_slot *stride);

/* ---- cone.c ---- */
void df_cone_begin(pass *p, cone *c);
deft_status df_cone_add_head(pass *p, cone *c, head h);
deft_status df_cone_run(pass *p, cone *c); /* failures of fusion are in c->failed, c->marks */
void df_cone_finish(cone *c, const df_mem *mem);
/* Space and map of one head alone: loops are its axes, or those of the reduction's operand. */
void df_space_of_head(pass *p, uint32_t expr, space *sp, uint32_t *map);
df_slot df_space_rows(pass *p, const space *sp);
/* Its value of now: asking for a slot may move pass.now. */
DF_INLINE long long df_space_rows_now(pass *p, const space *sp)
{
    const df_slot rows = df_space_rows(p, sp);
    return (long long)p->now.at[rows];
}
df_slot df_space_total(pass *p, const space *sp);

/* ---- vals.c ---- */
/* Each of the four appends a row and returns its number. When memory runs out, they set p->st, and
 * the number is 0. */
/* A val for node. A visible val is the one that other kernels load for the node. */
uint32_t df_fuse_new_val(pass *p, uint32_t node, bool visible);
/* A group without heads. `kind` is a df_seg_kind; `node` is the node that explanations name. */
uint32_t df_fuse_new_group(pass *p, uint32_t kind, uint32_t node);
/* Copies h to the end of the heads of group g. */
void df_fuse_append_head(pass *p, uint32_t g, head h);
/* Appends a place: memory of its own, of a root or of an input (`kind`); `index` is the number of
 * the root or input. The extents of the place are those of node. */
uint32_t df_fuse_new_place(pass *p, uint32_t kind, uint32_t index, uint32_t node);

/* ---- single.c ---- */
/* Whether a kernel with several stages over these rows keeps the threads busy, or is too small for
 * that to matter. With `guard`, the answer becomes part of the plan, and guards keep it true. */
bool df_fuse_pays(pass *p, const space *sp, bool guard);
/* Whether a kernel can reduce over the RED loops of the cone. The answer is false if they do not
 * merge into one loop, and a kernel that goes run by run would have too much to reduce. */
bool df_fuse_red_is_fine(pass *p, const cone *c);
/* Pushes val v on the stack of vals that are planned next. */
void df_fuse_push_val(pass *p, uint32_t v);
/* Makes node a val and pushes it. `why` says for which reason `user` cannot compute the node
 * itself. Returns false if the node already is a val. */
bool df_fuse_demand(pass *p, uint32_t node, uint32_t user, const char *why);
/* Computes the cone of head h alone, in the space *sp. Sets *progress if other vals were pushed
 * that must be planned before h; the caller then tries again. */
deft_status df_fuse_run_alone(pass *p, const head *h, const space *sp, bool *progress);

/* ---- join.c ---- */
/* Puts h into a group, an existing one if possible. The cone at hand is the cone of h over the
 * space *from. `after` is a val that must be complete before h is written though h does not load
 * it, or DF_NONE. */
deft_status df_fuse_join_or_open(pass *p, head h, const space *from, uint32_t after);

/* ---- group.c ---- */
/* Decides which nodes are stored, and which of them share a group. */
deft_status df_fuse_groups(pass *p);
/* Where update n writes: *dest is a map from the loops of `map`, which locates the value, to the
 * axes of the base. */
deft_status df_fuse_update_dest(pass *p, uint32_t n, uint32_t map, uint32_t *dest);

/* ---- share.c ---- */
deft_status df_fuse_final_cones(pass *p);
deft_status df_fuse_final_cone(pass *p, uint32_t g);
void df_fuse_explain(pass *p); /* why neighbouring ops share a kernel */
/* Marks what is dear and computed more than once. *again: found some. */
deft_status df_fuse_find_shared(pass *p, bool *again);

/* ---- hazards.c ---- */
/* A space whose loops are the axes of node; returns its map over them. */
uint32_t df_space_of_node(pass *p, uint32_t node, space *sp);
df_box df_box_of(pass *p, const group *g, uint32_t map, uint32_t node);
df_slot df_box_gap(pass *p, const df_box *last, const df_box *b, uint32_t axis);
/* The head that writes val v; NULL: a routine or a product does. */
const head *df_hazard_head(const pass *p, uint32_t v);
/* Whether load l and the head that writes v touch the same element at each step, the load first. */
bool df_hazard_same_element(const pass *p, const load *l, uint32_t v);
/* Whether all loads of a list can be in order with the writer of v; else *h says why not. */
bool df_hazard_may_order(pass *p, uint32_t list, uint32_t v, hazard *h);
/* Puts them in order. */
void df_hazard_order(pass *p, uint32_t list, uint32_t v);
/* Whether v can come after all that wrote its place, val over and what that was written over, or
 * beside what it shares no element with: then it is loose, and all readers of the place can be in
 * order with it. input: whose memory the place is, or DF_NONE. */
bool df_hazard_after_writers(pass *p, uint32_t over, uint32_t input, uint32_t v, hazard *h);
/* Makes it so. */
void df_hazard_follow_writers(pass *p, uint32_t over, uint32_t input, uint32_t v);
/* When one of the two said no: update v, in one place with val over or over an input (DF_NONE), is
 * written by a copy behind all loads of the list; false: that does not help, or does not pay.
 * in_input: it lies in memory of an input. */
bool df_hazard_stage(pass *p, uint32_t list, uint32_t over, uint32_t v, bool in_input, hazard *h);

/* ---- storage.c, order.c, launch.c ---- */
#define DF_MAX_SEARCH 100000000 /* steps of path searches in all */
deft_status df_fuse_places(pass *p);
void df_fuse_record_loads(pass *p, uint32_t g);
bool df_fuse_reaches(pass *p, uint32_t from, uint32_t to);
void df_fuse_edge(pass *p, uint32_t from, uint32_t to);
/* What is stored as node, or as what it is a view of; DF_NONE: nothing. */
uint32_t df_fuse_stored_under(const pass *p, uint32_t node);
void df_fuse_writer_edges(pass *p, uint32_t v, uint32_t to);
void df_fuse_donors(pass *p);
/* Whether the loops of g run over all elements of node, once each, through this map. */
bool df_map_is_full(pass *p, const group *g, uint32_t map, uint32_t node);
deft_status df_fuse_launches(pass *p);
void df_fuse_tail(pass *p);           /* after df_fuse_donors */
deft_status df_fuse_checked(pass *p); /* n_checked; after df_fuse_tail */

/* ---- body.c, axes.c, matmul.c, memory.c ---- */

/* A temporary, as pack.c sees it. */
typedef struct df_life {
    int64_t bytes;        /* at the sizes at hand */
    uint32_t first, last; /* launches */
    uint32_t who;         /* the asker's number for it */
    uint32_t region;      /* result */
} df_life;

typedef struct access {
    uint8_t kind, dtype;
    uint32_t buf;
    uint32_t memory; /* equal numbers may be the same memory */
    location at;
} access;

typedef struct body {
    df_emit emit; /* first: recipes get a pointer to it */
    pass *p;
    uint32_t g;
    uint8_t stage, level;
    bool map; /* all at stage 0, level ELEM */
    DF_VEC(df_ins) ins;
    DF_VEC(access) access;
    DF_VEC(uint32_t) num;
    DF_VEC(uint8_t) num_dtype;
    table cse;
    uint32_t tile;
} body;

void df_body_init(body *b, pass *p);
void df_body_reset(body *b); /* before each kernel */
void df_body_finish(body *b);
/* Instructions at b's stage and level; equal ones are found again. */
uint32_t df_body_ins(body *b, df_kop op, deft_dtype t, uint32_t x, uint32_t y, uint32_t z,
                     uint64_t imm);
uint64_t df_body_bits(deft_dtype t, uint32_t attr); /* of a cst with that attribute */
uint32_t df_body_constant(body *b, deft_dtype t, uint32_t attr);
/* A number slot: an argument of the trace, or with DF_NUM_IS_SLOT a slot of the plan. */
uint32_t df_body_number(body *b, uint32_t which, deft_dtype t);
uint32_t df_body_access(body *b, access a); /* found again where it is one already */

void df_fuse_find_unused(pass *p); /* products that live in tiles */
deft_status df_fuse_bodies(pass *p);
deft_status df_fuse_seal_body(pass *p, body *b, df_kernel shape, const uint8_t *order,
                              const df_slot *extent, df_seg *seg);
/* Axes of a LOOP kernel, whose only RED loop is the iterations. */
void df_fuse_loop_axes(pass *p, const space *sp, const access *a, uint32_t n, df_kernel *k,
                       uint8_t *order, df_slot *extent);
void df_fuse_pick_axes(pass *p, const space *sp, const access *a, uint32_t n, bool keep_all,
                       df_kernel *k, uint8_t *order, df_slot *extent);
deft_status df_fuse_memory(pass *p);  /* live ranges */
deft_status df_fuse_regions(pass *p); /* after the bodies */
/* Gives each life a region, so that those of one region do not meet; brings them in another order.
 * *total: bytes of all regions, each a multiple of 64. */
deft_status df_fuse_pack(pass *p, df_life *life, uint32_t n, uint32_t *n_regions, int64_t *total);
/* With a bound on temporaries: what is not kept, and computed again where it is read late. After
 * live ranges, which it follows. DEFT_E_MEMORY: the bound cannot be met. */
deft_status df_fuse_keep(pass *p);
uint32_t df_fuse_place_buf(pass *p, uint32_t place);
uint32_t df_fuse_input_buf(pass *p, uint32_t input);

#endif
