"""Models for ``jit.script`` after well-known code: recurrent layers, torchvision, tutorials.

Like ``script_programs``, the tests run them under both names.
"""

import math
import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Callable, Dict, Final, List, NamedTuple, Optional, Sequence, Tuple, Union

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor, nn
from coredispatch.nn import Parameter

FUNCTIONS = []
MODULES = []


def function(*inputs):
    def add(fn):
        FUNCTIONS.append((fn, list(inputs)))
        return fn

    return add


def module(*inputs):
    def add(cls):
        MODULES.append((cls, list(inputs)))
        return cls

    return add


def ramp(*shape):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float32).view(*shape) * 0.37).sin()


# ---- recurrent layers, after PyTorch's fastrnns --------------------------------------------------

LSTMState = namedtuple("LSTMState", ["hx", "cx"])


class LayerNormLSTMCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.weight_ih = Parameter(ramp(4 * hidden_size, input_size))
        self.weight_hh = Parameter(ramp(4 * hidden_size, hidden_size))
        self.layernorm_i = nn.LayerNorm(4 * hidden_size)
        self.layernorm_c = nn.LayerNorm(hidden_size)

    def forward(
        self, input: Tensor, state: Tuple[Tensor, Tensor]
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        igates = self.layernorm_i(torch.mm(input, self.weight_ih.t()))
        gates = igates + torch.mm(hx, self.weight_hh.t())
        ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
        cy = self.layernorm_c(
            torch.sigmoid(forgetgate) * cx + torch.sigmoid(ingate) * torch.tanh(cellgate)
        )
        hy = torch.sigmoid(outgate) * torch.tanh(cy)
        return hy, (hy, cy)


def reverse(lst: List[Tensor]) -> List[Tensor]:
    return lst[::-1]


class RNNLayer(nn.Module):
    def __init__(self, backward, *cell_args):
        super().__init__()
        self.cell = LayerNormLSTMCell(*cell_args)
        self.backward_ = backward

    def forward(
        self, input: Tensor, state: Tuple[Tensor, Tensor]
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        inputs = reverse(input.unbind(0)) if self.backward_ else input.unbind(0)
        outputs = torch.jit.annotate(List[Tensor], [])
        for i in range(len(inputs)):
            out, state = self.cell(inputs[i], state)
            outputs += [out]
        return torch.stack(reverse(outputs) if self.backward_ else outputs), state


class BidirLayer(nn.Module):
    __constants__ = ["directions"]

    def __init__(self, *cell_args):
        super().__init__()
        self.directions = nn.ModuleList([RNNLayer(False, *cell_args), RNNLayer(True, *cell_args)])

    def forward(
        self, input: Tensor, states: List[Tuple[Tensor, Tensor]]
    ) -> Tuple[Tensor, List[Tuple[Tensor, Tensor]]]:
        outputs = torch.jit.annotate(List[Tensor], [])
        output_states = torch.jit.annotate(List[Tuple[Tensor, Tensor]], [])
        i = 0
        for direction in self.directions:
            state = states[i]
            out, out_state = direction(input, state)
            outputs += [out]
            output_states += [out_state]
            i += 1
        return torch.cat(outputs, -1), output_states


@module(
    (
        lambda: ramp(3, 2, 4),
        lambda: [[(ramp(2, 5), ramp(2, 5)), (ramp(2, 5), ramp(2, 5))] for _ in range(2)],
    )
)
class StackedBidirLSTM(nn.Module):
    __constants__ = ["layers", "num_layers"]

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([BidirLayer(4, 5), BidirLayer(10, 5)])
        self.num_layers = 2
        if self.num_layers == 1:
            warnings.warn("one layer")

    def forward(
        self, input: Tensor, states: List[List[Tuple[Tensor, Tensor]]]
    ) -> Tuple[Tensor, List[List[Tuple[Tensor, Tensor]]]]:
        output_states = torch.jit.annotate(List[List[Tuple[Tensor, Tensor]]], [])
        output = input
        i = 0
        for rnn_layer in self.layers:
            state = states[i]
            output, out_state = rnn_layer(output, state)
            output_states += [out_state]
            i += 1
        return output, output_states


# ---- after torchvision ---------------------------------------------------------------------------


class ConvNormActivation(nn.Sequential):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=3,
        stride=1,
        groups=1,
        activation_layer=nn.ReLU6,
    ):
        layers = [
            nn.Conv2d(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                (kernel_size - 1) // 2,
                groups=groups,
                bias=False,
            ),
            nn.BatchNorm2d(out_channels),
        ]
        if activation_layer is not None:
            layers.append(activation_layer(inplace=True))
        super().__init__(*layers)
        self.out_channels = out_channels


class InvertedResidual(nn.Module):
    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int):
        super().__init__()
        self.stride = stride
        hidden_dim = int(round(inp * expand_ratio))
        self.use_res_connect = self.stride == 1 and inp == oup
        layers: List[nn.Module] = []
        if expand_ratio != 1:
            layers.append(ConvNormActivation(inp, hidden_dim, kernel_size=1))
        layers.extend(
            [
                ConvNormActivation(hidden_dim, hidden_dim, stride=stride, groups=hidden_dim),
                nn.Conv2d(hidden_dim, oup, 1, 1, 0, bias=False),
                nn.BatchNorm2d(oup),
            ]
        )
        self.conv = nn.Sequential(*layers)
        self._is_cn = stride > 1

    def forward(self, x: Tensor) -> Tensor:
        if self.use_res_connect:
            return x + self.conv(x)
        else:
            return self.conv(x)


