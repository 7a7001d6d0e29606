/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

bool peer_fails(peer *p, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(p->why, sizeof p->why, format, ap);
    va_end(ap);
    return false;
}

const char *peer_heard(peer *p)
{
    if (!fgets(p->line, sizeof p->line, p->from)) {
        peer_fails(p, "its process ended");
        return NULL;
    }
    p->line[strcspn(p->line, "\n")] = 0;
    if (!strncmp(p->line, "ok ", 3)) return p->line + 3;
    const bool told = !strncmp(p->line, "failed ", 7);
    peer_fails(p, "%s%.200s", told ? "" : "it answered ", p->line + (told ? 7 : 0));
    return NULL;
}

static bool tell(peer *p, const char *format, va_list ap)
{
    if (*p->why) return false;
    const bool sent = vfprintf(p->to, format, ap) >= 0 && fputc('\n', p->to) != EOF;
    return (sent && fflush(p->to) == 0) || peer_fails(p, "its process ended");
}

bool peer_tell(peer *p, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const bool told = tell(p, format, ap);
    va_end(ap);
    return told;
}

bool peer_answer(peer *p, double *answer)
{
    const char *const text = *p->why ? NULL : peer_heard(p);
    if (text && answer) *answer = strtod(text, NULL);
    return text;
}

bool peer_asked(peer *p, double *answer, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const bool told = tell(p, format, ap);
    va_end(ap);
    return told && peer_answer(p, answer);
}

static bool spawned(peer *p, char *const argv[], const int to[2], const int from[2])
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int error = posix_spawnp(&p->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return true;
    p->pid = 0;
    return peer_fails(p, "%s: %s", argv[0], strerror(error));
}

void peer_start(peer *p, const char *name, char *const argv[])
{
    int to[2], from[2];
    *p = (peer){ .name = name };
    if (pipe2(to, O_CLOEXEC) != 0) {
        peer_fails(p, "no pipe: %s", strerror(errno));
        return;
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        peer_fails(p, "no pipe: %s", strerror(errno));
        close(to[0]), close(to[1]);
        return;
    }
    spawned(p, argv, to, from);
    close(to[0]), close(from[1]);
    p->to = fdopen(to[1], "w");
    p->from = fdopen(from[0], "r");
}

void peer_wait_for_start(peer *p)
{
    const char *const version = *p->why ? NULL : peer_heard(p);
    if (version) snprintf(p->version, sizeof p->version, "%.30s", version);
}

void peer_open(peer *p, const char *name, char *const argv[])
{
    peer_start(p, name, argv);
    peer_wait_for_start(p);
}

void peer_stop(const peer *p)
{
    if (p->pid) kill(p->pid, SIGSTOP);
}

void peer_go_on(const peer *p)
{
    if (p->pid) kill(p->pid, SIGCONT);
}

void peer_close(peer *p)
{
    if (p->to) fclose(p->to);
    if (p->from) fclose(p->from);
    if (p->pid) waitpid(p->pid, NULL, 0);
}
