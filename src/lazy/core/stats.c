/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters of a context, together with those of its runtime (deft/context.h).
 */
#include "lazy/core/lazy.h"

#include <string.h>

void deft_stats_read(const deft_ctx *cx, deft_stats *out, size_t size)
{
    if (!cx || !out) return;
    deft_stats s = cx->stats;
    s.ops_recorded += cx->rec.n - cx->rec.n_inputs; /* the pending ones are not counted yet */
    const df_allocator_stats a = df_allocator_read(cx->rt->dev->allocator);
    const df_tier_stats t = df_tiers_read(df_cpu_tiers(cx->rt->dev));
    s.system_allocations = a.system_allocations;
    s.live_bytes = a.live_bytes;
    s.peak_bytes = a.peak_bytes;
    s.packed_bytes = a.derived_bytes;
    s.kernels_compiled = t.compiled;
    s.kernels_loaded = t.loaded;
    s.kernels_known = t.kernels;
    s.ns_compile = t.compile_ns;
    s.variants_made = t.variants;
    s.variants_dropped = t.variants_dropped;
    memset(out, 0, size);
    memcpy(out, &s, size < sizeof s ? size : sizeof s);
}
