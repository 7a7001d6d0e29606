/* SPDX-License-Identifier: Apache-2.0
 *
 * Published inputs: Gladman, Innocente, Mather, Zimmermann, "Accuracy of mathematical functions in
 * single, double, double extended, and quadruple precision" (2021 to 2025); inputs near the middle
 * of two f64 from the lists of Lefevre and Muller and of CORE-MATH.
 *
 * Near multiples of pi / 2: m 2^E is near one when the fraction of m (2^E 2 / pi) is near 0 or 1.
 * The m < 2^53 for which it is nearest are denominators of convergents of the continued fraction of
 * 2^E 2 / pi (Kahan 1983; Muller, "Elementary functions", chapter 11), sums of two of them, and
 * multiples. The fraction is kept to 128 bits, 75 of which remain after the product with m.
 */
#include "support/hard_inputs.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

const double hard_published[] = {
    -0x0.bd54cbc41f0b9p-1022, 0x0.bdf2e4b035cc5p-1022, 0x1.499c0c2050962p-997,
    -0x1.00ddafe7d9deep-885,  0x1.09806cdccbfa1p-748,  -0x1.f7af4893d1d51p-616,
    -0x1.6e9b204d2167dp-539,  0x1.477fc84889eabp-511,  0x1.7a337e1ba1ec2p-257,
    0x1.1a62633145c07p-54,    -0x1.c5bf891b4ef6ap-54,  -0x1.8d313198a2e03p-53,
    0x1.fffbbb0468123p-32,    -0x1.ffffab1933322p-32,  0x1.4cdee58a47eddp-31,
    -0x1.9df9aecc00001p-29,   -0x1.ffffff3fffffdp-28,  0x1.d12ed0af1a27fp-27,
    0x1.ffffffffffffep-26,    0x1.8000000000009p-23,   0x1.8000000000024p-22,
    0x1.800000000009p-21,     -0x1.f635b70b92407p-21,  0x1.20000000000f3p-20,
    -0x1.3ecf146c39c0cp-20,   0x1.800000000024p-20,    0x1.e0000000001c2p-20,
    -0x1.c37443e446523p-16,   -0x1.c57541b55c8ebp-16,  -0x1.4133f4fd79c1cp-13,
    -0x1.b3d9b47ad1b2fp-13,   -0x1.ffe2abaa5690dp-13,  -0x1.fff0caf4c48dp-13,
    -0x1.fff13ade9918p-12,    0x1.fff86f9b9acp-12,     0x1.fffdfee9d0656p-12,
    0x1.000bcdec306p-11,      0x1.0da8cc189b47dp-10,   0x1.ffd834a270fp-10,
    0x1.000aee2a2757fp-9,     0x1.856b41d86994cp-9,    0x1.86f57e8de4a5p-9,
    -0x1.c5c9440e9422dp-9,    -0x1.e2cfb2667f17ep-9,   0x1.0000187085e56p-8,
    0x1.00001d2920fb7p-8,     0x1.00005abf94234p-8,    0x1.0000b7af4dcdp-8,
    -0x1.205968a73d4abp-8,    -0x1.205968aae119fp-8,   -0x1.2059763f8882bp-8,
    -0x1.62fe464c64f65p-8,    -0x1.bf3c82e5f58dfp-8,   -0x1.fff14d29165f4p-8,
    0x1.00a33764a0a83p-7,     0x1.921fb5443p-7,        0x1.940c877fb7dacp-7,
    0x1.f666ebe136c4ap-7,     -0x1.ffff8020d3d1dp-7,   0x1.075745181aabp-6,
    -0x1.4c31866f6d3bbp-6,    -0x1.4c3c931a5de98p-6,   0x1.85cb7cc1e1318p-6,
    -0x1.9a4f79002782p-6,     0x1.c3b7c858f0575p-6,    -0x1.f42fb19b5b9b2p-6,
    -0x1.0285070f9f1bcp-5,    -0x1.1a4ce073ea908p-5,   -0x1.1b214e75178c4p-5,
    0x1.50486b2f87014p-5,     0x1.c332bde7ca515p-5,    0x1.e7f93188565ecp-5,
    0x1.00038856b259ep-4,     0x1.e004312b997bp-4,     0x1.f5805b28679f4p-4,
    -0x1.f692ba202abcp-4,     -0x1.f8a404597baf4p-4,   0x1.f9004c4fef9eap-4,
    -0x1.f97fabc0650c4p-4,    -0x1.0000045b2c904p-3,   0x1.000a5e848c0dp-3,
    -0x1.0010aea41501p-3,     0x1.0029e0e2db7dp-3,     -0x1.8000e569a5545p-3,
    0x1.e0f65b6ce8826p-3,     -0x1.e134557098e37p-3,   -0x1.fdefd03df4cd7p-3,
    -0x1.00010c3967f16p-2,    -0x1.000a02c5a8b47p-2,   -0x1.0240f2bdb3f25p-2,
    -0x1.02657ff36d5f3p-2,    -0x1.2bf1de6b04a8ap-2,   -0x1.2bf32aaf122e2p-2,
    -0x1.2c10396268852p-2,    0x1.321a11445f63fp-2,    0x1.334ab33a9aaep-2,
    0x1.623853046e994p-2,     -0x1.62dabd4848dc4p-2,   0x1.62f69d171fa65p-2,
    0x1.62ff47a01658fp-2,     0x1.9fa32b1149d35p-2,    0x1.9fcba01feb507p-2,
    -0x1.adc135eb544c1p-2,    0x1.ce7ef793d4b0ap-2,    0x1.d7131e11fc6b3p-2,
    -0x1.d7a5c53da7132p-2,    -0x1.e057e7a0e494cp-2,   0x1.eaeb8b58c0655p-2,
    -0x1.ff95ecb4e6331p-2,    0x1.000c80481e7f9p-1,    0x1.000fb59dbb7ffp-1,
    -0x1.001bf41f56582p-1,    -0x1.004d1c5a9400bp-1,   -0x1.0068b067c6feep-1,
    -0x1.01bddfd228a2dp-1,    -0x1.0312655c1d169p-1,   0x1.16c08b622e36p-1,
    0x1.1917834b6f97bp-1,     0x1.2501ee5628b08p-1,    0x1.35a0de2b038fep-1,
    0x1.35b9bac9f42c6p-1,     0x1.35d84799c86cap-1,    0x1.3bedfcb8aba8dp-1,
    0x1.490af72a25a81p-1,     0x1.50f5a68c91c18p-1,    0x1.5d164509e8235p-1,
    0x1.62ff6a1682c25p-1,     0x1.6320943636f24p-1,    -0x1.63324af2fb5b7p-1,
    0x1.6b015f8d9a784p-1,     0x1.6c042a6378102p-1,    0x1.6c05eb219ec46p-1,
    0x1.800010834fed5p-1,     -0x1.80052ddfdd07cp-1,   0x1.86485d1a8b19dp-1,
    0x1.91b2e22984b85p-1,     -0x1.9915e876fc062p-1,   0x1.c982eb8d417eap-1,
    0x1.dc0b586f2b26p-1,      0x1.de02157073b31p-1,    0x1.dffffb3488a4p-1,
    0x1.ede4ac763282bp-1,     -0x1.ee2b43286db75p-1,   0x1.f03ebdaea826bp-1,
    0x1.f3ffd85f33423p-1,     0x1.f63845056f35ep-1,    0x1.fcd5742999ab8p-1,
    0x1.fd619059e2342p-1,     -0x1.fd7d13f1663afp-1,   0x1.feda7b62c1033p-1,
    -0x1.ff58c8cce5385p-1,    0x1.ffc00159839aep-1,    0x1.fffff3634acd6p-1,
    0x1.fffffffffffffp-1,     0x1.00007fb3703ddp0,     0x1.0001ff6afc4bap0,
    0x1.0007ffe4f42f8p0,      -0x1.0018308fc500dp0,    0x1.001c939e14315p0,
    0x1.001f01ac83b3p0,       0x1.001ffe4f6d239p0,     0x1.001fffbd3f495p0,
    0x1.002000d8e91c5p0,      0x1.002001ffaa4ap0,      0x1.002003e5a80e3p0,
    0x1.00201204555c8p0,      0x1.002629fd74484p0,     0x1.007ff5e6aae25p0,
    0x1.008000db2e8bep0,      0x1.00b0d7b252144p0,     0x1.00e000c7fa1c3p0,
    0x1.018dfa697553p0,       -0x1.05deacb86c0dbp0,    0x1.0b51de9e20b25p0,
    0x1.0b53197bd66c8p0,      0x1.0ffead33dce6fp0,     0x1.10e857d0cb59dp0,
    0x1.11642f2eab9edp0,      0x1.1211bef8f68e9p0,     0x1.20703c454bba3p0,
    -0x1.223fe3e7458a3p0,     0x1.23f40dccdef72p0,     0x1.3cf8ce875afeap0,
    0x1.3ff2d63705b29p0,      0x1.3ff86013cf2bap0,     0x1.43cf16358c9d7p0,
    0x1.48ae5a67204f5p0,      0x1.502b6c6156f9fp0,     -0x1.502bf5ad80729p0,
    0x1.5182d8799b84bp0,      0x1.527f4fb0d9331p0,     0x1.531fe30327333p0,
    0x1.55130bc4f0bddp0,      0x1.553e1cb579ee9p0,     0x1.55535a0140a21p0,
    0x1.67eaf07ce24d1p0,      0x1.68d778f076021p0,     -0x1.7120161c92674p0,
    -0x1.99631ed67b43fp0,     0x1.9977bea4253f1p0,     0x1.addf3b9722265p0,
    0x1.ae78d360afa15p0,      0x1.bda830d0e2c74p0,     0x1.c513c569fe78ep0,
    0x1.ed991002dc978p0,      -0x1.ff1ecc8c7ea4fp0,    0x1.ff76fb3f476d5p0,
    0x1.00cf9f273d84p1,       -0x1.13ff259eb9ca8p1,    0x1.193bed4dff243p1,
    0x1.33d152e971b4p1,       -0x1.3a7fc9600f86cp1,    -0x1.5cd9d94d49a85p1,
    0x1.bba14dc3507ccp1,      0x1.bba28df12b2d7p1,     0x1.e7fb382169bc1p1,
    0x1.e7fb557543454p1,      -0x1.ea75575af6f09p1,    0x1.f5c5a6822a341p1,
    -0x1.f613ab0969f81p1,     0x1.fe81868fc47fep1,     0x1.00b4cd58903b2p2,
    -0x1.3f62c60e23b31p2,     -0x1.bffcbf76b86fp2,     0x1.e31b55306f22cp2,
    0x1.e639103a05997p2,      -0x1.f7898d5a756ddp2,    -0x1.fc4b534c8eccp2,
    0x1.1685973506319p3,      0x1.1fd8c752e39f5p3,     0x1.1ff76b878859ap3,
    -0x1.202e0f30fe00cp3,     0x1.5f09cad750ab1p3,     -0x1.aaf85537ea4c7p3,
    0x1.c673a473b3503p3,      -0x1.f5ec1ef4d1fb8p3,    -0x1.fe8c27141c94ap3,
    -0x1.07e4c92b5349dp4,     0x1.13114266f9764p4,     0x1.1ffff6b05a77fp4,
    -0x1.2b3088f4a6e98p4,     0x1.46cffdf330b13p4,     0x1.4f2b874135d27p4,
    0x1.78affead86a26p4,      0x1.78afff6f3044cp4,     0x1.78afff9d452cp4,
    0x1.a211877de55dbp4,      -0x1.a5eece87e8606p4,    0x1.a65d441ea6dcep4,
    0x1.a8cf81fa2a28fp4,      -0x1.f8b791cafcdefp4,    0x1.1feeccb9e4bf7p5,
    0x1.1ffb509f3db15p5,      0x1.2345d1e090529p5,     0x1.6c6cbc45dc8dep5,
    0x1.b97dbeb2777ccp5,      0x1.c96e28eb679f8p5,     0x1.da1838053b866p5,
    0x1.fce66609f7428p5,      -0x1.18209ecd19a8cp6,    -0x1.3e0001ad3bee3p6,
    0x1.8ad56f78d6f4ap6,      -0x1.a81d98fc58537p6,    0x1.be886d9c2324dp6,
    -0x1.14823229799c2p7,     0x1.2f29eb4e99fa2p7,     -0x1.535175475cc8dp7,
    -0x1.540b170c4e65ep7,     -0x1.67b5541c7d8b7p7,    -0x1.ab514bfc61c76p7,
    0x1.aff859518c846p7,      0x1.2e8f20cf3cbe7p8,     0x1.33f4082f47b74p8,
    0x1.3fab696843fbfp8,      0x1.48ff1782ca91dp8,     0x1.dcbfda0c7559ep8,
    0x1.2e566149bf5fdp9,      -0x1.317cd745dd37cp9,    -0x1.49f33ad2c1c58p9,
    -0x1.5a364e6b98134p9,     -0x1.628af341989dap9,    -0x1.6310ab92794a8p9,
    -0x1.633c654fee2bap9,     -0x1.633cae1335f26p9,    0x1.633cc2ae1c934p9,
    0x1.cb996c60f437ep9,      -0x1.ff1eb5acee46bp9,    -0x1.119471e9216cdp10,
    0x1.ae945054939c2p10,     -0x1.4d7c8b8320237p11,   -0x1.6842486cdd221p12,
    -0x1.b5825e79ac164p12,    0x1.293f72677a7e7p13,    0x1.72e90b4651593p15,
    0x1.fff781921b61fp15,     -0x1.780c9aeca907cp17,   0x1.49adfd996a81dp18,
    0x1.4d314589ddb04p18,     0x1.852e715836081p18,    0x1.93c05c9ed3cbcp18,
    0x1.a5a68e24971a3p20,     -0x1.34e729fd08086p21,   0x1.3f9605aaeb51bp21,
    -0x1.4ae182c1ab422p21,    0x1.4d84db080b9fdp21,    -0x1.842d8ec8f752fp21,
    -0x1.fd08517eeabf9p22,    0x1.fffffffffdb6p24,     0x1.fd4da4ef37075p29,
    0x1.55202aefde314p31,     0x1.b951f1572eba5p31,    -0x1.bab7afea4e624p62,
    0x1.7776c2343ba4ep101,    0x1.85fc0f04c0128p101,   -0x1.1f766f67555c1p104,
    0x1.678309fa50d58p110,    0x1.504cac51f1eafp131,   0x1.fffffffffef4ep199,
    -0x1.6deb37da81129p205,   -0x1.d19ebc5567dcdp311,  0x1.45f3066f80258p325,
    0x1.3eec5912ea7cdp331,    0x1.facf4856ce3c8p491,   -0x1.8bb5847d49973p845,
    0x1.45f3067a0f4b2p847,    0x1.6ac5b262ca1ffp849,   0x1.08087e9aad90bp887,
    0x1.f08b14e1c4d0fp890,    0x1.2b5fe88a9d8d5p903,   -0x1.0e16eb809a35dp944,
    -0x1.13a5ccd87c9bbp1008,  -0x1.a880417b7b119p1023, 0x1.f6d7518808571p1023,
};
const size_t hard_n_published = sizeof hard_published / sizeof *hard_published;

