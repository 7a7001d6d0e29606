/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/fuser: the state of one call of df_fuse, and the functions that its files share.
 *
 * Terms used throughout (docs/glossary.md has more):
 *
 *   slot   a number of the plan that each run computes anew, from extents, arguments and strides
 *          (slots.c).
 *   guard  a condition on slots or inputs. A plan serves only runs in which all guards hold.
 *   root   a node whose value the trace stores: a result.
 *   class  the dimension that an axis runs over. Axes that meet in an operator share one class
 *          (dims.c).
 *   map    an index map: how an element of a node is found from loop indices. Along each axis the
 *          index is off + coef * loop (maps.c).
 *   val    a stored value: the value of a node in memory. A val is *plain* when its writer replaces
 *          all its elements. The result of an update, a scatter_add or an index_add is not plain.
 *   head   one store of a kernel: which node is evaluated at which map, and where the result goes.
 *   group  what becomes one segment: heads over one loop space, a product with its epilogue, or a
 *          routine alone.
 *   cone   all pairs (node, map) that a group must evaluate, down to what it loads (cone.c).
 *   place  the storage of a val: a temporary, the buffer of a root, or memory of the caller
 *          (storage.c).
 *   box    the elements that a map reaches, when they are a contiguous range along each axis.
 *   RED    the role of a loop that is reduced or scanned over. Other loops are *kept*.
 *   region conditions on loops under which an element exists (surround.c).
 *   stage  one pass over the RED loops of a kernel.
 *   part   a loop, a branch, or the operators between them, in a trace with control flow.
 *
 * Order of work (plan.c):
 *
 *   df_fuse_dims       classes of axes
 *   df_fuse_groups     nodes that must be stored become vals, vals are put into groups in node
 *                      order; again while sharing asks for more vals
 *   df_fuse_places     storage of the vals, order of writes
 *   df_fuse_launches   launches
 *   df_fuse_memory     live ranges; df_fuse_postpone: shorter ones, where groups run later;
 *                      df_fuse_keep: fewer of them, under a bound on temporaries
 *   df_fuse_bodies     kernel bodies and segments
 *   df_fuse_regions    regions of the arena of temporaries
 *
 * Errors: p->st keeps a failure, nearly always a shortage of memory. A function that returns a
 * slot, the number of a row or nothing reports a failure only there. The returned number is then
 * meaningless. It may be passed on to other such functions. Check p->st before any other use.
 * Why this file is long: the state of one pass, shared by all its stages.
 */
#ifndef DF_FUSER_FUSE_H
#define DF_FUSER_FUSE_H

#include "base/vec.h"
#include "fuser/ids.h"
#include "fuser/plan.h"
#include "ops/shape.h"
#include "trace/opaque.h"

#define MAX_LOOPS DF_MAX_AXES
/* A driver is what moves an index along an axis: a loop, or the index that take or gather computes
 * (SPECIAL). */
#define SPECIAL MAX_LOOPS
#define N_DRIVERS (MAX_LOOPS + 1)
#define FIXED (-1) /* an axis without a driver: its index is always its offset */

/* The first two slots of every plan are the numbers 0 and 1. */
#define SLOT_ZERO ((df_slot){ 0 })
#define SLOT_ONE ((df_slot){ 1 })
enum { CLS_ONE = 0 }; /* the class of axes whose extent is 1 by construction */

/* ---- hash index: from a hash to the numbers stored under it ---- */

typedef struct table_entry {
    uint64_t hash;
    uint32_t value, epoch;
} table_entry;

/* An open-addressing index. A zeroed table is empty. */
typedef struct table {
    table_entry *at;
    uint32_t cap, n; /* entries of `at`; those that are in use */
    uint32_t epoch;  /* entries of another epoch are free */
} table;

/* Removes all entries in constant time. The memory is kept. */
void df_table_clear(table *t);
/* Frees the memory of the table. */
void df_table_finish(table *t, const df_mem *mem);
/* Adds value under hash, beside values that are there under the same hash. Returns false when
 * memory runs out. */
bool df_table_add(table *t, const df_mem *mem, uint64_t hash, uint32_t value);
/* Returns the values under hash one after the other, and DF_NONE after the last. The caller sets
 * *pos to UINT32_MAX before the first call. Nothing may be added to the table between these calls.
 * The caller compares the thing that the value numbers: different things may have equal hashes. */
uint32_t df_table_next(const table *t, uint64_t hash, uint32_t *pos);

/* ---- maps ---- */

/* An index map over a node. df_map_intern compares maps as bytes. So unused entries of axis must be
 * FIXED, and all other unused fields 0; df_map_blank makes such a map. Interned maps are equal
 * exactly when their numbers are. */
typedef struct index_map {
    uint8_t linear; /* 1: one row-major element number, off[0] + sum of lcoef[d] * driver d */
    uint8_t rank;
    int8_t axis[DEFT_MAX_RANK]; /* the driver of each axis, or FIXED */
    uint8_t pad[2];
    df_slot off[DEFT_MAX_RANK], coef[DEFT_MAX_RANK]; /* index = off + coef * driver */
    df_slot lcoef[N_DRIVERS];                        /* linear maps only; else 0 */
} index_map;

/* A condition on the loops, and all conditions of `outer`. It holds where 0 <= index < extent for
 * index = off + coef * driver. */
typedef struct region {
    region_id outer; /* NO_REGION: no further condition */
    int8_t driver;   /* a loop, or FIXED */
    df_slot off, coef, extent;
} region;

/* Where a map leads in memory, in elements: off + sum of stride[d] * driver d. */
typedef struct location {
    df_slot off;
    df_slot stride[N_DRIVERS];
} location;

/* ---- loop spaces ---- */

/* The loops of a group. */
typedef struct space {
    uint8_t n;
    uint8_t order[MAX_LOOPS]; /* loops from the outermost to the innermost, in the order of the axes
                               * of the nodes. The kernel may use another (df_fuse_pick_axes) */
    bool red[MAX_LOOPS];      /* per loop: it is reduced or scanned over */
    uint32_t cls[MAX_LOOPS];  /* per loop: its class; DF_NONE: a range of this group only */
    df_slot extent[MAX_LOOPS];
} space;

/* ---- vals, heads, groups ---- */

