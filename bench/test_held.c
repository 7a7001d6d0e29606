/* SPDX-License-Identifier: Apache-2.0
 *
 * held.h on the stand-in, which does work in the call that puts it in: nothing is done of what is
 * held, all of it before a wait returns; what waits unseen ends by the limit.
 *
 *   test_held LIBBENCH-HELD LIBCUDA-STANDIN
 */
#include "held.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/cuda/standin/standin.h"
#include "jit_cuda/driver/driver.h"

enum { NON_BLOCKING = 1, BYTES = 64 };
static const double limit_s = 0.2;

static int n_faults;
static df_driver cu;
static held_begin_fn *begin;
static held_end_fn *end;
#define FIELD(name, result, parameters) static result(*standin_has_##name) parameters;
STANDIN_CALLS(FIELD)
#undef FIELD

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) printf("%d: not %s\n", __LINE__, #x), n_faults++;                                \
    } while (0)

static bool find(void *library, const char *symbol, void *fn)
{
    void *const p = library ? dlsym(library, symbol) : NULL;
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

static bool open_all(const char *held_path, const char *driver_path)
{
    bool good = setenv("BENCH_CUDA_DRIVER", driver_path, 1) == 0;
    void *const driver = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL);
    void *const library = dlopen(held_path, RTLD_NOW | RTLD_LOCAL);
#define FIND(field, symbol, parameters) good = find(library, #symbol, &cu.field) && good;
    DF_CU_REQUIRED(FIND)
    DF_CU_OPTIONAL(FIND)
#undef FIND
#define FIND(name, result, parameters)                                                             \
    good = find(driver, "standin_" #name, &standin_has_##name) && good;
    STANDIN_CALLS(FIND)
#undef FIND
    return find(library, "held_begin", &begin) && find(library, "held_end", &end) && good;
}

static bool is_filled(df_cu_ptr p, int with)
{
    const unsigned char *const at = standin_has_peek(p, BYTES);
    bool is = at != NULL;
    for (int i = 0; at && i < BYTES; i++) is = is && at[i] == with;
    standin_has_unpeek();
    return is;
}

static void hold_and_wait(df_cu_stream s, df_cu_ptr p)
{
    held h = { 0 };
    CHECK(cu.set_8(p, 1, BYTES, s) == 0 && is_filled(p, 1));
    CHECK(begin(s, 0, 60) == NULL);
    CHECK(cu.set_8(p, 2, BYTES, s) == 0 && cu.stream_query(s) == DF_CU_NOT_READY);
    CHECK(is_filled(p, 1));
    CHECK(cu.stream_wait(s) == 0 && is_filled(p, 2));
    CHECK(cu.set_8(p, 3, BYTES, s) == 0 && is_filled(p, 2));
    CHECK(end(&h) == NULL && is_filled(p, 3));
    CHECK(h.n_segments == 2 && h.gpu_s > 0 && h.wait_s > 0);
    CHECK(cu.set_8(p, 4, BYTES, s) == 0 && is_filled(p, 4));
}

static void hold_and_wait_for_event(df_cu_stream s, df_cu_ptr p)
{
    held h = { 0 };
    df_cu_event e;
    CHECK(cu.event_create(&e, 0) == 0 && begin(s, 0, 60) == NULL);
    CHECK(cu.set_8(p, 5, BYTES, s) == 0 && cu.event_record(e, s) == 0);
    CHECK(cu.event_query(e) == DF_CU_NOT_READY && is_filled(p, 4));
    CHECK(cu.event_wait(e) == 0 && is_filled(p, 5));
    CHECK(end(&h) == NULL && h.n_segments == 2);
    CHECK(cu.event_destroy(e) == 0);
}

/* Another call that waits, which is not stood between. */
static void too_long(df_cu_stream s, df_cu_ptr p)
{
    held h = { .n_segments = 77 };
    char bytes[BYTES] = { 0 };
    CHECK(begin(s, 0, limit_s) == NULL && cu.set_8(p, 6, BYTES, s) == 0);
    CHECK(cu.copy_out(bytes, p, BYTES, s) == 0 && bytes[0] == 6);
    CHECK(cu.stream_wait(s) == 0);
    const char *const why = end(&h);
    CHECK(why && strstr(why, "did not fit") && h.n_segments == 77);
    hold_and_wait(s, p);
}

/* The time is that of what was put in: of more work more. */
static void time_of_work(df_cu_stream s, df_cu_ptr p)
{
    held one = { 0 }, many = { 0 };
    CHECK(begin(s, 0, 60) == NULL && cu.set_8(p, 1, BYTES, s) == 0 && end(&one) == NULL);
    CHECK(begin(s, 0, 60) == NULL);
    for (int i = 0; i < 100; i++) CHECK(cu.set_8(p, 1, BYTES, s) == 0);
    CHECK(end(&many) == NULL && many.n_segments == 1 && many.gpu_s > 10 * one.gpu_s);
}

int main(int argc, char **argv)
{
    df_cu_ctx ctx;
    df_cu_stream s;
    df_cu_ptr p;
    held h;
    if (argc < 3 || !open_all(argv[1], argv[2])) return printf("not all was found\n"), 1;
    CHECK(cu.init(0) == 0 && cu.ctx_retain(&ctx, 0) == 0 && cu.ctx_push(ctx) == 0);
    CHECK(cu.stream_create(&s, NON_BLOCKING) == 0 && cu.mem_alloc(&p, BYTES) == 0);
    standin_has_when(STANDIN_EAGER, 1);
    hold_and_wait(s, p);
    hold_and_wait_for_event(s, p);
    too_long(s, p);
    time_of_work(s, p);
    standin_has_fail("cuStreamWaitValue32_v2", 1, 801);
    CHECK(begin(s, 0, 60) == NULL && end(&h) != NULL);
    CHECK(standin_has_n_misuse() == 0);
    standin_alive alive;
    standin_has_leaks(&alive);
    CHECK(alive.events == 0 && alive.pinned == 0);
    if (*standin_has_misuse()) printf("%s\n", standin_has_misuse());
    return n_faults != 0;
}
