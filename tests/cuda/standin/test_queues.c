/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for the driver: late work shows, misuse is found, faults come when asked.
 *
 *   test_queues LIBCUDA LIBNVRTC [LIBCUBLASLT] [--misuse]
 *
 * --misuse: does only that.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "try.h"

/* ---- queues ---- */

static void late_copies(void)
{
    df_cu_ptr p;
    df_cu_stream s;
    char *pinned;
    char pageable[16] = "source", back[16] = "old";
    start(STANDIN_LATE);
    CHECK(cu.stream_create(&s, 1) == 0);
    CHECK(cu.mem_alloc(&p, 16) == 0);
    CHECK(cu.host_alloc((void **)&pinned, 16, 0) == 0);
    CHECK((unsigned char)pinned[3] == 0xA5);
    CHECK(cu.copy_in(p, pageable, 16, s) == 0);
    strcpy(pageable, "changed"); /* staged: of no matter */
    CHECK(cu.copy_out(pinned, p, 16, s) == 0);
    CHECK((unsigned char)pinned[0] == 0xA5);
    CHECK(cu.stream_wait(s) == 0);
    CHECK(strcmp(pinned, "source") == 0);
    CHECK(cu.copy_in(p, pinned, 16, s) == 0);
    strcpy(pinned, "too early"); /* read late */
    CHECK(cu.copy_out(back, p, 16, s) == 0);
    CHECK(strcmp(back, "too early") == 0);
    CHECK(in.n_misuse() == 0);
}

static void order_by_events(void)
{
    df_cu_ptr p;
    df_cu_stream a, b;
    df_cu_event e;
    unsigned *out;
    start(STANDIN_LATE);
    CHECK(cu.stream_create(&a, 1) == 0);
    CHECK(cu.stream_create(&b, 1) == 0);
    CHECK(cu.event_create(&e, 2) == 0);
    CHECK(cu.mem_alloc(&p, 16) == 0);
    CHECK(cu.host_alloc((void **)&out, 16, 0) == 0);
    CHECK(cu.set_32(p, 7, 4, a) == 0);
    CHECK(cu.event_record(e, a) == 0);
    CHECK(cu.set_32(p, 8, 4, a) == 0);
    CHECK(cu.stream_wait_event(b, e, 0) == 0);
    CHECK(cu.copy_out(out, p, 16, b) == 0);
    CHECK(cu.stream_wait(b) == 0);
    CHECK(out[0] == 7 && out[3] == 7); /* after the mark, before what came later in a */
    CHECK(cu.event_query(e) == 0);
    CHECK(cu.stream_query(a) == 0);
    CHECK(cu.copy_out(out, p, 16, b) == 0);
    CHECK(cu.stream_wait(b) == 0);
    CHECK(out[0] == 8);
    CHECK(cu.set_32(p, 9, 4, a) == 0 && cu.event_record(e, a) == 0);
    CHECK(cu.event_query(e) == DF_CU_NOT_READY && cu.stream_query(a) == 0);
    CHECK(cu.event_query(e) == 0);
}

/* Two streams without an order: over many seeds both orders are seen. */
static void missing_order_shows(void)
{
    unsigned seen = 0;
    for (uint32_t seed = 1; seed <= 32; seed++) {
        df_cu_ptr p;
        df_cu_stream a, b;
        unsigned out;
        start(STANDIN_RANDOM);
        in.when(STANDIN_RANDOM, seed);
        cu.stream_create(&a, 1);
        cu.stream_create(&b, 1);
        cu.mem_alloc(&p, 4);
        cu.set_32(p, 1, 1, a);
        cu.set_32(p, 2, 1, b);
        cu.stream_wait(a);
        cu.stream_wait(b);
        cu.copy_out(&out, p, 4, a);
        seen |= out;
    }
    CHECK(seen == 3);
}

static void default_stream_waits(void)
{
    df_cu_ptr p;
    df_cu_stream a;
    unsigned out = 0;
    start(STANDIN_LATE);
    CHECK(cu.stream_create(&a, 0) == 0);
    CHECK(cu.mem_alloc(&p, 4) == 0);
    CHECK(cu.set_32(p, 1, 1, a) == 0);
    CHECK(cu.set_32(p, 2, 1, NULL) == 0);
    CHECK(cu.set_32(p, 3, 1, a) == 0);
    CHECK(cu.copy_out(&out, p, 4, NULL) == 0);
    CHECK(out == 3);
    CHECK(in.n_misuse() == 0);
}

/* ---- memory ---- */

static sigjmp_buf way_out;
static void on_fault(int number)
{
    (void)number;
    siglongjmp(way_out, 1);
}

