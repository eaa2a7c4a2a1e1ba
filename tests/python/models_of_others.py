"""Small modules in the styles in which models are written.

MODELS is [(name, function that makes it, shape of a sample, whole numbers below which the input is, or None)].
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class FederatedCNN(nn.Module):
    """Two valid 3x3 convolutions, 32 and 64 channels, as benchmarks of federated learning have it."""

    def __init__(self, channels=1, classes=10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, 32, 3), nn.Conv2d(32, 64, 3)
        self.pool, self.dropout1, self.dropout2 = nn.MaxPool2d(2), nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, classes)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(self.pool(x)), 1)
        return self.fc2(self.dropout2(F.relu(self.fc1(x))))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(),
                                      nn.AvgPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(200, 12), nn.ReLU(inplace=True), nn.Linear(12, 10))

    def forward(self, x):
        return F.log_softmax(self.classifier(self.features(x)), dim=1)


class BasicBlock(nn.Module):
    def __init__(self, before, after, stride, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1, self.norm2, self.relu = norm(after), norm(after), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm(after))

    def forward(self, x):
        identity = x
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, norm, width=8, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, before = [], width
        for layer in range(4):
            for block in range(2):
                after = width * 2**layer
                blocks.append(BasicBlock(before, after, 2 if layer and not block else 1, norm))
                before = after
        self.layers, self.avgpool = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layers(self.stem(x))), 1))


class PaddedShortcut(nn.Module):
    """A residual block for CIFAR whose shortcut drops places and pads channels."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x):
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2), "constant", 0)
        out = F.relu(self.bn(self.conv(x)) + shortcut)
        return self.fc(F.avg_pool2d(out, out.size()[3]).view(out.size(0), -1))


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for after in (4, "M", 6, "M"):
            if after == "M":
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            else:
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
                before = after
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(24, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 4))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class InvertedResidual(nn.Module):
    """MobileNet's and EfficientNet's block, with squeeze and excitation."""

    def __init__(self, channels, hidden, activation, gate):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden, eps=1e-3),
                                    activation())
        self.depth = nn.Sequential(nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
                                   nn.BatchNorm2d(hidden, momentum=0.01), activation())
        self.avgpool, self.fc1, self.fc2 = nn.AdaptiveAvgPool2d(1), nn.Conv2d(hidden, 2, 1), nn.Conv2d(2, hidden, 1)
        self.gate = gate()
        self.project = nn.Sequential(nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.depth(self.expand(x))
        scale = self.gate(self.fc2(F.relu(self.fc1(self.avgpool(y)))))
        return x + self.project(scale * y)


def mobile(activation, gate):
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), InvertedResidual(6, 10, activation, gate),
                         InvertedResidual(6, 8, activation, gate), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(6, 4))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4 + 2 * layer) for layer in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(4 + 2 * layer, 2, 3, padding=1, bias=False) for layer in range(3)])
        self.last, self.classifier = nn.BatchNorm2d(10), nn.Linear(10, 3)

    def forward(self, x):
        features = [self.first(x)]
        for norm, conv in zip(self.norms, self.convs):
            new = conv(F.relu(norm(torch.cat(features, 1))))
            features.append(F.dropout(new, p=0.1, training=self.training))
        out = F.relu(self.last(torch.cat(features, 1)), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(out, (1, 1)).flatten(1))


