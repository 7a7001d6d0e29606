/* SPDX-License-Identifier: Apache-2.0
 *
 * See learning.h.
 */
#include "learning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(FILE *out, const char *program, const learning_options *o)
{
    const char *const slash = strrchr(program, '/');
    fprintf(out,
            "usage: %s [--epochs N] [--data FILE] [--checkpoint FILE]\n"
            "  --epochs N         passes over the training set, 2 to 100000 (%lld)\n"
            "  --data FILE        the digits, in the format of examples/data/README.md (%s)\n"
            "  --checkpoint FILE  keeps the checkpoint that is written half way (safetensors)\n",
            slash ? slash + 1 : program, (long long)o->n_epochs, o->data);
}

static bool parse(int argc, char **argv, learning_options *o)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        if (!strcmp(argv[i], "--epochs")) {
            o->n_epochs = atoi(argv[i + 1]);
        } else if (!strcmp(argv[i], "--data")) {
            o->data = argv[i + 1];
        } else if (!strcmp(argv[i], "--checkpoint")) {
            o->checkpoint = argv[i + 1];
            o->keep = true;
        } else {
            return false;
        }
    }
    return o->n_epochs >= 2 && o->n_epochs <= 100000;
}

bool learning_parse(int argc, char **argv, learning_options *o, int *exit_code)
{
    const learning_options defaults = *o;
    const bool asks_for_help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (!asks_for_help && parse(argc, argv, o)) return true;
    print_usage(asks_for_help ? stdout : stderr, argv[0], &defaults);
    *exit_code = asks_for_help ? 0 : 2;
    return false;
}

void learning_shuffle(int64_t epoch, int32_t *order, uint32_t n)
{
    uint64_t state = (uint64_t)epoch + 1;
    for (uint32_t i = 0; i < n; i++) order[i] = (int32_t)i;
    for (uint32_t i = n; i-- > 1;) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        const uint32_t k = (uint32_t)((state >> 33) % (i + 1));
        const int32_t t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

/* ---- checkpoints ---- */

typedef struct listing {
    char name[3 * LEARNING_MOST + 1][16];
    deft_named item[3 * LEARNING_MOST + 1];
    size_t n;
} listing;

/* Parameters and moments as w1, w1.m, w1.v, b1, ..., then how far training has come. */
static void list(const learned *l, deft_tensor *progress, listing *out)
{
    static const char *const of_what[] = { "", ".m", ".v" };
    out->n = 0;
    for (int i = 0; i < l->n_params; i++) {
        deft_tensor *const of[] = { l->p[i], l->m[i], l->v[i] };
        for (int k = 0; k < 3; k++) {
            char *const name = out->name[out->n];
            snprintf(name, sizeof out->name[0], "%c%d%s", i % 2 ? 'b' : 'w', i / 2 + 1, of_what[k]);
            out->item[out->n++] = (deft_named){ name, of[k] };
        }
    }
    out->item[out->n++] = (deft_named){ "progress", progress };
}

deft_status learning_save(deft_ctx *cx, const char *path, const learned *l)
{
    listing all;
    const int64_t done[] = { l->n_steps, l->n_epochs };
    const deft_scope scope = deft_scope_begin(cx);
    list(l, deft_from(cx, DEFT_SHAPE(2), DEFT_I64, done, sizeof done), &all);
    const deft_status st = deft_save(cx, path, all.item, all.n);
    const deft_status end = deft_scope_end(scope);
    return st != DEFT_OK ? st : end;
}

deft_status learning_resume(deft_ctx *cx, const char *path, learned *l)
{
    listing all;
    int64_t done[2] = { 0 };
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *const progress = deft_zeros(cx, DEFT_SHAPE(2), DEFT_I64);
    list(l, progress, &all);
    deft_status st = deft_load(cx, path, all.item, all.n);
    if (st == DEFT_OK) st = deft_read(progress, DEFT_I64, done, sizeof done);
    const deft_status end = deft_scope_end(scope);
    l->n_steps = done[0];
    l->n_epochs = done[1];
    return st != DEFT_OK ? st : end;
}

deft_status learning_equal(const learned *a, const learned *b, bool *equal)
{
    *equal = true;
    for (int i = 0; i < a->n_params; i++) {
        deft_mapped ma, mb = { 0 };
        deft_status st = deft_map(a->p[i], &ma);
        if (st == DEFT_OK) st = deft_map(b->p[i], &mb);
        if (st == DEFT_OK)
            *equal = *equal && ma.bytes == mb.bytes && memcmp(ma.data, mb.data, ma.bytes) == 0;
        deft_unmap(&ma);
        deft_unmap(&mb);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}
