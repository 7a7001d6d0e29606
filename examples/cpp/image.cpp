/* SPDX-License-Identifier: Apache-2.0
 *
 * examples/image.c as C++17 through deft.hpp.
 */
#include "deft/deft.hpp"

extern "C" {
#include "image_data.h"
#include "ppm.h"
#include "ref/image_ref.h"
}

#include "image.c"
