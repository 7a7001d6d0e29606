/* SPDX-License-Identifier: Apache-2.0
 *
 * erfinv, and the modified Bessel functions i0, i0e, i1, i1e.
 *
 * All compute in f64, for f32 operands too, and round once at the end. tools/fit_special derives
 * the tables. The comment of a table gives its interval, its variable, and its greatest relative
 * error.
 *
 * Let w = -log(1 - x^2) = -log((1 - x) (1 + x)); 1 - x is exact where w is large. Below w = 6.25,
 * erfinv x is x times a polynomial in w. Above, it is x sqrt(w) times a polynomial in sqrt(w).
 *
 * With a = |x|: i0 and i1 / x are polynomials in x^2 with positive coefficients up to 8. Above,
 * exp(-a) sqrt(a) times the function is a polynomial in 1 / a. exp(a / 2) is multiplied twice,
 * because exp(a) overflows before the result does.
 */
#include "ops/recipe_parts.h"

#include <math.h>

#define FAR 8

/* erfinv(x) / x, in w, on [0.0, 6.25], powers of x - 3.125: 2^-54.0 */
static const double erfinv_near[] = {
    0x1.a755e7c99ae86p0,    0x1.ebd80d9b13df9p-3,   -0x1.8b6c33114eeaep-8,  -0x1.84576948353e1p-11,
    0x1.879c2a20da432p-13,  -0x1.d1d1f7ca4030fp-17, -0x1.6e8a53f106129p-20, 0x1.c6b4f890935ddp-22,
    -0x1.f36ce4ae847fdp-26, -0x1.1a9eb1bc8f0fp-28,  0x1.20f4e6bf074cfp-30,  -0x1.dc3ee8b6c53ccp-35,
    -0x1.c89564c5d1004p-37, 0x1.723527b7cff86p-39,  -0x1.6d9ec5e3ec6afp-44, -0x1.686642b67610ap-45,
    0x1.db523eb040288p-48,  -0x1.73898c37dc54ap-55, -0x1.2c266176e7096p-53, 0x1.1f4ba5de5dc3fp-56,
    0x1.536d397f9b9b1p-60,  -0x1.9d290dd3bcb7p-62,  -0x1.5087a244b0f6cp-70, 0x1.e9b8ae7230c25p-69,
};

/* erfinv(x) / (x sqrt(w)), in sqrt(w), on [2.5, 6.125], powers of x - 4.3125: 2^-54.1 */
static const double erfinv_far[] = {
    0x1.ed57a6c0110d2p-1,   0x1.615536788d2f4p-7,   -0x1.356241188f9dep-9,  0x1.b66e84041209dp-12,
    -0x1.b56959b0742fdp-15, -0x1.2a925149a561dp-20, 0x1.2adad462afc68p-18,  -0x1.7a62893b657bdp-19,
    0x1.b796778f0eadbp-20,  -0x1.f4cedd6d9c36fp-21, 0x1.04b53127bde2ap-21,  -0x1.cce0e28150051p-23,
    0x1.3e1c4581f5828p-24,  -0x1.15bea66158b8ep-26, -0x1.68fe7b1b82fd4p-31, 0x1.5e2c49031b658p-29,
    -0x1.637e1b0c1bd0dp-30, 0x1.8461eb8834bbap-32,  -0x1.6f1336e5df88bp-36, -0x1.095621f1e5aafp-35,
    0x1.0c67af71a1448p-36,  -0x1.d5d560db52e69p-39, 0x1.8c13da67815fbp-43,  0x1.9602431d95cafp-44,
    -0x1.2fb0054b6ae99p-44, 0x1.633b04cee677cp-45,  -0x1.3dad51f2bfcd9p-47, -0x1.78b30bdb8bbe9p-50,
    0x1.f5671e02cec47p-51,  -0x1.de44b1feffeadp-54,
};