class SqueezeExcitation(nn.Module):
    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable = nn.ReLU,
        scale_activation=nn.Hardsigmoid,
    ):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def _scale(self, input: Tensor) -> Tensor:
        scale = self.avgpool(input)
        scale = self.fc1(scale)
        scale = self.activation(scale)
        scale = self.fc2(scale)
        return self.scale_activation(scale)

    def forward(self, input: Tensor) -> Tensor:
        scale = self._scale(input)
        return scale * input


@module((lambda: ramp(2, 3, 8, 8),))
class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        features = [
            ConvNormActivation(3, 4, stride=2),
            InvertedResidual(4, 4, 1, 2),
            InvertedResidual(4, 6, 2, 2),
        ]
        features.append(SqueezeExcitation(6, 3))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=0.0), nn.Linear(6, 5))

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        x = torch.flatten(x, 1)
        x = self.classifier(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


class DenseLayer(nn.Module):
    def __init__(self, num_input_features: int, growth_rate: int, drop_rate: float):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(
            num_input_features, growth_rate, kernel_size=3, padding=1, bias=False
        )
        self.drop_rate = float(drop_rate)
        self.memory_efficient = False

    def bn_function(self, inputs: List[Tensor]) -> Tensor:
        concated_features = torch.cat(inputs, 1)
        return self.conv1(self.relu1(self.norm1(concated_features)))

    def any_requires_grad(self, input: List[Tensor]) -> bool:
        for tensor in input:
            if tensor.requires_grad:
                return True
        return False

    @torch.jit.unused
    def call_checkpoint_bottleneck(self, input: List[Tensor]) -> Tensor:
        def closure(*inputs):
            return self.bn_function(inputs)

        return closure(*input)

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Tensor):
            prev_features = [input]
        else:
            prev_features = input
        if self.memory_efficient and self.any_requires_grad(prev_features):
            if torch.jit.is_scripting():
                raise Exception("Memory Efficient not supported in JIT")
            bottleneck_output = self.call_checkpoint_bottleneck(prev_features)
        else:
            bottleneck_output = self.bn_function(prev_features)
        if self.drop_rate > 0:
            bottleneck_output = F.dropout(
                bottleneck_output, p=self.drop_rate, training=self.training
            )
        return bottleneck_output


@module((lambda: ramp(2, 3, 4, 4),))
class DenseBlock(nn.ModuleDict):
    _version = 2

    def __init__(self):
        super().__init__()
        for i in range(3):
            self.add_module("denselayer%d" % (i + 1), DenseLayer(3 if i == 0 else 3, 3, 0.0))

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for name, layer in self.items():
            new_features = layer(features[-1])
            features.append(new_features)
        return torch.cat(features, 1)


GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
GoogLeNetOutputs.__annotations__ = {
    "logits": Tensor,
    "aux_logits2": Optional[Tensor],
    "aux_logits1": Optional[Tensor],
}


