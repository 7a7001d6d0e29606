/* SPDX-License-Identifier: Apache-2.0
 *
 * examples/heat.c as C++17 through deft.hpp.
 */
#include "deft/deft.hpp"

extern "C" {
#include "ppm.h"
#include "ref/heat_ref.h"
}

#include "heat.c"