/* i0(x), in x^2, on [0.0, 64.0], powers of x: 2^-55.0 */
static const double i0_near[] = {
    0x1p0,
    0x1p-2,
    0x1p-6,
    0x1.c71c71c71c71cp-12,
    0x1.c71c71c71c71cp-18,
    0x1.23456789abcdfp-24,
    0x1.02e85c0898b71p-31,
    0x1.522a43f65486ap-39,
    0x1.522a43f654869p-47,
    0x1.0b313289be0c6p-55,
    0x1.5601885e63c99p-64,
    0x1.69ca9cf3bae32p-73,
    0x1.4197a7f4d7cc2p-82,
    0x1.e7255956ea156p-92,
    0x1.3e22d6a46927fp-101,
    0x1.69f7e34c124bfp-111,
    0x1.69f748b6e3146p-121,
    0x1.40aa356c095a6p-131,
    0x1.fa1f3a3d84028p-142,
    0x1.6b56844174d9dp-152,
    0x1.a467721c8c19cp-163,
    0x1.7f7f5aa11e32p-173,
};

/* i0(x) exp(-x) sqrt(x), in 1 / x, on [0.0, 0.125], powers of x - 0.0625: 2^-53.8 */
static const double i0_far[] = {
    0x1.9bd428ad249a5p-2,  0x1.b87969bb93bcbp-5, 0x1.1daa72b5ccfadp-5,  0x1.75e5ee702e57ap-5,
    0x1.8e513c6a21829p-4,  0x1.3f49ac32e14bfp-2, 0x1.7d0cd4fd1f2b8p0,   0x1.51ccdc47b6c77p3,
    0x1.7288379f891f7p6,   0x1.03bcdeab408e2p9,  -0x1.d72c8d3f0b6bcp12, -0x1.cd5da3da6b614p17,
    -0x1.58ce729fc478ap20, 0x1.05248ba2f26ap25,  0x1.c034e59a2db9bp28,  -0x1.ece52144ada18p31,
    -0x1.3756a636aa04fp36, 0x1.ba2352eb42f2p38,  0x1.295fc465ff477p43,  -0x1.5be16a36a0dap45,
    -0x1.650b3e7f898bp49,  0x1.852f5d42d1ca3p51, 0x1.90df137cc1a36p54,  -0x1.ada2c97f3fdddp56,
};

/* 2 i1(x) / x, in x^2, on [0.0, 64.0], powers of x: 2^-54.9 */
static const double i1_near[] = {
    0x1p0,
    0x1p-3,
    0x1.5555555555555p-8,
    0x1.c71c71c71c71cp-14,
    0x1.6c16c16c16c17p-20,
    0x1.845c8a0ce5129p-27,
    0x1.27e4fb7789f5cp-34,
    0x1.522a43f65486ap-42,
    0x1.2c9758daf5ccfp-50,
    0x1.ab81ea75fcdfdp-59,
    0x1.f17697cf1cdddp-68,
    0x1.e2637befa1f46p-77,
    0x1.8bce588feffdep-86,
    0x1.165e7c2fd5fcp-95,
    0x1.53585c9396f1ep-105,
    0x1.69f7e08c4e4e3p-115,
    0x1.54aca5bd14432p-125,
    0x1.1d0797900477fp-135,
    0x1.aa4b80fefa695p-146,
    0x1.223814d5ded98p-156,
    0x1.43334223c2b91p-167,
    0x1.1298ca0f19af4p-177,
};

