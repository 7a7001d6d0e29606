/* SPDX-License-Identifier: Apache-2.0
 *
 * A test that is ended from outside says on stderr where each of its threads stands, also a thread
 * that waits for a lock, and ends by the signal that it got (support/last_words.c).
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/os.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_lock(void *user)
{
    (void)user;
    pthread_mutex_lock(&lock);
    return NULL;
}

/* Hangs with two threads, one of them with the signals of a thread of the library. */
static void hang(int told)
{
    pthread_t thread;
    (void)alarm(20);
    pthread_mutex_lock(&lock);
    if (!df_os_thread(&thread, wait_for_lock, NULL, -1)) _exit(1);
    (void)!write(told, "x", 1);
    for (;;) (void)pause();
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

int main(void)
{
    static char text[1 << 16];
    char begun;
    int said[2], told[2], status;
    size_t n = 0;
    if (pipe(said) != 0 || pipe(told) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
        if (dup2(said[1], STDERR_FILENO) >= 0) hang(told[1]);
        _exit(1);
    }
    (void)close(said[1]);
    if (child < 0 || read(told[0], &begun, 1) != 1 || kill(child, SIGTERM) != 0) return 1;
    for (ssize_t got; (got = read(said[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    if (waitpid(child, &status, 0) != child) return 1;
    const bool ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    const size_t threads = count(text, "\nthread "), frames = count(text, "fork_last_words");
    printf("%zu threads, %zu frames of this program; %s\n", threads, frames,
           ended ? "ended by SIGTERM" : "not ended by SIGTERM");
    if (ended && threads >= 2 && frames >= 4) return 0;
    printf("%s\n", text);
    return 1;
}
