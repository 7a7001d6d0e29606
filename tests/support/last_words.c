/* SPDX-License-Identifier: Apache-2.0
 *
 * Says where a test stands when it is ended by SIGTERM, which is what Meson sends when a test has
 * used up its time: for each thread its state, its system call and its stack. A test that hangs
 * once in a hundred runs can be understood by that alone. It is part of every program that links
 * the support library.
 *
 * Frames are printed as file(+offset), for addr2line on the same build (last_words_stack.h).
 */
#include "last_words_stack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_WAITS = 200, WAIT_US = 1000 };

static _Atomic int n_told; /* threads that have printed their stack */

/* What follows runs in handlers. Nothing in it allocates: malloc may be what hangs. */
static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* SIGTRAP: threads of the library block signals that are meant for the process, but not this. */
static void on_trap(int number)
{
    (void)number;
    last_words_stack(say);
    atomic_fetch_add(&n_told, 1);
}

/* One file of /proc about thread `id`, such as its system call. */
static void say_file(const char *id, const char *name)
{
    char path[96], text[128];
    (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/%s", id, name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) (void)close(file);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    say(" ");
    say(text);
}

static void say_thread(const char *id)
{
    const long thread = strtol(id, NULL, 10), mine = syscall(SYS_gettid);
    say("thread ");
    say(id);
    say_file(id, "stat");
    say(", in");
    say_file(id, "syscall");
    say_file(id, "wchan");
    say("\n");
    if (thread == mine) {
        last_words_stack(say);
        return;
    }
    const int before = atomic_load(&n_told);
    if (syscall(SYS_tgkill, (long)getpid(), thread, (long)SIGTRAP) != 0) return;
    for (int i = 0; i < MOST_WAITS && atomic_load(&n_told) == before; i++) (void)usleep(WAIT_US);
}

/* Not by opendir, which allocates. */
static void say_threads(void)
{
    struct {
        unsigned long long inode;
        long long offset;
        unsigned short length;
        unsigned char type;
        char name[];
    } const *entry;
    static _Alignas(16) char room[8192];
    const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const long n = folder < 0 ? 0 : syscall(SYS_getdents64, (long)folder, room, sizeof room);
    for (long at = 0; at < n; at += entry->length) {
        entry = (const void *)(room + at);
        if (entry->name[0] != '.') say_thread(entry->name);
    }
    if (folder >= 0) (void)close(folder);
}

static void on_end(int number)
{
    const struct sigaction trap = { .sa_handler = on_trap };
    (void)sigaction(SIGTRAP, &trap, NULL);
    say("\nended from outside; its threads:\n");
    say_threads();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

__attribute__((constructor)) static void prepare(void)
{
    const struct sigaction end = { .sa_handler = on_end };
    (void)sigaction(SIGTERM, &end, NULL);
}