static void host_cannot_read(void)
{
    df_cu_ptr p;
    start(STANDIN_RANDOM);
    CHECK(cu.mem_alloc(&p, 4096) == 0);
    struct sigaction before, mine = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
    sigemptyset(&mine.sa_mask);
    sigaction(SIGSEGV, &mine, &before);
    volatile bool faulted = false;
    if (sigsetjmp(way_out, 0) == 0)
        (void)*(volatile char *)(uintptr_t)p;
    else
        faulted = true;
    sigaction(SIGSEGV, &before, NULL);
    CHECK(faulted);
    const unsigned char *const at = in.peek(p, 4096);
    CHECK(at && at[0] == 0xA5 && at[4095] == 0xA5);
    in.unpeek();
    CHECK(!in.peek(p, 4097));
}

static void memory_ends(void)
{
    df_cu_ptr p, q;
    size_t is_free, total;
    const standin_gpu small = { .bytes = 1 << 20 };
    in.reset();
    in.set_gpus(1, &small);
    df_cu_ctx c;
    CHECK(cu.init(0) == 0 && cu.ctx_retain(&c, 0) == 0 && cu.ctx_push(c) == 0);
    CHECK(cu.mem_alloc(&p, 700 << 10) == 0);
    CHECK(cu.mem_alloc(&q, 400 << 10) == DF_CU_OUT_OF_MEMORY);
    CHECK(cu.mem_info(&is_free, &total) == 0);
    CHECK(is_free == 324 << 10 && total == 1 << 20);
    CHECK(cu.mem_free(p) == 0);
    CHECK(cu.mem_alloc(&q, 1 << 20) == 0);
    CHECK(in.n_misuse() == 0);
}

/* ---- misuse ---- */

static void misuse_of_memory(void)
{
    df_cu_ptr p, q;
    df_cu_stream s;
    char host[64] = "";
    start(STANDIN_LATE);
    CHECK(cu.stream_create(&s, 1) == 0);
    CHECK(cu.mem_alloc(&p, 64) == 0);
    CHECK(cu.mem_alloc(&q, 1024) == 0);
    CHECK(cu.copy_in(p + 200, host, 64, s) == 1 && misused("has fewer"));
    CHECK(cu.copy(q, q + 8, 16, s) == 0 && misused("overlaps"));
    CHECK(cu.copy_out((void *)(uintptr_t)q, q, 16, s) == 1 && misused("no host memory"));
    CHECK(cu.set_32(q + 2, 0, 1, s) == 1 && misused("not aligned"));
    CHECK(cu.mem_free(q + 256) == 1 && misused("not what cuMemAlloc gave"));
    CHECK(cu.set_8(q, 0, 1024, s) == 0);
    CHECK(cu.mem_free(q) == 0 && misused("m2 may still be used by a queued copy"));
    CHECK(cu.mem_free(q) == 1 && misused("or was freed"));
    CHECK(cu.mem_alloc(&q, 0) == 1 && misused("0 bytes"));
    char *const over = in.peek(p, 65);
    if (CHECK(over != NULL)) over[64] = 0;
    in.unpeek();
    CHECK(cu.mem_free(p) == 0 && misused("was written at byte 64"));
}

static void misuse_of_handles(void)
{
    df_cu_stream s, t;
    df_cu_event e;
    df_cu_ctx other;
    df_cu_ptr p;
    const df_cu_ctx c = start(STANDIN_LATE);
    CHECK(cu.stream_create(&s, 1) == 0);
    CHECK(cu.event_create(&e, 2) == 0);
    CHECK(cu.ctx_retain(&other, 1) == 0 && cu.ctx_push(other) == 0);
    CHECK(cu.stream_wait(s) == 400 && misused("s1 is of gpu0, the current context of gpu1"));
    CHECK(cu.stream_create(&t, 1) == 0);
    CHECK(cu.event_record(e, t) == 400 && misused("e1 is of gpu0"));
    CHECK(cu.stream_wait_event(t, e, 0) == 0 && in.n_misuse() == 0);
    CHECK(cu.stream_destroy(t) == 0);
    CHECK(cu.stream_destroy(t) == 400 && misused("stream s2 was destroyed"));
    CHECK(cu.event_query((df_cu_event)s) == 400 && misused("no handle of that kind"));
    CHECK(cu.ctx_pop(NULL) == 0 && cu.ctx_pop(NULL) == 0);
    CHECK(cu.stream_wait(s) == 201 && misused("no context is current"));
    CHECK(cu.ctx_pop(NULL) == 201 && misused("no context is current"));
    CHECK(cu.ctx_push(c) == 0 && cu.mem_alloc(&p, 16) == 0);
    CHECK(cu.ctx_release(0) == 0 && in.n_misuse() == 3 && misused("s1 is still there"));
    CHECK(cu.ctx_push(c) == 201 && misused("destroyed"));
    in.reset();
    CHECK(cu.ctx_retain(&other, 0) == 3 && misused("before cuInit"));
}

/* ---- faults on demand, the record, leaks ---- */