@module((lambda: ramp(2, 4),))
class GoogLeNet(nn.Module):
    __constants__ = ["aux_logits", "transform_input"]

    def __init__(self):
        super().__init__()
        self.aux_logits = True
        self.transform_input = True
        self.fc = nn.Linear(4, 3)
        self.aux1: Optional[nn.Module] = nn.Linear(4, 3)
        self.aux2: Optional[nn.Module] = None

    def _transform_input(self, x: Tensor) -> Tensor:
        if self.transform_input:
            x_ch0 = torch.unsqueeze(x[:, 0], 1) * (0.229 / 0.5) + (0.485 - 0.5) / 0.5
            x = torch.cat((x_ch0, x[:, 1:]), 1)
        return x

    def _forward(self, x: Tensor) -> Tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
        aux1: Optional[Tensor] = None
        if self.aux1 is not None:
            if self.training:
                aux1 = self.aux1(x)
        aux2: Optional[Tensor] = None
        if self.aux2 is not None:
            if self.training:
                aux2 = self.aux2(x)
        return self.fc(x), aux2, aux1

    @torch.jit.unused
    def eager_outputs(self, x: Tensor, aux2: Tensor, aux1: Optional[Tensor]) -> GoogLeNetOutputs:
        if self.training and self.aux_logits:
            return GoogLeNetOutputs(x, aux2, aux1)
        else:
            return x

    def forward(self, x: Tensor):
        x = self._transform_input(x)
        x, aux2, aux1 = self._forward(x)
        aux_defined = self.training and self.aux_logits
        if torch.jit.is_scripting():
            if not aux_defined:
                aux1 = None
            return GoogLeNetOutputs(x, aux2, aux1)
        else:
            return GoogLeNetOutputs(x, aux2, aux1)


@function(
    (
        lambda: ramp(3, 4).abs() + torch.tensor([0.0, 0.0, 1.0, 1.0]),
        lambda: ramp(2, 4).abs() + torch.tensor([0.0, 0.0, 1.0, 1.0]),
    )
)
def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    def_area1 = (boxes1[:, 2] - boxes1[:, 0]) * (boxes1[:, 3] - boxes1[:, 1])
    area2 = (boxes2[:, 2] - boxes2[:, 0]) * (boxes2[:, 3] - boxes2[:, 1])
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (def_area1[:, None] + area2 - inter)


class ImageList:
    def __init__(self, tensors: Tensor, image_sizes: List[Tuple[int, int]]):
        self.tensors = tensors
        self.image_sizes = image_sizes

    def to(self, device: torch.device) -> "ImageList":
        cast_tensor = self.tensors.to(device)
        return ImageList(cast_tensor, self.image_sizes)


