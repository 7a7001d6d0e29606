/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: recurrent layers, attention, decoding.
 */
#include "table.h"

/* ---- recurrent layers ----
 *
 * Inputs: the sequence [time, batch, in], the weights of the inputs and of the states as PyTorch
 * has them, [gates, in] and [gates, hidden], and one bias for each. The output is the sequence of
 * states. The products with the inputs are made for all of the time at once.
 */

enum { SEQUENCE, OF_INPUT, OF_STATE, BIAS_OF_INPUT, BIAS_OF_STATE };

/* Gate i of a row of gates. */
static deft_tensor *gate(deft_tensor *gates, int i, int64_t hidden)
{
    return deft_slice(gates, DEFT_FULL, DEFT_R(i * hidden, (i + 1) * hidden));
}

/* in: h, c and the products of this time's inputs. */
static deft_status lstm_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    const table_call *const c = user;
    const int64_t hidden = c->n[3];
    deft_tensor *const gates = deft_add(in[2], deft_matmul(in[0], deft_t(c->in[OF_STATE])));
    deft_tensor *const keep = deft_mul(deft_sigmoid(gate(gates, 1, hidden)), in[1]);
    deft_tensor *const add =
        deft_mul(deft_sigmoid(gate(gates, 0, hidden)), deft_tanh(gate(gates, 2, hidden)));
    out[1] = deft_add(keep, add);
    out[0] = deft_mul(deft_sigmoid(gate(gates, 3, hidden)), deft_tanh(out[1]));
    out[2] = out[0];
    return (void)cx, (void)n_in, (void)n_out, DEFT_OK;
}

static deft_tensor *of_inputs(const table_call *c)
{
    return deft_add(deft_matmul(c->in[SEQUENCE], deft_t(c->in[OF_INPUT])), c->in[BIAS_OF_INPUT]);
}

static void lstm(const table_call *c)
{
    deft_tensor *const zero = deft_zeros(c->cx, DEFT_SHAPE(c->n[1], c->n[3]), DEFT_F32);
    deft_tensor *rows = deft_add(of_inputs(c), c->in[BIAS_OF_STATE]), *out[3] = { NULL };
    deft_scan(c->cx, lstm_body, (void *)c, (deft_tensor *[]){ zero, zero }, 2, &rows, 1, c->n[0], 1,
              out);
    c->out[0] = out[2];
}

/* in: h and the products of this time's inputs. */
static deft_status gru_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const table_call *const c = user;
    const int64_t hidden = c->n[3];
    deft_tensor *const h = in[0], *const x = in[1];
    deft_tensor *const s = deft_add(deft_matmul(h, deft_t(c->in[OF_STATE])), c->in[BIAS_OF_STATE]);
    deft_tensor *const reset = deft_sigmoid(deft_add(gate(x, 0, hidden), gate(s, 0, hidden)));
    deft_tensor *const keep = deft_sigmoid(deft_add(gate(x, 1, hidden), gate(s, 1, hidden)));
    deft_tensor *const fresh =
        deft_tanh(deft_add(gate(x, 2, hidden), deft_mul(reset, gate(s, 2, hidden))));
    out[0] = deft_add(fresh, deft_mul(keep, deft_sub(h, fresh)));
    out[1] = out[0];
    return (void)cx, (void)n_in, (void)n_out, DEFT_OK;
}

static void gru(const table_call *c)
{
    deft_tensor *zero = deft_zeros(c->cx, DEFT_SHAPE(c->n[1], c->n[3]), DEFT_F32);
    deft_tensor *rows = of_inputs(c), *out[2] = { NULL };
    deft_scan(c->cx, gru_body, (void *)c, &zero, 1, &rows, 1, c->n[0], 1, out);
    c->out[0] = out[1];
}

/* ---- attention ---- */

static void prefill(const table_call *c)
{
    c->out[0] = deft_attention(c->in[0], c->in[1], c->in[2], DEFT_ATTENTION(.is_causal = true));
}

static void one_query(const table_call *c)
{
    c->out[0] = deft_attention(c->in[0], c->in[1], c->in[2], NULL);
}

/* Heads of queries [batch, groups, heads of a group, time, width] share the keys of their group. */
static void grouped(const table_call *c)
{
    deft_tensor *const k = deft_unsqueeze(c->in[1], 2), *const v = deft_unsqueeze(c->in[2], 2);
    c->out[0] = deft_attention(c->in[0], k, v, DEFT_ATTENTION(.is_causal = true));
}