typedef enum storage_kind {
    STORAGE_TEMP, /* a temporary of the run */
    STORAGE_ROOT, /* the buffer of a root */
    STORAGE_INTO  /* the caller's memory, through an input */
} storage_kind;

/* Memory in which one val is stored, or several updates that are written over each other. */
typedef struct storage {
    uint32_t kind;  /* storage_kind */
    uint32_t index; /* ROOT: root ordinal; INTO: input ordinal; else 0 */
    uint32_t node;  /* has the dtype, rank and extents of the memory */
    /* In elements. Row-major, or the strides of the input for INTO. */
    df_slot stride[DEFT_MAX_RANK];
    uint32_t donor;       /* ROOT: the input whose memory it may reuse, or DF_NONE */
    bool keep;            /* the contents of the donor are part of the value (an update in place) */
    bool unused;          /* a product that only its own epilogue reads: it takes no memory */
    place_id over;        /* TEMP: see df_plan_buf.over */
    df_buf buf;           /* buffer of the plan; DF_NO_BUF until the first use */
    uint32_t first, last; /* live range: the first and the last launch. Set by df_fuse_memory */
} storage;

/* A stored value. The updates under an update in place are those that it is written over: its
 * `over`, the `over` of that, and so on. */
typedef struct val {
    uint32_t node;
    /* The group that writes it; DF_NONE until planned. Of an update: the group that writes the
     * updated part. The groups in `frames` copy the rest. */
    group_id group;
    map_id map;      /* which elements of it the group writes: its axes over the loops */
    uint32_t level;  /* see group.level. An update has a higher level than what it updates */
    place_id place;  /* row of pass.places; DF_NONE until chosen */
    uint32_t root;   /* root ordinal or DF_NONE */
    val_id over;     /* update in place: the val that it is written over, or DF_NONE */
    val_id over_by;  /* the update that is written over this val in place, or DF_NONE */
    group_id frames; /* update: first of the groups that copy the border; DF_NONE: no such group */
    load_id readers; /* first of the list of loads that read it; DF_NONE: no load */
    bool visible;    /* groups that need node load this val. Else it is a copy for one purpose */
    bool plain;      /* its group writes all its elements; see the top of this file */
    bool loose;   /* update in place that is not ordered after all earlier writers of its place */
    bool staged;  /* update: written by a copy of what another kernel computed (hazards.c) */
    bool divided; /* one of several vals of a node, each of a part of its elements (pieces.c). They
                   * are written over each other in one place, and share no element */
    /* Of an update in place: along axis apart - 1, it begins at or after the end of the update
     * under it. So the two may run in any order. 0: no such axis is known. */
    uint8_t apart;
} val;

/* One store of a group. */
typedef struct head {
    uint32_t expr; /* the node that is evaluated */
    map_id map;    /* the axes of expr over the loops */
    map_id dest;   /* the axes of the place's node over the loops: where the value is stored */
    val_id val;    /* the val that is written */
    head_id next;  /* the next head of the same group, or DF_NONE */
    uint32_t item; /* the item of the group's cone that is the value of expr */
} head;

/* What an item of a cone is. */
typedef enum item_kind {
    IT_MAP,    /* an elementwise operator */
    IT_REDUCE, /* a reduction; complete from the stage after its own on */
    IT_SCAN,
    IT_NUM, /* num, cst, count and empty: values that need no index */
    IT_IOTA,
    IT_RANDOM,
    IT_TAKE,    /* src[0] is the index. Loads at base_map from val, or from input node base */
    IT_LOAD,    /* loads from val */
    IT_INPUT,   /* loads from the input node */
    IT_TILE,    /* the result of the product, within its epilogue */
    IT_SURROUND /* src[0] where region `inner` holds, else the number `around` */
} item_kind;

/* One triple (node, map, region) of a cone. */
typedef struct item {
    uint32_t node;
    map_id map;
    uint32_t src[3];  /* items of the operands; DF_NONE where there is none */
    val_id val;       /* LOAD, TILE, TAKE: the val that is read; DF_NONE: no val (TAKE: an input) */
    uint32_t base;    /* TAKE: the node that is loaded */
    map_id base_map;  /* TAKE: the map over base; SPECIAL drives the indexed axis */
    region_id region; /* where the item is needed. LOAD, INPUT: nothing is loaded elsewhere */
    region_id inner;  /* SURROUND: where src[0] is needed */
    uint32_t around;  /* SURROUND, and loads in a region: the node of the number outside of the
                       * region; DF_NONE: any value may be there */
    uint8_t kind;     /* item_kind */
    bool elem;        /* the value depends on a RED loop: computed inside the loop of a stage */
    uint8_t stage;    /* the earliest stage in which its operands are complete */
    uint8_t need;     /* elem only: a bit for each stage that needs it */
} item;

/* What becomes one segment. */
typedef struct group {
    uint32_t kind; /* df_seg_kind */
    space sp;
    head_id first_head, last_head; /* a list; DF_NONE: empty */
    uint32_t n_heads;
    uint32_t level; /* while grouping: one more than the highest level of a val that it loads, or 0.
                     * Its vals have that level; updates may have a higher one. After
                     * df_fuse_launches: its launch */
    uint32_t node;  /* the node that messages name: that of its first head, or the product */
    uint32_t size;  /* operators in its cone */
    bool dead;      /* joined into another group */
    bool checks;    /* it checks indices that it computes or loads */
    bool frame;     /* it copies: the border of an update, or a whole array */
    bool after;     /* it runs when the other groups of its launch have ended */
    /* Products and routines: */
    uint32_t n_operands;
    uint32_t n_row_loops; /* product: its first loops number its rows, the others its columns */
    val_id product; /* the val of the result of the product or routine; DF_NONE: it is neither */
    /* Per operand: the val that holds it (DF_NONE: an input), its node, and the map from the axes
     * of the operand to the axes of that node. */
    val_id *mm_val;
    uint32_t *mm_node;
    map_id *mm_map;
    uint32_t windows; /* row of pass.windows: operand 1 shows windows, and its map is over their
                       * images; DF_NONE: it does not */
    /* The final cone, in rising order of nodes: */
    item *items;
    uint32_t n_items;
    uint32_t n_stages;
    bool has_red, has_scan;
    uint32_t first_edge; /* list of the groups that wait for this one, or DF_NONE */
    uint32_t n_before;   /* work space of df_fuse_launches: groups that it still waits for */
    group_id next_frame; /* the next group that copies the border of the same update, or DF_NONE */
} group;

