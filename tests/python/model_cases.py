"""fedhpc.export_model and load_weights: the file computes what the module computes, and what it cannot hold is refused.

A reader of its own (model_support.Reader) goes through the file line by line. Outputs and the gradient of every
parameter must be the module's to 1e-9 in float64.
"""

import copy
import math
import os
import subprocess
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from unittest import mock

import h5py
import models_of_others as others
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from model_support import Reader, read
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(1, str(ROOT / "tests/python"))
import fedhpc  # noqa: E402
from fedhpc._model_graph import OPERATIONS, Batch  # noqa: E402
from python_support import TINY, InFolder  # noqa: E402

PROGRAM = os.environ.get("FEDHPC") or ROOT / "build/release/fedhpc"


class Call(nn.Module):
    """A module whose forward is a function of the input and this module, which holds parts by name."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def weights(*shape):
    return nn.Parameter(torch.randn(*shape))


def scaled(function):
    """function(x) behind a layer, so that gradients pass through it."""
    return lambda model, x: function(x * model.w)


class ModelCase(InFolder):
    def setUp(self):
        super().setUp()
        torch.manual_seed(7)
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)

    def ops(self, path="net.h5"):
        return [op for op, _ in read(path)[0]]

    def same(self, module, *shape, high=None, tolerance=1e-9):
        """Exports the module and compares; shape: of a sample. high: inputs are whole numbers below it."""
        draw = (lambda *size: torch.randint(0, high, size)) if high else torch.randn
        before = copy.deepcopy(module.state_dict())
        modes = [one.training for one in module.modules()]
        fedhpc.export_model(module, draw(1, *shape), "net.h5")
        self.assertEqual([one.training for one in module.modules()], modes)
        self.assertEqual(list(before), list(module.state_dict()))
        self.assertTrue(all(torch.equal(one, before[name]) for name, one in module.state_dict().items()))
        module = copy.deepcopy(module).train()
        for one in module.modules():  # dropout is off where values are compared
            if isinstance(getattr(one, "dropout", None), float):
                one.dropout = 0.0
        for size in (2, 3):
            reader, x = Reader("net.h5"), draw(size, *shape)
            with mock.patch.object(F, "dropout", lambda value, *_, **__: value), \
                    mock.patch.object(F, "dropout1d", lambda value, *_, **__: value), \
                    mock.patch.object(F, "dropout2d", lambda value, *_, **__: value):
                expected = module(x.clone())
            found = reader(x)
            if expected.ndim == 1:  # a single number of each sample is [1] in the file
                expected = expected[:, None]
            # A tensor whose first dimension is the batch and more has more dimensions in the file.
            self.assertEqual(found.flatten(0, found.ndim - expected.ndim).shape, expected.shape)
            found = found.reshape(expected.shape)
            self.near(found, expected, tolerance, "output")
            direction = torch.randn(expected.shape)
            parameters = dict(module.named_parameters())
            wanted = torch.autograd.grad((expected * direction).sum(), list(parameters.values()))
            self.assertEqual({name for name, one in reader.weights.items() if one.requires_grad}, set(parameters))
            mine = torch.autograd.grad((found * direction).sum(), [reader.weights[name] for name in parameters])
            for name, one, other in zip(parameters, mine, wanted):
                self.near(one.reshape(other.shape), other, tolerance, name)
            for name, one in reader.constants.items():
                self.assertIn(one.dtype, (torch.float64, torch.int64))
                self.assertTrue(one.dtype == torch.float64 or all(
                    op == "embedding" for op, keys in reader.layers
                    if any(reader.layers[int(at)][1].get("constant") == [name] for at in keys.get("inputs", []))))
            for name, one in module.named_buffers():
                if name in reader.weights:
                    self.near(reader.weights[name], one, tolerance, name)
            module.load_state_dict(before)

    def near(self, found, expected, tolerance, name):
        error = (found - expected).abs().max().item()
        self.assertLessEqual(error, tolerance * (1 + expected.abs().max().item()), name)

    def refused(self, words, module, *shape, example=None):
        """A ConfigError of one sentence, and no file."""
        example = torch.randn(2, *shape) if example is None else example
        with self.assertRaisesRegex(fedhpc.ConfigError, words) as caught:
            fedhpc.export_model(module, example, "refused.h5")
        self.assertNotIn("\n", str(caught.exception))
        self.assertIn("; ", str(caught.exception))
        self.assertNotIn(".;", str(caught.exception))
        self.assertEqual([one.name for one in self.folder.iterdir() if "refused" in one.name], [])
        return str(caught.exception)


class LayersTest(ModelCase):
    def test_linear(self):
        self.same(nn.Linear(5, 3), 5)
        self.same(nn.Linear(5, 3, bias=False), 4, 2, 5)
        self.same(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), 2, 5)
        self.same(Call(lambda m, x: F.linear(x, m.w * 2, m.b), w=weights(3, 5), b=weights(3)), 4, 5)
        self.same(Call(lambda m, x: x @ m.w + m.b, w=weights(5, 3), b=weights(3)), 5)
        self.same(Call(lambda m, x: x @ m.w.t(), w=weights(3, 5)), 2, 4, 5)
        self.same(Call(lambda m, x: torch.addmm(m.b, x, m.w), w=weights(5, 3), b=weights(3)), 5)
        self.same(Call(lambda m, x: torch.addmm(m.b, x.view(-1, 5), m.w).view(*x.shape[:2], 3), w=weights(5, 3),
                       b=weights(3)), 4, 5)

    def test_convolutions(self):
        for keys in ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}, {"bias": False},
                     {"padding": "same"}, {"padding": "valid"}, {"padding": "same", "dilation": 3}):
            for kernel in (3, 1, 4):
                with self.subTest(keys=keys, kernel=kernel):
                    self.same(nn.Conv1d(4, 6, kernel, **keys), 4, 12)
                    self.same(nn.Conv2d(4, 6, kernel, **keys), 4, 10, 12)
        self.same(nn.Conv2d(2, 4, (3, 1), (1, 2), (2, 0)), 2, 6, 7)
        self.same(nn.Conv2d(4, 8, 3, groups=4, padding="same"), 4, 5, 6)
        self.same(nn.Conv2d(2, 3, (2, 4), padding="same"), 2, 6, 7)

    def test_norms(self):
        self.same(nn.BatchNorm1d(5), 5)
        self.same(nn.BatchNorm1d(5, eps=1e-3, momentum=.3), 5, 4)
        self.same(nn.BatchNorm2d(5), 5, 4, 3)
        self.same(nn.Sequential(nn.Linear(6, 5), Call(lambda m, x: m.n(x.view(-1, 5)).view(x.shape),
                                                      n=nn.BatchNorm1d(5))), 4, 6)
        for affine in (True, False):
            self.same(nn.Sequential(nn.Conv2d(2, 6, 1), nn.GroupNorm(3, 6, affine=affine)), 2, 4, 3)
            self.same(nn.Sequential(nn.Conv2d(2, 6, 1), nn.InstanceNorm2d(6, affine=affine)), 2, 4, 3)
            self.same(nn.Sequential(nn.Conv1d(2, 6, 1), nn.InstanceNorm1d(6, affine=affine)), 2, 4)
            self.same(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5, elementwise_affine=affine)), 3, 6)
        self.same(nn.GroupNorm(2, 4), 4)
        self.same(nn.LayerNorm((3, 4), eps=1e-3), 2, 3, 4)
        self.same(nn.LayerNorm(4, bias=False), 4)
        self.same(nn.RMSNorm(6), 3, 6)
        self.same(nn.Sequential(nn.Linear(3, 6), nn.RMSNorm(6, eps=1e-3, elementwise_affine=False)), 3)
        self.same(Call(lambda m, x: m.g * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6),
                       g=weights(6)), 3, 6)
        self.same(Call(lambda m, x: x * m.g * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), g=weights(6)), 3, 6)
        self.same(Call(lambda m, x: F.normalize(x * m.g, dim=-1), g=weights(6)), 3, 6)

    def test_activations(self):
        for function in (nn.ReLU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Hardswish(), nn.GELU(), nn.GELU("tanh"),
                         nn.LeakyReLU(.2), nn.ELU(), nn.ELU(.7), nn.SELU(), nn.CELU(1.3), nn.Softplus(),
                         nn.Softplus(2, 1), nn.Hardtanh(-.5, 1.5), nn.ReLU6(), nn.Hardsigmoid(), nn.LogSigmoid(),
                         nn.Mish(), nn.GLU(1), nn.Softmax(1), nn.Softmax(-1), nn.LogSoftmax(2), nn.Identity(),
                         nn.Tanhshrink(), nn.Softmin(1), nn.Softsign(), torch.abs,
                         lambda x: torch.maximum(x, x.flip(1)), lambda x: torch.minimum(x, x**2),
                         lambda x: x.max(x.roll(1, 2))):
            # PyTorch's own gradients of two of them have constants in single precision.
            tolerance = 1e-7 if isinstance(function, (nn.CELU, nn.Hardsigmoid)) else 1e-9
            with self.subTest(function=function):
                self.same(Call(scaled(function), w=weights(4, 6)), 4, 6, tolerance=tolerance)
        for function in (nn.ReLU(True), nn.SiLU(True), nn.ELU(inplace=True), nn.LeakyReLU(inplace=True),
                         nn.Hardswish(True), nn.ReLU6(True), nn.Hardtanh(inplace=True), nn.Dropout(.5, True)):
            with self.subTest(function=function):
                self.same(nn.Sequential(nn.Linear(4, 5), function, nn.Linear(5, 2)), 4)
        for function in (lambda x: x.clamp(-1, .5), lambda x: x.clamp(min=.1), lambda x: torch.clamp(x, max=.3),
                         nn.Hardtanh(-math.inf, 1), lambda x: x.clamp(0, math.inf)):
            self.same(Call(scaled(function), w=weights(6)), 6)
        self.same(nn.Sequential(nn.Linear(3, 4), nn.PReLU()), 3)
        self.same(nn.Sequential(nn.Conv2d(2, 4, 1), nn.PReLU(4)), 2, 3, 3)

    def test_pooling(self):
        for shape, pools in (((3, 13, 12), (nn.MaxPool2d, nn.AvgPool2d)), ((3, 13), (nn.MaxPool1d, nn.AvgPool1d))):
            convolution = nn.Conv2d if len(shape) == 3 else nn.Conv1d
            for pool in pools:
                for keys in ({}, {"stride": 1}, {"padding": 1}, {"ceil_mode": True}, {"stride": 2, "padding": 1}):
                    with self.subTest(pool=pool, keys=keys):
                        self.same(nn.Sequential(convolution(3, 2, 1), pool(3, **keys)), *shape)
        self.same(nn.Sequential(nn.Conv2d(3, 2, 1), nn.MaxPool2d((3, 2), (2, 3), dilation=2)), 3, 9, 9)
        self.same(nn.Sequential(nn.Conv2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, count_include_pad=False)), 3, 9, 8)
        for out in (1, 3, (2, 5), (None, 2)):
            self.same(nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(out)), 3, 7, 9)
            self.same(nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveMaxPool2d(out)), 3, 7, 9)
        self.same(nn.Sequential(nn.Conv1d(3, 2, 1), nn.AdaptiveAvgPool1d(3)), 3, 7)
        self.same(nn.Sequential(nn.Conv1d(3, 2, 1), nn.AdaptiveMaxPool1d(3)), 3, 7)
        self.same(Call(lambda m, x: m.c(x).max(dim=2)[0], c=nn.Conv1d(3, 4, 2)), 3, 7)
        self.same(Call(lambda m, x: torch.amax(m.c(x), (1,), keepdim=True), c=nn.Conv1d(3, 4, 2)), 3, 7)

    def test_dropout(self):
        for module, wanted in ((nn.Dropout(.25), "0"), (nn.Dropout2d(.3), "1")):
            net = nn.Sequential(nn.Conv2d(2, 3, 1), module).eval()
            self.same(net, 2, 4, 4)
            op, keys = read("net.h5")[0][-1]
            self.assertEqual((op, keys["p"], keys.get("channels", ["0"])), ("dropout", [str(module.p)], [wanted]))
        self.same(nn.Sequential(nn.Conv1d(2, 3, 1), nn.Dropout1d(.3), nn.Dropout(0.)), 2, 4)
        self.assertEqual(self.ops(), ["input", "convolution", "dropout"])

    def test_stochastic_depth(self):
        def forward(model, x):
            noise = x.new_empty([x.shape[0], 1, 1]).bernoulli_(.75)
            noise.div_(.75)
            return x + model.a(x) * noise
        fedhpc.export_model(Call(forward, a=nn.Linear(4, 4)), torch.zeros(1, 3, 4), "net.h5")
        layers = read("net.h5")[0]
        self.assertEqual([op for op, _ in layers], ["input", "linear", "reshape", "dropout", "reshape", "add"])
        self.assertEqual(layers[3][1] | {"name": 0}, {"p": ["0.25"], "channels": ["1"], "inputs": ["2"], "name": 0})
        self.assertEqual(layers[2][1]["shape"], ["1", "12"])

    def test_embeddings(self):
        self.same(nn.Embedding(9, 4), 6, high=9)
        self.same(Call(lambda m, x: m.a(x[:, 0]) * m.a.weight.shape[0], a=nn.Embedding(9, 4)), 6, high=9)
        self.same(nn.Embedding(9, 4, padding_idx=2), 2, 3, high=9)
        self.same(Call(lambda m, x: m.a(x) + m.b(torch.arange(x.shape[1])), a=nn.Embedding(9, 4), b=nn.Embedding(6, 4)),
                  5, high=9)
        self.same(Call(lambda m, x: m.a(x) + m.b(torch.arange(x.size(1)).unsqueeze(0).expand(x.size(0), -1)),
                       a=nn.Embedding(9, 4), b=nn.Embedding(6, 4)), 5, high=9)
        self.same(Call(lambda m, x: m.a(x) + m.b(torch.arange(x.size(1)).repeat(x.size(0), 1)), a=nn.Embedding(9, 4),
                       b=nn.Embedding(6, 4)), 5, high=9)
        self.same(Call(lambda m, x: m.a(x) + m.b(m.k), a=nn.Embedding(9, 4), b=nn.Embedding(6, 4),
                       k=torch.tensor([3, 1, 1, 5, 0])), 5, high=9)

    def test_recurrent(self):
        for kind in (nn.LSTM, nn.GRU):
            for keys in ({}, {"num_layers": 2, "dropout": .2}, {"bidirectional": True}, {"bias": False},
                         {"num_layers": 2, "bidirectional": True}):
                with self.subTest(kind=kind, keys=keys):
                    self.same(Call(lambda m, x: m.r(x)[0], r=kind(4, 3, batch_first=True, **keys)), 5, 4)
            self.same(Call(lambda m, x: m.r(x.transpose(0, 1))[0].transpose(0, 1), r=kind(4, 3)), 5, 4)
            self.same(Call(lambda m, x: m.r(x)[0][:, -1, :], r=kind(4, 3, batch_first=True)), 5, 4)

        def last(model, x):
            states = model.r(x, (torch.zeros(4, x.shape[0], 3), torch.zeros(4, x.shape[0], 3)))[1][0]
            return torch.cat((states[-2], states[-1], states[0]), dim=1)
        self.same(Call(last, r=nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)), 5, 4)
        self.same(Call(lambda m, x: m.r(x)[1][0].transpose(0, 1).flatten(1),
                       r=nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)), 5, 4)
        self.same(Call(lambda m, x: m.r(x)[1].squeeze(0), r=nn.GRU(4, 3, batch_first=True)), 5, 4)

    def test_attention(self):
        def three(function):
            return Call(lambda m, x: function(m, *m.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)),
                        qkv=nn.Linear(5, 24), mask=torch.rand(6, 6) > .3, bias=weights(2, 6, 6))
        product = F.scaled_dot_product_attention
        rows = torch.eye(6, dtype=torch.bool)
        for function in (lambda m, q, k, v: product(q, k, v) + m.bias.mean(),
                         lambda m, q, k, v: product(q, k, v, is_causal=True, scale=.3) * m.bias.sum(),
                         lambda m, q, k, v: product(q, k, v, attn_mask=m.mask | rows) * m.bias.sum(),
                         lambda m, q, k, v: product(q, k, v, attn_mask=(m.mask | rows)[None, None]) * m.bias.sum(),
                         lambda m, q, k, v: product(q, k, v, attn_mask=m.bias),
                         lambda m, q, k, v: product(q, k, v, attn_mask=m.bias[:1]),
                         lambda m, q, k, v: product(q, k[:, :, :3], v[:, :, :3], is_causal=True) * m.bias.sum(),
                         lambda m, q, k, v: product(q[:, :, 2:], k, v, is_causal=True) * m.bias.sum(),
                         lambda m, q, k, v: product(q[:, :, :4].flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
                         .unflatten(0, (-1, 2)) * m.bias.sum(),
                         lambda m, q, k, v: product(q, k[:, :1], v[:, :1]) * m.bias.sum(),
                         lambda m, q, k, v: product(q, k[:, :, :3], v[:, :, :3, :2]) * m.bias.sum()):
            self.same(three(function), 6, 5)
            self.assertEqual(self.ops().count("attention"), 1)
        self.same(three(lambda m, q, k, v: product(q, k, v, attn_mask=torch.ones(6, 6).tril().bool())
                        * m.bias.sum()), 6, 5)
        self.assertIn(["1"], [keys.get("causal") for op, keys in read("net.h5")[0] if op == "attention"])
        for need in (True, False):
            for mask in (None, torch.ones(6, 6).triu(1).bool(), torch.zeros(6, 6).masked_fill(
                    torch.ones(6, 6).triu(1).bool(), -math.inf)):
                module = nn.MultiheadAttention(4, 2, dropout=.1, batch_first=True)
                module = Call(lambda m, x, need=need: m.a(x, x, x, need_weights=need, attn_mask=m.mask)[0], a=module)
                module.register_buffer("mask", mask)
                self.same(module, 6, 4)
                self.assertEqual(self.ops().count("attention"), 1, (need, mask))
        self.same(Call(lambda m, x: m.a(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))[0].transpose(0, 1),
                       a=nn.MultiheadAttention(4, 2)), 6, 4)
        self.same(Call(lambda m, x: m.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(
            4, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True)), 6, 4)
        self.same(Call(lambda m, x: m.a(x[:, :2], x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True)), 6, 4)
        self.same(Call(lambda m, x: m.a(m.q.expand(x.shape[0], -1, -1), x, x)[0], q=weights(1, 3, 4),
                       a=nn.MultiheadAttention(4, 2, batch_first=True, kdim=5, vdim=5)), 6, 5)
        for first in (True, False):
            self.same(nn.TransformerEncoderLayer(8, 2, 12, norm_first=first, batch_first=True, activation="gelu"), 5, 8)
        self.same(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 2,
                                        enable_nested_tensor=False), 5, 8)
        self.same(Call(lambda m, x: m.t(x, mask=nn.Transformer.generate_square_subsequent_mask(5), is_causal=True),
                       t=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 1)), 5, 8)

    def test_attention_written_out(self):
        def form(scores, order=(0, 2, 3, 1)):
            def function(model, x):
                size, length, _ = x.shape
                q, k, v = model.qkv(x).chunk(3, dim=-1)
                q, v = (one.view(size, length, 2, 4).transpose(1, 2) for one in (q, v))
                k = k.view(size, length, 2, 4).permute(*order)
                return (model.d(scores(model, q, k).softmax(dim=-1)) @ v).transpose(1, 2).reshape(size, length, 8)
            return Call(function, qkv=nn.Linear(5, 24), mask=torch.ones(6, 6).tril(), d=nn.Dropout(.1))
        forms = [lambda m, q, k: q @ k / 2, lambda m, q, k: (q * .5) @ k,
                 lambda m, q, k: (q @ k / 2.).masked_fill(m.mask == 0, float("-inf")),
                 lambda m, q, k: torch.where(m.mask.bool(), q @ k, float("-inf")),
                 lambda m, q, k: q @ k * .5 + torch.log(m.mask)]
        for scores in forms:
            self.same(form(scores), 6, 5)
            self.assertEqual(self.ops().count("attention"), 1)
            self.assertEqual(self.ops().count("softmax"), 0)
        self.same(form(lambda m, q, k: (q @ k).masked_fill(m.mask == 0, -1e9)), 6, 5)
        self.same(form(lambda m, q, k: (q @ k).masked_fill(m.mask.bool(), 3.)), 6, 5)
        self.same(Call(lambda m, x: torch.einsum("bhij,bhjd->bihd", torch.einsum(
            "bihd,bjhd->bhij", *2 * [m.q(x).unflatten(-1, (2, 4))]).softmax(-1),
            x.unflatten(-1, (1, 8)).expand(-1, -1, 2, -1).transpose(1, 2)), q=nn.Linear(8, 8)), 5, 8)

    def test_numbers_of_float64_modules_beside_float32_tensors(self):
        export = fedhpc.export_model

        def beside_float32(*arguments):
            torch.set_default_dtype(torch.float32)
            export(*arguments)
            torch.set_default_dtype(torch.float64)
        with mock.patch.object(fedhpc, "export_model", beside_float32):
            for function in (lambda m, x: torch.where(m.mask, x, .1), lambda m, x: x.masked_fill(m.mask, .1),
                             lambda m, x: x / torch.tensor([3, 7, 11]),
                             lambda m, x: x.masked_fill(m.mask, torch.finfo(x.dtype).min / 1e9).softmax(-1),
                             lambda m, x: torch.where(m.mask, x, -1e200).softmax(-1)):
                self.same(Call(lambda m, x, function=function: function(m, x * m.w), w=weights(4, 3),
                               mask=torch.ones(4, 3).tril().bool()), 4, 3, tolerance=1e-14)

    def test_arithmetic(self):
        c = torch.rand(4, 5) + .5
        for function in (lambda m, x: x * 2 + 1, lambda m, x: 1 - x, lambda m, x: (x - 3) / 4, lambda m, x: -x,
                         lambda m, x: x + m.c, lambda m, x: m.c - x, lambda m, x: x / m.c, lambda m, x: m.c * x,
                         lambda m, x: torch.rsub(x, 2, alpha=3), lambda m, x: torch.add(x, x.tanh(), alpha=.5),
                         lambda m, x: torch.sub(x, m.c, alpha=2), lambda m, x: x / (1 + x * x), lambda m, x: 2 / x,
                         lambda m, x: x * m.c[:, :1] + m.c[0], lambda m, x: (x * x).sqrt(), lambda m, x: x**3,
                         lambda m, x: (x.square() + 1).rsqrt(), lambda m, x: x.reciprocal(),
                         lambda m, x: torch.addcmul(x, x, m.c, value=.3), lambda m, x: m.c[None] * x,
                         lambda m, x: torch.where(m.c > 1, x, m.c), lambda m, x: torch.where(m.c > 1, x, 2 * x),
                         lambda m, x: x * torch.tensor(3.), lambda m, x: torch.full((x.shape[0], 4, 5), 2.) - x,
                         lambda m, x: x.mul(torch.arange(5)), lambda m, x: x - x.mean((1, 2), keepdim=True)):
            self.same(Call(lambda m, x, function=function: function(m, x * m.w), w=weights(4, 5), c=c), 4, 5)
        self.same(Call(lambda m, x: x * m.a + m.b / m.a, a=nn.Parameter(torch.tensor(1.5)), b=weights(1, 3)), 4, 3)

        def changed(model, x):
            y = model.a(x)
            y += 1
            y *= model.c
            y.sub_(x.mean(1, keepdim=True)).div_(2)
            return y
        self.same(Call(changed, a=nn.Linear(5, 5), c=torch.rand(5)), 5)

    def test_shapes(self):
        for function in (
                lambda x: x.flatten(1), lambda x: x.view(x.size(0), -1), lambda x: x.reshape(-1, 24),
                lambda x: x.permute(0, 3, 1, 2), lambda x: x.transpose(1, 2).contiguous().view(x.shape[0], 3, 8),
                lambda x: x.view(-1, 12).view(-1, 24), lambda x: x.reshape(-1, 3, 4).mean(1),
                lambda x: x.permute(1, 0, 2, 3).reshape(-1, 3, 4).reshape(2, -1, 12).transpose(0, 1),
                lambda x: x.mean((1, 2)), lambda x: x.sum(-1), lambda x: x.sum((2, 3), keepdim=True),
                lambda x: x.mean([1, 2, 3], keepdim=True), lambda x: x.mean(1, True).squeeze(1),
                lambda x: torch.cat([x, 2 * x, x.tanh()], 2), lambda x: torch.stack([x, x * x], -1),
                lambda x: torch.stack([x, x * x], 1), lambda x: x[:, 1:, ::2, -2:], lambda x: x[:, -1],
                lambda x: x[:, :, 1, None], lambda x: x[..., 1:3], lambda x: x.narrow(2, 1, 2),
                lambda x: x.narrow(-1, -2, 2), lambda x: x.select(3, -2),
                lambda x: torch.cat(x.chunk(2, dim=3), 2), lambda x: x.split([1, 2], 2)[1], lambda x: x.split(3, 3)[1],
                lambda x: sum(x.unbind(2)), lambda x: x.unsqueeze(2).expand(-1, -1, 5, -1, -1),
                lambda x: x.unflatten(3, (2, 2)).movedim(1, -1), lambda x: x.swapaxes(1, 3).clone(),
                lambda x: x.repeat(1, 2, 1, 3), lambda x: x.repeat_interleave(2, dim=2), lambda x: x.flip(2),
                lambda x: x.roll((1, -1), (2, 3)), lambda x: F.pad(x, (1, 2, 0, 1)),
                lambda x: F.pad(x, (-1, 2), value=3.),
                lambda x: x[:, :, [2, 0, 1]], lambda x: x.index_select(3, torch.tensor([3, 0, 1, 2])),
                lambda x: x.index_select(-1, torch.tensor(1)),
                lambda x: F.pad(x[:, :, ::2], (0, 0, 0, 0, 1, 1)), lambda x: x.mT @ x,
                lambda x: F.pixel_shuffle(x.reshape(x.shape[0], 4, 2, 3), 2), lambda x: x.view_as(2 * x),
                lambda x: x.expand_as(x) + torch.zeros_like(x), lambda x: x[:], lambda x: x.log_softmax(2),
                lambda x: x[:, :, :, torch.arange(40) * 7 % 4], lambda x: x[:, torch.arange(80).view(2, 40) * 7 % 2],
                lambda x: x.mean((1, 2, 3)), lambda x: x[:, 1, 2, 3], lambda x: x.sum((1, 2, 3)).unsqueeze(1),
                lambda x: torch.stack([x[:, 0, 0, 0], x.flatten(1).amax(1)], 1), lambda x: x.mean((1, 2, 3)).tanh() * 2,
                lambda x: x * x[:, 0, 0, 0][:, None, None, None], lambda x: x.norm(dim=-1),
                lambda x: x.flatten(1) @ torch.arange(24.), lambda x: x.var(1, unbiased=False)):
            with self.subTest(line=function.__code__.co_firstlineno, at=list(function.__code__.co_positions())[3]):
                self.same(Call(scaled(function), w=weights(2, 3, 4)), 2, 3, 4)
        self.same(Call(lambda m, x: torch.cat([m.c.expand(x.shape[0], -1, -1), x], dim=1) + m.p, c=weights(1, 1, 4),
                       p=weights(1, 6, 4)), 5, 4)
        self.same(Call(lambda m, x: torch.cat([m.c.repeat(x.shape[0], 1, 1), x], dim=1), c=weights(1, 2, 4)), 5, 4)

    def test_products(self):
        for function, size, shape in (
                (lambda m, x: m.w @ x, (6, 5), (5, 4)), (lambda m, x: x @ m.w, (6, 5), (2, 3, 6)),
                (lambda m, x: m.w @ x, (6, 5), (3, 5, 4)), (lambda m, x: torch.matmul(x, m.w), (6,), (4, 6)),
                (lambda m, x: m.w @ x, (2, 6, 5), (2, 5, 4)), (lambda m, x: x @ m.w, (2, 4, 3), (2, 5, 4)),
                (lambda m, x: torch.bmm(x, x.transpose(1, 2)) @ m.w, (6, 5), (6, 2)),
                (lambda m, x: torch.einsum("bi,ij->bj", x, m.w), (6, 5), (6,)),
                (lambda m, x: torch.einsum("bti,ij->btj", x, m.w), (6, 5), (3, 6)),
                (lambda m, x: torch.einsum("oi,bti->bot", m.w, x), (6, 5), (3, 5)),
                (lambda m, x: torch.einsum("bti,bsi->bts", x @ m.w, x @ m.w), (6, 5), (3, 6)),
                (lambda m, x: torch.baddbmm(x, x @ m.w, x, beta=.5, alpha=2), (6, 6), (6, 6)),
                (lambda m, x: (x.unsqueeze(2) @ (x.unsqueeze(3) * m.w)).squeeze(2), (6, 5), (4, 6))):
            with self.subTest(size=size, shape=shape):
                self.same(Call(function, w=weights(*size)), *shape)


class WholeModelsTest(ModelCase):
    def test_models_of_others(self):
        for name, make, shape, high in others.MODELS:
            with self.subTest(name):
                self.same(make(), *shape, high=high, tolerance=1e-7 if name == "MobileNetV3" else 1e-9)

    def test_attention_becomes_lines_of_attention(self):
        for flash in (True, False):
            fedhpc.export_model(others.GPT(flash=flash), torch.zeros(1, 8, dtype=torch.long), "gpt.h5")
            layers = read("gpt.h5")[0]
            found = [keys for op, keys in layers if op == "attention"]
            self.assertEqual([keys.get("causal") for keys in found], [["1"]] * 2)
            self.assertEqual([op for op, _ in layers if op in ("softmax", "matmul", "constant")], [])


class RefusedTest(ModelCase):
    def test_control_flow_on_values(self):
        def forward(model, x):
            return model.a(x) if x.sum() > 0 else x
        said = self.refused("control flow or a shape depends on values", Call(forward, a=nn.Linear(4, 4)), 4)
        self.assertRegex(said, r"in line \d+ of .*model_cases.py; .*model.backend=autograd")
        for words, function in (
                ("gt, a choice that depends on values", lambda m, x: m.a(x)[x[:, 0] > 0]),
                ("gt, a choice that depends on values", lambda m, x: torch.where(x > 0, m.a(x), x)),
                ("eq, a choice that depends on values", lambda m, x: m.a(x).masked_fill(x == 0, 0.)),
                ("control flow or a shape", lambda m, x: m.a(x)[:, :int(x[0, 0])])):
            self.refused(words, Call(function, a=nn.Linear(4, 4)), 4)

    def test_masks_of_several_dimensions(self):
        mask = torch.tensor([[True, False, True], [False, True, True]])
        for function in (lambda m, x: m.a(x).unflatten(1, (2, 3))[:, m.mask], lambda m, x: m.a(x) * m.b[m.mask].sum()):
            self.refused("a mask of 2 dimensions",
                         Call(function, a=nn.Linear(4, 6), b=weights(2, 3), mask=mask), 4)
        self.same(Call(lambda m, x: m.a(x)[:, m.mask], a=nn.Linear(4, 3), mask=mask[0]), 4)

    def test_a_wrong_shape_is_refused_aloud(self):
        def wrong(walk, self, **_):
            return walk.reshaped(walk.value(self), (Batch(), 2, 3))

        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        with mock.patch.dict(OPERATIONS, relu=wrong):
            said = self.refused(r"this use of relu, which yields \[\w+, 6\], in 1 \(ReLU\)", net, 4)
        self.assertIn("model.backend=autograd", said)
        with mock.patch.dict(OPERATIONS, relu=lambda walk, self, **_: walk.reshaped(walk.value(self), (6, Batch()))):
            self.refused("this use of relu", net, 4)

    def test_unknown_operations_say_where(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Call(lambda m, x: x.exp()), nn.Linear(4, 2)))
        self.refused(r"the operation exp in 1\.0 \(Call\), line \d+ of", net, 4)
        said = self.refused("the operation cumsum in ", Call(lambda m, x: m.a(x).cumsum(1), a=nn.Linear(4, 4)), 4)
        self.assertRegex(said, r"line \d+ of .*model_cases.py")
        self.refused("the operation conv_transpose2d", nn.ConvTranspose2d(2, 2, 2), 2, 4, 4)
        self.refused("the operation rnn_tanh", Call(lambda m, x: m.a(x)[0], a=nn.RNN(4, 4, batch_first=True)), 5, 4)
        self.refused("the operation conv3d", nn.Conv3d(2, 2, 2), 2, 4, 4, 4)
        self.refused("padding by 'reflect'", nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), 2, 4, 4)
        self.refused("the operation bilinear", Call(lambda m, x: m.a(x, x), a=nn.Bilinear(3, 3, 2)), 3)
        self.refused("how often a row comes", nn.Embedding(5, 4, scale_grad_by_freq=True), example=torch.ones(
            2, 4, dtype=torch.long))
        self.refused("dropout", nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(.2)), 4)

    def test_complex_numbers(self):
        self.refused("complex numbers", Call(lambda m, x: torch.fft.fft(m.a(x)).abs(), a=nn.Linear(4, 4)), 4)
        self.refused("parameter w is of type complex128", Call(lambda m, x: (x * m.w).real, w=nn.Parameter(
            torch.ones(4, dtype=torch.complex128))), 4)
        self.refused("complex", nn.Linear(4, 4), example=torch.ones(2, 4, dtype=torch.complex128))

    def test_parameters_in_two_places(self):
        tied = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
        tied[1].weight = tied[0].weight
        self.refused(r"parameters 0\.weight and 1\.weight are one \(tied weights\)", tied, 4, example=torch.ones(
            2, 4, dtype=torch.long))
        layer = nn.Linear(4, 4)
        self.refused(r"are one|is used twice", nn.Sequential(layer, nn.ReLU(), layer), 4)
        self.refused(r"parameter a\.weight is used twice", Call(lambda m, x: m.a(m.a(x)), a=layer), 4)
        self.refused(r"parameter a\.weight is used twice", Call(lambda m, x: m.a(x) @ m.a.weight, a=layer), 4)
        self.refused(r"a\.weight is used twice \(tied weights\), in a and in Call, line \d+ of ",
                     Call(lambda m, x: m.a(x) + m.a.weight.sum(1), a=layer), 4)
        norm = nn.BatchNorm1d(4)
        self.refused("is used twice", Call(lambda m, x: m.a(m.a(x)), a=norm), 4)

    def test_samples_that_mix(self):
        layer = nn.Linear(4, 4)
        for words, function in (
                ("an operation over the batch", lambda m, x: m.a(x) - x.mean(0)),
                ("an operation over the batch", lambda m, x: m.a(x) - x.mean()),
                ("an operation over the batch", lambda m, x: m.a(x).softmax(0)),
                ("an operation over the batch", lambda m, x: m.a(x).flip(0)),
                ("an operation over the batch", lambda m, x: (x @ x.t()) @ m.a(x)),
                ("an operation over the batch", lambda m, x: torch.cat([x, m.a(x)], 0)),
                ("one sample of the batch", lambda m, x: m.a(x) + x[0]),
                ("a slice of the batch", lambda m, x: m.a(x[1:])),
                ("mixes samples", lambda m, x: m.a(x).view(4, -1).t()),
                ("mixes samples", lambda m, x: m.a(x)[:, None] - x[None]),
                ("depends on how many samples", lambda m, x: m.a(x) / x.shape[0]),
                ("depends on its place in the batch", lambda m, x: m.a(x) + torch.arange(x.shape[0])[:, None]),
                ("a batch of one size", lambda m, x: m.a(x.view(len(x), 4))),
                ("a batch of one size", lambda m, x: m.a(x) if x.shape[0] == 5 else x),
                ("the batch is not the first dimension", lambda m, x: m.a(x).t())):
            with self.subTest(words, at=function.__code__.co_firstlineno):
                self.refused(words, Call(function, a=layer), 4)
        for function in (lambda m, x: m.a(x) + torch.randn(4), lambda m, x: m.a(x) + torch.randn_like(x),
                         lambda m, x: m.a(x) + x.new_empty(x.shape[0], 1).bernoulli_(.5),
                         lambda m, x: m.a(x) * x.new_empty(x.shape[0], 1).bernoulli_(.5),
                         lambda m, x: m.a(x) * x.new_empty(x.shape[0], 4).bernoulli_(.5),
                         lambda m, x: m.a(x) * x.new_empty(4).bernoulli_(.5) * 2):
            self.refused("random numbers", Call(function, a=layer), 4)
        self.refused("dropout of a value that all samples share", Call(lambda m, x: x + F.dropout(m.w), w=weights(4)),
                     4)
        self.refused("takes the batch for the time", Call(lambda m, x: m.a(x)[0], a=nn.GRU(4, 3)), 5, 4)
        self.refused("a batch that is not the first", Call(lambda m, x: m.a(x.flatten(0, 1)).unflatten(0, (-1, 3)),
                                                          a=nn.Conv2d(1, 2, 2)), 3, 1, 4, 4)
        self.refused("over a batch that is not the first", Call(lambda m, x: m.a(x.permute(2, 1, 0)).permute(2, 1, 0),
                                                               a=nn.BatchNorm1d(4)), 4, 3)

    def test_inputs_and_outputs(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)

            def forward(self, x, y):
                return self.a(x + y)
        layer = nn.Linear(4, 4)
        self.refused(r"forward has 2 inputs \(x, y\)", Two(), 4)
        self.refused("the example input is a tuple", layer, example=(torch.ones(2, 4), torch.ones(2, 4)))
        self.refused(r"the example input has shape \(4,\)", layer, example=torch.ones(4))
        self.refused("at least one sample", layer, example=torch.ones(0, 4))
        self.refused("forward returns a tuple of 2 values", Call(lambda m, x: (m.a(x), x), a=layer), 4)
        self.refused("forward returns a dict", Call(lambda m, x: {"y": m.a(x)}, a=layer), 4)
        self.refused("forward returns a tuple of 2", nn.GRU(4, 3, batch_first=True), 5, 4)
        self.refused("does not depend on its input|returns", Call(lambda m, x: 3, a=layer), 4)
        self.refused("does not depend on its input", Call(lambda m, x: m.a.weight * 2, a=layer), 4)
        self.refused("does not depend on its input", Call(lambda m, x: m.w.expand(x.shape[0], -1), w=weights(4)), 4)
        self.refused("forward returns its input", Call(lambda m, x: x, a=layer), 4)
        self.refused("last cell state", Call(lambda m, x: m.a(x)[1][1][0], a=nn.LSTM(4, 3, batch_first=True)), 5, 4)
        self.refused(r"torch\.export refuses it \(RuntimeError", layer, 5)

    def test_scales_of_norms_are_told_by_the_class_of_their_module(self):
        inner = Call(lambda m, x: x * m.scale, scale=weights(4))
        for parts, line in (({"norm": nn.RMSNorm(4)}, {"norm": ["1"]}), ({"norm": inner}, {})):
            name = "weight" if line else "scale"
            self.same(Call(lambda m, x, name=name: F.rms_norm(m.a(x), (4,), getattr(m.norm, name)), a=nn.Linear(4, 4),
                           **parts), 4)
            keys, = (keys for op, keys in read("net.h5")[0] if op == "parameter")
            self.assertEqual({key: one for key, one in keys.items() if key == "norm"}, line)

    def test_norms_without_what_they_need(self):
        self.refused("batch norm without running statistics", nn.BatchNorm1d(4, track_running_stats=False), 4)
        self.refused("batch norm without weight", nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)), 4)
        self.refused("momentum=None", nn.BatchNorm1d(4, momentum=None), 4)
        self.refused("embedding 0 has max_norm.*leave max_norm out", nn.Sequential(nn.Embedding(6, 3, max_norm=1.)), 4,
                     example=torch.ones(2, 4, dtype=torch.long))
        self.refused("instance norm with running statistics",
                     nn.InstanceNorm1d(4, affine=True, track_running_stats=True), 4, 3)

        class Frozen(nn.BatchNorm1d):
            def train(self, mode=True):
                return super().train(False)
        self.refused("statistics are frozen", Frozen(4), 4)

    def test_frozen_statistics_are_named_before_missing_weights(self):
        parts = {"a": nn.Linear(4, 4), "m": torch.zeros(4), "v": torch.ones(4)}
        self.refused("statistics are frozen", Call(lambda m, x: F.batch_norm(m.a(x), m.m, m.v), **parts), 4)

    def test_what_no_line_yields_is_named(self):
        net = Call(lambda m, x: m.f(m.r(x)[1][1][-1]), r=nn.LSTM(4, 3, batch_first=True), f=nn.Linear(3, 2))
        said = self.refused(r"the last cell state of an LSTM, which the format lacks, in r \(LSTM\), line \d+", net,
                            5, 4)
        self.assertNotIn(",;", said)
        self.refused("the place of a maximum, which the format lacks, in Call, line",
                     Call(lambda m, x: m.a(x).max(1)[1][:, :3].to(x.dtype), a=nn.Linear(4, 4)), 5, 4)

    def test_changes_in_place(self):
        layer = nn.Linear(4, 4)
        self.refused("relu_ changes the module's input in place", nn.Sequential(nn.ReLU(True), layer), 4)

        def counting(model, x):
            model.count += 1
            return model.a(x)

        def averaging(model, x):
            model.mean.mul_(.9).add_(x.detach().mean(0), alpha=.1)
            return model.a(x) - model.mean

        def part(model, x):
            y = model.a(x)
            y[:, 0] = 0
            return y

        def seen_twice(model, x):
            y = model.a(x)
            z = y.view(-1, 2, 2)
            y += 1
            return z
        self.refused(r"changes a buffer of its own \(count\)", Call(counting, a=layer, count=torch.zeros(1)), 4)
        self.refused(r"buffer of its own|in place|an operation over the batch|detach",
                     Call(averaging, a=layer, mean=torch.zeros(4)), 4)
        self.refused("fill_ changes a part of a tensor in place", Call(part, a=layer), 4)
        self.refused("changes a part of a tensor in place", Call(seen_twice, a=layer), 4)
        def frozen(model, x):
            with torch.no_grad():
                y = model.a(x)
            return y * x + model.a.weight.sum()

        def scaled_by_constant(model, x):
            with torch.no_grad():
                scale = torch.ones(4).cumsum(0)
            return model.a(x) * scale
        self.refused("under torch.no_grad, which stops the gradient", Call(frozen, a=layer), 4)
        self.same(Call(scaled_by_constant, a=layer), 4)
        self.refused("detach, which stops the gradient",
                     Call(lambda m, x: m.a(x).detach() + m.a.weight.sum(), a=layer), 4)

    def test_parameters_that_cannot_train(self):
        net = Call(lambda m, x: m.a(x), a=nn.Linear(4, 4), b=nn.Linear(3, 2))
        self.refused(r"the output does not depend on parameter b\.weight", net, 4)
        net = nn.Linear(4, 4)
        net.bias.requires_grad_(False)
        self.refused("parameter bias is frozen", net, 4)
        self.refused("parameter weight is of type float16", nn.Linear(4, 4).half(), 4)
        self.refused("parameter weight is of type bfloat16", nn.Linear(4, 4).bfloat16(), 4)
        whole = nn.Parameter(torch.ones(4, dtype=torch.long), requires_grad=False)
        self.refused("parameter w is of type int64", Call(lambda m, x: x * m.w, w=whole), 4)
        self.refused("of different types", nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).float()), 4)
        self.refused("parameter weight has no shape yet", nn.LazyLinear(3), 4)
        self.refused("the module has no parameters", nn.ReLU(), 4)
        self.refused("function is no torch.nn.Module", F.relu, 4)
        self.refused("makes numbers of type float32", Call(lambda m, x: m.a(x).float(), a=nn.Linear(4, 4)), 4)

    def test_names(self):
        for name in ("a b", "a,b", "a=b", "a/b"):
            net = nn.Sequential()
            net.add_module(name, nn.Linear(4, 4))
            self.refused(r"the name of parameter .* has a space, comma, '=' or '/'; rename it", net, 4)
        net = nn.Sequential(nn.Linear(4, 4))
        net.add_module("an act", nn.ReLU())
        self.same(net, 4)


class FileTest(ModelCase):
    def test_what_stands_in_the_file(self):
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).float()
        found = fedhpc.export_model(net, torch.zeros(7, 4), "net.h5")
        self.assertEqual(found, {"model.name": "file", "model.file": str(self.folder.resolve() / "net.h5")})
        with h5py.File("net.h5") as file:
            self.assertEqual(file["layers"].dtype.kind, "S")
            self.assertIn(torch.__version__, file.attrs["producer"])
            self.assertEqual(sorted(file["model/global"]), ["0.bias", "0.weight", "1.bias", "1.running_mean",
                                                            "1.running_var", "1.weight"])
            self.assertEqual(file["model/global/0.weight"].dtype, np.float32)
            np.testing.assert_array_equal(file["model/global/0.weight"], net[0].weight.detach())
            self.assertNotIn("constants", file)
            # A key that has its default is left out.
            self.assertEqual([line.decode() for line in file["layers"]], [
                "input shape=4", "linear out=3 inputs=0 parameters=0.weight,0.bias name=0",
                "batch_norm inputs=1 parameters=1.weight,1.bias,1.running_mean,1.running_var name=1",
                "relu inputs=2 name=2"])
        fedhpc.export_model(net, torch.zeros(7, 4), "net.h5", weights=False)
        with h5py.File("net.h5") as file:
            self.assertNotIn("model", file)

    def test_a_file_that_cannot_be_written_leaves_what_was_there(self):
        with self.assertRaisesRegex(fedhpc.DataError, "cannot be written"):
            fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "nowhere/net.h5")
        Path("net.h5").write_text("mine")
        with mock.patch("os.replace", side_effect=OSError("no space")):
            with self.assertRaisesRegex(fedhpc.DataError, "no space"):
                fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "net.h5")
        self.assertEqual([(one.name, one.read_text()) for one in self.folder.iterdir()], [("net.h5", "mine")])

    def test_what_is_replaced_is_no_result(self):
        keys = fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "net.h5")
        fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "net.h5")
        with h5py.File(keys["model.file"], "a") as file:
            file.attrs["status"] = "interrupted"
        with self.assertRaisesRegex(fedhpc.DataError, "net.h5 is a result file or a checkpoint of a run; give another"):
            fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "net.h5")

    def test_a_full_disk_is_seen_before(self):
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1000)):
            with self.assertRaisesRegex(fedhpc.DataError, "net.h5 cannot be written: 1.0 MB more are needed and 0.0 MB"):
                fedhpc.export_model(nn.Linear(4, 3), torch.zeros(1, 4), "net.h5")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_weights_are_finite(self):
        for number in (float("nan"), float("inf")):
            net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
            with torch.no_grad():
                net[1].weight[0, 1] = number
            with self.assertRaisesRegex(fedhpc.ConfigError, "^1.weight holds NaN or infinite numbers; give a module"):
                fedhpc.export_model(net, torch.zeros(1, 4), "net.h5")
            fedhpc.export_model(net, torch.zeros(1, 4), "net.h5", weights=False)

    def test_exporting_leaves_the_module_and_draws_alone(self):
        net = others.VGG().eval()
        net.features[1].train()
        for one in net.parameters():
            one.grad = torch.ones_like(one)
        modes, state = [one.training for one in net.modules()], torch.get_rng_state()
        fedhpc.export_model(net, torch.zeros(2, 3, 16, 16), "net.h5")
        self.assertEqual([one.training for one in net.modules()], modes)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertTrue(all(one.grad.eq(1).all() and one.requires_grad for one in net.parameters()))
        self.assertEqual(self.ops().count("dropout"), 1)
        self.assertEqual(self.ops().count("batch_norm"), 2)
        with self.assertRaises(fedhpc.ConfigError):
            fedhpc.export_model(net, torch.zeros(2, 3), "net.h5")
        self.assertEqual([one.training for one in net.modules()], modes)


    def test_wrapped_modules(self):
        layer = nn.Linear(4, 3)
        fedhpc.export_model(torch.compile(layer), torch.zeros(2, 4), "net.h5")
        self.assertEqual(set(Reader("net.h5").weights), {"weight", "bias"})
        self.assertTrue(torch.equal(Reader("net.h5")(torch.ones(2, 4)), layer(torch.ones(2, 4))))

        class Any(nn.Sequential):
            def forward(self, *inputs):
                return super().forward(*inputs)
        self.same(Any(layer), 4)

    def test_what_forward_keeps_is_not_kept(self):
        def forward(model, x):
            model.last, model.count = model.a(x), model.count + 1
            return model.r(model.last)[0]
        net = Call(forward, a=nn.Linear(4, 4), r=nn.LSTM(4, 3, batch_first=True))
        net.count = 0
        fedhpc.export_model(net, torch.zeros(2, 5, 4), "net.h5")
        self.assertEqual(net.count, 0)
        self.assertFalse(hasattr(net, "last"))
        x = torch.randn(3, 5, 4)
        self.near(Reader("net.h5")(x), net(x), 1e-9, "output")


class LoadTest(ModelCase):
    """Result files are stood in for by what fedhpc.Results says of one."""

    class Results:
        def __init__(self, whole=True, config=None, **values):
            self.values, self.config = values, config or {}
            scored = [0.5, math.nan]
            self.rounds = pd.DataFrame({"global_loss": scored if whole else math.nan, "personal_loss": scored})

        def model(self):
            return self.values

        def personal(self, client):
            return {name: values + client for name, values in self.values.items()}

    def test_weights_come_back(self):
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        net.register_buffer("mask", torch.ones(2))
        net.register_parameter("scale", nn.Parameter(torch.tensor(2.)))
        values = {name: np.full(one.shape or 1, at + .5, np.float32) for at, (name, one) in enumerate(
            net.state_dict().items()) if name not in ("mask", "1.num_batches_tracked")}
        self.assertIs(fedhpc.load_weights(net, self.Results(**values)), net)
        for name, one in net.state_dict().items():
            if name in values:
                self.assertTrue(one.eq(float(values[name].flat[0])).all(), name)
        self.assertEqual(net.scale.shape, ())
        self.assertEqual(net.mask.tolist(), [1, 1])
        fedhpc.load_weights(net, self.Results(**values), client=3)
        self.assertEqual(net[0].bias.tolist(), [values["0.bias"][0] + 3] * 3)

    def test_a_number_is_of_shape_nothing_in_a_run_of_a_script(self):
        net = nn.ParameterDict({"scale": torch.tensor(2.)})
        for values in (np.array(0.5), np.array([0.5])):  # of a TorchScript file, of a model file
            fedhpc.load_weights(net, self.Results(scale=values))
            self.assertEqual(net.scale.tolist(), 0.5)
            net.scale.data.fill_(2)

    def test_a_part_of_a_model_is_said_to_be_one(self):
        net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        part = {name: one.detach().numpy() for name, one in net.named_parameters() if name.startswith("0.")}
        with self.assertRaisesRegex(fedhpc.ConfigError, "1.weight is in the module, but not in the results: the method "
                                                        "shares a part of the model only; give client=K"):
            fedhpc.load_weights(net, self.Results(whole=False, **part))
        for client, whole in ((None, True), (1, False)):
            with self.assertRaisesRegex(fedhpc.ConfigError, "1.weight is in the module.*give the module that was"):
                fedhpc.load_weights(net, self.Results(whole, **part), client=client)

    def test_statistics_that_stay_with_clients_are_warned_of(self):
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        values = {name: one.numpy().copy() for name, one in net.state_dict().items() if "tracked" not in name}
        local = {"train.buffers": "local"}
        with self.assertWarnsRegex(UserWarning, "batch norm: those of the global model are the initial ones") as caught:
            fedhpc.load_weights(net, self.Results(config=local, **values))
        self.assertEqual(Path(caught.filename).name, Path(__file__).name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fedhpc.load_weights(net, self.Results(config=local, **values), client=1)
            fedhpc.load_weights(net, self.Results(config={"train.buffers": "average"}, **values))
            fedhpc.load_weights(net[0], self.Results(config=local, weight=values["0.weight"], bias=values["0.bias"]))

    def test_weights_of_a_run(self):
        keys = {**TINY, "model.name": "mlr", "run.output": "run.h5", "run.save": "personal", "algorithm.name": "ditto",
                "run.progress": "none", "run.reproducible": "true"}
        Path("run.ini").touch()
        subprocess.run([PROGRAM, "run", "run.ini", *(f"--{key}={value}" for key, value in keys.items()
                                                     if key != "model.hidden")], check=True, capture_output=True)
        results = fedhpc.Results("run.h5")
        rows, columns = results.model()["fc1.weight"].shape
        net = nn.Sequential(OrderedDict(fc1=nn.Linear(columns, rows)))
        for client in (None, 2):
            fedhpc.load_weights(net, "run.h5", client=client)
            wanted = results.model() if client is None else results.personal(client)
            np.testing.assert_array_equal(net.fc1.weight.detach(), wanted["fc1.weight"])

    def test_other_modules_are_refused(self):
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        values = {name: one.numpy().copy() for name, one in net.state_dict().items() if "tracked" not in name}
        before = copy.deepcopy(net.state_dict())
        for words, wrong in (("1.bias is in the module, but not in the results", {**values, "1.bias": None}),
                             ("1.running_var is in the module", {**values, "1.running_var": None}),
                             ("2.weight is in the results, but not in the module",
                              {**values, "2.weight": values["1.bias"]}),
                             (r"0.weight has shape \[3, 5\] in the results and \[3, 4\] in the module",
                              {**values, "0.bias": np.ones(3), "0.weight": np.ones((3, 5))})):
            wrong = {name: one for name, one in wrong.items() if one is not None}
            with self.assertRaisesRegex(fedhpc.ConfigError, words):
                fedhpc.load_weights(net, self.Results(**wrong))
            self.assertTrue(all(torch.equal(one, before[name]) for name, one in net.state_dict().items()))
        with self.assertRaisesRegex(fedhpc.DataError, "no such file"):
            fedhpc.load_weights(net, "nothing.h5")