static void attention_train(const table_call *c)
{
    deft_tensor *const y =
        deft_attention(c->in[0], c->in[1], c->in[2], DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const loss = deft_sum(deft_mul(y, c->in[3]), DEFT_ALL_AXES, 0);
    c->out[0] = loss;
    deft_grad(&loss, NULL, 1, c->in, 3, NULL, c->out + 1);
}

/* Rotary embedding (Su et al. 2021): the halves of each row are the parts of complex numbers. */
static void rotary(const table_call *c)
{
    const int64_t half = c->n[3];
    deft_tensor *const re = deft_slice(c->in[0], DEFT_FULL, DEFT_FULL, DEFT_FULL, DEFT_R(0, half));
    deft_tensor *const im =
        deft_slice(c->in[0], DEFT_FULL, DEFT_FULL, DEFT_FULL, DEFT_R(half, 2 * half));
    deft_tensor *const cosine = deft_cos(c->in[1]), *const sine = deft_sin(c->in[1]);
    deft_tensor *const parts[] = { deft_sub(deft_mul(re, cosine), deft_mul(im, sine)),
                                   deft_add(deft_mul(re, sine), deft_mul(im, cosine)) };
    c->out[0] = deft_concat(parts, 2, 3);
}

/* ---- decoding ----
 *
 * One token goes through a transformer block: its key and value are written into the caches
 * [heads, time, width of a head], which are states, at the last place.
 */

enum { KEYS, VALUES, TOKEN, QKV, OUT, UP, DOWN };

static deft_tensor *normed(const table_call *c, deft_tensor *x)
{
    (void)c;
    return deft_layer_norm(x, 1, NULL, NULL, 1e-5);
}

static void decode(const table_call *c)
{
    const int64_t heads = c->n[0], time = c->n[1], width = c->n[2], all = c->n[3];
    deft_tensor *x = c->in[TOKEN], *part[3];
    deft_tensor *const qkv = deft_matmul(normed(c, x), deft_t(c->in[QKV]));
    for (int i = 0; i < 3; i++)
        part[i] = deft_reshape(deft_slice(qkv, DEFT_FULL, DEFT_R(i * all, (i + 1) * all)),
                               DEFT_SHAPE(heads, 1, width));
    for (int i = 0; i < 2; i++)
        deft_assign(deft_slice(c->in[KEYS + i], DEFT_FULL, DEFT_R(time - 1, time)), part[1 + i]);
    deft_tensor *const y = deft_attention(part[0], c->in[KEYS], c->in[VALUES], NULL);
    x = deft_add(x, deft_matmul(deft_reshape(y, DEFT_SHAPE(1, all)), deft_t(c->in[OUT])));
    deft_tensor *const up = deft_gelu(deft_matmul(normed(c, x), deft_t(c->in[UP])));
    c->out[0] = deft_add(x, deft_matmul(up, deft_t(c->in[DOWN])));
}

#define LSTM_INPUTS "f32 abc; f32 ec *c; f32 ed *d; f32 e; f32 e"
#define LSTM(batch, gates)                                                                         \
    {                                                                                              \
        { 64, batch, 128, 256, gates * 256 }, { 50, batch, 200, 200, gates * 200 },                \
        {                                                                                          \
            100, batch, 64, 128, gates * 128                                                       \
        }                                                                                          \
    }
#define HEADS                                                                                      \
    {                                                                                              \
        { 1, 8, 512, 64 }, { 2, 6, 384, 64 },                                                      \
        {                                                                                          \
            1, 12, 500, 48                                                                         \
        }                                                                                          \
    }

const table_row table_sequences[] = {
    { "recurrent/lstm", LSTM_INPUTS, 1, 1e-4, 0, lstm, LSTM(32, 4) },
    { "recurrent/lstm_batch_1", LSTM_INPUTS, 1, 1e-4, 0, lstm, LSTM(1, 4) },
    { "recurrent/gru", LSTM_INPUTS, 1, 1e-4, 0, gru, LSTM(32, 3) },
    { "recurrent/gru_batch_1", LSTM_INPUTS, 1, 1e-4, 0, gru, LSTM(1, 3) },

    { "attention/prefill", "f32 abcd; f32 abcd; f32 abcd", 1, 1e-5, 0, prefill, HEADS },
    { "attention/one_query",
      "f32 ab1d; f32 abcd; f32 abcd",
      1,
      1e-5,
      TABLE_MEMORY,
      one_query,
      { { 1, 16, 4096, 64 }, { 2, 8, 3000, 64 }, { 1, 12, 2048, 128 } } },
    { "attention/grouped",
      "f32 abecd; f32 abcd; f32 abcd",
      1,
      1e-5,
      0,
      grouped,
      { { 1, 2, 512, 64, 4 }, { 2, 2, 384, 64, 3 }, { 1, 4, 500, 48, 2 } } },
    { "attention/train",
      "f32 abcd; f32 abcd; f32 abcd; f32 abcd",
      4,
      1e-4,
      0,
      attention_train,
      { { 2, 4, 256, 64 }, { 1, 8, 300, 32 }, { 4, 4, 128, 64 } } },
    { "attention/rotary",
      "f32 abce; f32 cd",
      1,
      1e-5,
      0,
      rotary,
      { { 4, 8, 512, 32, 64 }, { 2, 12, 384, 40, 80 }, { 8, 4, 300, 64, 128 } } },
    { "decoding/block",
      "f32 abc !; f32 abc !; f32 1d; f32 ed *d; f32 dd *d; f32 fd *d; f32 df *f",
      1,
      1e-4,
      TABLE_MEMORY | TABLE_PARTLY,
      decode,
      { { 12, 512, 64, 768, 2304, 3072 },
        { 8, 1024, 64, 512, 1536, 2048 },
        { 16, 300, 64, 1024, 3072, 4096 } } },
    { 0 },
};
