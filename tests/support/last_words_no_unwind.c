/* SPDX-License-Identifier: Apache-2.0 */
#include "last_words_stack.h"

void last_words_stack(void (*say)(const char *text))
{
    say("  (without frames: there is no unwinder)\n");
}
