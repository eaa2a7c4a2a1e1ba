"""A reader of model files in plain torch functions, independent of the writer: docs/model-files.md, line by line."""

import h5py
import numpy as np
import torch
import torch.nn.functional as F


def read(path):
    """The layers [(op, {key: [text]})], constants and weights {name: tensor} of a model file."""
    with h5py.File(path) as file:
        assert file.attrs["fedhpc_model"] == 1
        layers = []
        for line in file["layers"][()]:
            op, *rest = line.decode().split(" ")
            layers.append((op, {key: value.split(",") for key, value in (one.split("=") for one in rest)}))
        constants = {name: torch.from_numpy(np.array(one)) for name, one in file.get("constants", {}).items()}
        weights = {name: torch.from_numpy(np.array(one)) for name, one in file.get("model/global", {}).items()}
    return layers, constants, weights


class Reader:
    """A model file as a function of a batch, in training form; dropout is left out, `dropped` counts it."""

    def __init__(self, path):
        self.layers, self.constants, self.weights = read(path)
        used = {int(one) for _, keys in self.layers for one in keys.get("inputs", [])}
        assert used == set(range(len(self.layers) - 1)), "a line that nobody uses"
        self.dropped = sum(op == "dropout" or "dropout" in keys for op, keys in self.layers)
        for name, one in self.weights.items():
            one.requires_grad_(not name.endswith(("running_mean", "running_var")))

    def __call__(self, x):
        values = []
        for at, (op, keys) in enumerate(self.layers):
            inputs = [values[int(one)] for one in keys.get("inputs", [])]
            parameters = [self.weights[one] for one in keys.get("parameters", [])]
            assert all(int(one) < at for one in keys.get("inputs", []))
            values.append(getattr(self, "do_" + op)(Keys(keys), inputs, parameters, x))
            shape = keys.get("shape")
            if shape:
                assert list(values[-1].shape[1:]) == [int(one) for one in shape], (op, values[-1].shape, shape)
        return values[-1]

    def do_input(self, keys, inputs, parameters, x):
        return x

    def do_parameter(self, keys, inputs, parameters, x):
        assert list(parameters[0].shape) == keys.ints("shape")
        return parameters[0].expand(len(x), *parameters[0].shape)

    def do_constant(self, keys, inputs, parameters, x):
        constant = self.constants[keys["constant"][0]]
        return constant.expand(len(x), *constant.shape)

    def do_linear(self, keys, inputs, parameters, x):
        assert keys.int("out") == len(parameters[0])
        return F.linear(inputs[0], *parameters)

    def do_convolution(self, keys, inputs, parameters, x):
        weight, *bias = parameters
        assert [keys.int("out"), *keys.ints("kernel")] == [len(weight), *weight.shape[2:]]
        function = F.conv2d if weight.ndim == 4 else F.conv1d
        return function(inputs[0], weight, bias[0] if bias else None, keys.ints("stride", 1), keys.ints("padding", 0),
                        keys.ints("dilation", 1), keys.int("groups", 1))

    def do_batch_norm(self, keys, inputs, parameters, x):
        weight, bias, mean, variance = parameters
        return F.batch_norm(inputs[0], mean, variance, weight, bias, True, keys.float("momentum", .1),
                            keys.float("epsilon", 1e-5))

    def do_group_norm(self, keys, inputs, parameters, x):
        assert len(parameters) in (0, 2)
        groups, value = keys.int("groups"), inputs[0]
        parts = value.reshape(len(value), groups, -1)
        parts = (parts - parts.mean(2, True)) / (parts.var(2, correction=0, keepdim=True)
                                                 + keys.float("epsilon", 1e-5)).sqrt()
        value = parts.reshape(value.shape)
        if parameters:
            weight, bias = (one.reshape(-1, *[1] * (value.ndim - 2)) for one in parameters)
            value = value * weight + bias
        return value

    def do_layer_norm(self, keys, inputs, parameters, x):
        dims, rank = keys.ints("dims"), inputs[0].ndim - 1
        assert dims == list(range(rank - len(dims), rank))
        return F.layer_norm(inputs[0], inputs[0].shape[-len(dims):], *parameters, eps=keys.float("epsilon", 1e-5))

    def do_gelu(self, keys, inputs, parameters, x):
        return F.gelu(inputs[0], approximate="tanh" if keys.int("tanh", 0) else "none")

    def do_leaky_relu(self, keys, inputs, parameters, x):
        return F.leaky_relu(inputs[0], keys.float("slope", .01))

    def do_elu(self, keys, inputs, parameters, x):
        return F.elu(inputs[0], keys.float("alpha", 1))

    def do_softplus(self, keys, inputs, parameters, x):
        return F.softplus(inputs[0], keys.float("beta", 1), keys.float("threshold", 20))

    def do_hardtanh(self, keys, inputs, parameters, x):
        return F.hardtanh(inputs[0], keys.float("low"), keys.float("high"))

    def do_power(self, keys, inputs, parameters, x):
        return inputs[0] ** keys.float("exponent")

    def do_max_pool(self, keys, inputs, parameters, x):
        function = F.max_pool2d if len(keys["kernel"]) == 2 else F.max_pool1d
        return function(inputs[0], keys.ints("kernel"), keys.ints("stride", keys.ints("kernel")),
                        keys.ints("padding", 0), keys.ints("dilation", 1), bool(keys.int("ceil", 0)))

    def do_average_pool(self, keys, inputs, parameters, x):
        function = F.avg_pool2d if len(keys["kernel"]) == 2 else F.avg_pool1d
        return function(inputs[0], keys.ints("kernel"), keys.ints("stride", keys.ints("kernel")),
                        keys.ints("padding", 0), bool(keys.int("ceil", 0)), bool(keys.int("count_padding", 1)))

    def do_adaptive_average_pool(self, keys, inputs, parameters, x):
        out = keys.ints("out")
        return F.adaptive_avg_pool2d(inputs[0], out) if len(out) == 2 else F.adaptive_avg_pool1d(inputs[0], out)

    def do_adaptive_max_pool(self, keys, inputs, parameters, x):
        out = keys.ints("out")
        return F.adaptive_max_pool2d(inputs[0], out) if len(out) == 2 else F.adaptive_max_pool1d(inputs[0], out)

    def do_dropout(self, keys, inputs, parameters, x):
        assert 0 < keys.float("p") < 1 and (not keys.int("channels", 0) or inputs[0].ndim > 1)
        return inputs[0]

    def do_embedding(self, keys, inputs, parameters, x):
        assert [keys.int("rows"), keys.int("columns")] == list(parameters[0].shape)
        padding = keys.int("padding", -1)
        return F.embedding(inputs[0].long(), parameters[0], padding_idx=padding if padding >= 0 else None)

    def do_lstm(self, keys, inputs, parameters, x):
        def step(fed, state, weights, biases):
            h, c = state
            i, f, g, o = (fed @ weights[0].T + h @ weights[1].T + biases[0] + biases[1]).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c
        return self.recurrent(keys, inputs[0], parameters, step)

    def do_gru(self, keys, inputs, parameters, x):
        def step(fed, state, weights, biases):
            r, z, n = (fed @ weights[0].T + biases[0]).chunk(3, 1)
            hr, hz, hn = (state[0] @ weights[1].T + biases[1]).chunk(3, 1)
            r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
            h = (1 - z) * (n + r * hn).tanh() + z * state[0]
            return h, h
        return self.recurrent(keys, inputs[0], parameters, step)

    @staticmethod
    def recurrent(keys, value, parameters, step):
        hidden, length = keys.int("hidden"), value.shape[1]
        biases = parameters[2:] or [value.new_zeros(1), value.new_zeros(1)]
        state, outputs = (value.new_zeros(len(value), hidden),) * 2, [None] * length
        for at in range(length)[::-1] if keys.int("reverse", 0) else range(length):
            state = step(value[:, at], state, parameters[:2], biases)
            outputs[at] = state[0]
        return torch.stack(outputs, 1)

    def do_attention(self, keys, inputs, parameters, x):
        query, key, value, *mask = inputs
        scores = query @ key.transpose(-2, -1) * keys.float("scale", query.shape[-1] ** -.5)
        size = scores.shape[-2:]
        if mask:
            assert mask[0].shape[1:] in (size, scores.shape[1:])
            while mask[0].ndim < scores.ndim:
                mask[0] = mask[0].unsqueeze(1)
            scores = scores + mask[0]
        if keys.int("causal", 0):
            scores = scores.masked_fill(torch.ones(size).triu(1).bool(), -torch.inf)
        return scores.softmax(-1) @ value

    @staticmethod
    def two(inputs):
        """Both with as many dimensions of a sample."""
        rank = max(one.ndim for one in inputs)
        return [one.reshape(len(one), *[1] * (rank - one.ndim), *one.shape[1:]) for one in inputs]

    def do_add(self, keys, inputs, parameters, x):
        return torch.add(*self.two(inputs))

    def do_subtract(self, keys, inputs, parameters, x):
        return torch.sub(*self.two(inputs))

    def do_multiply(self, keys, inputs, parameters, x):
        return torch.mul(*self.two(inputs))

    def do_affine(self, keys, inputs, parameters, x):
        return keys.float("factor", 1) * inputs[0] + keys.float("shift", 0)

    def do_matmul(self, keys, inputs, parameters, x):
        one, other = inputs
        assert one.ndim >= 3 and one.shape[:-2] == other.shape[:-2], (one.shape, other.shape)
        return one @ other

    def do_softmax(self, keys, inputs, parameters, x):
        return inputs[0].softmax(1 + keys.int("dim"))

    def do_log_softmax(self, keys, inputs, parameters, x):
        return inputs[0].log_softmax(1 + keys.int("dim"))

    def do_mean(self, keys, inputs, parameters, x):
        return inputs[0].mean([1 + dim for dim in keys.ints("dims")])

    def do_sum(self, keys, inputs, parameters, x):
        return inputs[0].sum([1 + dim for dim in keys.ints("dims")])

    def do_concat(self, keys, inputs, parameters, x):
        assert len(inputs) > 1
        return torch.cat(inputs, 1 + keys.int("dim"))

    def do_slice(self, keys, inputs, parameters, x):
        dim, start, end, step = keys.int("dim"), keys.int("start"), keys.int("end"), keys.int("step", 1)
        assert 0 <= start < end <= inputs[0].shape[1 + dim]
        return inputs[0][(slice(None),) * (1 + dim) + (slice(start, end, step),)]

    def do_permute(self, keys, inputs, parameters, x):
        dims = keys.ints("dims")
        assert sorted(dims) == list(range(len(dims))) and len(dims) == inputs[0].ndim - 1
        return inputs[0].permute(0, *(1 + dim for dim in dims))

    def do_reshape(self, keys, inputs, parameters, x):
        return inputs[0].reshape(len(x), *keys.ints("shape"))

    def do_expand(self, keys, inputs, parameters, x):
        assert inputs[0].ndim - 1 == len(keys["shape"])
        return inputs[0].expand(len(x), *keys.ints("shape"))


for _name in ("relu", "silu", "tanh", "sigmoid", "hardswish"):
    def _elementwise(self, keys, inputs, parameters, x, _function=getattr(F, _name)):
        return _function(inputs[0])
    setattr(Reader, "do_" + _name, _elementwise)


class Keys(dict):
    """The keys of a line; what has no default here must be there."""

    def ints(self, key, *default):
        return [int(one) for one in self[key]] if key in self else default[0]

    def int(self, key, *default):
        return self.ints(key)[0] if key in self else default[0]

    def float(self, key, *default):
        return float(self[key][0]) if key in self else default[0]
