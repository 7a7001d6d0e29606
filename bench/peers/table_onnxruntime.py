# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime in the table of peers, in rows that are inference: each is a graph of operators, whose weights are constants, so
that they are packed once."""
import math

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import table_peer

ROWS = table_peer.Rows()
row = ROWS.row
OPSET = 20


class Graph:
    """A graph that is being written: op adds an operator and returns the name of its result."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def op(self, kind, *inputs, results=1, **attributes):
        names = [f"{kind}{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if results == 1 else names

    def constant(self, value, dtype=np.float32):
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)


class OnnxRuntime(table_peer.Peer):
    rows = ROWS
    version = onnxruntime.__version__

    def __init__(self, threads):
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.log_severity_level = 3

    def tensor(self, array, is_index):
        return array

    def numpy(self, array):
        return array

    def build(self):
        graph, values, constants = Graph(), [], self.row.options.get("weights", ())
        names = [f"input{i}" for i in range(len(self.inputs))]
        outputs = self.row.function(graph, self.sizes, *names)
        outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        for i, (name, array) in enumerate(zip(names, self.inputs)):
            if i in constants:
                graph.constants.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                values.append(helper.make_tensor_value_info(name, kind, array.shape))
        kinds = self.row.options.get("results", [TensorProto.FLOAT] * len(outputs))
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds)]
        model = helper.make_model(helper.make_graph(graph.nodes, "row", values, results, graph.constants),
                                  opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        session = onnxruntime.InferenceSession(model.SerializeToString(), self.options,
                                               providers=["CPUExecutionProvider"])
        feed = {v.name: self.inputs[names.index(v.name)] for v in values}
        return lambda *inputs: session.run(None, feed)


# ---- elementwise, reductions, movement ----


@row("elementwise/chain", "elementwise/chain_small")
def chain(g, n, x, y):
    root = g.op("Sqrt", g.op("Add", g.op("Mul", x, x), g.op("Mul", y, y)))
    return g.op("Add", g.op("Mul", root, g.op("Exp", g.op("Neg", x))), g.op("Mul", y, g.op("Tanh", x)))


@row("elementwise/gelu")
def gelu(g, n, x):
    return g.op("Gelu", x)


@row("elementwise/axpy")
def axpy(g, n, x, y):
    s = g.op("Mul", g.op("Add", g.op("Mul", x, g.constant(2)), y), y)
    return g.op("Sub", s, g.op("Mul", x, g.constant(0.5)))


@row("reductions/sum_rows")
def sum_rows(g, n, x):
    return g.op("ReduceSum", x, g.ints(1), keepdims=0)


@row("reductions/sum_columns")
def sum_columns(g, n, x):
    return g.op("ReduceSum", x, g.ints(0), keepdims=0)


@row("reductions/softmax")
def softmax(g, n, x):
    return g.op("Softmax", x, axis=1)


@row("reductions/log_sum_exp")
def log_sum_exp(g, n, x):
    return g.op("ReduceLogSumExp", x, g.ints(1), keepdims=0)


@row("reductions/argmax_rows", results=[TensorProto.INT64])
def argmax_rows(g, n, x):
    return g.op("ArgMax", x, axis=1, keepdims=0)


@row("reductions/cumsum_rows")
def cumsum_rows(g, n, x):
    return g.op("CumSum", x, g.constant(1, np.int64))


@row("reductions/cumsum_columns")
def cumsum_columns(g, n, x):
    return g.op("CumSum", x, g.constant(0, np.int64))


@row("integers/top_k", results=[TensorProto.FLOAT, TensorProto.INT64])
def top_k(g, n, x):
    return g.op("TopK", x, g.ints(n[2]), axis=1, results=2)


@row("movement/take_rows")
def take_rows(g, n, x, i):
    return g.op("Gather", x, i)


@row("movement/gather")
def gather(g, n, x, i):
    return g.op("GatherElements", x, i, axis=1)


@row("movement/concat")
def concat(g, n, x, y, z):
    return g.op("Concat", x, y, z, axis=1)


@row("movement/pad")
def pad(g, n, x):
    return g.op("Pad", x, g.ints(0, 0, 2, 2, 0, 0, 2, 2))


@row("movement/transposed_add")
def transposed_add(g, n, x, y):
    return g.op("Add", g.op("Transpose", x, perm=[1, 0]), y)


# ---- products and layers ----

THIN = [f"products/thin_{rows}" for rows in (1, 4, 8, 64)]


@row("products/square", "products/batched", *THIN, weights=(1,))
def product(g, n, x, w):
    return g.op("MatMul", x, w)


@row(*[name + "_bt" for name in THIN], weights=(1,))
def product_bt(g, n, x, w):
    return g.op("Gemm", x, w, transB=1)


def linear(g, x, w, bias):
    return g.op("Gemm", x, w, bias, transB=1)


@row("layers/linear_gelu", weights=(1, 2))
def linear_gelu(g, n, x, w, bias):
    return g.op("Gelu", linear(g, x, w, bias))


@row("layers/layer_norm", weights=(1, 2))
def layer_norm(g, n, x, gain, bias):
    return g.op("LayerNormalization", x, gain, bias, epsilon=1e-5)


@row("networks/mlp_inference", "networks/mlp_batch_1", weights=(0, 1, 2, 3, 4, 5))
def mlp(g, n, w1, b1, w2, b2, w3, b3, x):
    h = g.op("Relu", linear(g, x, w1, b1))
    return linear(g, g.op("Relu", linear(g, h, w2, b2)), w3, b3)


# ---- images ----


@row("images/conv3x3", weights=(1,))
def conv3x3(g, n, x, w):
    return g.op("Conv", x, w, pads=[1, 1, 1, 1])


@row("images/conv1x1", weights=(1,))
def conv1x1(g, n, x, w):
    return g.op("Conv", x, w)


@row("images/depthwise", weights=(1,))
def depthwise(g, n, x, w):
    return g.op("Conv", x, w, pads=[1, 1, 1, 1], group=n[1])


@row("images/max_pool")
def max_pool(g, n, x):
    return g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


@row("images/avg_pool")
def avg_pool(g, n, x):
    return g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])


