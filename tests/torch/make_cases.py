#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_cases.py > torch.cases: calls of functions of networks, with what PyTorch gives, in f64 on the CPU.

It needs PyTorch, which the tests do not: they read the file. A line is

    NAME [NUMBER...] | OPERAND... | RESULT... | GRADIENT...

A number is an argument of the call that is no tensor; calls.c says which. A tensor is DTYPE:EXTENTS:ELEMENTS with extents
and elements separated by commas. An operand with = before it gets no gradient and is the same in all examples. A
gradient is that of sum(result * ramp) over all float results, with respect to the operand at its place; - where there
is none. Element i of a ramp is ((7 i) mod 11 - 5) / 8.
"""
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(7)
NAMES = {torch.float64: "f64", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool", torch.float32: "f32"}


def draw(*shape, low=-2.0, high=2.0):
    """Numbers with few digits, all different, so that no maximum is ambiguous."""
    n = 1
    for s in shape:
        n *= s
    grid = torch.randperm(max(n, 1))[:n].to(torch.float64)
    return torch.round((low + (high - low) * (grid + 0.37) / max(n, 1)) * 1e6).div(1e6).reshape(shape)


def fixed(t):
    """An operand without a gradient."""
    t.is_fixed = True
    return t


def number(v):
    return repr(float(v)) if isinstance(v, float) else str(int(v))


def text(t):
    mark = "=" if getattr(t, "is_fixed", False) else ""
    flat = t.detach().reshape(-1).tolist()
    elements = ",".join(number(v) if not isinstance(v, float) else "%.11g" % v for v in flat)
    return "%s%s:%s:%s" % (mark, NAMES[t.dtype], ",".join(map(str, t.shape)), elements)


def ramp(t):
    i = torch.arange(t.numel()).reshape(t.shape)
    return ((7 * i) % 11 - 5).to(torch.float64) / 8


def case(name, numbers, operands, f, gradients=True):
    """One line: f gets the operands, and returns a tensor or a list of them."""
    x = []
    for o in operands:
        copy = o.detach().clone()
        if getattr(o, "is_fixed", False):
            copy.is_fixed = True
        elif gradients and o.dtype == torch.float64:
            copy.requires_grad_(True)
        x.append(copy)
    out = f(*x)
    out = list(out) if isinstance(out, (tuple, list)) else [out]
    grads = []
    wanted = [o for o in x if o.requires_grad]
    if wanted:
        total = sum((o * ramp(o)).sum() for o in out if o.dtype == torch.float64)
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        by = {id(o): torch.zeros_like(o) if g is None else g for o, g in zip(wanted, found)}
        grads = [text(by[id(o)]) if id(o) in by else "-" for o in x]
    print(" ".join([name, *map(number, numbers)]), "|", " ".join(map(text, x)), "|", " ".join(map(text, out)), "|",
          " ".join(grads))


def three(v):
    """An option of as many numbers as there are sides, as three numbers."""
    return list(v) + [0] * (3 - len(v))


# ---- convolutions ----

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv(x, w, stride, padding, dilation, groups=1, bias=True):
    n = len(x) - 2
    operands = [draw(*x), draw(*w)] + ([draw(w[0])] if bias else [])
    numbers = three(stride) + three(padding) + three(dilation) + [0, 0, 0, groups]
    case("conv", numbers, operands, lambda a, b, c=None: CONV[n](a, b, c, stride, padding, dilation, groups))


def conv_transpose(x, w, stride, padding, dilation, more, groups=1, bias=True):
    n = len(x) - 2
    operands = [draw(*x), draw(*w)] + ([draw(w[1] * groups)] if bias else [])
    numbers = three(stride) + three(padding) + three(dilation) + three(more) + [groups]
    case("conv_transpose", numbers, operands,
         lambda a, b, c=None: TRANSPOSED[n](a, b, c, stride, padding, more, groups, dilation))


def convolutions():
    conv((2, 3, 9), (4, 3, 3), (1,), (1,), (1,))
    conv((1, 4, 11), (4, 2, 3), (2,), (2,), (2,), groups=2)
    conv((2, 2, 5), (3, 2, 1), (2,), (0,), (1,), bias=False)
    conv((1, 2, 5, 6), (3, 2, 3, 2), (2, 1), (1, 0), (1, 2))
    conv((2, 2, 4, 5, 4), (3, 2, 2, 3, 2), (1, 1, 1), (0, 1, 1), (1, 1, 1))
    conv((1, 2, 5, 4, 5), (2, 2, 3, 2, 3), (2, 1, 2), (1, 0, 2), (1, 2, 1), bias=False)
    conv((1, 4, 3, 3, 3), (4, 1, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), groups=4)
    conv((1, 4, 3, 4, 3), (2, 2, 1, 2, 2), (2, 2, 1), (0, 0, 0), (1, 1, 1), groups=2)
    conv_transpose((2, 3, 5), (3, 2, 3), (1,), (0,), (1,), (0,))
    conv_transpose((1, 2, 4), (2, 2, 3), (2,), (1,), (1,), (1,))
    conv_transpose((1, 4, 4), (4, 1, 2), (3,), (0,), (2,), (2,), groups=2)
    conv_transpose((1, 1, 3), (1, 1, 2), (4,), (0,), (1,), (0,), bias=False)
    conv_transpose((2, 2, 3, 4), (2, 3, 3, 2), (2, 1), (1, 0), (1, 2), (1, 0))
    conv_transpose((1, 4, 3, 3), (4, 2, 4, 4), (2, 2), (1, 1), (1, 1), (0, 0), groups=2)
    conv_transpose((1, 2, 3, 2), (2, 1, 2, 3), (3, 2), (2, 1), (2, 3), (1, 2), bias=False)
    conv_transpose((1, 2, 2, 3, 2), (2, 2, 2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 1), (0, 0, 1))


# ---- pools ----

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {"avg": {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d},
            "max": {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}}


def max_pool(x, kernel, stride, padding, dilation, ceil=False):
    n = len(x) - 2
    numbers = three(kernel) + three(stride) + three(padding) + three(dilation) + [ceil, 0, 0]
    case("max_pool", numbers, [draw(*x)],
         lambda a: MAX[n](a, kernel, stride, padding, dilation, ceil_mode=ceil, return_indices=True))


def avg_pool(x, kernel, stride, padding, ceil=False, excludes=False, divisor=None):
    n = len(x) - 2
    numbers = three(kernel) + three(stride) + three(padding) + [0, 0, 0, ceil, excludes, divisor or 0]
    more = {} if n == 1 else {"divisor_override": divisor}
    case("avg_pool", numbers, [draw(*x)],
         lambda a: AVG[n](a, kernel, stride, padding, ceil_mode=ceil, count_include_pad=not excludes, **more))


def unfold(x, kernel, stride, padding, dilation):
    numbers = three(kernel) + three(stride) + three(padding) + three(dilation) + [0, 0, 0]
    case("unfold", numbers, [draw(*x)], lambda a: F.unfold(a, kernel, dilation, padding, stride))


def fold(x, sides, kernel, stride, padding, dilation):
    numbers = three(kernel) + three(stride) + three(padding) + three(dilation) + [0, 0, 0] + list(sides)
    case("fold", numbers, [draw(*x)], lambda a: F.fold(a, sides, kernel, dilation, padding, stride))


def pools():
    max_pool((2, 2, 9), (3,), (2,), (1,), (1,))
    max_pool((1, 2, 10), (2,), (3,), (1,), (2,), ceil=True)
    max_pool((1, 2, 5, 6), (3, 2), (1, 2), (1, 1), (1, 1))
    max_pool((1, 1, 7, 8), (2, 3), (2, 1), (0, 1), (3, 2), ceil=True)
    max_pool((2, 1, 6, 5), (2, 2), (2, 2), (0, 0), (1, 1), ceil=True)
    max_pool((1, 1, 4, 5, 4), (2, 3, 2), (1, 2, 2), (1, 1, 0), (1, 1, 2))
    max_pool((1, 2, 5, 4, 4), (2, 2, 2), (2, 2, 2), (0, 1, 1), (1, 1, 1), ceil=True)
    max_pool((1, 1, 6), (1,), (2,), (0,), (1,))
    for ceil in (False, True):
        for excludes in (False, True):
            avg_pool((1, 2, 8), (3,), (2,), (1,), ceil, excludes)
            avg_pool((1, 1, 6, 7), (3, 2), (2, 3), (1, 1), ceil, excludes)
    avg_pool((1, 1, 5, 6), (2, 3), (2, 2), (1, 0), divisor=4)
    avg_pool((1, 1, 4, 5, 6), (2, 2, 3), (2, 2, 2), (1, 1, 1), True, True)
    for kind in ("avg", "max"):
        for x, out in (((2, 2, 7), (3,)), ((1, 2, 6, 7), (3, 2)), ((1, 1, 5, 8), (5, 4)), ((1, 1, 4, 5, 3), (2, 3, 2)),
                       ((1, 2, 3), (5,))):
            case(f"adaptive_{kind}_pool", out, [draw(*x)], lambda a, o=out: ADAPTIVE[kind][len(o)](a, o))
    for x, kernel in (((1, 2, 6), (2,)), ((2, 1, 4, 6), (2, 3)), ((1, 1, 2, 4, 4), (2, 2, 2))):
        y, at = MAX[len(x) - 2](draw(*x), kernel, kernel, return_indices=True)
        unpool = [F.max_unpool1d, F.max_unpool2d, F.max_unpool3d][len(x) - 3]
        case("max_unpool", x[2:], [y, at], lambda a, i, k=kernel, f=unpool, s=x[2:]: f(a, i, k, output_size=s))
    unfold((2, 2, 4, 5), (2, 3), (1, 1), (0, 0), (1, 1))
    unfold((1, 2, 5, 6), (3, 2), (2, 1), (1, 2), (1, 2))
    fold((2, 12, 9), (4, 5), (2, 3), (1, 1), (0, 0), (1, 1))
    fold((1, 12, 24), (5, 6), (3, 2), (2, 1), (1, 2), (1, 2))
    fold((1, 4, 6), (4, 6), (2, 2), (2, 2), (0, 0), (1, 1))


# ---- resampling ----

MODES = ["nearest", "linear", "cubic", "area"]


def interpolate(x, sides, mode, aligned=False, scale=None, antialias=False):
    n = len(x) - 2
    name = {"linear": ["linear", "bilinear", "trilinear"][n - 1], "cubic": "bicubic"}.get(mode, mode)
    numbers = [MODES.index(mode), aligned] + [float(v) for v in three(scale or [])] + [antialias] + list(sides or [])
    corners = aligned if mode in ("linear", "cubic") else None
    case("interpolate", numbers, [draw(*x)],
         lambda a: F.interpolate(a, sides, scale, mode=name, align_corners=corners, antialias=antialias))


def grid_sample(x, places, mode, border, aligned, low=-1.4, high=1.4):
    grid = draw(x[0], *places, len(places), low=low, high=high)
    case("grid_sample", [MODES.index({"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)), aligned,
                         ["zeros", "border", "reflection"].index(border)], [draw(*x), grid],
         lambda a, g: F.grid_sample(a, g, mode, border, aligned))


def resampling():
    for x, sides in (((2, 1, 5), (8,)), ((1, 2, 4, 6), (7, 3)), ((1, 1, 3, 4, 2), (5, 2, 4))):
        interpolate(x, sides, "nearest")
        interpolate(x, sides, "area")
        interpolate(x, sides, "linear")
        interpolate(x, sides, "linear", aligned=True)
    interpolate((1, 2, 5, 6), (8, 4), "cubic")
    interpolate((1, 1, 5, 6), (3, 9), "cubic", aligned=True)
    interpolate((1, 1, 5, 6), None, "linear", scale=[1.7, 0.6])
    interpolate((1, 1, 5, 6), None, "nearest", scale=[2.0, 0.5])
    interpolate((1, 1, 6), None, "linear", scale=[2.5])
    interpolate((1, 1, 4, 3), (1, 6), "linear", aligned=True)
    interpolate((1, 2, 9, 7), (4, 3), "linear", antialias=True)
    interpolate((1, 1, 9, 6), (4, 8), "cubic", antialias=True)
    for border in ("zeros", "border", "reflection"):
        for aligned in (False, True):
            grid_sample((2, 2, 4, 5), (3, 4), "bilinear", border, aligned)
            grid_sample((1, 1, 3, 4), (2, 5), "nearest", border, aligned)
            grid_sample((1, 2, 3, 4, 2), (2, 2, 3), "bilinear", border, aligned)
    grid_sample((1, 1, 3, 4), (4, 4), "bilinear", "reflection", False, low=-5.0, high=5.0)


# ---- norms ----

def norm(x, groups, eps, weight, bias, running):
    """groups 0: a batch normalization; -1: an instance normalization."""
    c = x[1]
    operands = [draw(*x)] + [draw(c) for has in (weight, bias) if has]
    if running:
        operands += [fixed(draw(c)), fixed(draw(c, low=0.5, high=2.0))]

    def f(a, *rest):
        rest = list(rest)
        w = rest.pop(0) if weight else None
        b = rest.pop(0) if bias else None
        if groups == 0:
            mean, var = rest if running else (None, None)
            return F.batch_norm(a, mean, var, w, b, training=not running, eps=eps)
        return F.instance_norm(a, weight=w, bias=b, eps=eps) if groups == -1 else F.group_norm(a, groups, w, b, eps)

    case("norm", [groups, eps, weight, bias, running, running], operands, f)


def norms():
    for x in ((4, 3), (2, 3, 5), (2, 3, 2, 4)):
        norm(x, 0, 1e-3, True, True, False)
        norm(x, 0, 1e-5, False, True, True)
    norm((3, 2, 2, 2, 2), 0, 1e-5, True, False, True)
    norm((2, 4, 3), 2, 1e-4, True, True, False)
    norm((2, 6, 2, 3), 3, 1e-5, False, False, False)
    norm((2, 3, 5), -1, 1e-5, True, True, False)
    norm((1, 2, 2, 3), -1, 1e-3, False, True, False)


# ---- losses ----

REDUCTIONS = ["mean", "sum", "none", "batchmean"]


def loss(name, f, operands, weight=None, which=0, reduction="mean", ignored=None, smoothing=0.0, margin=0.0, beta=0.0,
         log_target=False, swap=False, **more):
    """f gets the operands, the weight as a keyword, and `more`."""
    numbers = [REDUCTIONS.index(reduction), which, ignored is not None, ignored or 0, float(smoothing), float(margin),
               float(beta), log_target, swap]
    operands = list(operands) + ([weight] if which else [])
    keyword = {1: "weight", 2: "pos_weight"}.get(which)
    extra = dict(more, **({"log_target": True} if log_target else {}), **({"swap": True} if swap else {}))

    def call(*x):
        if keyword:
            return f(*x[:-1], reduction=reduction, **{keyword: x[-1]}, **extra)
        return f(*x, reduction=reduction, **extra)

    case(name, numbers, operands, call)


def labels(*shape, classes):
    return torch.randint(0, classes, shape)


def losses():
    for reduction in REDUCTIONS[:3]:
        for smoothing in (0.0, 0.3):
            loss("cross_entropy_loss", F.cross_entropy, [draw(5, 4), labels(5, classes=4)], reduction=reduction,
                 smoothing=smoothing, label_smoothing=smoothing)
            loss("cross_entropy_loss", F.cross_entropy, [draw(2, 3, 4), labels(2, 4, classes=3)],
                 fixed(draw(3, low=0.25)), 1, reduction, ignored=1, smoothing=smoothing, label_smoothing=smoothing,
                 ignore_index=1)
            loss("cross_entropy_loss", F.cross_entropy, [draw(3, 4), torch.softmax(draw(3, 4), 1)],
                 fixed(draw(4, low=0.25)), 1, reduction, smoothing=smoothing, label_smoothing=smoothing)
        loss("nll_loss", F.nll_loss, [torch.log_softmax(draw(4, 3), 1), labels(4, classes=3)], reduction=reduction)
        loss("nll_loss", F.nll_loss, [torch.log_softmax(draw(2, 3, 2, 2), 1), labels(2, 2, 2, classes=3)],
             fixed(draw(3, low=0.25)), 1, reduction, ignored=2, ignore_index=2)
        p, t = draw(3, 4, low=0.02, high=0.98), draw(3, 4, low=0.0, high=1.0)
        loss("bce_loss", F.binary_cross_entropy, [p, t], fixed(draw(3, 4)), 1, reduction)
        loss("bce_logits_loss", F.binary_cross_entropy_with_logits, [draw(3, 4, low=-9, high=9), t], reduction=reduction)
        loss("bce_logits_loss", F.binary_cross_entropy_with_logits, [draw(3, 4), t], fixed(draw(4, low=0.5)), 2, reduction)
        loss("bce_logits_loss", F.binary_cross_entropy_with_logits, [draw(3, 4), t], fixed(draw(3, 4)), 1, reduction)
        loss("mse_loss", F.mse_loss, [draw(3, 4), draw(3, 4)], reduction=reduction)
        loss("l1_loss", F.l1_loss, [draw(3, 4), draw(3, 4)], reduction=reduction)
        loss("smooth_l1_loss", F.smooth_l1_loss, [draw(3, 4), draw(3, 4)], reduction=reduction)
        loss("smooth_l1_loss", lambda a, b, reduction: F.smooth_l1_loss(a, b, reduction=reduction, beta=0.4),
             [draw(3, 4), draw(3, 4)], reduction=reduction, beta=0.4)
        loss("huber_loss", lambda a, b, reduction: F.huber_loss(a, b, reduction=reduction, delta=0.7),
             [draw(3, 4), draw(3, 4)], reduction=reduction, beta=0.7)
        kl = torch.log_softmax(draw(3, 4), 1), torch.softmax(draw(3, 4), 1)
        loss("kl_div", F.kl_div, kl, reduction=reduction)
        loss("kl_div", F.kl_div, [kl[0], fixed(torch.tensor([[0.0, 1, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0, 0, 1]]))],
             reduction=reduction)
        sign = fixed(torch.tensor([1.0, -1, 1, -1]))
        loss("cosine_embedding_loss", F.cosine_embedding_loss, [draw(4, 3), draw(4, 3), sign], reduction=reduction)
        loss("cosine_embedding_loss", lambda a, b, y, reduction: F.cosine_embedding_loss(a, b, y, -0.4, reduction=reduction),
             [draw(4, 3), draw(4, 3), sign], reduction=reduction, margin=-0.4)
        loss("margin_ranking_loss", lambda a, b, y, reduction: F.margin_ranking_loss(a, b, y, 0.3, reduction=reduction),
             [draw(4), draw(4), sign], reduction=reduction, margin=0.3)
        loss("hinge_embedding_loss", F.hinge_embedding_loss, [draw(3, 4), sign], reduction=reduction)
        loss("soft_margin_loss", F.soft_margin_loss, [draw(3, 4, low=-8, high=8), fixed(sign.detach().expand(3, 4).clone())],
             reduction=reduction)
        for swap in (False, True):
            loss("triplet_margin_loss", lambda a, b, c, reduction, swap=False: F.triplet_margin_loss(
                a, b, c, margin=0.8, swap=swap, reduction=reduction), [draw(4, 3), draw(4, 3), draw(4, 3)],
                 reduction=reduction, margin=0.8, swap=swap)
    loss("kl_div", F.kl_div, [torch.log_softmax(draw(3, 4), 1), torch.log_softmax(draw(3, 4), 1)], reduction="batchmean",
         log_target=True)
    loss("cross_entropy_loss", F.cross_entropy, [draw(4), torch.tensor(2)])


# ---- attention ----

def attend(q, k, v, mask, scale, causal, window, at_end, grouped, cap):
    """scaled_dot_product_attention, with what it lacks written out."""
    if window == 0 and not at_end and cap == 0:
        mask = mask.to(torch.float64) if mask is not None and mask.dtype != torch.bool else mask
        if not (causal and mask is not None):
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale or None,
                                                  enable_gqa=grouped)
    if grouped:
        k, v = (t.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for t in (k, v))
    s = q @ k.transpose(-1, -2) * (scale or q.shape[-1]**-0.5)
    if cap:
        s = cap * torch.tanh(s / cap)
    rows, keys = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    if at_end:
        rows = rows + k.shape[-2] - q.shape[-2]
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if causal:
        seen &= keys <= rows
    if window:
        seen &= (keys - rows).abs() < window
    if mask is not None and mask.dtype == torch.bool:
        seen = seen & mask
    elif mask is not None:
        s = s + mask
    s = s.masked_fill(~seen, -torch.inf)
    w = torch.exp(s - s.amax(-1, keepdim=True).clamp(min=-1e300))
    total = w.sum(-1, keepdim=True)
    return w / torch.where(total == 0, 1.0, total) @ v


def attention(q, k, v, mask=None, scale=0.0, causal=False, window=0, at_end=False, grouped=False, cap=0.0):
    operands = [draw(*q), draw(*k), draw(*v)] + ([mask] if mask is not None else [])
    numbers = [float(scale), causal, mask is not None, window, at_end, grouped, float(cap)]
    case("attention", numbers, operands,
         lambda a, b, c, m=None: attend(a, b, c, m, scale, causal, window, at_end, grouped, cap))


def bools(*shape, empty_row=False):
    m = torch.rand(*shape) < 0.6
    m[..., 0] = True
    if empty_row:
        m[..., 1, :] = False
    return m


def attentions():
    for s, t in ((3, 5), (3, 150), (20, 150)):
        q, k, v = ((s, 2), (t, 2), (t, 3)) if t < 9 else ((s, 1), (t, 1), (t, 1))
        attention(q, k, v)
        attention(q, k, v, scale=0.3, causal=True)
        attention(q, k, v, bools(s, t, empty_row=True))
        attention(q, k, v, draw(s, t))
        attention(q, k, v, fixed(torch.where(bools(s, t, empty_row=True), 0.5, -torch.inf)))
        attention(q, k, v, causal=True, at_end=True)
        attention(q, k, v, causal=True, window=2, at_end=True, cap=0.8)
        attention(q, k, v, window=3)
        attention(q, k, v, draw(s, t), causal=True, cap=1.5)
    attention((2, 2, 3, 2), (2, 1, 5, 2), (1, 2, 5, 2), bools(2, 1, 3, 5))
    attention((2, 2, 3, 2), (2, 2, 5, 2), (2, 2, 5, 2), draw(2, 1, 5))
    attention((2, 17, 2), (1, 140, 2), (1, 140, 2), draw(2, 1, 140))
    attention((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3), grouped=True, causal=True)
    attention((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3), draw(1, 4, 3, 5), grouped=True)
    attention((4, 17, 2), (2, 130, 2), (2, 130, 2), bools(1, 17, 130), grouped=True, cap=2.0)


# ---- recurrent layers ----

def recurrent(kind, layers, both, bias, first, batch=2, time=3, width=2, hidden=2):
    module = [torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU][kind](width, hidden, layers, bias=bias, batch_first=True,
                                                               bidirectional=both)
    names = [n for n, _ in module.named_parameters()]
    states = 0 if not first else 2 if kind == 1 else 1
    operands = [draw(batch, time, width)] + [draw(*p.shape, low=-1, high=1) for p in module.parameters()]
    operands += [draw(layers * (1 + both), batch, hidden) for _ in range(states)]

    def f(x, *rest):
        weights, state = dict(zip(names, rest)), rest[len(names):]
        state = (state if kind == 1 else state[0],) if state else ()
        y, end = torch.func.functional_call(module, weights, (x, *state))
        return [y, *end] if kind == 1 else [y, end]

    case("rnn", [kind, layers, both, bias, first], operands, f)


def recurrents():
    for kind in range(3):
        recurrent(kind, 1, False, True, True, time=4, hidden=3)
        recurrent(kind, 2, True, False, False)
        recurrent(kind, 1, True, True, True, batch=1, time=5)
        recurrent(kind, 3, False, False, True, width=1)


# ---- what came later: other lines keep their numbers ----

def ctc(t, n, classes, targets, n_times=None, n_targets=None, blank=0, reduction="mean", zero_infinity=False):
    """Of logits: PyTorch's gradient of logarithms is right where a softmax made them."""
    targets = fixed(torch.tensor(targets))
    lengths = [fixed(torch.tensor(v)) for v in (n_times, n_targets) if v]

    def f(a, labels, *rest):
        rest = list(rest)
        times = rest.pop(0) if n_times else torch.full((n,), t)
        wanted = rest.pop(0) if n_targets else torch.full((n,), labels.shape[1])
        return F.ctc_loss(F.log_softmax(a, 2), labels, times, wanted, blank, reduction, zero_infinity)

    case("ctc_loss", [blank, REDUCTIONS.index(reduction), zero_infinity, bool(n_times), bool(n_targets)],
         [draw(t, n, classes), targets] + lengths, f)


