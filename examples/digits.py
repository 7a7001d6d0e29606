# SPDX-License-Identifier: Apache-2.0
"""Learns to read handwritten digits: a network of two layers, trained by Adam. Run it from the folder of the project."""
import deft

data = open("examples/data/digits.bin", "rb").read()
pixels = deft.reshape(deft.asarray(data[16:16 + 1797 * 64]), (1797, 64)).astype(deft.float32) / 16
labels = deft.asarray(data[16 + 1797 * 64:]).astype(deft.int32)
rng = deft.random.Generator(1)
params = [rng.normal((64, 128)) * 0.18, deft.zeros(128), rng.normal((128, 10)) * 0.12, deft.zeros(10)]
means, squares = [deft.zeros_like(p) for p in params], [deft.zeros_like(p) for p in params]

def scores(p, x):
    return deft.relu(x @ p[0] + p[1]) @ p[2] + p[3]

@deft.compile
def train(params, means, squares, x, y, rate):
    loss, grads = deft.value_and_grad(lambda p: deft.cross_entropy(scores(p, x), y))(params)
    for p, m, s, g in zip(params, means, squares, grads):
        m += (g - m) * 0.1
        s += (g * g - s) * 0.01
        p -= rate * m / (deft.sqrt(s) + 1e-8)
    return loss

for epoch in range(10):
    for order in deft.reshape(rng.permutation(1437)[:1408], (22, 64)):
        loss = train(params, means, squares, pixels[order], labels[order], 0.005 * 0.8 ** epoch)
found = deft.argmax(scores(params, pixels[1437:]), axis=1)
print(f"{float(deft.mean((found == labels[1437:]).astype(deft.float32))):.1%} of the test images are read correctly")
