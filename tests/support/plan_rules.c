/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_rules.h"

#include "lazy/core/context.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Kernels of SHORT_BODY to SHORT_BODY + SPREAD - 1 nodes store most of what is computed. */
enum { MOST_DEVICES = 32, SHORT_BODY = 2, SPREAD = 6 };

/* A device whose plans are counted, and what it had before. */
typedef struct counted_device {
    df_device *dev;
    deft_status (*prepare)(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w);
    uint32_t max_body;
} counted_device;

static counted_device device[MOST_DEVICES];
static size_t n_devices;
static uint64_t n_programs, n_over;
static _Atomic uint64_t n_plans, n_parted, n_postponed, n_retreated;
static _Atomic bool is_over; /* in a plan of the current program */

static const counted_device *device_of(const df_device *dev)
{
    size_t i = 0;
    while (device[i].dev != dev) i++;
    return &device[i];
}

typedef struct found {
    bool over, parted, postponed, retreated;
} found;

static deft_status look(df_plan *plan, void *user)
{
    found *const f = user;
    for (uint32_t b = 0; b < plan->n_bufs; b++) f->over |= plan->bufs[b].over.i != DF_NONE;
    for (uint32_t r = 0; r < plan->n_regions; r++) f->parted |= plan->regions[r].outer != DF_NONE;
    f->postponed |= plan->n_postponed > 0;
    f->retreated |= plan->retreated;
    return DEFT_OK;
}

static deft_status prepare(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w)
{
    found f = { 0 };
    (void)df_plan_each(plan, look, &f);
    n_plans++;
    n_parted += f.parted;
    n_postponed += f.postponed;
    n_retreated += f.retreated;
    if (f.over) is_over = true;
    return device_of(dev)->prepare(dev, d, plan, w);
}

static void add_device(df_device *dev)
{
    if (n_devices == MOST_DEVICES) {
        fprintf(stderr, "plan rules: more than %d devices\n", MOST_DEVICES);
        exit(2);
    }
    device[n_devices++] = (counted_device){ dev, dev->prepare, dev->limits.max_body };
    dev->prepare = prepare;
}

/* Whether the rules of dev are others than before. */
static bool set_rules(df_device *dev, uint64_t drawn)
{
    if (!dev) return false;
    if (dev->prepare != prepare) add_device(dev);
    const df_limits before = dev->limits;
    dev->limits.saves_all = drawn & 1;
    dev->limits.max_body = drawn & 1 && drawn & 2 ? SHORT_BODY + (uint32_t)(drawn >> 2) % SPREAD
                                                  : device_of(dev)->max_body;
    return before.saves_all != dev->limits.saves_all || before.max_body != dev->limits.max_body;
}

static void end_program(void)
{
    n_over += is_over;
    is_over = false;
}

void plan_rules_begin(const oracle_path *path, size_t n, uint64_t seed)
{
    end_program();
    n_programs++;
    plan_rules_draw(path, n, seed);
}

void plan_rules_draw(const oracle_path *path, size_t n, uint64_t seed)
{
    const uint64_t drawn = oracle_mix(seed, 0x6f766572);
    for (size_t i = 0; i < n; i++) {
        const deft_runtime *const rt = path[i].rt;
        bool differ = set_rules(rt->dev, drawn);
        for (size_t k = 0; k < DF_LEN(rt->gpu); k++) differ |= set_rules(rt->gpu[k], drawn);
        if (differ) df_cache_clear(rt->plans);
    }
}

void plan_rules_save_all(deft_runtime *rt)
{
    rt->dev->limits.saves_all = true;
}

const df_limits *plan_rules_limits(const deft_runtime *rt)
{
    return &rt->dev->limits;
}

plan_rules plan_rules_read(void)
{
    end_program();
    return (plan_rules){ n_programs, n_over, n_plans, n_parted, n_postponed, n_retreated };
}

bool plan_rules_end(uint64_t least_programs)
{
    const plan_rules r = plan_rules_read();
    printf("temporaries over operands in %llu of %llu programs; of %llu plans %llu have parts of "
           "regions, %llu postponed launches\n",
           (unsigned long long)r.n_over, (unsigned long long)r.programs,
           (unsigned long long)r.plans, (unsigned long long)r.parted,
           (unsigned long long)r.postponed);
    if (r.retreated) printf("FAIL: %llu plans were not fused\n", (unsigned long long)r.retreated);
    if (r.retreated) return false;
    if (r.programs < least_programs || (r.n_over && r.parted && r.postponed)) return true;
    printf("FAIL: a rule of the planner was not reached\n");
    return false;
}
