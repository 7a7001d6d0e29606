/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to last_words.c: the stack of the calling thread. Meson takes last_words_unwind.c, or
 * last_words_no_unwind.c where programs cannot be linked with the unwinder of the compiler.
 */
#ifndef DF_TESTS_LAST_WORDS_STACK_H
#define DF_TESTS_LAST_WORDS_STACK_H

/* Says one line for each frame. May be called in a handler of signals: allocates nothing. */
void last_words_stack(void (*say)(const char *text));

#endif
