/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches f32 coefficients of sin near given ones for the least error of the evaluation itself,
 * roundings included, over all f32 in (0.8, 1.585] and some below.
 *
 *   cc -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math \
 *      -ffinite-math-only -fno-signed-zeros tools/fit_search.c -lm && ./a.out SEED STEPS
 *
 * A result just above 1 counts with the spacing below 1. To each error that of r is added as if it
 * were half a ULP of r always, so that what is best here is best for sin and cos of any argument.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    float r;
    double sin, per_ulp, from_r;
} sample;

static sample *samples;
static size_t n_samples;

static double worst(const float c[4])
{
    const float c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
    double w = 0;
    for (size_t i = 0; i < n_samples; i++) {
        const float r = samples[i].r, r2 = r * r;
        const float p = fmaf(fmaf(fmaf(c3, r2, c2), r2, c1), r2, c0);
        const double y = fmaf(r2 * r, p, r);
        const double ulp = fabs(y - samples[i].sin) * samples[i].per_ulp + samples[i].from_r;
        w = ulp > w ? ulp : w;
    }
    return w;
}

static void take_sample(uint32_t bits)
{
    sample *s = &samples[n_samples++];
    memcpy(&s->r, &bits, sizeof bits);
    s->sin = sin(s->r);
    int e, e_of_r;
    frexp(s->sin, &e);
    frexp(s->r, &e_of_r);
    s->per_ulp = ldexp(1, 24 - (e > 0 ? 0 : e));
    s->from_r = fabs(cos(s->r)) * ldexp(0.5, e_of_r - 24) * s->per_ulp;
}

int main(int argc, char **argv)
{
    static const int range[4] = { 3, 24, 1024, 16384 };
    float best[4] = { -0x1.55554cp-3f, 0x1.110edap-7f, -0x1.9f70fp-13f, 0x1.5dc902p-19f };
    if (argc != 3) return 2;
    srand((unsigned)atoi(argv[1]));
    samples = malloc(sizeof *samples * 9000000);
    if (!samples) return 1;
    for (uint32_t b = 0x3e800000; b <= 0x3fcae200; b += b > 0x3f500000 ? 1 : 29) take_sample(b);
    double least = worst(best);
    for (int step = atoi(argv[2]); step > 0; step--) {
        float c[4];
        memcpy(c, best, sizeof c);
        for (int k = 1 + rand() % 4; k > 0; k--) {
            const int i = rand() % 4;
            int32_t bits;
            memcpy(&bits, &c[i], sizeof bits);
            bits += rand() % (2 * range[i] + 1) - range[i];
            memcpy(&c[i], &bits, sizeof bits);
        }
        const double w = worst(c);
        if (w > least) continue;
        if (w < least) printf("%.4f: %a, %a, %a, %a\n", w, c[0], c[1], c[2], c[3]);
        least = w;
        memcpy(best, c, sizeof best);
    }
    free(samples);
    return 0;
}
