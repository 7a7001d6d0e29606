/* SPDX-License-Identifier: Apache-2.0
 *
 * deft.hpp's operators, slices and owners against values worked out by hand.
 */
#include "deft/deft.hpp"

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

int n_wrong;

void expect(bool ok, const char *what)
{
    if (ok) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    n_wrong++;
}

/* Element i of t, as a number. */
double at(deft::tensor t, int64_t i)
{
    double value = std::nan("");
    const deft_status st = deft_reshape(t, deft::shape({-1})) ? DEFT_OK : DEFT_E_SHAPE;
    if (st != DEFT_OK) return value;
    if (deft::tensor(deft_flatten(t)).slice({i}).item(&value) != DEFT_OK) return std::nan("");
    return value;
}

void numbers(deft_ctx *cx)
{
    const float data[] = {1, 2, 3, 4, 5, 6};
    const deft::tensor x = deft_from(cx, deft::shape({2, 3}), DEFT_F32, data, sizeof data);
    expect(at(x + 1, 0) == 2 && at(1 + x, 5) == 7, "x + 1, 1 + x");
    expect(at(1 - x, 1) == -1 && at(x - 0.5, 1) == 1.5, "1 - x, x - 0.5");
    expect(at(12 / x, 2) == 4 && at(x / 2, 2) == 1.5, "12 / x, x / 2");
    expect(at(-x * x, 1) == -4 && at(x % 4, 4) == 1, "-x * x, x % 4");
    expect(at(x < 3, 1) == 1 && at(3 < x, 1) == 0 && at(x == 3, 2) == 1, "comparisons");
    expect(at((x > 1) & (x <= 3), 2) == 1 && at(~(x > 1), 0) == 1, "logic");
    expect(at(deft::maximum(x, 4), 0) == 4 && at(deft::sqrt(x), 3) == 2, "ops by name");
    expect(at(deft_add(x, 0.5f), 0) == 1.5 && at(deft_add(x, 2), 0) == 3, "the C names");
    expect(at(deft_lerp(x, x * 2, 0.5), 0) == 1.5, "lerp by a number");
    const deft::tensor i = deft::tensor(x).cast(DEFT_I32);
    expect((i + 1).dtype() == DEFT_I32 && (1 + i).dtype() == DEFT_I32 && (i + 0.5).dtype() == DEFT_F32,
           "dtypes with numbers");
}

void slices(deft_ctx *cx)
{
    const float data[] = {1, 2, 3, 4, 5, 6};
    const deft::tensor x = deft_from(cx, deft::shape({2, 3}), DEFT_F32, data, sizeof data);
    const deft::tensor row = x.slice({1}), inner = x.slice({{}, {1, -1}}), odd = x.slice({0, {0, 3, 2}});
    expect(row.rank() == 1 && at(row, 0) == 4, "a row");
    expect(inner.rank() == 2 && inner.dim(1) == 1 && at(inner, 1) == 5, "a column kept");
    expect(odd.numel() == 2 && at(odd, 1) == 3, "every second");
    expect(at(deft_slice(x, DEFT_FLIP), 0) == 4, "the C macro's ranges");
    row.assign(0);
    expect(at(x, 3) == 0 && at(x, 2) == 3, "assigning through a view");
}

void sizes(deft_ctx *cx)
{
    const float data[] = {3, 0, 5, 3, 0, 1};
    const deft::tensor x = deft_from(cx, deft::shape({6}), DEFT_F32, data, sizeof data);
    const auto [where, n] = deft::nonzero(x, 5);
    expect(where.rank() == 2 && at(where, 2) == 3 && at(n, 0) == 4, "nonzero");
    const deft::found large = deft::compress(x, x > 2, 2), once = deft::unique(x, 6);
    expect(at(large.rows, 1) == 5 && at(large.count, 0) == 3, "compress");
    expect(at(once.rows, 2) == 3 && at(once.count, 0) == 4, "unique");
}

void layers(deft_ctx *cx)
{
    const deft::tensor x = deft_ones(cx, deft::shape({1, 1, 4, 4}), DEFT_F32);
    const deft::tensor w = deft_ones(cx, deft::shape({2, 1, 3, 3}), DEFT_F32);
    auto conv = deft::options<deft_conv2d_options>();
    conv.padding[0] = conv.padding[1] = 1;
    const deft::tensor y = deft_conv2d(x, w, &conv);
    auto pool = deft::options<deft_pool2d_options>();
    pool.kernel[0] = pool.kernel[1] = 2;
    expect(y.dim(1) == 2 && at(y, 0) == 4 && at(y, 5) == 9, "conv2d");
    expect(at(deft_avg_pool2d(y, &pool), 0) == 6.25, "avg_pool2d");
}

