/* SPDX-License-Identifier: Apache-2.0
 *
 * The services of os.h, for Linux.
 */
#include "runtime/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/signals.h"
#include "runtime/os_place.h"

/* Since Linux 5.14; some headers are older. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- memory ---- */

static void *map(size_t size)
{
    void *const p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *df_os_map(size_t size)
{
    if (size < DF_OS_HUGE) return map(size);
    size_t room;
    if (__builtin_add_overflow(size, DF_OS_HUGE, &room)) return NULL;
    char *const p = map(room);
    if (!p) return NULL;
    char *const at = (char *)(((uintptr_t)p + DF_OS_HUGE - 1) & ~(uintptr_t)(DF_OS_HUGE - 1));
    char *const end = at + ((size + 4095) & ~(size_t)4095);
    if (at > p) munmap(p, (size_t)(at - p));
    if (p + room > end) munmap(end, (size_t)(p + room - end));
    return at;
}

bool df_os_make_code(void *p, size_t size)
{
    return mprotect(p, size, PROT_READ | PROT_EXEC) == 0;
}

void df_os_use_huge_pages(void *p, size_t size)
{
    df_assert((uintptr_t)p % DF_OS_HUGE == 0 && size % DF_OS_HUGE == 0);
    (void)madvise(p, size, MADV_HUGEPAGE);
}

void df_os_use_small_pages(void *p, size_t size)
{
    df_assert((uintptr_t)p % DF_OS_HUGE == 0 && size % DF_OS_HUGE == 0);
    (void)madvise(p, size, MADV_NOHUGEPAGE);
}

void df_os_populate(void *p, size_t size)
{
    (void)madvise(p, size, MADV_POPULATE_WRITE);
}

void df_os_unmap(void *p, size_t size)
{
    munmap(p, size);
}

/* With MAP_NORESERVE the kernel compares the size with the limits of the process, not with the
 * memory that is free. */
bool df_os_has_room(size_t size)
{
    void *const p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, size);
    return true;
}

bool df_os_is_limited(void)
{
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur != RLIM_INFINITY ||
           getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur != RLIM_INFINITY;
}

/* ---- threads ---- */

void df_os_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void df_os_wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Reads at most size - 1 bytes of a file, and ends them with a zero. Returns their number; 0 when
 * the file cannot be read. */
static size_t read_text(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* The smaller of n and the quota of processors in a file cpu.max of control groups version 2. The
 * file has "QUOTA PERIOD" or "max PERIOD". */
static uint32_t quota(const char *path, uint32_t n)
{
    char text[64], *end;
    if (!read_text(path, text, sizeof text)) return n;
    const long long most = strtoll(text, &end, 10), period = strtoll(end, NULL, 10);
    if (most <= 0 || period <= 0) return n;
    const long long cpus = (most + period - 1) / period;
    return cpus < n ? (uint32_t)cpus : n;
}

/* sysconf tells the sum of all caches of the processor, which no core can use alone. */
double df_os_cache(int level)
{
    /* Indices 0 and 1 are the two halves of the first level. */
    static const char *const path[] = { "/sys/devices/system/cpu/cpu0/cache/index2/size",
                                        "/sys/devices/system/cpu/cpu0/cache/index3/size" };
    char text[64], *end;
    df_assert(level == 2 || level == 3);
    if (!read_text(path[level - 2], text, sizeof text)) return INFINITY;
    const double size = strtod(text, &end);
    const double unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1;
    return size > 0 ? size * unit : INFINITY;
}

static bool affinity(cpu_set_t *set)
{
    return pthread_getaffinity_np(pthread_self(), sizeof *set, set) == 0;
}

uint32_t df_os_n_cpus(void)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = affinity(&set) ? (uint32_t)CPU_COUNT(&set) : online > 0 ? (uint32_t)online : 1;
    n = quota("/sys/fs/cgroup/cpu.max", n);
    char text[512], path[600];
    if (read_text("/proc/self/cgroup", text, sizeof text) && strncmp(text, "0::/", 4) == 0) {
        text[strcspn(text, "\n")] = '\0';
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", text + 3);
        n = quota(path, n);
    }
    return n > 0 ? n : 1;
}