@module((lambda: [ramp(3, 4, 5), ramp(3, 5, 4)],))
class Transform(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_mean = [0.485, 0.456, 0.406]
        self.image_std = [0.229, 0.224, 0.225]
        self.fc = nn.Linear(1, 1)

    def normalize(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            raise TypeError(
                f"Expected input images to be of floating type, but found type {image.dtype} instead"
            )
        dtype, device = image.dtype, image.device
        mean = torch.as_tensor(self.image_mean, dtype=dtype, device=device)
        std = torch.as_tensor(self.image_std, dtype=dtype, device=device)
        return (image - mean[:, None, None]) / std[:, None, None]

    def max_by_axis(self, the_list: List[List[int]]) -> List[int]:
        maxes = the_list[0]
        for sublist in the_list[1:]:
            for index, item in enumerate(sublist):
                maxes[index] = max(maxes[index], item)
        return maxes

    def batch_images(self, images: List[Tensor], size_divisible: int = 4) -> Tensor:
        max_size = self.max_by_axis([list(img.shape) for img in images])
        stride = float(size_divisible)
        max_size = list(max_size)
        max_size[1] = int(math.ceil(float(max_size[1]) / stride) * stride)
        max_size[2] = int(math.ceil(float(max_size[2]) / stride) * stride)
        batch_shape = [len(images)] + max_size
        batched_imgs = images[0].new_full(batch_shape, 0)
        for i in range(batched_imgs.shape[0]):
            img = images[i]
            batched_imgs[i, : img.shape[0], : img.shape[1], : img.shape[2]].copy_(img)
        return batched_imgs

    def forward(self, images: List[Tensor]) -> Tuple[Tensor, List[Tuple[int, int]]]:
        images = [img for img in images]
        for i in range(len(images)):
            image = images[i]
            if image.dim() != 3:
                raise ValueError(
                    f"images is expected to be a list of 3d tensors, got {image.shape}"
                )
            images[i] = self.normalize(image)
        image_sizes = [img.shape[-2:] for img in images]
        batched = self.batch_images(images)
        image_sizes_list: List[Tuple[int, int]] = []
        for image_size in image_sizes:
            torch._assert(len(image_size) == 2, "two sizes")
            image_sizes_list.append((image_size[0], image_size[1]))
        image_list = ImageList(batched, image_sizes_list)
        return image_list.tensors, image_list.image_sizes


@module((lambda: OrderedDict([("feat0", ramp(1, 2, 4, 4)), ("feat1", ramp(1, 3, 2, 2))]),))
class FeaturePyramidNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner_blocks = nn.ModuleList([nn.Conv2d(2, 4, 1), nn.Conv2d(3, 4, 1)])
        self.layer_blocks = nn.ModuleList(
            [nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)]
        )

    def get_result_from_inner_blocks(self, x: Tensor, idx: int) -> Tensor:
        num_blocks = len(self.inner_blocks)
        if idx < 0:
            idx += num_blocks
        out = x
        for i, module in enumerate(self.inner_blocks):
            if i == idx:
                out = module(x)
        return out

    def get_result_from_layer_blocks(self, x: Tensor, idx: int) -> Tensor:
        num_blocks = len(self.layer_blocks)
        if idx < 0:
            idx += num_blocks
        out = x
        for i, module in enumerate(self.layer_blocks):
            if i == idx:
                out = module(x)
        return out

    def forward(self, x: Dict[str, Tensor]) -> Dict[str, Tensor]:
        names = list(x.keys())
        x = list(x.values())
        last_inner = self.get_result_from_inner_blocks(x[-1], -1)
        results = []
        results.append(self.get_result_from_layer_blocks(last_inner, -1))
        for idx in range(len(x) - 2, -1, -1):
            inner_lateral = self.get_result_from_inner_blocks(x[idx], idx)
            feat_shape = inner_lateral.shape[-2:]
            inner_top_down = F.interpolate(last_inner, size=feat_shape, mode="nearest")
            last_inner = inner_lateral + inner_top_down
            results.insert(0, self.get_result_from_layer_blocks(last_inner, idx))
        out = {k: v for k, v in zip(names, results)}
        return out


# ---- after tutorials -----------------------------------------------------------------------------


@module((lambda: torch.tensor([[1, 2, 3], [4, 5, 6]]),))
class TransformerModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.ninp = 8
        self.encoder = nn.Embedding(10, 8)
        pe = torch.zeros(20, 8)
        position = torch.arange(0, 20, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, 8, 2).float() * (-math.log(10000.0) / 8))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.decoder = nn.Linear(8, 10)

    def mask(self, sz: int) -> Tensor:
        return torch.triu(torch.full((sz, sz), float("-inf")), diagonal=1)

    def forward(self, src):
        x = self.encoder(src) * math.sqrt(self.ninp)
        x = x + self.pe[:, : x.size(1)]
        y, weights = self.attention(x, x, x, attn_mask=self.mask(src.size(1)))
        assert weights is not None
        x = self.layer(x + y)
        return F.log_softmax(self.decoder(x), dim=-1), weights


class EncoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_layers = 1
        self.hidden_size = 6
        self.embedding = nn.Embedding(12, 6)
        self.gru = nn.GRU(6, 6, 1, bidirectional=True)

    def forward(self, input_seq: Tensor, hidden: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        embedded = self.embedding(input_seq)
        outputs, hidden = self.gru(embedded, hidden)
        outputs = outputs[:, :, : self.hidden_size] + outputs[:, :, self.hidden_size :]
        return outputs, hidden


class Attn(nn.Module):
    def __init__(self, method):
        super().__init__()
        self.method = method
        self.attn = nn.Linear(6, 6)

    def dot_score(self, hidden, encoder_output):
        return torch.sum(hidden * encoder_output, dim=2)

    def general_score(self, hidden, encoder_output):
        energy = self.attn(encoder_output)
        return torch.sum(hidden * energy, dim=2)

    def forward(self, hidden, encoder_outputs):
        if self.method == "general":
            attn_energies = self.general_score(hidden, encoder_outputs)
        else:
            attn_energies = self.dot_score(hidden, encoder_outputs)
        attn_energies = attn_energies.t()
        return F.softmax(attn_energies, dim=1).unsqueeze(1)


class AttnDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 6)
        self.gru = nn.GRU(6, 6, 1)
        self.concat = nn.Linear(12, 6)
        self.out = nn.Linear(6, 12)
        self.attn = Attn("general")

    def forward(self, input_step, last_hidden, encoder_outputs):
        embedded = self.embedding(input_step)
        rnn_output, hidden = self.gru(embedded, last_hidden)
        attn_weights = self.attn(rnn_output, encoder_outputs)
        context = attn_weights.bmm(encoder_outputs.transpose(0, 1))
        concat_input = torch.cat((rnn_output.squeeze(0), context.squeeze(1)), 1)
        output = F.softmax(self.out(torch.tanh(self.concat(concat_input))), dim=1)
        return output, hidden