class Shuffle(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        one, other = x.chunk(2, dim=1)
        x = torch.cat((one, self.branch(other)), dim=1)
        size, channels, height, width = x.size()
        x = torch.transpose(x.view(size, 2, channels // 2, height, width), 1, 2).contiguous()
        return self.fc(x.view(size, -1, height, width).mean([2, 3]))


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.dw = nn.Conv2d(3, 6, 2, 2), nn.Conv2d(6, 6, 7, padding=3, groups=6)
        self.norm, self.act = nn.LayerNorm(6, eps=1e-6), nn.GELU()
        self.pw1, self.pw2 = nn.Linear(6, 12), nn.Linear(12, 6)
        self.gamma, self.head = nn.Parameter(1e-1 * torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x):
        x = self.stem(x)
        y = self.dw(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pw2(self.act(self.pw1(self.norm(y))))
        return self.head((x + y.permute(0, 3, 1, 2)).mean([-2, -1]))


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, block, flash):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.n_head, self.n_embd, self.dropout, self.flash = heads, width, 0.1, flash
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, is_causal=True,
                                               dropout_p=self.dropout if self.training else 0)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class GPTBlock(nn.Module):
    def __init__(self, width, heads, block, flash):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), CausalSelfAttention(width, heads, block, flash)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=11, width=8, heads=2, block=10, flash=True):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocabulary, width), nn.Embedding(block, width), nn.Dropout(0.1)
        self.h = nn.ModuleList([GPTBlock(width, heads, block, flash) for _ in range(2)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class ViT(nn.Module):
    """Patches by a convolution, a class token, positions, attention written with a packed projection."""

    def __init__(self, width=8, heads=2, classes=3):
        super().__init__()
        self.patch, self.heads, self.scale = nn.Conv2d(3, width, 4, 4), heads, (width // heads)**-0.5
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.norm1, self.norm2, self.norm = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
        self.head, self.drop = nn.Linear(width, classes), nn.Dropout(0.1)

    def attention(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = self.drop(((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1))
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.drop(x + self.pos_embed)
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(self.norm(x)[:, 0])


class Swin(nn.Module):
    """A shifted window with relative positions."""

    def __init__(self, width=8, heads=2, window=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.proj, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 3)
        self.table = nn.Parameter(torch.randn((2 * window - 1)**2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (places[:, :, None] - places[:, None]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])

    def forward(self, x):
        B, H, W, C = x.shape
        w = self.window
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        x = x.view(B, H // w, w, W // w, w, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, C)
        q, k, v = self.qkv(x).reshape(x.size(0), w * w, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(w * w, w * w, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        attn = (q @ k.transpose(-2, -1)) + bias
        x = self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, C))
        x = x.view(B, H // w, W // w, w, w, C).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)
        return self.head(torch.roll(x, shifts=(1, 1), dims=(1, 2)).mean((1, 2)))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.tokens = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 5))
        self.channels, self.head = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6)), nn.Linear(6, 2)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.norm2(x))).mean(dim=1))


class CharRNN(nn.Module):
    """The next character: LEAF's and TensorFlow Federated's Shakespeare models."""

    def __init__(self, kind, every):
        super().__init__()
        self.embedding, self.every = nn.Embedding(12, 4, padding_idx=0), every
        self.rnn, self.drop = kind(4, 6, num_layers=2, batch_first=True, dropout=0.1), nn.Dropout(0.1)
        self.fc = nn.Linear(6, 12)

    def forward(self, x, hidden=None):
        out, _ = self.rnn(self.embedding(x), hidden)
        if not self.every:
            return self.fc(out[:, -1])
        return self.fc(self.drop(out).contiguous().view(-1, 6)).view(x.size(0), x.size(1), -1)


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(15, 5)
        self.convs = nn.ModuleList([nn.Conv2d(1, 3, (size, 5)) for size in (2, 3)])
        self.dropout, self.fc = nn.Dropout(0.5), nn.Linear(6, 2)

    def forward(self, x):
        x = self.embedding(x).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(one, one.size(2)).squeeze(2) for one in x]
        return self.fc(self.dropout(torch.cat(x, 1)))


