/* SPDX-License-Identifier: Apache-2.0
 *
 * examples/mlp.c as C++17 through deft.hpp.
 */
#include "deft/deft.hpp"

#include "mlp.c"