/* A group that reads a val or an input. */
typedef struct load {
    group_id group;
    uint32_t item;    /* the item of the group's cone that loads. DF_NONE: an operand of
                           * a product or of a routine, or a lookup (TAKE) */
    uint32_t operand; /* the operand of a product or routine; its map is over its own axes, not
                           * over loops. DF_NONE: not an operand */
    map_id map;       /* which elements are read */
    load_id next;     /* the next load of the same val or input, or DF_NONE */
    bool is_old;      /* reads the contents from before the val that lists it. That val writes
                           * other elements */
} load;

/* A load of the newest contents, in no list yet. */
DF_INLINE load load_of(group_id g, uint32_t item_at, uint32_t operand, map_id map)
{
    return (load){ g, item_at, operand, map, NO_LOAD, false };
}

/* An entry of the list group.first_edge: group `to` runs in a later launch. */
typedef struct edge {
    group_id to;
    uint32_t next;
} edge;

/* The elements of a node that a map reaches while the loops run. */
typedef struct df_box {
    bool is_box; /* a contiguous range along each axis. Else the other fields mean nothing */
    df_slot start[DEFT_MAX_RANK], extent[DEFT_MAX_RANK];
    bool whole[DEFT_MAX_RANK]; /* per axis: the range is the full axis */
} df_box;

/* Why a place cannot be written over. why NULL: no obstacle has been found. */
typedef struct hazard {
    uint32_t reader; /* the node that reads or holds the old contents; DF_NONE: no node does */
    const char *why; /* static; continues a sentence that begins with the reader */
} hazard;
/* Notes an obstacle, unless one has been noted before. */
DF_INLINE void df_hazard_note(hazard *h, uint32_t reader, const char *why)
{
    if (!h->why) *h = (hazard){ reader, why };
}

/* ---- the cone in progress ---- */

/* The search for all items that some heads need (cone.c). */
typedef struct cone {
    space sp;
    group_id group; /* the group that the heads belong to; DF_NONE: a head alone */
    uint32_t level; /* only vals of a lower level are loaded; UINT32_MAX: all vals are */
    /* A join is being tried: needing a val at or above `level`, or a val without a group, fails the
     * cone. When strict is false, the node of a val at or above `level` is computed again here, and
     * a val without a group is loaded. Products, routines and updates cannot be computed again: at
     * or above `level` they always fail the cone. */
    bool strict;
    bool grow;       /* reductions may give the space RED roles and further loops */
    bool failed;     /* no kernel can compute the heads */
    const char *why; /* of the failure; static, or in p->tmp */
    bool has_red, has_scan;
    bool multi;        /* some elementwise work happens after the first stage */
    uint32_t joined;   /* a joined array of which the loops reach several pieces; DF_NONE: none.
                        * Without division, no kernel can compute the heads (pieces.c) */
    map_id joined_map; /* which of its elements are read */
    DF_VEC(uint32_t) entered; /* joined arrays of which it reads a piece */
    uint32_t n_ops;           /* cost of the body, in operators: a random counts 8, a lookup 4 */
    uint32_t n_stages;
    DF_VEC(head) heads;
    DF_VEC(item) items;
    DF_VEC(uint32_t) heap;  /* items whose operands have not been looked at, highest node first */
    DF_VEC(uint32_t) order; /* items in the order in which they left the heap: falling nodes */
    DF_VEC(uint32_t) marks; /* after a failure: nodes that must be stored first */
    table seen;             /* items by (node, map, region) */
} cone;

/* ---- windows ---- */

/* A product whose operand 1 shows windows of images (windows.c). */
typedef struct windows {
    uint32_t product;  /* node */
    uint32_t reshaped; /* the matrix of windows, or what it is transposed from */
    uint32_t joined;   /* the windows, [C, taps, N, Ho, Wo] or [C, N, Ho, Wo] */
    uint32_t images;   /* what the taps are slices of, [C, N, H, W] */
    uint32_t *slice;   /* per tap: the slice of images; DF_NONE: all of it */
    uint32_t n_taps;
    bool is_transposed;
    df_slot before[2]; /* padding that is not stored: set when the operand is planned */
    df_slot extent[2];
} windows;

/* ---- the pass ---- */

