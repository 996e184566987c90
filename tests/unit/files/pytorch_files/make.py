"""Writes the files beside it, with PyTorch: ``python make.py`` (2.13.0 wrote those in the tree).

They hold something of each kind that ``torch.save`` writes; the tests read them without PyTorch.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"


def everything() -> dict[str, Any]:
    base = torch.arange(12.0)
    labelled = torch.tensor([1.0, 2.0], requires_grad=True)
    labelled.label = {"a": 1}
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.note = "hi"
    return {
        "views": [base, base[::2], base.view(3, 4)[1], base.view(3, 4).t(), base[:1].expand(4, 1)],
        "dtypes": {
            name: torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name in DTYPES.split()
        },
        "labelled": labelled,
        "again": labelled,
        "parameter": parameter,
        "frozen": torch.nn.Parameter(torch.zeros(3), requires_grad=False),
        "facts": [torch.Size([2, 3]), torch.device("cuda", 1), torch.float16, torch.strided],
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
        "meta": torch.empty(2, 3, device="meta"),
        "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j]).conj().imag,
        "typed": base.storage(),
        "numpy": [
            np.arange(6).reshape(2, 3),
            np.float64(2.5),
            np.array(["ab", "c"]),
            np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            np.arange(3, dtype=">i4"),
            np.zeros((0, 3)),
            np.dtype("f4"),
        ],
        "python": [1, -5, 2**40, 2**70, 1.5, float("inf"), 1j, True, None, "text", "\u20ac" * 50],
        "bytes": [b"bytes", b"", bytearray(b"ab")],
        "containers": [(1, (2, ())), {1, 2}, frozenset([3]), range(3), slice(1, None, 2)],
        "mappings": [
            collections.OrderedDict(a=1),
            collections.Counter("aab"),
            collections.defaultdict(list, a=[1]),
            collections.deque([1, 2], 3),
        ],
    }


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3),
        torch.nn.BatchNorm2d(3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 2),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(5, 1, 4, 4)
    model(x).sum().backward()
    optimizer.step()
    model.eval()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "x": x,
        "y": model(x).detach(),
    }
    torch.save(everything(), HERE / "zip.pt")
    torch.save(everything(), HERE / "older.pt", _use_new_zipfile_serialization=False)
    torch.save(
        {f"u{n}": torch.tensor([1, 2]).to(getattr(torch, f"uint{n}")) for n in (16, 32, 64)}
        | {"bytes": torch.UntypedStorage([1, 2, 3])},
        HERE / "unsigned.pt",
    )
    torch.save(state, HERE / "state.pt")
    torch.save(model, HERE / "module.pt")
    torch.save(torch.eye(3).to_sparse_csr(), HERE / "csr.pt")


if __name__ == "__main__":
    main()
