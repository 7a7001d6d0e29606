# SPDX-License-Identifier: Apache-2.0
"""The scores of ResNet-18 (train_models.py) as a graph of ONNX Runtime."""
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from table_onnxruntime import OPSET, Graph

VERSION = onnxruntime.__version__


def resnet18(g, p, x):
    def constant(name):
        return g.constant(p[name])

    def conv_norm(x, conv, norm, stride=1):
        weight = p[conv + ".weight"]
        x = g.op("Conv", x, g.constant(weight), strides=[stride] * 2, pads=[weight.shape[2] // 2] * 4)
        names = ("weight", "bias", "running_mean", "running_var")
        return g.op("BatchNormalization", x, *(constant(f"{norm}.{name}") for name in names))

    x = g.op("Relu", conv_norm(x, "conv1", "bn1", 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for i in range(1, 5):
        for k in range(2):
            b = f"layer{i}.{k}."
            stride = 2 if b + "downsample.0.weight" in p else 1
            y = g.op("Relu", conv_norm(x, b + "conv1", b + "bn1", stride))
            y = conv_norm(y, b + "conv2", b + "bn2")
            x = g.op("Relu", g.op("Add", y, conv_norm(x, b + "downsample.0", b + "downsample.1", 2) if stride == 2 else x))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.op("Gemm", x, constant("fc.weight"), constant("fc.bias"), transB=1)


def session(arrays, x, threads):
    """A function of images like x."""
    g = Graph()
    scores = resnet18(g, arrays, "x")
    model = helper.make_model(
        helper.make_graph(g.nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                          [helper.make_tensor_value_info(scores, TensorProto.FLOAT, None)], g.constants),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    run = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run
    return lambda x: run(None, {"x": x})[0]


def cross_entropy(scores, labels):
    """The mean, as an array [] of f64."""
    y = scores.astype(np.float64)
    most = y.max(1)
    return (most + np.log(np.exp(y - most[:, None]).sum(1)) - y[np.arange(len(y)), labels]).mean()