/* The state of one call of df_fuse. */
typedef struct pass {
    df_diag *diag;
    const df_trace *t;
    const df_limits *lim;
    const df_mem *mem;
    bool fuse;      /* false: one kernel per operator */
    df_arena tmp;   /* memory of the pass */
    df_plan *plan;  /* the result; its arena holds what outlives the pass */
    deft_status st; /* a failure stays here: see the top of this file */

    DF_VEC(df_slot_def) slots;
    DF_VEC(int64_t) now; /* value of each slot on the current trace; adding a slot may move it */
    table slot_index;
    DF_VEC(df_guard) guards;
    table guard_index;
    DF_VEC(index_map) maps;
    table map_index;
    DF_VEC(region) regions_of_loops;
    table region_index;

    uint32_t *axis0;    /* per node: the first of its entries in axis_cls */
    uint32_t *axis_cls; /* per axis of each node: its class before unification; see df_fuse_cls */
    DF_VEC(uint32_t) cls_parent; /* per class: union-find */
    DF_VEC(uint32_t) cls_node;   /* per class: the node at whose axis it began */
    DF_VEC(uint32_t) cls_axis;   /* per class: that axis */
    uint8_t *full;      /* per slice node: a bit for each axis of which the slice takes all */
    uint8_t *unit;      /* per slice node: a bit for each axis with step 1 */
    uint8_t *live;      /* per node. Bit 0: its value is needed; bit 1: its extents are */
    df_slot *in_stride; /* per input and axis, filled on first use */
    uint8_t *in_seen;   /* per input. Bit 0: in_stride is filled; bit 1: a root has its memory */

    DF_VEC(windows) windows; /* products that read windows of images */
    uint8_t *absorbed; /* per node: an update that only such products read, so it is not stored */
    uint32_t *reshape_of; /* per node: the only reader of a product, when that is a reshape; else
                           * DF_NONE */
    uint8_t *joined;  /* per node: an update of a joined array that need not be stored: the axis + 1
                       * of its pieces; else 0. NULL: there are none */
    bool stored_late; /* a joined array got a val after a group of this round had read a piece */

    val_id *node_val; /* per node: its visible val, or DF_NONE */
    uint8_t *must;    /* per node: it must be stored. Kept from round to round */
    float *cost;      /* per node: vector instructions per element, down to what is loaded */
    group_id *touch;  /* per node: the last group that evaluated or loaded it, or read a piece of
                       * it; DF_NONE: no group did */
    val_id *root_val; /* per root */

    DF_VEC(val) vals;
    DF_VEC(head) heads;
    DF_VEC(group) groups;
    DF_VEC(storage) places;
    DF_VEC(load) loads;
    DF_VEC(edge) edges;
    DF_VEC(val_id) val_stack;     /* vals to plan */
    DF_VEC(group_id) group_stack; /* of searches */
    DF_VEC(df_why) whys;          /* at most one per pair of nodes */
    table why_index;
    DF_VEC(df_copied) copied;
    load_id *in_readers; /* per input: the first of the list of its loads, or DF_NONE */
    val_id *in_over;     /* per input: the update that is written over it in place, or DF_NONE */
    cone c;              /* the cone in progress */

    DF_VEC(df_kernel) kernels;
    table kernel_index;
    DF_VEC(df_seg) segs;
    DF_VEC(df_launch) launches;
    DF_VEC(df_plan_buf) bufs;
    DF_VEC(df_region) regions;
    DF_VEC(uint32_t) from;         /* nodes that segments compute: see df_seg.from */
    df_buf *in_buf;                /* per input: its buffer, or DF_NO_BUF */
    uint32_t n_levels;             /* launches */
    uint32_t *seen;                /* per group: the last path search that reached it */
    uint32_t n_seen, seen_mark;    /* entries of `seen`; the number of the latest path search */
    int64_t search_left;           /* edges that path searches may still follow */
    bool has_checks, checks_first; /* has_checks: some group checks indices while it runs;
                                    * checks_first: see df_plan.checks_first */
    uint32_t n_checked;            /* see df_plan.n_checked */
    uint32_t n_repeated;           /* groups that are computed again because memory is bounded */
    /* Per plan within a part, by df_subplan.serial: how many bytes of temporaries it may take.
     * NULL: not bounded, or not known yet. */
    const uint64_t *part_most;
    uint32_t n_fused; /* plans within parts that have been fused so far */
    bool keeps_parts; /* a plan of parts is not joined into one without */
    bool restarts;    /* the parts could not be joined: plan again, with keeps_parts */
} pass;

/* The row of an index. The pointer is valid until the next row is added to the table. */
DF_INLINE val *val_at(const pass *p, val_id v)
{
    df_assert(v.i < p->vals.n);
    return &p->vals.at[v.i];
}

DF_INLINE group *group_at(const pass *p, group_id g)
{
    df_assert(g.i < p->groups.n);
    return &p->groups.at[g.i];
}

DF_INLINE index_map *map_at(const pass *p, map_id m)
{
    df_assert(m.i < p->maps.n);
    return &p->maps.at[m.i];
}

DF_INLINE const region *region_at(const pass *p, region_id r)
{
    df_assert(r.i < p->regions_of_loops.n);
    return &p->regions_of_loops.at[r.i];
}

DF_INLINE storage *place_at(const pass *p, place_id q)
{
    df_assert(q.i < p->places.n);
    return &p->places.at[q.i];
}

DF_INLINE head *head_at(const pass *p, head_id h)
{
    df_assert(h.i < p->heads.n);
    return &p->heads.at[h.i];
}

DF_INLINE load *load_at(const pass *p, load_id l)
{
    df_assert(l.i < p->loads.n);
    return &p->loads.at[l.i];
}

DF_INLINE const df_node *node_of(const pass *p, uint32_t n)
{
    return &p->t->nodes[n];
}

/* The df_op_class of node n. */
DF_INLINE uint8_t class_of_op(const pass *p, uint32_t n)
{
    return df_op_infos[p->t->nodes[n].op].cls;
}

/* ---- plan.c ---- */

/* Initialises a pass over t, which the pass borrows like limits and mem. *out is a new empty plan;
 * the caller owns it. Returns DEFT_E_MEMORY when memory runs out. *out is then NULL, and there is
 * nothing to end. */
deft_status df_fuse_begin(pass *p, df_diag *d, const df_trace *t, const df_limits *limits,
                          const df_mem *mem, bool fuse, df_plan **out);
/* Copies slots, guards, kernels, segments and so on from the pass into the arena of its plan. The
 * caller checks p->st before. */
deft_status df_fuse_copy_out(pass *p);
/* Frees all memory of the pass. The plan stays. */
void df_fuse_end(pass *p);

/* ---- slots.c ---- */

/* Adds SLOT_ZERO and SLOT_ONE. Must come first. Returns false when memory runs out. */
bool df_fuse_slots_init(pass *p);
/* Appends s behind all other slots, even if an equal slot exists. Only df_fuse_splice uses it: no
 * other function finds s later. All others return the slot that they made before for the same
 * expression. So, except for spliced slots, equal expressions have one number. */
void df_fuse_put_slot(pass *p, df_slot_def s);
/* The number v. */
df_slot df_fuse_const(pass *p, int64_t v);
/* The extent of this very axis. df_fuse_axis_extent gives the extent of its class instead. */
df_slot df_fuse_node_extent(pass *p, uint32_t node, uint32_t axis);
/* Argument number arg of the trace. */
df_slot df_fuse_arg(pass *p, uint32_t arg);
/* The stride of an input along an axis, in elements, as the run gives it. */
df_slot df_fuse_stride(pass *p, uint32_t input, uint32_t axis);
/* a + b, and so on. Overflow wraps. */
df_slot df_fuse_add(pass *p, df_slot a, df_slot b);
df_slot df_fuse_sub(pass *p, df_slot a, df_slot b);
df_slot df_fuse_mul(pass *p, df_slot a, df_slot b);
df_slot df_fuse_max(pass *p, df_slot a, df_slot b);
/* a, which is not negative, rounded up to a multiple of unit. */
df_slot df_fuse_round_up(pass *p, df_slot a, int64_t unit);
/* Adds a guard, which must hold on the current trace. Does nothing when an equal guard exists. The
 * three functions after this one make the guard, and assert that the kind fits their arguments. */
