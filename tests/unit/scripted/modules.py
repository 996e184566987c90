"""Modules."""

import math
from typing import Dict, Final, List, Optional, Tuple

from script_cases import registry

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor, nn

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


@module((lambda: ramp(2, 4),), (lambda: -ramp(2, 4),))
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.alpha = 0.5
        self.register_buffer("scale", torch.ones(4) * 2)

    def forward(self, x):
        if x.sum() > 0:
            return self.fc(x) * self.scale
        return -x * self.alpha


@module((lambda: ramp(2, 4), lambda: ramp(2, 4)))
class MyCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.dg = Gate()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, h):
        new_h = torch.tanh(self.dg(self.linear(x)) + h)
        return new_h, new_h


@module((lambda: ramp(3, 2, 4),))
class MyRNNLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = MyCell()

    def forward(self, xs):
        h, y = torch.zeros(2, 4), torch.zeros(2, 4)
        for i in range(xs.size(0)):
            y, h = self.cell(xs[i], h)
        return y, h


@module((lambda: ramp(2, 4),))
class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.ReLU()})
        self.seq = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        out: List[Tensor] = []
        for name, head in self.heads.items():
            out.append(head(x))
        for layer, other in zip(self.layers, self.layers):
            x = x + (layer(x) * other(x)).tanh()
        return self.seq(x), out, self.layers[0](x), len(self.layers), self.heads["a"](x)


@module((lambda: ramp(2, 3, 8, 8),))
class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes: int = 3, planes: int = 4, stride: int = 2):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride), nn.BatchNorm2d(planes)
            )
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        out = self.relu(out)
        return out


@module((lambda: ramp(2, 3, 16, 16),))
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(4, 4, 2, 1)
        self.layer2 = self._make_layer(4, 8, 2, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 10)

    def _make_layer(self, inplanes, planes, blocks, stride):
        layers = [BasicBlock(inplanes, planes, stride)]
        for _ in range(1, blocks):
            layers.append(BasicBlock(planes, planes, 1))
        return nn.Sequential(*layers)

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


@module((lambda: ramp(2, 4),), (lambda: ramp(3, 4),))
class Mutating(nn.Module):
    names: List[str]

    def __init__(self):
        super().__init__()
        self.count = 0
        self.names = []
        self.table: Dict[str, int] = {"a": 1}
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        self.total += x.sum(0)
        self.names.append(str(self.count))
        self.table["n"] = self.count
        return self.total * 1, self.count, self.names, self.table["n"]


@module((lambda: ramp(2, 4),))
class Exported(nn.Module):
    scale: Final[int]

    def __init__(self):
        super().__init__()
        self.scale = 4
        self.fc = nn.Linear(4, 4)
        self.use = True
        self.bias: Optional[Tensor] = None

    def forward(self, x):
        y = self.encode(x)
        if self.training:
            y = y * 2
        if self.use:
            y = y + 1
        bias = self.bias
        if bias is not None:
            y = y + bias
        return y

    @torch.jit.export
    def encode(self, x):
        for _ in range(self.scale):
            x = self.fc(x)
        return x**2

    @torch.jit.unused
    def never(self, x):
        import os

        return os.listdir(x)

    @property
    def width(self) -> int:
        return self.scale * 2


@module((lambda: ramp(3, 2, 4), None))
class LSTMLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight_ih = nn.Parameter(ramp(32, 4))
        self.weight_hh = nn.Parameter(ramp(32, 8))
        self.bias = nn.Parameter(torch.zeros(32))

    def step(
        self, input: Tensor, state: Tuple[Tensor, Tensor]
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        gates = torch.mm(input, self.weight_ih.t()) + torch.mm(hx, self.weight_hh.t()) + self.bias
        i, f, g, o = gates.chunk(4, 1)
        cy = torch.sigmoid(f) * cx + torch.sigmoid(i) * torch.tanh(g)
        hy = torch.sigmoid(o) * torch.tanh(cy)
        return hy, (hy, cy)

    def forward(
        self, input: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        if state is None:
            zeros = torch.zeros(input.size(1), 8, dtype=input.dtype, device=input.device)
            state = (zeros, zeros)
        inputs = input.unbind(0)
        outputs = torch.jit.annotate(List[Tensor], [])
        for i in range(len(inputs)):
            out, state = self.step(inputs[i], state)
            outputs += [out]
        return torch.stack(outputs), state


@module((lambda: torch.tensor([[1, 2, 3], [4, 5, 0]]),))
class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.gru = nn.GRU(6, 5)
        self.out = nn.Linear(5, 10)
        self.max_len = 4

    def forward(self, ids):
        x = self.embed(ids)
        y, (h, c) = self.rnn(x)
        z, hz = self.gru(x)
        tokens: List[int] = []
        state = h[0]
        for _ in range(self.max_len):
            logits = self.out(state)
            token = int(logits[0].argmax())
            if token == 3:
                break
            tokens.append(token)
            state = torch.tanh(state + self.embed(torch.tensor([token, token]))[:, :5])
        return tokens, state, y, z


@module((lambda: ramp(2, 5, 8),))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_head = 2
        self.qkv = nn.Linear(8, 24)
        self.proj = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(self.norm(x)).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = self.drop(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return x + self.proj(y)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def pre(self, x):
        return x * 2

    def forward(self, x):
        return self.fc(self.pre(x))


@module((lambda: ramp(2, 4),))
class Derived(Base):
    def pre(self, x):
        return x + 1


@module((lambda: {"a": ramp(2, 4), "b": ramp(2, 4)},))
class DictInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
        out: Dict[str, Tensor] = {}
        for name, x in batch.items():
            out[name + "_out"] = self.fc(x)
        return out


@module((lambda: ramp(2, 4), 3), (lambda: ramp(2, 4), 0))
class MixedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
        self.acts = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Identity()])

    def forward(self, x, which: int):
        for i, (expert, act) in enumerate(zip(self.experts, self.acts)):
            if i != which:
                x = act(expert(x))
        return x


@module((lambda: ramp(1, 4),))
class TracedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
        self.scripted = torch.jit.script(Gate())

    def forward(self, x):
        for _ in range(2):
            x = self.scripted(self.traced(x))
        return x
