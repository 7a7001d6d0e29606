/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that is measured beside ours: it answers each line it gets with one, "ok ..." or
 * "failed REASON", the first once it is ready: "ok VERSION".
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct peer {
    const char *name;
    pid_t pid; /* 0: not started */
    FILE *to, *from;
    char line[512];   /* its latest answer */
    char version[32]; /* "": it never answered */
    char why[256];    /* it cannot be measured; "": it can */
} peer;

/* Starts argv[0], looked for in PATH, and waits for its first answer; why says what went wrong. A
 * caller has to ignore SIGPIPE: a peer's death is not ours. */
void peer_open(peer *p, const char *name, char *const argv[]);

/* The two halves of it: several peers may start at the same time. */
void peer_start(peer *p, const char *name, char *const argv[]);
void peer_wait_for_start(peer *p);

void peer_close(peer *p);

/* The text behind "ok", until the next answer; NULL: the peer failed, with its reason kept. */
const char *peer_heard(peer *p);

/* Sends a line, unless the peer failed before, and reads the number in the answer: *answer, which
 * may be NULL. */
bool peer_asked(peer *p, double *answer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The two halves of it: other peers may be told something in between. */
bool peer_tell(peer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool peer_answer(peer *p, double *answer);

/* Stops all threads of the peer, and lets them go on. Threads of libraries spin after their work,
 * up to some 30 ms in OpenBLAS, and would take a processor from the side that is measured next. A
 * stopped peer must not be asked, and has to end with its parent by itself. */
void peer_stop(const peer *p);
void peer_go_on(const peer *p);

/* Keeps why it cannot be measured; false. */
bool peer_fails(peer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