/* i1(x) exp(-x) sqrt(x), in 1 / x, on [0.0, 0.125], powers of x - 0.0625: 2^-53.7 */
static const double i1_far[] = {
    0x1.8ebe783a8403p-2,   -0x1.3f796198ee63dp-3, -0x1.cbc54df1d28edp-5, -0x1.f89c2304c35d3p-5,
    -0x1.ec8e127b73a3fp-4, -0x1.761383996deap-2,  -0x1.ad8afba84040bp0,  -0x1.727891f52aef6p3,
    -0x1.91e870dc073a7p6,  -0x1.21ba2485afab4p9,  0x1.d68fdf13b4f0fp12,  0x1.e2d0791db759ap17,
    0x1.7ee7fbfb39f9p20,   -0x1.0821c71098c2bp25, -0x1.dd37812c1dd72p28, 0x1.e14768d6db225p31,
    0x1.475d4e2f2acfep36,  -0x1.a250a944e85b4p38, -0x1.36f288e187d2ep43, 0x1.42be4263f9ec5p45,
    0x1.7455f3bd09231p49,  -0x1.6612a100e112cp51, -0x1.a1752f6235857p54, 0x1.8a72ab2fc6959p56,
};

#define TABLE(f, x, name) r_poly(f, x, name, DF_LEN(name))

static rid erfinv_f64(rb f, rid x)
{
    const rid one = r_k(f, 1), a = r_abs(f, x);
    const rid w = r_neg(f, df_recipe_log(f.e, f.t, r_mul(f, r_sub(f, one, a), r_add(f, one, a))));
    const rid near = TABLE(f, r_sub(f, w, r_k(f, 3.125)), erfinv_near);
    const rid s = r_sqrt(f, w);
    const rid far = r_mul(f, s, TABLE(f, r_sub(f, s, r_k(f, 4.3125)), erfinv_far));
    const rid y = r_mul(f, a, r_select(f, r_lt(f, w, r_k(f, 6.25)), near, far));
    const rid ended = r_select(f, r_eq(f, a, one), r_k(f, INFINITY), y);
    return r_with_sign(f, r_abs(f, ended), x);
}

/* A Bessel function of x, or exp(-|x|) times it where `scaled` is true. */
typedef struct bessel {
    const double *near, *far;
    size_t n_near, n_far;
    bool is_odd, scaled;
} bessel;

static rid bessel_f64(rb f, rid x, const bessel *b)
{
    const rid a = r_abs(f, x), edge = r_k(f, FAR), half = r_k(f, 0.5);
    const rid small = r_min(f, edge, a), large = r_max(f, edge, a);
    rid near = r_poly(f, r_mul(f, small, small), b->near, b->n_near);
    if (b->is_odd) near = r_mul(f, near, r_mul(f, small, half));
    const rid u = r_sub(f, r_div(f, r_k(f, 1), large), r_k(f, 0.0625));
    rid far = r_div(f, r_poly(f, u, b->far, b->n_far), r_sqrt(f, large));
    if (b->scaled) {
        near = r_mul(f, near, df_recipe_exp(f.e, f.t, r_neg(f, small)));
    } else {
        const rid root = df_recipe_exp(f.e, f.t, r_mul(f, large, half));
        far = r_mul(f, r_mul(f, far, root), root);
        far = r_select(f, r_eq(f, a, r_k(f, INFINITY)), a, far);
    }
    const rid y = r_select(f, r_lt(f, edge, a), far, near);
    const rid any = r_select(f, r_ne(f, x, x), x, y);
    return b->is_odd ? r_with_sign(f, r_abs(f, any), x) : any;
}

uint32_t df_recipe_erfinv(df_emit *e, deft_dtype t, uint32_t x)
{
    R_IN_F64(e, t, x, erfinv_f64(d, wide));
}

#define BESSEL(name, n, odd, is_scaled)                                                            \
    uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x)                                \
    {                                                                                              \
        static const bessel b = { i##n##_near,        i##n##_far, DF_LEN(i##n##_near),             \
                                  DF_LEN(i##n##_far), odd,        is_scaled };                     \
        R_IN_F64(e, t, x, bessel_f64(d, wide, &b));                                                \
    }
BESSEL(i0, 0, false, false)
BESSEL(i0e, 0, false, true)
BESSEL(i1, 1, true, false)
BESSEL(i1e, 1, true, true)
