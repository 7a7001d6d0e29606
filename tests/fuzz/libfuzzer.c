/* SPDX-License-Identifier: Apache-2.0
 *
 * What a target that libFuzzer runs has beside the target itself.
 */
#include "fuzz.h"

const bool fuzz_all_ways = false;
