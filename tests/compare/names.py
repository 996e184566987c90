"""The table of PyTorch's public names: ``python tests/compare/names.py`` writes docs/names.md.

The names were recorded from PyTorch 2.13 in ``torch_names.json`` (``--record`` does so again, where
it is installed), so that the table needs no PyTorch. ``REASONS`` says why a name is missing.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "torch_names.json"
TABLE = HERE.parents[1] / "docs" / "names.md"
NAMESPACES = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "optim",
    "optim.lr_scheduler", "optim.swa_utils", "linalg", "fft", "special", "distributions",
    "distributions.constraints", "distributions.transforms", "utils.data", "autograd",
    "func", "amp",
)  # fmt: skip

#: the first pattern that a name matches tells why it is missing
REASONS: tuple[tuple[str, str], ...] = (
    (
        r"(AVG|SUM|.*Type|.*Script.*|.*Argument(Spec)?|AliasDb|Benchmark(Config|ExecutionStats)|Block|"
        r"CallStack|Capsule|Code|CompilationUnit|Complete.*|Concrete.*|D.*Context|S.*Context|"
        r"DeepCopyMemoTable|ErrorReport|Exec.*|FatalError|FileCheck|FunctionSchema|Gradient|Graph.*|"
        r"IODescriptor|JITException|Locking.*|Logger.*|Node|Noop.*|Operator.*|PyTorchFile.*|"
        r"StaticModule|ThroughputBenchmark|TracingState|Use|Value|Type|Aggregation.*|parse_.*|"
        r"import_ir.*|merge_type.*|unify_.*|fork|wait|ModuleDict|ParameterDict|BufferDict|Future|"
        r"DeviceObj|.*CallStack|Tag|cpp|init_num_threads|.*Iterator)",
        "internals of TorchScript that `torch` happens to show",
    ),
    (
        r"(cudnn_|miopen_|mkldnn_|fbgemm_|.*_cudagraph_).*|compiled_with_cxx11_abi|has_.*|USE_.*|"
        r"is_vulkan_available|set_flush_denormal|.*cxx11.*|profiler_allow.*",
        "entry points and properties of one library that PyTorch is built with",
    ),
    (
        r"(quantized_|q_per|choose_q|empty_quantized|quantize_|quint|"
        r"qint|QU?[Ii]nt).*|q_scale|q_zero_point|qscheme|int_repr|dequantize|fused_moving.*|"
        r"intrinsic|qat|quantizable|quantized",
        "kernels below PyTorch's quantized modules, and names of the plugin `coredispatch-quant`",
    ),
    (
        r"(sparse|to_sparse|ccol|crow|col|row|values|indices|coalesce|is_coalesced|dense_dim).*|"
        r"(hs|ss|sa|ds)p?(mm|addmm)|hspmm|sspaddmm|smm|saddmm|spmm|resize_as_sparse_|to_padded_tensor|"
        r"sum_sparse|to_dense",
        "layouts and sparse operators of the plugin `coredispatch-sparse`, which has the CSR ones",
    ),
    (
        r"batch_norm_(stats|elemt|gather|update|backward).*|native_.*|.*_copy|"
        r"(affine_)?grid.*|embedding_bag|segment_reduce|_.*",
        "kernels below the functions of `nn.functional` and the layers",
    ),
    (
        r".*autocast.*",
        "older spellings and settings below `autocast`",
    ),
    (
        r"u?int[1-7]|bits?\d?.*|complex32|chalf|jagged|legacy_.*|float4.*",
        "element types that have no operators in PyTorch either, or few",
    ),
    (
        r"(sym_|Sym|cond|while_loop|PRIVATE|DispatchKey|Exclude).*|hash_tensor|.*_inverse",
        "tools of PyTorch's compiler and dispatcher",
    ),
    (
        r"(is_|get_device|mtia|ipu|maia|xpu|xla|vulkan|hpu).*|record_stream|Stream|Event|"
        r"AcceleratorError|quasirandom|monitor",
        "devices that coredispatch has no backend for",
    ),
    (
        r"eig|lstsq|solve|symeig|volatile|reinforce|resize|resize_as|__(div|idiv|rdiv|long|nonzero)__|"
        r"Storage.*|is_distributed|is_set_to|windows|from_file|.*_notes|.*grad_dtype",
        "removed, or announced to go, in PyTorch itself",
    ),
    (
        r"DF.*|.*DataPipe|DataChunk|.*validation.*|.*determin.*|functional_datapipe",
        "checks of the types that data pipes declare for their items",
    ),
    (
        r"TYPE_CHECKING|Callable|Optional|DType|torch|Tensor|classproperty|functional|"
        r"torch_version|get_file_path|prepare_multi.*|factory_kwargs|.*_functionality|grad|"
        r"Any|List|Union|NamedTuple|swap_in.*|__dlpack_c.*",
        "imports and tools of PyTorch's own files, no interface",
    ),
    ("index", "first-class dimensions, of `functorch.dim`"),
)  # fmt: skip
NOT_YET = "not written yet"


def resolved(root: Any, namespace: str) -> Any:
    if namespace == "Tensor":
        return root.Tensor
    return importlib.import_module(".".join(filter(None, (root.__name__, namespace))))


def record() -> None:
    """Write the public names of the installed PyTorch."""
    import torch

    found = {}
    for namespace in NAMESPACES:
        module = resolved(torch, namespace)
        public = getattr(module, "__all__", None) if namespace not in ("", "Tensor") else None
        names = [n for n in dir(module) if not n.startswith("_") and (not public or n in public)]
        found[namespace] = [n for n in names if not _foreign(getattr(module, n, None))]
    RECORD.write_text(json.dumps(found, indent=0) + "\n")


def _foreign(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")


def missing() -> dict[str, tuple[int, list[str]]]:
    """namespace -> how many public names PyTorch has there, and those that coredispatch lacks."""
    import coredispatch as cd

    cd.plugins.discover()
    found = {}
    for namespace, names in json.loads(RECORD.read_text()).items():
        module = resolved(cd, namespace)
        found[namespace] = len(names), [n for n in names if not _has(module, n)]
    return found


def _has(module: Any, name: str) -> bool:
    try:
        return hasattr(module, name)
    except Exception:  # a name that says why it cannot serve is there
        return True


def reason(name: str) -> str:
    """Why PyTorch's public ``name`` is missing."""
    return next((why for pattern, why in REASONS if re.fullmatch(pattern, name)), NOT_YET)


def rendered() -> str:
    """The page."""
    lines = [
        "# Names of PyTorch",
        "",
        "Written by `python tests/compare/names.py`. Public names are those of PyTorch 2.13: what",
        "modules list in `__all__`, and whatever `torch` and `torch.Tensor` show.",
    ]
    for namespace, (count, names) in missing().items():
        title = f"torch.{namespace}" if namespace else "torch"
        lines += ["", f"## `{title}`", "", f"{count - len(names)} of {count} names."]
        reasons: dict[str, list[str]] = {}
        for name in names:
            reasons.setdefault(reason(name), []).append(f"`{name}`")
        if reasons:
            lines += ["", "| why missing | names |", "|---|---|"]
            lines += [f"| {why} | {' '.join(n)} |" for why, n in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--record" in sys.argv:
        record()
    TABLE.write_text(rendered())
    print(sum(len(names) for _, names in missing().values()), "names are missing")
