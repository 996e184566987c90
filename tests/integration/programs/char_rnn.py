"""A character model on names of different lengths, packed: an LSTM that classifies and one that samples."""

import string

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import given

letters = string.ascii_lowercase + "."
lines = ["ada.", "grace.", "alan.", "edsger.", "barbara.", "donald.", "tony.", "john.", "frances."]
languages = torch.LongTensor([0, 0, 0, 1, 0, 1, 1, 1, 0])


def lineToTensor(line):
    return torch.tensor([letters.index(c) for c in line], dtype=torch.long)


class CharRNN(nn.Module):
    def __init__(self, n_tokens, hidden_size=16, n_layers=2, n_classes=2):
        super().__init__()
        self.encoder = nn.Embedding(n_tokens, hidden_size, padding_idx=0)
        self.rnn = nn.LSTM(hidden_size, hidden_size, n_layers, batch_first=True)
        self.decoder = nn.Linear(hidden_size, n_tokens)
        self.classifier = nn.Linear(hidden_size, n_classes)

    def forward(self, padded, lengths, hidden=None):
        packed = pack_padded_sequence(
            self.encoder(padded), lengths, batch_first=True, enforce_sorted=False
        )
        output, (h, c) = self.rnn(packed, hidden)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.decoder(output), self.classifier(h[-1]), (h, c)


sequences = [lineToTensor(line) for line in lines]
lengths = torch.tensor([len(s) - 1 for s in sequences])
inputs = pad_sequence([s[:-1] for s in sequences], batch_first=True)
targets = pad_sequence([s[1:] for s in sequences], batch_first=True, padding_value=-100)

model = given.initialized(CharRNN(len(letters)))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
criterion = nn.CrossEntropyLoss()
nll = nn.NLLLoss()
log_softmax = nn.LogSoftmax(dim=1)

for step in range(12):
    optimizer.zero_grad()
    logits, classes, _ = model(inputs, lengths)
    loss = criterion(logits.transpose(1, 2), targets) + nll(log_softmax(classes), languages)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step(loss.item())
    print(f"step {step} loss {loss.item():.6f} norm {norm.item():.6f} "
          f"lr {optimizer.param_groups[0]['lr']:.6f}")

model.eval()
with torch.no_grad():
    text, hidden = "a", None
    while len(text) < 10 and text[-1] != ".":
        logits, _, hidden = model(lineToTensor(text[-1]).unsqueeze(0), [1], hidden)
        text += letters[logits[0, -1].topk(1).indices.item()]
    print(text, [tuple(h.size()) for h in hidden])
