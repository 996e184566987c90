"""Recurrent layers, after PyTorch's fastrnns."""

import warnings
from collections import namedtuple
from typing import List, Tuple

from script_cases import registry

import coredispatch as torch
from coredispatch import Tensor, nn
from coredispatch.nn import Parameter

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


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