@module((lambda: torch.tensor([[1], [5], [3]]), 4))
class GreedySearchDecoder(nn.Module):
    __constants__ = ["_device", "_SOS_token", "_decoder_n_layers"]

    def __init__(self):
        super().__init__()
        self.encoder = EncoderRNN()
        self.decoder = AttnDecoder()
        self._device = "cpu"
        self._SOS_token = 1
        self._decoder_n_layers = 1

    def forward(self, input_seq: Tensor, max_length: int):
        encoder_outputs, encoder_hidden = self.encoder(input_seq)
        decoder_hidden = encoder_hidden[: self._decoder_n_layers]
        decoder_input = torch.ones(1, 1, device=self._device, dtype=torch.long) * self._SOS_token
        all_tokens = torch.zeros([0], device=self._device, dtype=torch.long)
        all_scores = torch.zeros([0], device=self._device)
        for _ in range(max_length):
            decoder_output, decoder_hidden = self.decoder(
                decoder_input, decoder_hidden, encoder_outputs
            )
            decoder_scores, decoder_input = torch.max(decoder_output, dim=1)
            all_tokens = torch.cat((all_tokens, decoder_input), dim=0)
            all_scores = torch.cat((all_scores, decoder_scores), dim=0)
            decoder_input = torch.unsqueeze(decoder_input, 0)
        return all_tokens, all_scores


@module((lambda: ramp(2, 4),))
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(OrderedDict([("fc", nn.Linear(4, 4)), ("act", nn.ELU())]))
        self.mu, self.logvar = nn.Linear(4, 2), nn.Linear(4, 2)
        self.decoder = nn.Linear(2, 4)

    def reparameterize(self, mu, logvar):
        if self.training:
            std = torch.exp(0.5 * logvar)
            return mu + torch.zeros_like(std) * std
        return mu

    def forward(self, x):
        h = self.encoder.fc(x)
        h = self.encoder.act(h)
        mu, logvar = self.mu(h), self.logvar(h)
        recon = torch.sigmoid(self.decoder(self.reparameterize(mu, logvar)))
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return recon, mu, logvar, F.binary_cross_entropy(recon, torch.sigmoid(x)) + kld


# ---- parts of the language -----------------------------------------------------------------------


@module((lambda: ramp(2, 3),))
class ParameterContainers(nn.Module):
    def __init__(self):
        super().__init__()
        self.params = nn.ParameterList([Parameter(ramp(3) + i) for i in range(3)])
        self.scales = nn.ParameterDict({"a": Parameter(torch.ones(3)), "b": Parameter(ramp(3))})

    def forward(self, x):
        for i, p in enumerate(self.params):
            x = x * p + i
        return x + self.scales["a"] * self.scales["b"]


class Shape(nn.Module):
    def __init__(self, sides: int):
        super().__init__()
        self.sides = sides
        self.weight = Parameter(ramp(3))

    @staticmethod
    def scale(x, by: float):
        return x * by

    @property
    def area(self) -> int:
        return self.sides * self.sides

    def forward(self, x):
        return x * self.area


@module((lambda: ramp(3),))
class Square(Shape):
    def __init__(self):
        super().__init__(3)

    def forward(self, x):
        y = super().forward(x)
        return self.scale(y, 0.5) + self.area * self.weight


@module((lambda: ramp(2, 3), "double"), (lambda: ramp(2, 3), "none"))
class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = F.relu
        self.table: Dict[str, int] = {"double": 2, "triple": 3}
        self.weights = [0.5, 1.5]
        self.pair = (1, 2.0)
        self.fc = nn.Linear(3, 3)
        self.dtype = torch.float32
        self.maybe: Optional[int] = None

    def forward(self, x, key: str):
        k = 1
        if key in self.table:
            k = self.table[key]
        for w in self.weights:
            x = self.act(x) * w + k
        a, b = self.pair
        return (self.fc(x) + a * b).to(self.dtype), self.maybe is None