static void faults_come(void)
{
    df_cu_ptr p;
    df_cu_stream s;
    start(STANDIN_LATE);
    CHECK(cu.stream_create(&s, 1) == 0);
    in.fail("cuMemAlloc_v2", 2, 2);
    in.fail(NULL, 4, 999);
    CHECK(in.fails_waiting() == 2);
    CHECK(cu.mem_alloc(&p, 16) == 0);
    CHECK(cu.mem_free(p) == 0); /* gives back: not counted */
    CHECK(cu.mem_alloc(&p, 16) == 2);
    CHECK(cu.mem_alloc(&p, 16) == 0);
    CHECK(cu.stream_wait(s) == 999);
    CHECK(cu.stream_wait(s) == 0);
    CHECK(in.fails_waiting() == 0);
    in.fail_always("cuStreamQuery", 46);
    CHECK(cu.stream_query(s) == 46 && cu.stream_query(s) == 46);
    in.fail_always("cuStreamQuery", 0);
    CHECK(cu.stream_query(s) == 0);
    CHECK(in.count("cuMemAlloc_v2") == 3);
    in.fail_work(2, 700);
    CHECK(cu.set_8(p, 1, 16, s) == 0 && cu.set_8(p, 2, 16, s) == 0);
    CHECK(cu.stream_wait(s) == 700);
    CHECK(cu.stream_wait(s) == 700); /* for good */
    CHECK(cu.mem_alloc(&p, 16) == 700);
    CHECK(in.n_misuse() == 0);
}

static void tell_all(standin_mode mode, char *text, size_t cap)
{
    df_cu_ptr p;
    df_cu_stream s;
    df_cu_event e;
    start(mode);
    in.record(true, true);
    cu.stream_create(&s, 1);
    cu.event_create(&e, 2);
    cu.mem_alloc(&p, 1024);
    cu.copy_in(p + 8, "12345678", 8, s);
    cu.event_record(e, s);
    cu.event_wait(e);
    cu.mem_free(p);
    cu.stream_destroy(s);
    snprintf(text, cap, "%s", in.recorded());
}

static void record_is_stable(void)
{
    char a[2048], b[2048];
    standin_alive l;
    tell_all(STANDIN_RANDOM, a, sizeof a);
    in.leaks(&l);
    CHECK(l.contexts == 1 && l.streams == 0 && l.events == 1 && l.memory == 0 && l.bytes == 0);
    tell_all(STANDIN_RANDOM, b, sizeof b);
    CHECK(strcmp(a, b) == 0);
    tell_all(STANDIN_LATE, a, sizeof a);
    CHECK(strcmp(a, "gpu0 cuStreamCreate s1\n"
                    "gpu0 cuEventCreate e1\n"
                    "gpu0 cuMemAlloc_v2 m1 1024\n"
                    "gpu0 cuMemcpyHtoDAsync_v2 s1 m1+8 8 from pageable\n"
                    "gpu0 cuEventRecord e1 in s1\n"
                    "gpu0 cuEventSynchronize e1\n"
                    "  s1 copy\n"
                    "  s1 event\n"
                    "gpu0 cuMemFree_v2 m1+0\n"
                    "gpu0 cuStreamDestroy_v2 s1\n") == 0 ||
          (printf("%s", a), false));
}

/* By the environment alone, for programs that know no stand-in. */
static void strict_programs(char **argv)
{
    char command[2048];
    snprintf(command, sizeof command,
             "DEFT_STANDIN_STRICT=1 DEFT_STANDIN_GPUS=3 '%s' '%s' '%s' --misuse 2>&1 | "
             "grep -q 'misused 1 times: cuMemAlloc_v2: of 0 bytes'",
             argv[0], argv[1], argv[2]);
    CHECK(system(command) == 0);
    snprintf(command, sizeof command,
             "DEFT_STANDIN_STRICT=1 '%s' '%s' '%s' --misuse > /dev/null 2>&1", argv[0], argv[1],
             argv[2]);
    const int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 99);
}

static int misuse_once(void)
{
    df_cu_ptr p;
    int n = 0;
    start(STANDIN_RANDOM);
    cu.mem_alloc(&p, 0);
    cu.device_count(&n);
    if (n != (getenv("DEFT_STANDIN_GPUS") ? 3 : 2)) cu.mem_alloc(&p, 0); /* twice is too much */
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !try_open(argv[1], argv[2])) return 1;
    if (strcmp(argv[argc - 1], "--misuse") == 0) return misuse_once();
    late_copies();
    order_by_events();
    missing_order_shows();
    default_stream_waits();
    host_cannot_read();
    memory_ends();
    misuse_of_memory();
    misuse_of_handles();
    faults_come();
    record_is_stable();
    strict_programs(argv);
    in.reset();
    if (n_faults) printf("%ld faults\n", n_faults);
    return n_faults != 0;
}