@row("images/resnet_block", weights=(1, 2, 3, 4, 5, 6))
def resnet_block(g, n, x, w1, scale1, shift1, w2, scale2, shift2):
    """The norm is the operator of that name with a mean of 0 and a variance of 1, which the runtime merges into weights."""
    mean, variance = g.constant(np.zeros(n[1])), g.constant(np.ones(n[1]))

    def convolved(x, w, scale, shift):
        return g.op("BatchNormalization", g.op("Conv", x, w, pads=[1, 1, 1, 1]), scale, shift, mean, variance,
                    epsilon=0.0)
    h = g.op("Relu", convolved(x, w1, scale1, shift1))
    return g.op("Relu", g.op("Add", convolved(h, w2, scale2, shift2), x))


# ---- sequences ----


def reordered(g, w, order, hidden):
    """The gates of PyTorch in the order of ONNX, with an axis of directions before them."""
    parts = g.op("Split", w, axis=0, num_outputs=len(order), results=len(order))
    return g.op("Unsqueeze", g.op("Concat", *[parts[i] for i in order], axis=0), g.ints(0))


def recurrent(kind, order, **attributes):
    def function(g, n, x, w, u, b, c):
        w, u, b, c = (reordered(g, a, order, n[3]) for a in (w, u, b, c))
        y = g.op(kind, x, w, u, g.op("Concat", b, c, axis=1), hidden_size=n[3], **attributes)
        return g.op("Squeeze", y, g.ints(1))
    return function


row("recurrent/lstm", "recurrent/lstm_batch_1", weights=(1, 2, 3, 4))(recurrent("LSTM", (0, 3, 1, 2)))
row("recurrent/gru", "recurrent/gru_batch_1", weights=(1, 2, 3, 4))(
    recurrent("GRU", (1, 0, 2), linear_before_reset=1))


def attention(g, q, k, v, width, times=0):
    """times: of a causal mask; 0: there is none."""
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.op("Mul", scores, g.constant(1 / math.sqrt(width)))
    if times:
        scores = g.op("Add", scores, g.constant(np.triu(np.full((times, times), -1e30), 1)))
    return g.op("MatMul", g.op("Softmax", scores), v)


@row("attention/prefill")
def prefill(g, n, q, k, v):
    return attention(g, q, k, v, n[3], n[2])


@row("attention/one_query")
def one_query(g, n, q, k, v):
    return attention(g, q, k, v, n[3])


@row("networks/transformer_block", weights=(1, 2, 3, 4))
def block(g, n, x, qkv, out, up, down):
    batch, time, width, _, _, heads = n
    one = g.constant(np.ones(width))

    def product(x, w):
        return g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0]))

    def normed(x):
        return g.op("LayerNormalization", x, one, epsilon=1e-5)
    shape = g.ints(batch, time, heads, width // heads)
    parts = g.op("Split", product(normed(x), qkv), axis=2, num_outputs=3, results=3)
    q, k, v = (g.op("Transpose", g.op("Reshape", part, shape), perm=[0, 2, 1, 3]) for part in parts)
    y = g.op("Transpose", attention(g, q, k, v, width // heads, time), perm=[0, 2, 1, 3])
    x = g.op("Add", x, product(g.op("Reshape", y, g.ints(batch, time, width)), out))
    return g.op("Add", x, product(g.op("Gelu", product(normed(x), up)), down))