void df_fuse_guard(pass *p, df_guard g);
/* A guard of two slots: equal, same_place. */
void df_fuse_guard_slots(pass *p, df_guard_kind kind, df_slot a, df_slot b);
/* A guard of one slot and a number: is_const, at_least, at_most. */
void df_fuse_guard_slot(pass *p, df_guard_kind kind, df_slot a, int64_t want);
/* A guard of an input. `other` is an axis (unit), another input (disjoint), or 0. `want` is 1 for
 * contiguous and unit (guards/guard.h). */
void df_fuse_guard_input(pass *p, df_guard_kind kind, uint32_t input, uint32_t other, int64_t want);
/* Notes why nodes a and b were fused or not; a == b notes a decision on a alone. `what` is static.
 * A different `what` on the same pair replaces the note; the same `what` keeps the first reason.
 * Does nothing unless the limits ask for reasons (keep_why). */
void df_fuse_why(pass *p, uint32_t a, uint32_t b, const char *what, const char *fmt, ...)
    DF_PRINTF(5, 6);
/* The name of the operator of node. */
const char *df_fuse_name(const pass *p, uint32_t node);

/* ---- parts.c ---- */

/* Adds what a plan that was made for a part of p->t needs to p. The caller has translated the plan
 * to nodes and inputs of p->t (df_plan_translate). Slots and reasons are copied; *slot0 is the
 * number of its first slot in p. Guards and the list of copied updates move: `plan` has none
 * afterwards. Guards on memory of the enclosing plan always hold, and are dropped. */
deft_status df_fuse_splice(pass *p, df_plan *plan, uint32_t *slot0);

/* Bytes that are live while part i of plan runs, without the temporaries of the plans within it.
 * These are the cells (df_cell) that are live then and are no roots. A loop adds one state or
 * row for each result of its body, and the memory of a whole result that no cell receives.
 * `slots` has the values of the plan's slots. */
int64_t df_fuse_around_bytes(const df_plan *plan, uint32_t i, const int64_t *slots);

/* ---- outline.c ---- */

/* Makes p->plan a plan of parts, for a trace with loops or branches. */
deft_status df_fuse_outline(pass *p);

/* ---- dims.c ---- */

/* Finds the class of every axis of every live node, and adds the guards that keep them. */
deft_status df_fuse_dims(pass *p);
/* The class of an axis. */
uint32_t df_fuse_cls(const pass *p, uint32_t node, uint32_t axis);
/* The extent that all axes of a class have. */
df_slot df_fuse_cls_extent(pass *p, uint32_t cls);
/* The extent of an axis, as the extent of its class. */
df_slot df_fuse_axis_extent(pass *p, uint32_t node, uint32_t axis);
/* The number of elements of node. */
df_slot df_fuse_numel(pass *p, uint32_t node);
/* The row-major strides of node, in elements. */
void df_fuse_contiguous(pass *p, uint32_t node, df_slot stride[DEFT_MAX_RANK]);
/* The strides of an input, in elements. Adds guards under which they are simple: contiguous, an
 * innermost stride of 1, or a stride that spans the axes inside it. The array belongs to the pass.
 */
const df_slot *df_fuse_input_strides(pass *p, uint32_t input);

/* ---- maps.c ---- */

/* The number of a map equal to *m, which is added if it is new. */
map_id df_map_intern(pass *p, const index_map *m);
/* A map whose axes are all FIXED at 0. */
index_map df_map_blank(uint32_t rank);
/* The number of that map. */
map_id df_map_zero(pass *p, uint32_t rank);
/* The map whose axis j is driven by loop j. */
map_id df_map_identity(pass *p, uint32_t rank);
/* The map of the operand of view `node` that shows the elements that map m shows of the view.
 * Returns DF_NONE when no map does. *self is then true: the view itself must be stored. Otherwise
 * *self is false. */
map_id df_map_view(pass *p, uint32_t node, map_id m, bool *self);
/* The map of an operand of elementwise node `node` at map m. Returns DF_NONE when m is linear and
 * the operand is broadcast along some axes: there is no such map. An operand of one element has a
 * map all the same. */
map_id df_map_operand(pass *p, uint32_t node, uint32_t operand, map_id m);
/* Map m with loop l renamed to to[l]. */
map_id df_map_rename(pass *p, map_id m, const uint8_t to[MAX_LOOPS]);
/* Whether the map reaches a box: each axis is FIXED, or has step 1 and a driver of its own. */
bool df_map_is_box(const index_map *m);
/* Where map m leads in memory with these strides per axis. A linear map ignores the strides: the
 * memory must be contiguous. */
location df_map_locate(pass *p, map_id m, const df_slot *stride);

/* ---- surround.c ---- */

/* Whether node n is an update that surrounds a value with one number, by steps of 1. It then need
 * not be stored. Always false for one kernel per operator. */
bool df_surround_is(const pass *p, uint32_t n);
/* That number: a num or cst node. n is an update of an array whose elements are all equal. */
uint32_t df_surround_number(const pass *p, uint32_t n);
/* The map of the surrounded value at map m of node n, which surrounds it. *inner: `outer`, and the
 * conditions under which that value has the element. m must not be linear. */
map_id df_surround_enter(pass *p, uint32_t n, map_id m, region_id outer, region_id *inner);
/* The index of the last condition of r, as an offset and strides along loops. */
location df_region_location(const pass *p, region_id r);
/* Whether a condition of r depends on a loop l with red[l]. NO_REGION has no condition. */
bool df_region_moves(const pass *p, region_id r, const bool *red);

/* ---- cone.c ---- */

/* Empties c. The caller then sets sp, group, level and grow, and strict if it is wanted. */
void df_cone_begin(pass *p, cone *c);
/* Adds a head, before df_cone_run. Reports only a shortage of memory. */
deft_status df_cone_add_head(pass *p, cone *c, head h);
/* Finds all items that the heads need. The status reports only a shortage of memory. When no kernel
 * can compute the heads, c->failed is set, and c->marks lists what must be stored first. */