class Positions(nn.Module):
    """PyTorch's tutorial of a transformer, with sines as a buffer and the batch first."""

    def __init__(self, width=8, length=12):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(1, length, width)
        pe[0, :, 0::2], pe[0, :, 1::2] = torch.sin(position * rates), torch.cos(position * rates)
        self.register_buffer("pe", pe)
        self.embedding, self.width, self.dropout = nn.Embedding(13, width), width, nn.Dropout(0.1)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 16, batch_first=True), 1)
        self.decoder = nn.Linear(width, 13)

    def forward(self, src):
        src = self.embedding(src) * math.sqrt(self.width)
        src = self.dropout(src + self.pe[:, :src.size(1)])
        mask = nn.Transformer.generate_square_subsequent_mask(src.size(1))
        return self.decoder(self.encoder(src, mask)[:, -1])


class Llama(nn.Module):
    """Root-mean-square norms, rotary positions, gated layers."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.embed, self.norm, self.heads = nn.Embedding(9, width), nn.RMSNorm(width, eps=1e-5), heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, 12), nn.Linear(width, 12), nn.Linear(12, width)
        self.gain, self.head = nn.Parameter(torch.ones(width)), nn.Linear(width, 9, bias=False)

    @staticmethod
    def rotate(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def forward(self, x):
        x = self.embed(x)
        B, T, C = x.shape
        angles = torch.outer(torch.arange(T, dtype=x.dtype), 1.0 / 100 ** (torch.arange(0, 4, 2, dtype=x.dtype) / 4))
        angles = torch.cat((angles, angles), dim=-1)
        y = self.norm(x)
        q, k, v = (one(y).view(B, T, self.heads, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        q, k = (self.rotate(one, angles.cos(), angles.sin()) for one in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.o(y)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain
        return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x)))


class Highway(nn.Module):
    """One block of a table's features, with a gate and skipped input."""

    def __init__(self):
        super().__init__()
        self.input, self.bn = nn.Linear(7, 6), nn.BatchNorm1d(6)
        self.block, self.gate = nn.Linear(6, 6), nn.Linear(6, 6)
        self.output = nn.Linear(13, 2)

    def forward(self, x):
        y = F.relu(self.bn(self.input(x)))
        t = torch.sigmoid(self.gate(y))
        y = t * torch.tanh(self.block(y)) + (1 - t) * y
        return self.output(torch.cat([x, y], dim=-1))


MODELS = [
    ("FederatedCNN", FederatedCNN, (1, 28, 28), None),
    ("LeNet", LeNet, (3, 32, 32), None),
    ("ResNet18 with group norm", lambda: ResNet18(lambda width: nn.GroupNorm(2, width)), (3, 64, 64), None),
    ("ResNet18 with batch norm", lambda: ResNet18(nn.BatchNorm2d), (3, 64, 64), None),
    ("PaddedShortcut", PaddedShortcut, (4, 8, 8), None),
    ("VGG", VGG, (3, 16, 16), None),
    ("MobileNetV2", lambda: mobile(nn.ReLU6, nn.Sigmoid), (3, 9, 9), None),
    ("MobileNetV3", lambda: mobile(nn.Hardswish, nn.Hardsigmoid), (3, 9, 9), None),
    ("EfficientNet", lambda: mobile(nn.SiLU, nn.Sigmoid), (3, 9, 9), None),
    ("DenseNet", DenseNet, (3, 6, 6), None),
    ("ShuffleNet", Shuffle, (8, 5, 5), None),
    ("ConvNeXt", ConvNeXt, (3, 16, 16), None),
    ("GPT", GPT, (8,), 11),
    ("GPT with attention written out", lambda: GPT(flash=False), (8,), 11),
    ("ViT", ViT, (3, 8, 8), None),
    ("Swin", Swin, (4, 4, 8), None),
    ("Mixer", Mixer, (5, 6), None),
    ("LSTM", lambda: CharRNN(nn.LSTM, False), (9,), 12),
    ("LSTM, every character", lambda: CharRNN(nn.LSTM, True), (9,), 12),
    ("GRU", lambda: CharRNN(nn.GRU, False), (9,), 12),
    ("TextCNN", TextCNN, (8,), 15),
    ("Transformer", Positions, (7,), 13),
    ("Llama", Llama, (6,), 9),
    ("Highway", Highway, (7,), None),
]
