"""fedhpc.export_model: what torch.export or the lines of a file would change in silence is kept, or refused."""

import collections
import math
import unittest

import numpy as np

import fedhpc
from python_support import skip_without_torch

skip_without_torch()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from model_cases import Call, ModelCase, scaled, weights  # noqa: E402
from model_support import Reader, read  # noqa: E402


class Through(torch.autograd.Function):
    """Twice the input, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class GradientsTest(ModelCase):
    def test_gradients_of_ones_own(self):
        layer = nn.Linear(4, 4)
        said = self.refused("the autograd.Function Through, which says a gradient of its own",
                            Call(lambda m, x: Through.apply(m.a(x)), a=layer), 4)
        self.assertRegex(said, r"in line \d+ of .*test_faithful_models.py")

        def hooked(model, x):
            y = model.a(x)
            y.register_hook(lambda gradient: 3 * gradient)
            return y * 2
        self.refused("Tensor.register_hook, which says a gradient of its own", Call(hooked, a=layer), 4)
        x = torch.ones(1, 4, requires_grad=True)  # they are as they were
        Through.apply(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [[1] * 4])
        x.register_hook(lambda gradient: gradient)
        self.same(Call(lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=layer), 4)

    def test_hooks_of_a_module(self):
        for hook in (lambda one: one.register_full_backward_hook(lambda *_: None),
                     lambda one: one.register_full_backward_pre_hook(lambda *_: None)):
            net = nn.Sequential(nn.Linear(4, 4))
            handle = hook(net[0])
            self.refused("0 has a backward hook, which a run would not call; remove it", net, 4)
            handle.remove()
            self.same(net, 4)
            handle = hook(net)
            self.refused("the module has a backward hook", net, 4)
        for hook in (lambda one: one.register_hook(lambda gradient: 2 * gradient),
                     lambda one: one.register_post_accumulate_grad_hook(lambda _: None)):
            net = nn.Linear(4, 4)
            handle = hook(net.bias)
            self.refused("parameter bias has a hook of its gradient", net, 4)
            handle.remove()
            self.same(net, 4)

    def test_norms_of_zeros(self):
        mask = torch.tensor([[1.], [0.], [1.]])
        for function in (lambda m, x: F.normalize(x * m.mask, dim=-1), lambda m, x: (x * m.mask).norm(dim=-1),
                         lambda m, x: (x * m.mask).std(-1), lambda m, x: (x * m.mask).std(-1, unbiased=False)):
            self.same(Call(lambda m, x, function=function: function(m, x * m.w), w=weights(3, 4), mask=mask), 3, 4)

    def test_a_run_on_zeros_stays_finite(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc1, self.fc2 = nn.Linear(6, 6, bias=False), nn.Linear(6, 4)

            def forward(self, x):
                return self.fc2(F.normalize(self.fc1(x)).clamp(min=-1e30))

        draw = np.random.default_rng(1)
        x, y = draw.normal(size=(60, 6)), draw.integers(0, 4, 60)
        x[::3] = 0
        keys = fedhpc.write_dataset("data.h5", x, y, clients=np.arange(60) % 3)
        for kind in (torch.float32, torch.float64):
            keys |= fedhpc.export_model(Net().to(kind), torch.zeros(1, 6), "net.h5")
            results = fedhpc.run(keys, progress=False, force=True,
                                 **{"run.rounds": 2, "train.lr": 0.1, "run.output": "run.h5"})
            for name, values in results.model().items():
                self.assertTrue(np.isfinite(values).all(), name)
            self.assertGreater(np.abs(results.model()["fc1.weight"]).max(), 0)
            loss = results.rounds["train_loss"]
            self.assertLess(loss.iloc[-1], loss.iloc[0])


class NumbersTest(ModelCase):
    def test_a_constant_that_changes_later(self):
        def changed(model, x):
            mask = torch.ones(4)
            y = model.a(x) + mask + mask.view(2, 2).t().flatten()
            mask[1:] = 0
            mask.mul_(3)
            return y + mask
        self.same(Call(changed, a=nn.Linear(4, 4)), 4)

    def test_conversions(self):
        layer, rows = nn.Linear(4, 4), nn.Embedding(9, 4)
        for words, function in (("int32", lambda m, x: m.a(x.int().double())),
                                ("bool", lambda m, x: m.a(x.bool().double())),
                                ("int64", lambda m, x: m.a(x) + x.long()), ("bool", lambda m, x: m.a(x) * x.bool()),
                                ("int64", lambda m, x: m.a(x.double()) + m.b(x.long()).sum(1) * x.long()),
                                ("uint8", lambda m, x: m.a(x) * x.to(torch.uint8)),
                                ("int64", lambda m, x: m.a(x).long() + m.a(x))):
            parts = {"a": layer, "b": rows} if "b" in function.__code__.co_names else {"a": layer}
            with self.subTest(words, at=function.__code__.co_firstlineno):
                self.refused(f"a conversion to {words} ", Call(function, **parts), 4)
        self.refused("a conversion to bool", Call(lambda m, x: m.a(x) * x.bool().double(), a=layer),
                     example=torch.ones(1, 4, dtype=torch.long))
        self.same(Call(lambda m, x: m.b(x.long()), b=rows), 6, high=9)
        self.same(Call(lambda m, x: m.b(x.int()[:, 1:].view(-1, 5)), b=rows), 6, high=9)
        x = torch.randint(0, 9, (3, 6))
        fedhpc.export_model(Call(lambda m, x: m.b(x.long()[:, 1:]), b=rows), torch.ones(1, 6), "net.h5")
        self.near(Reader("net.h5")(x.double()), rows(x[:, 1:]), 1e-12, "output")
        fedhpc.export_model(Call(lambda m, x: m.a((2 * x)[:, :4].double()), a=layer), x[:1], "net.h5")
        self.near(Reader("net.h5")(x.double()), layer(2. * x[:, :4]), 1e-12, "output")

    def test_types_of_the_example(self):
        layer, rows = nn.Linear(4, 4), nn.Embedding(9, 4)
        self.refused("of type uint8, and a run has divided such pixels by 255",
                     Call(lambda m, x: m.a(x / 255), a=layer), example=torch.ones(1, 4, dtype=torch.uint8))
        self.refused("of type bool", Call(lambda m, x: m.a(x.double()), a=layer),
                     example=torch.ones(1, 4, dtype=torch.bool))
        fedhpc.export_model(Call(lambda m, x: m.b(x.long()) * (100 * x[..., None]), b=rows),
                            torch.ones(1, 4, dtype=torch.int8), "net.h5")
        x = torch.randint(0, 9, (3, 4))
        self.near(Reader("net.h5")(x), rows(x) * 100 * x[..., None], 1e-12, "output")

    def test_clamps_with_large_bounds(self):
        for function in (lambda x: x.clamp(min=-1e30), lambda x: x.clamp(max=1e30), lambda x: x.clamp(-math.inf, 1e300),
                         nn.Hardtanh(-1e30, math.inf), lambda x: torch.maximum(x, torch.tensor(-1e30)),
                         lambda x: torch.minimum(torch.full((1,), 1e30), x), lambda x: x.clamp_min(-1e30),
                         lambda x: x.clamp_(max=1e30), lambda x: x.clamp(torch.tensor([-1e30]))):
            with self.subTest(at=function.__code__.co_firstlineno if hasattr(function, "__code__") else function):
                self.same(Call(scaled(function), w=weights(6)), 6)
        self.same(Call(scaled(lambda x: torch.maximum(torch.tensor(.1), x)), w=weights(6)), 6)
        self.same(Call(scaled(lambda x: x.clamp(min=0)), w=weights(6)), 6)
        self.assertEqual(self.ops()[-1], "relu")
        self.refused("a clamp from 2.0 to 1.0", Call(scaled(lambda x: x.clamp(2, 1)), w=weights(6)), 6)
        self.refused("a clamp to values that are no", Call(scaled(lambda x: x.clamp(x.tanh(), x)), w=weights(6)), 6)

    def test_numbers_that_the_engine_does_not_take(self):
        for words, function in (("a number that is not finite", lambda x: x - math.inf),
                                ("a division by 0", lambda x: x / 0), ("other than 0", lambda x: x**0),
                                ("leaky_relu", nn.LeakyReLU(-.1)), ("elu", nn.ELU(-1.)), ("celu", nn.CELU(-1.)),
                                ("a variance of 1 numbers", lambda x: x[:, :1].var(1)),
                                ("a variance of 1 numbers", lambda x: x[:, :1].std(1))):
            with self.subTest(words):
                self.refused(words, Call(scaled(function), w=weights(6)), 6)
        self.same(Call(scaled(lambda x: x.tile((2,))), w=weights(6)), 6)
        self.same(Call(scaled(lambda x: x.tile((2, 1))), w=weights(3, 6)), 3, 6)
        self.refused("a repetition of the batch", Call(scaled(lambda x: x.tile((2, 1))), w=weights(6)), 6)


    def test_constants_are_finite_but_for_masks(self):
        layer, odd = nn.Linear(4, 4), torch.ones(4)
        for number in (math.nan, math.inf, -math.inf):
            odd[1] = number
            for product in (True, False):
                net = Call((lambda m, x: m.a(x) * m.odd) if product else (lambda m, x: m.a(x) + m.odd.view(1, 4)),
                           a=layer, odd=odd.clone())
                if number == -math.inf and not product:
                    fedhpc.export_model(net, torch.zeros(1, 4), "net.h5")
                else:
                    self.refused(f"odd, which {'mul' if product else 'add'} takes, holds NaN or infinite numbers, in "
                                 "Call, line", net, 4)
        self.refused("a constant, which div takes, holds NaN or infinite", Call(
            lambda m, x: m.a(x) / m.odd, a=layer, odd=torch.tensor([1., 0, 1, 1])), 4)


class NoiseTest(ModelCase):
    def forward_with(self, draw, twice=False):
        def forward(model, x):
            noise = draw(x.new_empty([x.shape[0], 1])) / .5
            return x + model.a(x) * noise * (noise if twice else 1)
        return Call(forward, a=nn.Linear(4, 4))

    def test_a_probability_left_out_is_a_half(self):
        for draw in (lambda one: one.bernoulli_(), lambda one: one.bernoulli_(p=.5), lambda one: one.bernoulli_(.5)):
            fedhpc.export_model(self.forward_with(draw), torch.zeros(1, 4), "net.h5")
            self.assertEqual([keys["p"] for op, keys in read("net.h5")[0] if op == "dropout"], [["0.5"]])

    def test_the_same_numbers_twice(self):
        self.refused("random numbers of samples that are used twice",
                     self.forward_with(lambda one: one.bernoulli_(.5), twice=True), 4)

        def both(model, x):
            noise = x.new_empty([x.shape[0], 1]).bernoulli_(.5)
            return model.a(x) * (noise * 2) + x * noise.div(.5)
        self.refused("used twice", Call(both, a=nn.Linear(4, 4)), 4)

        def anew(model, x):
            for _ in range(2):
                x = x + x.tanh() * x.new_empty([x.shape[0], 1]).bernoulli_(.5).div_(.5)
            return model.a(x)
        fedhpc.export_model(Call(anew, a=nn.Linear(4, 4)), torch.zeros(1, 4), "net.h5")
        self.assertEqual(self.ops().count("dropout"), 2)

    def test_dropout_that_is_off_is_an_alias(self):
        def changed(p, training, after):
            def forward(model, x):
                y = model.a(x)
                z = F.dropout(y, p, training)
                z += 1
                return (y if after else 2 * x) + z
            return Call(forward, a=nn.Linear(4, 4))
        for p, training in ((0., True), (.5, False)):
            self.refused("changes a part of a tensor in place", changed(p, training, True), 4)
            fedhpc.export_model(changed(p, training, False), torch.zeros(1, 4), "net.h5")
        fedhpc.export_model(changed(.5, True, True), torch.zeros(1, 4), "net.h5")
        self.assertEqual(self.ops().count("dropout"), 1)


class ModesTest(ModelCase):
    """What a run trains, it tests: forward is one, apart from dropout and batch norm."""

    def test_a_branch_of_training_is_refused(self):
        a, b = nn.Linear(4, 4), nn.Linear(4, 4)
        for function in (lambda m, x: m.a(x) * 2 if m.training else m.a(x),
                         lambda m, x: m.a(x) if m.training else m.a(x).softmax(1),
                         lambda m, x: m.a(x) * (torch.arange(4) + (3. if m.training else 2.))):
            net = Call(function, a=a)
            with self.subTest(at=function.__code__.co_firstlineno):
                for mode in (True, False):
                    said = self.refused(r"something else in eval\(\) than in train\(\), apart from dropout and batch "
                                        "norm,", net.train(mode), 4)
                    self.assertRegex(said, r"in Call, line \d+ of .*; leave out what depends on self.training$")
                    self.assertEqual(net.training, mode)
        self.refused(r"something else in eval\(\) .* in 0 \(Call\), line", nn.Sequential(
            Call(lambda m, x: m.b(m.a(x) if m.training else m.a(x).tanh()), a=a, b=b)), 4)
        self.refused(r"in eval\(\), as it is tested, the operation cumsum in Call", Call(
            lambda m, x: m.a(x) if m.training else m.a(x).cumsum(1), a=a), 4)

        class Told(nn.Linear):
            def train(self, mode=True):
                self.factor = 2. if mode else 1.
                return super().train(mode)

            def forward(self, x):
                return super().forward(x) * self.factor
        self.refused(r"something else in eval\(\)", Told(4, 4), 4)

    def test_dropout_and_batch_norm_differ(self):
        def dropped(model, x):
            if not model.training:
                return x + model.a(x)
            return x + model.a(x) * x.new_empty([x.shape[0], 1]).bernoulli_(.5).div_(.5)

        def norm(model, x):
            return F.batch_norm(model.a(x), model.m, model.v, model.w, model.b, model.training)

        def attention(model, x):
            y = model.e(F.scaled_dot_product_attention(model.a(x), x, x, dropout_p=.1 if model.training else 0.))
            return model.r(y)[0] if model.training else model.r(y)[0]
        layer = nn.Linear(4, 4)
        parts = {"m": torch.zeros(4), "v": torch.ones(4), "w": weights(4), "b": weights(4)}
        for net, shape in ((Call(dropped, a=layer), [4]), (Call(norm, a=layer, **parts), [4]),
                           (Call(lambda m, x: F.dropout(m.a(x), .5, m.training), a=layer), [4]),
                           (Call(attention, a=layer, e=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
                                 r=nn.LSTM(4, 3, 2, dropout=.3, batch_first=True)), [5, 4])):
            fedhpc.export_model(net, torch.zeros(1, *shape), "net.h5")
            self.assertTrue({"dropout", "batch_norm", "attention"} & set(self.ops()))


class ContainersTest(ModelCase):
    def test_what_forward_puts_away_is_not_kept(self):
        def forward(model, x):
            if "mask" not in model.cache:
                model.cache["mask"] = torch.ones(4) * 2
            model.seen.append(x)
            model.nested["kept"].append(x)
            model.names.add("x")
            model.queue.append(x)
            model.last = model.a(x) * model.cache["mask"]
            return model.last
        net = Call(forward, a=nn.Linear(4, 4))
        net.cache, net.seen, net.nested, net.names, net.queue = {}, [], {"kept": [1]}, set(), collections.deque()
        cache = net.cache
        fedhpc.export_model(net, torch.zeros(2, 4), "net.h5")
        self.assertIs(net.cache, cache)
        self.assertEqual((net.cache, net.seen, net.nested, net.names, [*net.queue]), ({}, [], {"kept": [1]}, set(), []))
        x = torch.randn(3, 4)
        self.assertIs(type(net(x)), torch.Tensor)
        self.near(Reader("net.h5")(x), net(x), 1e-9, "output")


if __name__ == "__main__":
    unittest.main()
