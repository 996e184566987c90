"""Models after tutorials."""

import math
from collections import OrderedDict
from typing import Optional, Tuple

from script_cases import registry

import coredispatch as torch
import coredispatch.nn.functional as F
from coredispatch import Tensor, nn

FUNCTIONS, MODULES, function, module, ramp = registry(torch)


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
