/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/fuser: the index types of the tables of a pass (fuse.h).
 *
 * Each table has an index type of its own. So an index of one table cannot be used for another: the
 * program does not compile. The index whose number is DF_NONE means that there is no row (NO_VAL,
 * IS_NONE). A zeroed index is the index of row 0, not of no row.
 *
 * A row is read through its accessor (val_at, group_at and so on), which asserts that it exists.
 */
#ifndef DF_FUSER_IDS_H
#define DF_FUSER_IDS_H

#include "trace/trace.h"

typedef struct val_id { /* a stored value, in pass.vals */
    uint32_t i;
} val_id;

typedef struct group_id { /* a group, in pass.groups */
    uint32_t i;
} group_id;

typedef struct map_id { /* an interned index map, in pass.maps */
    uint32_t i;
} map_id;

typedef struct place_id { /* the storage of a val, in pass.places */
    uint32_t i;
} place_id;

typedef struct head_id { /* a store of a kernel, in pass.heads */
    uint32_t i;
} head_id;

typedef struct load_id { /* a read of a val or an input, in pass.loads */
    uint32_t i;
} load_id;

typedef struct region_id { /* an interned set of conditions, in pass.regions_of_loops */
    uint32_t i;
} region_id;

#define NO_VAL ((val_id){ DF_NONE })
#define NO_GROUP ((group_id){ DF_NONE })
#define NO_MAP ((map_id){ DF_NONE })
#define NO_PLACE ((place_id){ DF_NONE })
#define NO_HEAD ((head_id){ DF_NONE })
#define NO_LOAD ((load_id){ DF_NONE })
#define NO_REGION ((region_id){ DF_NONE })

/* Whether an index of any of these types is the index of no row. */
#define IS_NONE(id) ((id).i == DF_NONE)

DF_INLINE bool same_val(val_id a, val_id b)
{
    return a.i == b.i;
}

DF_INLINE bool same_group(group_id a, group_id b)
{
    return a.i == b.i;
}

DF_INLINE bool same_map(map_id a, map_id b)
{
    return a.i == b.i;
}

DF_INLINE bool same_region(region_id a, region_id b)
{
    return a.i == b.i;
}

DF_INLINE bool same_place(place_id a, place_id b)
{
    return a.i == b.i;
}

#endif
