/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharpens a picture of bytes, straight from and into the caller's memory.
 *
 *   image [WIDTH HEIGHT [BEFORE.ppm AFTER.ppm]]
 *
 * Rows are padded, as in most image libraries: the filter sees them through strides and leaves the
 * padding alone. The result is compared, byte for byte, with plain C.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"

#include "image_data.h"
#include "ppm.h"
#include "ref/image_ref.h"

static const float AMOUNT = 1.5f;

static deft_tensor *rows(deft_tensor *x, int64_t a, int64_t b)
{
    return deft_slice(x, DEFT_R(a, b));
}

static deft_tensor *columns(deft_tensor *x, int64_t a, int64_t b)
{
    return deft_slice(x, DEFT_FULL, DEFT_R(a, b));
}

/* dst = src + (src - blurred src) * amount, for height rows of width RGB pixels. */
static deft_status sharpen(deft_ctx *cx, uint8_t *dst, int64_t dst_pitch, const uint8_t *src,
                           int64_t src_pitch, int64_t width, int64_t height, float amount)
{
    const int64_t src_strides[] = { src_pitch, 3, 1 }, dst_strides[] = { dst_pitch, 3, 1 };
    const int64_t edge[] = { 1, 1, 0 };
    const deft_shape shape = DEFT_SHAPE(height, width, 3);
    const deft_scope s = deft_step_begin(cx);
    deft_tensor *const in =
        deft_wrap(cx, shape, DEFT_U8, src, (size_t)(src_pitch * height), src_strides);
    deft_tensor *const out =
        deft_wrap_mut(cx, shape, DEFT_U8, dst, (size_t)(dst_pitch * height), dst_strides);

    deft_tensor *const p = deft_div(deft_cast(in, DEFT_F32), 255);
    deft_tensor *const wide = deft_pad(p, edge, edge, DEFT_PAD_EDGE, 0);
    deft_tensor *const h = deft_add(deft_add(columns(wide, 0, -2), columns(wide, 2, DEFT_END)),
                                    deft_mul(columns(wide, 1, -1), 2));
    deft_tensor *const blur = deft_div(
        deft_add(deft_add(rows(h, 0, -2), rows(h, 2, DEFT_END)), deft_mul(rows(h, 1, -1), 2)), 16);
    deft_tensor *const sharp = deft_add(p, deft_mul(deft_sub(p, blur), amount));
    deft_assign(out, deft_cast(deft_round(deft_clamp(deft_mul(sharp, 255), 0, 255)), DEFT_U8));
    return deft_step_end(s); /* dst is written when this is DEFT_OK */
}

int main(int argc, char **argv)
{
    const int width = argc > 2 ? atoi(argv[1]) : 640, height = argc > 2 ? atoi(argv[2]) : 480;
    const char *const before = argc > 4 ? argv[3] : NULL, *const after = argc > 4 ? argv[4] : NULL;
    int exit_code = 1;
    size_t src_pitch = 0, dst_pitch = 0, src_size = 0, dst_size = 0;
    deft_ctx *cx = NULL;
    uint8_t *src = NULL, *dst = NULL, *ref = NULL;
    if (width < 1 || height < 1 || width > 30000 || height > 30000) {
        fprintf(stderr, "usage: image [WIDTH HEIGHT [BEFORE.ppm AFTER.ppm]]\n");
        return 2;
    }
    src_pitch = ((size_t)width * 3 + 63) / 64 * 64;
    dst_pitch = (size_t)width * 3 + 5;
    src_size = src_pitch * (size_t)height;
    dst_size = dst_pitch * (size_t)height;
    src = (uint8_t *)calloc(src_size, 1);
    dst = (uint8_t *)malloc(dst_size);
    ref = (uint8_t *)malloc(dst_size);
    if (!src || !dst || !ref || deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "image: no context, or out of memory\n");
        goto done;
    }
    image_data_fill(src, width, height, src_pitch);
    memset(dst, 0xa5, dst_size); /* the padding must come out as it went in */
    memset(ref, 0xa5, dst_size);
    if (sharpen(cx, dst, (int64_t)dst_pitch, src, (int64_t)src_pitch, width, height, AMOUNT) !=
        DEFT_OK) {
        fprintf(stderr, "image: %s\n", deft_message(cx));
        goto done;
    }
    if (before && (!ppm_write_rgb(before, src, width, height, src_pitch) ||
                   !ppm_write_rgb(after, dst, width, height, dst_pitch))) {
        fprintf(stderr, "image: cannot write %s or %s\n", before, after);
        goto done;
    }
    image_ref(ref, dst_pitch, src, src_pitch, width, height, AMOUNT);
    if (memcmp(dst, ref, dst_size) != 0) {
        fprintf(stderr, "image: differs from plain C\n");
        goto done;
    }
    printf("%d x %d sharpened: equal to plain C, byte for byte\n", width, height);
    exit_code = 0;
done:
    deft_ctx_destroy(&cx);
    free(src);
    free(dst);
    free(ref);
    return exit_code;
}
