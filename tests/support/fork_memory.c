/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of Criterion's child between fork and exec, under the AddressSanitizer of GCC.
 *
 * Criterion forks for each test while its other threads allocate, and the child allocates before
 * it calls exec. The allocator of that AddressSanitizer (gcc 12) takes no lock around fork: when
 * another thread is inside it at that moment, the child waits for a lock that nobody will ever
 * give back, and the test hangs. So the child is served from an array here until it calls exec,
 * and frees nothing. The tests themselves run after exec, with the allocator as it is.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__

/* The dynamic linker calls malloc before AddressSanitizer is ready for instrumented code. */
#define PLAIN __attribute__((no_sanitize("address", "undefined")))

void *__interceptor_malloc(size_t size);
void *__interceptor_calloc(size_t n, size_t size);
void *__interceptor_realloc(void *p, size_t size);
void __interceptor_free(void *p);
char *__interceptor_strdup(const char *s);
size_t __sanitizer_get_allocated_size(const volatile void *p);

static bool in_child;
static _Alignas(16) char child_memory[1 << 20]; /* Criterion asks for some kilobytes */
static size_t child_used;

static void enter_child(void)
{
    in_child = true;
}

/* Only in the process that starts the tests: a test may fork as it likes. BXFI_MAP is what
 * Criterion gives to the process of a test. */
__attribute__((constructor)) static void watch_fork(void)
{
    if (!getenv("BXFI_MAP")) pthread_atfork(NULL, NULL, enter_child);
}

/* Zeroed; NULL when the array is full. */
PLAIN static void *child_block(size_t size)
{
    const size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size || rounded > sizeof child_memory - child_used) return NULL;
    child_used += rounded;
    return child_memory + child_used - rounded;
}

PLAIN static bool is_child_block(const void *p)
{
    return (uintptr_t)p - (uintptr_t)child_memory < sizeof child_memory;
}

PLAIN void *malloc(size_t size)
{
    return in_child ? child_block(size) : __interceptor_malloc(size);
}

PLAIN void *calloc(size_t n, size_t size)
{
    if (!in_child) return __interceptor_calloc(n, size);
    return size && n > SIZE_MAX / size ? NULL : child_block(n * size);
}

PLAIN void *realloc(void *p, size_t size)
{
    if (!in_child) return __interceptor_realloc(p, size);
    char *const to = child_block(size);
    if (!p || !to) return to;
    /* How large a block of the array is, nobody knows: what follows it is copied with it. */
    const size_t left = (size_t)(child_memory + sizeof child_memory - (const char *)p);
    const size_t had = is_child_block(p) ? left : __sanitizer_get_allocated_size(p);
    for (size_t i = 0; i < had && i < size; i++) to[i] = ((const volatile char *)p)[i];
    return to;
}

PLAIN void free(void *p)
{
    if (!in_child) __interceptor_free(p);
}

PLAIN char *strdup(const char *s)
{
    if (!in_child) return __interceptor_strdup(s);
    const size_t n = strlen(s) + 1;
    char *const to = child_block(n);
    for (size_t i = 0; to && i < n; i++) to[i] = s[i];
    return to;
}

#endif
