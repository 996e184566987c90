"""A small GPT with fully sharded parameters, trained on its own source text.

    coredispatch launch --nproc-per-node 2 examples/sharded_gpt.py

Each rank keeps a part of every weight and of its optimizer state. The checkpoint that it writes can
be read by any number of ranks: run it again with another ``--nproc-per-node`` and it goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.elastic import ElasticState
from coredispatch.distributed.fsdp import fully_shard

CONTEXT, WIDTH, HEADS, LAYERS = 32, 32, 4, 2


class Block(nn.Module):
    """Attention to what came before, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        """``(N, T, WIDTH)`` to the same."""
        later = cd.triu(cd.ones(x.shape[1], x.shape[1], dtype=cd.bool), 1)
        y = self.before(x)
        x = x + self.attend(y, y, y, attn_mask=later, need_weights=False)[0]
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    """Bytes in, scores of the next byte out."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens: cd.Tensor) -> cd.Tensor:
        """``(N, T)`` bytes to ``(N, T, 256)``."""
        return self.head(self.blocks(self.token(tokens) + self.place.weight[: tokens.shape[1]]))


def main() -> None:
    """Train from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", default="build/sharded_gpt")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    text = cd.tensor(list(Path(__file__).read_bytes()))

    cd.manual_seed(0)
    model = GPT()
    whole = sum(p.numel() for p in model.parameters())
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = cd.optim.AdamW(model.parameters(), lr=3e-3)
    state = ElasticState(options.checkpoint, model, optimizer, step=0)
    if state.restore() and rank == 0:
        print(f"goes on after step {state.step}")
    if rank == 0:
        own = sum(p.to_local().numel() for p in model.parameters())
        print(f"{whole} parameters, {own} on this one of {size} ranks")
    while state.step < options.steps:
        chooser = cd.Generator().manual_seed(1000 * state.step + rank)
        starts = cd.randint(0, len(text) - CONTEXT - 1, (16,), generator=chooser).tolist()
        x = cd.stack([text[s : s + CONTEXT] for s in starts])
        y = cd.stack([text[s + 1 : s + CONTEXT + 1] for s in starts])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        state.step += 1
        if state.step % 20 == 0:
            state.commit()
            dist.all_reduce(shown := loss.detach(), dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {state.step}: loss {shown.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