deft_status df_cone_run(pass *p, cone *c);
/* Frees the lists of c. */
void df_cone_finish(cone *c, const df_mem *mem);
/* The space of a head that evaluates expr alone, and the map of expr over it. The loops are the
 * axes of expr, or of the operand when expr is a reduction. Axes of class ONE have no loop. */
void df_space_of_head(pass *p, uint32_t expr, space *sp, map_id *map);
/* The product of the extents of the loops that are not RED. */
df_slot df_space_rows(pass *p, const space *sp);
/* Its value on the current trace. */
DF_INLINE long long df_space_rows_now(pass *p, const space *sp)
{
    const df_slot rows = df_space_rows(p, sp); /* adds a slot: pass.now may move */
    return (long long)p->now.at[rows.i];
}
/* The product of the extents of all loops. */
df_slot df_space_total(pass *p, const space *sp);

/* ---- vals.c ---- */

/* Each of the four appends a row. Those that return a value return the number of the row. */
/* A val for node. A visible val is the one that other kernels load for the node. */
val_id df_fuse_new_val(pass *p, uint32_t node, bool visible);
/* A group without heads. `kind` is a df_seg_kind; `node` is the node that explanations name. */
group_id df_fuse_new_group(pass *p, uint32_t kind, uint32_t node);
/* Copies h to the end of the heads of group g. */
void df_fuse_append_head(pass *p, group_id g, head h);
/* Appends a place: memory of its own, of a root or of an input (`kind`); `index` is the number of
 * the root or input. The extents of the place are those of node. */
place_id df_fuse_new_place(pass *p, uint32_t kind, uint32_t index, uint32_t node);

/* ---- single.c ---- */

/* Whether a kernel with several stages over the space *sp pays. It does when there are at least 4
 * rows (df_space_rows) for each thread, or when it is too small for that to matter. With
 * `guard`, guards are added, so that the plan serves only runs in which the answer is the same.
 * */
bool df_fuse_pays(pass *p, const space *sp, bool guard);
/* Whether a kernel can reduce over the RED loops of the cone. It can when the innermost loop is not
 * RED, or when the RED loops merge into one. It also can when there are at most DF_MAX_RUN_REDS
 * reductions and no scan: it then reduces along the last RED axis, one run of elements after the
 * other (plan.h). */
bool df_fuse_red_is_fine(pass *p, const cone *c);
/* Pushes val v on the stack of vals that are planned next. */
void df_fuse_push_val(pass *p, val_id v);
/* Makes node a val and pushes it. `why` says for which reason `user` cannot compute the node
 * itself. Returns false if the node already is a val. */
bool df_fuse_demand(pass *p, uint32_t node, uint32_t user, const char *why);
/* Computes the cone of head h alone, in the space *sp. Sets *progress if other vals were pushed
 * that must be planned before h; the caller then tries again. Returns DEFT_E_INTERNAL when no
 * kernel can compute h, and no other val would help. */
deft_status df_fuse_run_alone(pass *p, const head *h, const space *sp, bool *progress);

/* ---- join.c ---- */

/* Puts h into a group, an existing one if possible. The current cone, p->c, must be the cone of h
 * over the space *from. `after` is a val that must be complete before h is written though h does
 * not load it, or DF_NONE. */
deft_status df_fuse_join_or_open(pass *p, head h, const space *from, val_id after);

/* ---- group.c ---- */

/* Decides which nodes are stored, and which of them share a group. */
deft_status df_fuse_groups(pass *p);
/* Where update n writes: *dest is a map from the loops of `map`, which locates the value, to the
 * axes of the base. */
deft_status df_fuse_update_dest(pass *p, uint32_t n, map_id map, map_id *dest);

/* ---- reshaped.c ---- */

/* Fills in p->reshape_of. All entries are DF_NONE where the device does not offer epilogues with
 * several column axes. */
deft_status df_fuse_find_reshapes(pass *p);
/* The number of operands that product or routine n reads, and operand s. The base of a routine that
 * combines values is none of them; the inputs of a call are. */
uint32_t df_fuse_n_operands(const pass *p, uint32_t n);
uint32_t df_fuse_operand(const pass *p, uint32_t n, uint32_t s);
/* Gives g lists of operands of its own, copies of those that it has. Returns false when memory runs
 * out. */
bool df_fuse_own_operands(pass *p, group *g);
/* Sets the space and n_row_loops of group g, which is a product or routine without heads. Returns
 * the map from its loops to the axes of its result. */
map_id df_fuse_whole_loops(pass *p, group_id g);

/* ---- windows.c ---- */

/* Finds the products that read windows of images, and the updates that need not be stored for
 * them. Does nothing where the device does not offer it. */
deft_status df_fuse_find_windows(pass *p);
/* The row of pass.windows of product n, or DF_NONE. */
uint32_t df_fuse_windows_of(const pass *p, uint32_t n);
/* The images of *w, whose padding becomes 0. */
uint32_t df_fuse_windows_begin(pass *p, windows *w);
/* Whether node is an absorbed update that surrounds an image with zeros, and map reaches all of it.
 * Then sets before and extent of *w for the image within. */
bool df_fuse_windows_padding(pass *p, windows *w, uint32_t node, map_id map);
/* Fills in seg->windows. */
deft_status df_fuse_windows_seg(pass *p, const windows *w, df_seg *seg);

/* ---- pieces.c ---- */

/* Fills in p->joined. */
deft_status df_fuse_find_joined(pass *p) DF_COLD;
/* Whether node is part of a joined array that is not stored. */
DF_INLINE bool df_joined_is(const pass *p, uint32_t node)
{
    return p->joined && p->joined[node] && !p->must[node];
}
/* Prepares for planning a round again, after p->stored_late was set in it. */
void df_joined_again(pass *p) DF_COLD;
/* Goes from a joined array, *node at *map, to the piece that has all elements which the loops of c
 * reach. Guards keep that true. Returns false when no piece has them all. Then sets c->joined, when
 * dividing a loop could help. */