uint32_t df_os_cpus(int *cpus, uint32_t n)
{
    cpu_set_t set;
    uint32_t found = 0;
    if (!affinity(&set)) return 0;
    const int here = sched_getcpu();
    for (int i = 0; i < CPU_SETSIZE && found < n; i++)
        if (i != here && CPU_ISSET(i, &set)) cpus[found++] = i;
    if (found < n && here >= 0 && here < CPU_SETSIZE && CPU_ISSET(here, &set)) cpus[found++] = here;
    return found;
}

static bool start_thread(pthread_t *out, void *(*run)(void *), void *user, int cpu)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return false;
    (void)pthread_attr_setstacksize(&attr, DF_OS_STACK);
    const bool is_placed = cpu < 0 || df_os_place(&attr, cpu);
    const bool ok = pthread_create(out, &attr, run, user) == 0;
    if (ok && !is_placed) df_os_pin(*out, cpu);
    pthread_attr_destroy(&attr);
    return ok;
}

bool df_os_thread(pthread_t *out, void *(*run)(void *), void *user, int cpu)
{
    sigset_t before;
    df_signals_block(&before);
    bool ok = start_thread(out, run, user, cpu);
    if (!ok && cpu >= 0) ok = start_thread(out, run, user, -1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* How much stack the main thread is assumed to have left. Its stack grows on demand, and the limit
 * could only be found by reading a file. */
#define MAIN_STACK ((size_t)128 << 10)

/* Returns the bytes of stack that the calling thread has left. For the main thread, returns
 * MAIN_STACK without a check. 0: unknown. */
static size_t stack_left(void)
{
    void *base = NULL;
    size_t size = 0;
    pthread_attr_t attr;
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (getpid() == (pid_t)syscall(SYS_gettid)) return MAIN_STACK;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return 0;
    if (pthread_attr_getstack(&attr, &base, &size) != 0) base = NULL;
    pthread_attr_destroy(&attr);
    const uintptr_t bottom = (uintptr_t)base;
    return base && here > bottom && here - bottom < size ? here - bottom : 0;
}

typedef struct call {
    void (*run)(void *user);
    void *user;
} call;

static void *run_call(void *user)
{
    const call *const c = user;
    c->run(c->user);
    return NULL;
}

bool df_os_call(size_t stack, void (*run)(void *user), void *user)
{
    pthread_t thread;
    call c = { run, user };
    if (stack_left() >= stack) {
        run(user);
        return true;
    }
    if (!df_os_thread(&thread, run_call, &c, -1)) return false;
    pthread_join(thread, NULL);
    return true;
}

int df_os_cpu(void)
{
    return sched_getcpu();
}

void df_os_pin(pthread_t thread, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)pthread_setaffinity_np(thread, sizeof set, &set);
}

/* A thread of SCHED_BATCH that is woken does not preempt. */
void df_os_be_patient(void)
{
    const struct sched_param none = { 0 };
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

uint64_t df_os_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The condition knows the clock: pthread_cond_clockwait is not in every C library. */
void df_os_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

void df_os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec at = { .tv_sec = (time_t)(until_ns / 1000000000u),
                                 .tv_nsec = (long)(until_ns % 1000000000u) };
    (void)pthread_cond_timedwait(c, lock, &at);
}

bool df_os_append(const char *path, const char *text, size_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    bool ok = fd >= 0;
    while (ok && n > 0) {
        const ssize_t k = write(fd, text, n);
        if (k < 0 && errno == EINTR) continue;
        ok = k > 0;
        if (!ok) break;
        text += k;
        n -= (size_t)k;
    }
    if (fd >= 0) close(fd);
    return ok;
}
