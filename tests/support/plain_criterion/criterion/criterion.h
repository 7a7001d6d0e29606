/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for the part of Criterion that the unit tests use, for builds that are run by an
 * emulator of user programs. Criterion starts the program again for each test, and such an emulator
 * does not run what programs start. Here each test runs in a child that is forked.
 *
 * Times are not limited, because an emulator takes many times as long; Meson limits the program.
 */
#ifndef PLAIN_CRITERION_H
#define PLAIN_CRITERION_H

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What may be said of a test or a suite behind its name. */
typedef struct plain_options {
    char none; /* so that a list without members is one */
    void (*init)(void), (*fini)(void);
    int signal, exit_code;
    double timeout;
} plain_options;

typedef struct plain_test {
    const char *suite, *name; /* name NULL: options of a suite */
    void (*run)(void);
    plain_options options;
    struct plain_test *next;
} plain_test;

void plain_add(plain_test *t);
/* Prints why a check failed. is_last: ends the test. */
void plain_fail(bool is_last, const char *file, int line, const char *what, const char *format,
                ...);
__attribute__((noreturn)) void plain_skip(void);

#define PLAIN_ADD(id, suite_name, test_name, function, ...)                                        \
    __attribute__((constructor)) static void id##_add(void)                                        \
    {                                                                                              \
        static plain_test t = {                                                                    \
            suite_name, test_name, function, { .none = 0, __VA_ARGS__ }, NULL                      \
        };                                                                                         \
        plain_add(&t);                                                                             \
    }
#define Test(suite_, name_, ...)                                                                   \
    static void suite_##_##name_##_run(void);                                                      \
    PLAIN_ADD(suite_##_##name_, #suite_, #name_, suite_##_##name_##_run, __VA_ARGS__)              \
    static void suite_##_##name_##_run(void)
#define TestSuite(suite_, ...)                                                                     \
    PLAIN_ADD(suite_, #suite_, NULL, NULL, __VA_ARGS__) _Static_assert(1, "")

#define PLAIN_CHECK(is_last, ok, what, ...)                                                        \
    ((ok) ? (void)0 : plain_fail(is_last, __FILE__, __LINE__, what, "" __VA_ARGS__))

#define cr_assert(x, ...) PLAIN_CHECK(true, x, #x, __VA_ARGS__)
#define cr_assert_not(x, ...) PLAIN_CHECK(true, !(x), "!(" #x ")", __VA_ARGS__)
#define cr_assert_null(x, ...) PLAIN_CHECK(true, (x) == NULL, #x " == NULL", __VA_ARGS__)
#define cr_assert_not_null(x, ...) PLAIN_CHECK(true, (x) != NULL, #x " != NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_CHECK(true, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) PLAIN_CHECK(true, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) PLAIN_CHECK(true, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN_CHECK(true, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN_CHECK(true, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN_CHECK(true, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...)                                                           \
    PLAIN_CHECK(true, fabs((double)(a) - (double)(b)) <= (double)(e), #a " ~ " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) PLAIN_CHECK(true, strcmp(a, b) == 0, #a " is " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)                                                               \
    PLAIN_CHECK(true, strcmp(a, b) != 0, #a " is not " #b, __VA_ARGS__)
#define cr_assert_str_empty(a, ...) PLAIN_CHECK(true, *(a) == '\0', #a " is empty", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...)                                                             \
    PLAIN_CHECK(true, memcmp(a, b, n) == 0, #a " has the bytes of " #b, __VA_ARGS__)
#define cr_assert_arr_neq(a, b, n, ...)                                                            \
    PLAIN_CHECK(true, memcmp(a, b, n) != 0, #a " has other bytes than " #b, __VA_ARGS__)
#define cr_assert_fail(...) PLAIN_CHECK(true, false, "never here", __VA_ARGS__)

#define cr_expect(x, ...) PLAIN_CHECK(false, x, #x, __VA_ARGS__)
#define cr_expect_not(x, ...) PLAIN_CHECK(false, !(x), "!(" #x ")", __VA_ARGS__)
#define cr_expect_null(x, ...) PLAIN_CHECK(false, (x) == NULL, #x " == NULL", __VA_ARGS__)
#define cr_expect_not_null(x, ...) PLAIN_CHECK(false, (x) != NULL, #x " != NULL", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_CHECK(false, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) PLAIN_CHECK(false, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) PLAIN_CHECK(false, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_CHECK(false, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) PLAIN_CHECK(false, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) PLAIN_CHECK(false, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...)                                                           \
    PLAIN_CHECK(false, fabs((double)(a) - (double)(b)) <= (double)(e), #a " ~ " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) PLAIN_CHECK(false, strcmp(a, b) == 0, #a " is " #b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...)                                                             \
    PLAIN_CHECK(false, memcmp(a, b, n) == 0, #a " has the bytes of " #b, __VA_ARGS__)

#define cr_skip_test(...) plain_skip()
#define cr_skip(...) plain_skip()

#endif