/* A number of 128 bits; processors of 32 bits have none in C. */
typedef struct u128 {
    uint64_t high, low;
} u128;

static u128 u128_left(u128 a, int n)
{
    if (n == 0) return a;
    return n < 64 ? (u128){ a.high << n | a.low >> (64 - n), a.low << n }
                  : (u128){ a.low << (n - 64), 0 };
}

static u128 u128_right(u128 a, int n)
{
    if (n == 0) return a;
    return n < 64 ? (u128){ a.high >> n, a.low >> n | a.high << (64 - n) }
                  : (u128){ 0, a.high >> (n - 64) };
}

static bool u128_less(u128 a, u128 b)
{
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

static u128 u128_minus(u128 a, u128 b)
{
    return (u128){ a.high - b.high - (a.low < b.low), a.low - b.low };
}

/* Divides a by b, which is not 0, bit by bit. Returns the quotient, or UINT64_MAX if it needs more
 * than 64 bits. */
static uint64_t u128_divide(u128 a, u128 b, u128 *rest)
{
    u128 left = { 0, 0 };
    uint64_t quotient = 0;
    bool is_long = false;
    for (int i = 127; i >= 0; i--) {
        const bool carry = left.high >> 63;
        left = u128_left(left, 1);
        left.low |= u128_right(a, i).low & 1;
        if (!carry && u128_less(left, b)) continue;
        left = u128_minus(left, b);
        if (i < 64)
            quotient |= (uint64_t)1 << i;
        else
            is_long = true;
    }
    *rest = left;
    return is_long ? UINT64_MAX : quotient;
}

/* 2 / pi = 0.a2f9... (hexadecimal) */
static const uint64_t two_over_pi[20] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d
};