bool df_joined_enter(pass *p, cone *c, uint32_t *node, map_id *map) DF_COLD;
/* Divides head h of a visible val at the boundaries of the joined arrays that it reads, and puts
 * each part into a group. The current cone must be that of h over *sp, and have c.joined set.
 * Sets *progress instead if other vals must be planned first, such as an array whose division is
 * impossible or does not pay. */
deft_status df_fuse_plan_parts(pass *p, const head *h, const space *sp, bool *progress) DF_COLD;

/* ---- share.c ---- */

/* Computes the final cone of every group. */
deft_status df_fuse_final_cones(pass *p);
/* Computes the final cone of group g, and sets what follows from it: items, stages, checks. */
deft_status df_fuse_final_cone(pass *p, group_id g);
/* Notes why neighbouring operators share a kernel. */
void df_fuse_explain(pass *p);
/* The vector instructions per element of node n, without its operands. */
float df_fuse_own_cost(const pass *p, uint32_t n);
/* Marks in p->must the expensive nodes that are computed more than once. Sets *again if it marked
 * any: the vals must then be grouped again. */
deft_status df_fuse_find_shared(pass *p, bool *again);

/* ---- hazards.c ---- */

/* Sets *sp to a space whose loops are the axes of node, and returns the map of node over it. */
map_id df_space_of_node(pass *p, uint32_t node, space *sp);
/* The elements of node that a map over the loops of g reaches. */
df_box df_box_of(pass *p, const group *g, map_id map, uint32_t node);
/* Elements between the end of *last and the start of *b along an axis. Negative: *b begins
 * before *last ends. */
df_slot df_box_gap(pass *p, const df_box *last, const df_box *b, uint32_t axis);
/* The head that writes val v. NULL: no head does, but a routine or a product. */
const head *df_hazard_head(const pass *p, val_id v);
/* Whether load l is in the group that writes v, reads at each step only the element that is then
 * written, and reads it before the store. */
bool df_hazard_same_element(const pass *p, const load *l, val_id v);
/* The same in this run, for memory that v may take over. Guards keep that true. */
bool df_hazard_same_element_now(pass *p, const load *l, val_id v);
/* For places of u and v that would have one address: whether load l of u reads, in each iteration,
 * from where v is stored, and is done by then. */
bool df_hazard_same_address(pass *p, const load *l, val_id u, val_id v);
/* Whether load l is in a group that writes a part of divided val v or of its node, and reads no
 * element that the group of v writes. The two groups then need no order. With `guard`, guards keep
 * that true. */
bool df_hazard_reads_beside(pass *p, const load *l, val_id v, bool guard);
/* Whether v may be written over what the loads of a list read. `list` is the first load, or
 * DF_NONE. Each load must come before the writer of v, read the same element, or read elements that
 * v does not write. If the answer is false, *h receives the obstacle, unless it has one. */
bool df_hazard_may_order(pass *p, load_id list, val_id v, hazard *h);
/* Adds the edges and guards that order the loads with the writer of v. Only after
 * df_hazard_may_order returned true. */
void df_hazard_order(pass *p, load_id list, val_id v);
/* Whether v can be ordered after every earlier writer of its place: val over, and the vals that
 * `over` was written over in turn. An earlier writer need not come first when v shares no element
 * with it. v is then loose. In that case the readers of all vals below `over`, and of `input`,
 * must be orderable too, which this function checks. The caller checks the readers of `over`.
 * `input` is the input whose memory the place is, or DF_NONE. If the answer is true, the
 * function sets val.loose of v, which df_hazard_follow_writers reads. If it is false, *h
 * receives the obstacle, unless it has one. */
bool df_hazard_after_writers(pass *p, val_id over, uint32_t input, val_id v, hazard *h);
/* Adds the edges and guards for that order. Only after df_hazard_after_writers returned true. */
void df_hazard_follow_writers(pass *p, val_id over, uint32_t input, val_id v);
/* Stages update v, after df_hazard_may_order or df_hazard_after_writers returned false and set *h.
 * The value of v is then computed into a temporary, and a copy in a later launch writes the place,
 * after all loads of the list. `over` is the val under v in the same place; DF_NONE: v is written
 * over an input. in_input: the place is memory of an input. Returns false when staging does not
 * help, does not pay, or memory runs out. */
bool df_hazard_stage(pass *p, load_id list, val_id over, val_id v, bool in_input, hazard *h);

/* ---- storage.c, order.c, launch.c ---- */

#define DF_MAX_SEARCH 100000000 /* edges that all path searches of a pass may follow together */
/* Chooses a place for every val, and adds the edges that its choices need. */
deft_status df_fuse_places(pass *p);
/* Lists each load of group g as a reader of its val or input, and orders g after the writers. */
void df_fuse_record_loads(pass *p, group_id g);
/* Whether a path of edges leads from group `from` to group `to`, or they are one group. When
 * p->search_left is used up, the answer may be true although there is no path. An answer of
 * false is always right. */
bool df_fuse_reaches(pass *p, group_id from, group_id to);
/* Adds the edge that makes group `to` run in a later launch than `from`. */
void df_fuse_edge(pass *p, group_id from, group_id to);
/* The val of node, or of what node is a view of. DF_NONE: neither is stored. */
val_id df_fuse_stored_under(const pass *p, uint32_t node);
/* Adds edges from all groups that write the memory of val v to group `to`. */
void df_fuse_writer_edges(pass *p, val_id v, group_id to);
/* Lets roots reuse the memory of inputs where that is safe. After df_fuse_launches. */
void df_fuse_donors(pass *p);
/* Whether the loops of g reach each element of node exactly once through this map. */
bool df_map_is_full(pass *p, const group *g, map_id map, uint32_t node);
/* Gives each group its launch, in group.level, and sets p->n_levels. */
deft_status df_fuse_launches(pass *p);
/* Moves a last launch of small reductions to the end of the launch before it (group.after). After
 * df_fuse_donors. */
void df_fuse_tail(pass *p);
/* Sets p->n_checked. After df_fuse_tail. */
deft_status df_fuse_checked(pass *p);

/* ---- body.c, axes.c, memory.c, pack.c, keep.c ---- */