def later():
    for border in ("zeros", "border", "reflection"):
        for aligned in (False, True):
            grid_sample((1, 2, 5, 4), (3, 3), "bicubic", border, aligned)
    grid_sample((1, 1, 3, 4), (4, 4), "bicubic", "reflection", False, low=-5.0, high=5.0)
    for reduction in REDUCTIONS[:3]:
        ctc(6, 2, 4, [[1, 2], [2, 2]], reduction=reduction)
    ctc(7, 3, 5, [[1, 2, 3], [4, 4, 0], [2, 9, -1]], n_times=[7, 5, 3], n_targets=[3, 2, 1], reduction="none")
    ctc(5, 2, 4, [[0, 1], [2, 2]], n_targets=[1, 2], blank=3)
    ctc(3, 2, 3, [[1, 1, 2], [1, 2, 1]], n_times=[2, 3], zero_infinity=True, reduction="sum")
    # No weight reaches the one element that the padding leaves.
    conv_transpose((1, 3, 2), (3, 3, 1), (3,), (2,), (1,), (1,))
    conv_transpose((2, 2, 5, 1), (2, 2, 1, 1), (2, 3), (0, 1), (3, 2), (0, 2), bias=False)


def main():
    convolutions()
    pools()
    resampling()
    norms()
    losses()
    attentions()
    recurrents()
    later()


if __name__ == "__main__":
    sys.exit(main())