/* The first 128 bits of the fraction of 2^e 2 / pi, e >= -52. */
static u128 fraction_of(int e)
{
    if (e < 0) return u128_right((u128){ two_over_pi[0], two_over_pi[1] }, -e);
    const int word = e / 64, bit = e % 64;
    u128 top = u128_left((u128){ two_over_pi[word], two_over_pi[word + 1] }, bit);
    if (bit) top.low |= two_over_pi[word + 2] >> (64 - bit);
    return top;
}

/* A denominator q of a convergent, and how far q times the number is from a whole one, in 2^-128.
 */
typedef struct convergent {
    uint64_t q;
    u128 rest;
} convergent;

size_t hard_near_half_pi(int exponent, double out[HARD_PER_EXPONENT])
{
    const uint64_t least = (uint64_t)1 << 52, end = (uint64_t)1 << 53;
    const u128 f = fraction_of(exponent - 52);
    u128 rest; /* here.rest = 2^128 - quotient f, which the rest of 2^128 - 1 lacks 1 to */
    uint64_t quotient = u128_divide((u128){ UINT64_MAX, UINT64_MAX }, f, &rest);
    if (++rest.low == 0) rest.high++;
    convergent last = { 1, f }, here = { quotient, rest };
    if (quotient >= end) here = last;
    while (here.q != last.q && (here.rest.high || here.rest.low)) {
        quotient = u128_divide(last.rest, here.rest, &rest);
        if (quotient > (end - 1 - last.q) / here.q) break;
        const convergent next = { quotient * here.q + last.q, rest };
        last = here;
        here = next;
    }
    const uint64_t times = (least + here.q - 1) / here.q;
    const uint64_t m[HARD_PER_EXPONENT] = { times * here.q, (times + 1) * here.q,
                                            last.q + (end - 1 - last.q) / here.q * here.q,
                                            (least + last.q - 1) / last.q * last.q };
    size_t n = 0;
    for (int i = 0; i < HARD_PER_EXPONENT; i++)
        if (m[i] >= least && m[i] < end) out[n++] = ldexp((double)m[i], exponent - 52);
    return n;
}
