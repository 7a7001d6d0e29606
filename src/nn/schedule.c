/* SPDX-License-Identifier: Apache-2.0
 *
 * Factors of the learning rate, as functions of the step.
 */
#include "deft/nn.h"

#include <math.h>

double deft_schedule_warm_up(int64_t step, int64_t steps)
{
    if (step + 1 >= steps) return 1;
    return step < 0 ? 0 : (double)(step + 1) / (double)steps;
}

/* The fraction of `steps` that has passed, in [0, 1]. */
static double passed(int64_t step, int64_t steps)
{
    if (step >= steps) return 1;
    return step <= 0 ? 0 : (double)step / (double)steps;
}

double deft_schedule_cosine(int64_t step, int64_t steps, double last)
{
    const double pi = 3.14159265358979323846;
    return last + (1 - last) * (1 + cos(pi * passed(step, steps))) / 2;
}

double deft_schedule_linear(int64_t step, int64_t steps, double last)
{
    return 1 + (last - 1) * passed(step, steps);
}