/* The live range of a temporary, as pack.c sees it. */
typedef struct df_life {
    int64_t bytes;        /* at the sizes of the current trace */
    uint32_t first, last; /* launches */
    uint32_t who;         /* the number by which the caller knows the temporary */
    uint32_t region;      /* result: its region */
    uint32_t outer;       /* result: the region that this one is a part of, or DF_NONE */
} df_life;

/* Extends the live range of temporary `who`, which is among n live ranges, to launch `last`. The
 * caller adds what is stored over a temporary to its live range this way. */
DF_INLINE void df_life_extend(df_life *life, uint32_t n, uint32_t who, uint32_t last)
{
    for (uint32_t i = 0; i < n; i++)
        if (life[i].who == who && life[i].last < last) life[i].last = last;
}

/* One access of a kernel in progress. */
typedef struct access {
    uint8_t kind, dtype; /* df_access_kind, deft_dtype */
    df_buf buf;          /* buffer of the plan; DF_NO_BUF: no memory, or a tile */
    uint32_t memory;     /* accesses with equal numbers may touch the same memory */
    location at;
} access;

/* A kernel body in progress. */
typedef struct body {
    df_emit emit; /* first: functions of ops/recipe.h get a pointer to it, which is cast to body */
    pass *p;
    group_id g;           /* the group */
    uint8_t stage, level; /* where the next instruction goes: stage, df_level */
    bool map;             /* mode MAP: all instructions have stage 0, level ELEM */
    DF_VEC(df_ins) ins;
    DF_VEC(access) access;
    DF_VEC(uint32_t) num; /* number slots: see df_seg.num */
    DF_VEC(uint8_t) num_dtype;
    table cse;     /* instructions by their contents */
    uint32_t tile; /* the access that reads the product's tile, or DF_NONE */
} body;

/* Initialises an empty body of a pass. */
void df_body_init(body *b, pass *p);
/* Empties the body. Must come before each kernel. */
void df_body_reset(body *b);
/* Frees the lists of the body. */
void df_body_finish(body *b);
/* Removes the casts to halves that no instruction reads, when the body is complete (ops/half.c says
 * where they come from). Indices of instructions change. */
void df_body_drop_unread_casts(body *b);
/* Appends an instruction at the body's stage and level, or finds an equal one that is usable there.
 * Returns its index. Operands beyond those of op are ignored. */
uint32_t df_body_ins(body *b, df_kop op, deft_dtype t, uint32_t x, uint32_t y, uint32_t z,
                     uint64_t imm);
/* The bits of a constant of dtype t, from the attribute of its cst node: an int32_t, or the bits of
 * an f32 for floating-point dtypes. */
uint64_t df_body_bits(deft_dtype t, uint32_t attr);
/* An instruction that yields this constant. */
uint32_t df_body_constant(body *b, deft_dtype t, uint32_t attr);
/* An instruction that yields a number of the run: argument `which` of the trace, or with
 * DF_NUM_IS_SLOT set a slot of the plan. */
uint32_t df_body_number(body *b, uint32_t which, deft_dtype t);
/* The index of an access equal to a, which is added if it is new. A SCRATCH access is always added.
 */
uint32_t df_body_access(body *b, access a);

/* Sets storage.unused of products that only their own epilogue reads. */
void df_fuse_find_unused(pass *p);
/* Makes the kernels, segments and launches of the plan. */
deft_status df_fuse_bodies(pass *p);
/* Makes a kernel of the instructions and accesses of b, or finds an equal kernel of the plan. Fills
 * in the kernel, binds, extents and numbers of *seg. The caller sets mode, axes, stages and flags
 * in shape. Arrays order and extent are those of df_fuse_pick_axes. */
deft_status df_fuse_seal_body(pass *p, body *b, df_kernel shape, const uint8_t *order,
                              const df_slot *extent, df_seg *seg);
/* Chooses the axes of a LOOP kernel. Its only RED loop counts the iterations. Arguments as in
 * df_fuse_pick_axes. */
void df_fuse_loop_axes(pass *p, const space *sp, const access *a, uint32_t n, df_kernel *k,
                       uint8_t *order, df_slot *extent);
/* Chooses mode, axes and roles of a kernel with n accesses a, and sets them in *k. Entry x of order
 * is the loop whose strides axis x has; MAX_LOOPS: an axis of one element along which nothing
 * moves. Entry x of extent is the extent of axis x. Both have room for MAX_LOOPS + 1 entries. */
void df_fuse_pick_axes(pass *p, const space *sp, const access *a, uint32_t n, df_kernel *k,
                       uint8_t *order, df_slot *extent);
/* Sets the axes of the epilogue of a product, as df_seg describes them. The first n_rows loops of
 * the space number the rows of the product, and the others its columns. Other arguments are as in
 * df_fuse_pick_axes. */
void df_fuse_epilogue_axes(pass *p, const space *sp, uint32_t n_rows, const access *a, uint32_t n,
                           df_kernel *k, uint8_t *order, df_slot *extent);
/* Finds the live range of every place. */
deft_status df_fuse_memory(pass *p);
/* Gives temporaries their regions. After df_fuse_bodies, which names the buffers. */
deft_status df_fuse_regions(pass *p);
/* Gives each of n live ranges a region, so that no two of one region overlap in time, nor one of a
 * region and one of its parts. Sorts the array; the first range of each region comes in the order
 * of regions. *total: bytes of all regions that are no parts, each rounded up. */
deft_status df_fuse_pack(pass *p, df_life *life, uint32_t n, int64_t *total);
/* Moves groups to later launches, and stores temporaries over operands. It goes on as long as that
 * lowers the most bytes of temporaries that are live at once. Needs the launches, all edges and the
 * live ranges, and keeps all of them up to date. */
deft_status df_fuse_postpone(pass *p);
/* Brings the plan within the bound on temporaries. Decides which values are kept, which are
 * computed again before a late reader, and which are stored over operands. Without a bound it
 * changes nothing. Needs the live ranges and keeps them up to date. Returns DEFT_E_MEMORY when the
 * bound cannot be met. */
deft_status df_fuse_keep(pass *p);
/* The buffer of a place, which is added on first use. */
df_buf df_fuse_place_buf(pass *p, place_id at);
/* The buffer of an input, which is added on first use. */
df_buf df_fuse_input_buf(pass *p, uint32_t input);

#endif