@torch.jit.script
@dataclass
class Config:
    width: int
    rate: float = 0.5


@function((3,))
def dataclasses_are_classes(n: int):
    c = Config(n)
    d = Config(width=2, rate=1.5)
    return c.width * d.width, c.rate + d.rate


@torch.jit.script
class Vector:
    def __init__(self, x: float, y: float):
        self.x = x
        self.y = y

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.x + other.x, self.y + other.y)

    def __len__(self) -> int:
        return 2

    def __lt__(self, other: "Vector") -> bool:
        return self.norm < other.norm

    @property
    def norm(self) -> float:
        return math.sqrt(self.x * self.x + self.y * self.y)


@function((3.0, 4.0))
def operators_of_classes(a: float, b: float):
    v = Vector(a, b) + Vector(1.0, 1.0)
    w = Vector(0.0, 1.0)
    vs = [v, w]
    total = 0.0
    for item in vs:
        total += item.norm
    return v.x, v.y, v.norm, len(v), w < v, total


@function(([1, 2, 3],), ("text",), (5,))
def any_of(x: Union[List[int], str, int]) -> int:
    if isinstance(x, str):
        return len(x)
    elif isinstance(x, int):
        return x
    else:
        return sum(x)


@function((lambda: {"a": [ramp(2), ramp(2)], "b": [ramp(2)]},))
def nested_types(d: Dict[str, List[Tensor]]) -> Dict[str, Tuple[int, Tensor]]:
    out: Dict[str, Tuple[int, Tensor]] = {}
    for key in d.keys():
        values = d[key]
        total = values[0]
        for v in values[1:]:
            total = total + v
        out[key] = (len(values), total)
    return out


@function((4,))
def primes(limit: int) -> List[int]:
    found: List[int] = []
    n = 2
    while len(found) < limit:
        is_prime = True
        for p in found:
            if p * p > n:
                break
            if n % p == 0:
                is_prime = False
                break
        if is_prime:
            found.append(n)
        n += 1
    return found


@function((lambda: ramp(4, 4),))
def power_iteration(a):
    v = torch.ones(a.size(0))
    last = -1.0
    steps = 0
    while True:
        w = a.t() @ (a @ v)
        norm = float(w.norm())
        v = w / norm
        steps += 1
        if abs(norm - last) < 1e-3 * norm or steps >= 50:
            break
        last = norm
    return v.abs(), steps


@function(("3 + 4 * 2",))
def calculator(text: str) -> int:
    numbers: List[int] = []
    operators: List[str] = []
    for token in text.split(" "):
        if token.isdigit():
            value = int(token)
            if len(operators) > 0 and operators[-1] == "*":
                operators.pop()
                value = numbers.pop() * value
            numbers.append(value)
        else:
            operators.append(token)
    total = 0
    for n in numbers:
        total += n
    return total


@function((lambda: ramp(3, 5),))
def viterbi(scores: Tensor) -> Tuple[List[int], float]:
    backpointers: List[Tensor] = []
    best = scores[0]
    for t in range(1, scores.size(0)):
        values, pointers = (best.unsqueeze(1) + 0.1 * torch.eye(5)).max(0)
        best = values + scores[t]
        backpointers.append(pointers)
    tag = int(best.argmax())
    path = [tag]
    for k in range(len(backpointers) - 1, -1, -1):
        tag = int(backpointers[k][tag])
        path.append(tag)
    path.reverse()
    return path, float(best.max())


@function((lambda: ramp(3), 2), (lambda: ramp(3), 0))
def annotated_variables(x, n: int):
    y: Optional[Tensor] = None
    z = torch.jit.annotate(Optional[Tensor], None)
    for i in range(n):
        if y is None:
            y = x
        else:
            y = y + i
        z = y
    if y is not None and z is not None:
        return y + z
    return x


@function((2,))
def optional_of_lists(n: int) -> List[Optional[int]]:
    out: List[Optional[int]] = []
    for i in range(n):
        out.append(i)
        out.append(None)
    return out


@function((lambda: ramp(2, 3),))
def shapes(x):
    shape = x.shape
    a = list(shape)
    a[0] = 7
    return (
        shape,
        a,
        x.size()[0],
        x.shape[-1] * 2,
        len(x.shape),
        x.view(x.shape[::-1]),
        [2] + x.shape[1:],
    )
