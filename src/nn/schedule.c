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

double deft_schedule_steps(int64_t step, int64_t every, double factor)
{
    if (step < 0) return 1;
    return pow(factor, (double)(every > 0 ? step / every : step));
}

double deft_schedule_polynomial(int64_t step, int64_t steps, double power)
{
    return pow(1 - passed(step, steps), power);
}

double deft_schedule_inverse_sqrt(int64_t step, int64_t warm_up)
{
    const double from = warm_up > 1 ? (double)warm_up : 1;
    if (step + 1 < warm_up) return deft_schedule_warm_up(step, warm_up);
    return step < 0 ? 1 : sqrt(from / (double)(step + 1));
}

double deft_schedule_restarts(int64_t step, int64_t steps, double growth, double last)
{
    if (steps <= 0) return last;
    double at = step > 0 ? (double)step : 0, period = (double)steps;
    if (!(growth > 1)) at = fmod(at, period);
    while (at >= period) {
        at -= period;
        period = floor(period * growth);
    }
    return last + (1 - last) * (1 + cos(3.14159265358979323846 * at / period)) / 2;
}

double deft_schedule_one_cycle(int64_t step, int64_t steps, int64_t rise, double first, double last)
{
    if (step < rise) return first + (1 - first) * (1 - deft_schedule_cosine(step, rise, 0));
    return deft_schedule_cosine(step - rise, steps - rise, last);
}