void owners(const deft::context &cx)
{
    const deft::tensor x = deft_zeros(cx, deft::shape({}), DEFT_F32);
    deft::kept y;
    {
        deft::step s(cx);
        x.assign(x + 1);
        y = deft::kept(x + 2);
        expect(s.end() == DEFT_OK, "a step ends");
    }
    {
        deft::step s(cx);
        x.assign(x + 100);
    } /* aborted */
    expect(at(x, 0) == 1, "a step left early changes nothing");
    {
        deft::step s(cx);
        x.assign(x + 1);
        expect(s.submit() == DEFT_OK && x.rank() == 0, "a step is left to run");
    }
    expect(at(x, 0) == 2, "a read waits for it");
    {
        deft::step s(cx);
        x.assign(x - 1);
        expect(s.submit() == DEFT_OK && cx.wait() == DEFT_OK, "so does wait");
    }
    expect(at(y.get(), 0) == 3, "a kept tensor lives on");
    deft::tensor z;
    {
        deft::scope s(cx);
        z = s.give(x * 7);
    }
    const deft::mapped m(z);
    expect(m && m.bytes() == sizeof(float) && *m.data<float>() == 7, "a scope gives, a map lends");
}

void arrays(const deft::context &cx)
{
    double a[2][3] = {{1, 2, 3}, {4, 5, 6}};
    float out[2][3] = {};
    const deft::tensor x = deft::wrap(cx, a);
    expect(x.dtype() == DEFT_F64 && x.rank() == 2 && x.dim(1) == 3, "an array has a shape");
    expect(deft::read(x * 2, out) == DEFT_OK && out[1][2] == 12, "a read converts");
    std::vector<int32_t> v(6);
    expect(deft::read(deft_flatten(x), v) == DEFT_OK && v[4] == 5, "into a vector");
    expect(at(deft::from(cx, v), 3) == 4, "from a vector");
    const deft::tensor y = deft::from(cx, a);
    deft::view<double> w(y);
    expect(bool(w) && w(1, 0) == 4, "a view");
    w(1, 0) = -1;
    expect(at(y, 3) == 4 && w.end() == DEFT_OK && at(y, 3) == -1, "is written at its end");
    const deft::view<const float> other(y);
    expect(other.status() == DEFT_E_DTYPE, "another type");
    deft::step s(cx);
    deft::wrap_mut(cx, a).assign(y + 1);
    expect(s.end() == DEFT_OK && a[1][0] == 0, "an array that is written");
}

void networks(const deft::context &cx)
{
    const deft::network net(cx);
    deft_nn_linear line = {};
    expect(net && deft_nn_linear_init(&line, net, "line", 1, 1, false), "a network");
    deft_optim_options sgd = deft_optim_defaults(DEFT_OPTIM_SGD);
    const deft::optimizer optim(net, &sgd);
    expect(optim && optim.n() == 1, "an optimizer");
    net.find("line.weight").assign(3);
    const deft::tensor x = deft_full(cx, deft::shape({1, 1}), DEFT_F32, 2);
    deft::step s(cx);
    deft_tensor *g[1] = {};
    const deft::tensor y = deft_nn_linear_call(&line, x);
    expect(optim.grad(deft_sum(y * y, deft::all_axes(), 0), g), "gradients");
    expect(optim.step(g, 0.125) && s.end() == DEFT_OK, "an update");
    expect(at(net.find("line.weight"), 0) == 0, "3 - 2 * 6 * 2 / 8");
    expect(net.load("/nowhere") == DEFT_E_NOT_FOUND, "no file");
}

void examples(const deft::context &cx)
{
    const deft::tensor w = deft_full(cx, deft::shape({3}), DEFT_F32, 2);
    const deft::tensor x = deft_full(cx, deft::shape({4, 3}), DEFT_F32, 5);
    const deft::tensor g = deft::vmap(
        [&](deft::tensor row, deft::tensor by) {
            return deft::grad(deft_sum(w * w * row * by, deft::all_axes(), 0), w);
        },
        x, deft_arange(cx, 0, 4, 1, DEFT_F32));
    expect(g && g.rank() == 2 && at(g, 3) == 20 && at(g, 11) == 60, "gradients of each example");
}

} // namespace

int main()
{
    const deft::context cx;
    if (!cx) return 1;
    numbers(cx);
    slices(cx);
    sizes(cx);
    layers(cx);
    examples(cx);
    owners(cx);
    arrays(cx);
    networks(cx);
    if (deft_error(cx) != DEFT_OK || n_wrong) std::fprintf(stderr, "%s\n", cx.message());
    return n_wrong != 0 || deft_error(cx) != DEFT_OK;
}
