# SPDX-License-Identifier: Apache-2.0
"""The networks of bench/train_models.c in PyTorch, as functions of F (torch.nn.functional), their parameters by name, and the
batch."""


# ---- layers in a row ----


def mlp(F, p, x, labels):
    for i in range(3):
        x = F.linear(x, p[f"{i}.weight"], p[f"{i}.bias"])
        if i < 2:
            x = F.relu(x)
    return F.cross_entropy(x, labels)


def cnn(F, p, x, labels):
    for i in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[f"{i}.weight"], p[f"{i}.bias"], padding=1)), 2)
    return F.cross_entropy(F.linear(x.flatten(1), p["2.weight"], p["2.bias"]), labels)


# ---- ResNet-18, which torchvision computes like this, with relu in place ----


def resnet18(trains):
    def scores(F, p, x):
        def conv_norm(x, conv, norm, stride=1):
            weight = p[conv + ".weight"]
            x = F.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)
            return F.batch_norm(x, p[norm + ".running_mean"], p[norm + ".running_var"], p[norm + ".weight"],
                                p[norm + ".bias"], training=trains)

        x = F.max_pool2d(F.relu_(conv_norm(x, "conv1", "bn1", 2)), 3, 2, 1)
        for i in range(1, 5):
            for k in range(2):
                b = f"layer{i}.{k}."
                stride = 2 if b + "downsample.0.weight" in p else 1
                y = F.relu_(conv_norm(x, b + "conv1", b + "bn1", stride))
                y = conv_norm(y, b + "conv2", b + "bn2")
                x = F.relu_(y + (conv_norm(x, b + "downsample.0", b + "downsample.1", 2) if stride == 2 else x))
        return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])

    def loss(F, p, x, labels):
        y = scores(F, p, x)
        return F.cross_entropy(y, labels) if trains else y
    return loss


# ---- language models ----


def lstm(F, p, tokens, labels):
    """What nn.LSTM calls, with states of zeros. torch.compile leaves an nn.LSTM as it is; the call alone it would unroll, which
    takes minutes and is slower."""
    import torch

    x, layers = F.embedding(tokens, p["words.weight"]), 2
    weights = [p[f"lstm.{name}_l{i}"] for i in range(layers) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    zeros = x.new_zeros(layers, x.shape[0], x.shape[2])
    y, _, _ = torch.compiler.disable(torch.lstm)(x, (zeros, zeros), weights, True, layers, 0.0, True, False, True)
    return F.cross_entropy(F.linear(y, p["words.weight"]).flatten(0, 1), labels.flatten())


def blocks_of(p):
    i = 0
    while f"blocks.{i}.up.weight" in p:
        yield i, f"blocks.{i}."
        i += 1


def norm(F, p, name, x):
    return F.layer_norm(x, (x.shape[-1],), p[name + ".weight"], p[name + ".bias"])


def layers(F, p, b, x):
    y = F.linear(norm(F, p, b + "after", x), p[b + "up.weight"], p[b + "up.bias"])
    return F.linear(F.gelu(y, approximate="tanh"), p[b + "down.weight"], p[b + "down.bias"])


def transformer(heads):
    def loss(F, p, tokens, labels):
        n, length = tokens.shape
        width = p["tokens.weight"].shape[1]
        x = F.embedding(tokens, p["tokens.weight"]) + p["places.weight"][:length]
        for _, b in blocks_of(p):
            y = F.linear(norm(F, p, b + "before", x), p[b + "attention.in_proj_weight"], p[b + "attention.in_proj_bias"])
            q, k, v = (a.view(n, length, heads, -1).transpose(1, 2) for a in y.split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(n, length, width)
            x = x + F.linear(y, p[b + "attention.out_proj.weight"], p[b + "attention.out_proj.bias"])
            x = x + layers(F, p, b, x)
        scores = F.linear(norm(F, p, "last", x), p["tokens.weight"])
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())
    return loss


def decoder(heads):
    """place: of the token, an integer. keys and values: [layers, 1, heads, places, width of a head], which are written at that
    place. Returns the best next token, [1], and its score."""
    def step(F, p, token, place, keys, values):
        width = p["tokens.weight"].shape[1]
        x = F.embedding(token, p["tokens.weight"]) + p["places.weight"][place:place + 1]
        for i, b in blocks_of(p):
            y = F.linear(norm(F, p, b + "before", x), p[b + "attention.in_proj_weight"], p[b + "attention.in_proj_bias"])
            q, k, v = (a.view(1, 1, heads, -1).transpose(1, 2) for a in y.split(width, 1))
            keys[i, :, :, place:place + 1] = k
            values[i, :, :, place:place + 1] = v
            y = F.scaled_dot_product_attention(q, keys[i, :, :, :place + 1], values[i, :, :, :place + 1])
            y = y.transpose(1, 2).reshape(1, width)
            x = x + F.linear(y, p[b + "attention.out_proj.weight"], p[b + "attention.out_proj.bias"])
            x = x + layers(F, p, b, x)
        score, best = F.linear(norm(F, p, "last", x), p["tokens.weight"]).max(-1)
        return best, score
    return step


TRAINS = {"mlp": mlp, "mlp1": mlp, "mlp8": mlp, "cnn": cnn, "resnet18": resnet18(True), "lstm": lstm, "gpt": transformer(4),
          "gpt2": transformer(12)}
INFERS = {"resnet18-infer1": resnet18(False), "resnet18-infer8": resnet18(False)}
DECODES = {"gpt-decode": (decoder(4), 4), "gpt2-decode": (decoder(12), 12)}
