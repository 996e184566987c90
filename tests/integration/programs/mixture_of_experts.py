"""A sparsely gated mixture of experts: top-k gates, dispatch by index, a loss that balances."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import given


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    def __init__(self, dim, hidden, experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))
        self.top_k = top_k
        self.register_buffer("counts", torch.zeros(experts, dtype=torch.long))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        logits = self.gate(x)
        weights, selected = torch.topk(logits, self.top_k, dim=-1)
        weights = F.softmax(weights, dim=-1, dtype=torch.float).to(x.dtype)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, nth = torch.where(selected == i)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, weights[token, nth, None] * expert(x[token]))
        self.counts += torch.bincount(selected.flatten(), minlength=len(self.experts))
        density = F.one_hot(selected[:, 0], len(self.experts)).float().mean(0)
        balance = (density * logits.softmax(-1).mean(0)).sum() * len(self.experts)
        return out.view(shape), balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList([MoE(16, 24, 4, 2) for _ in range(2)])
        self.scale = nn.Parameter(torch.ones(16))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens):
        x, balance = self.embed(tokens), 0.0
        for layer in self.layers:
            y, extra = layer(rms_norm(x, self.scale))
            x, balance = x + y, balance + extra
        return self.head(x), balance


model = given.initialized(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-6)
tokens = given.integers(50, 6, 9)
for step in range(6):
    logits, balance = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * balance
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{step}: {loss.item():.6f} balance {balance.item():.6f} norm {grad_norm:.6f}")
print([layer.counts.tolist() for layer in model.layers])
