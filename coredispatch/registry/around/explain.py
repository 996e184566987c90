"""``explain``: the resolution of one call, step by step, with the winner's provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coredispatch.registry.around import checks
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import canonicalized, keys_of
from coredispatch.registry.dispatch.masks import current_masks
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.raw_kernels import RawEntry
from coredispatch.registry.dispatch.resolve import build
from coredispatch.registry.dispatch.rules import Resolution, Step, walk
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import RegistrationError
from coredispatch.registry.wiring import HOOKS

__all__ = ["Explanation", "explain", "explain_keys"]


@dataclass(frozen=True)
class Explanation:
    """What ``cd.explain`` returns; ``str()`` is the readable form, ``to_dict()`` the data."""

    op: str
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    keys: tuple[str, ...]
    redispatches: tuple[Resolution, ...]
    generation: int

    @property
    def winner(self) -> str:
        """What finally serves the call, below all layers."""
        last = self.redispatches[-1]
        won = [step for step in last.steps if step.won]
        return won[-1].candidate if won else last.kind

    @property
    def provenance(self) -> str | None:
        """Plugin, version, file and line of the winning kernel, if a kernel won."""
        last = self.redispatches[-1]
        if not last.kernels:
            return None
        kernel = last.kernels[0]
        return f"{kernel.plugin} {kernel.version} {kernel.where}"

    def to_dict(self) -> dict[str, Any]:
        """The same details as plain data."""
        return {
            "op": self.op,
            "arguments": [{"argument": a, "keys": list(k)} for a, k in self.arguments],
            "included": list(self.included),
            "excluded": list(self.excluded),
            "keys": list(self.keys),
            "generation": self.generation,
            "winner": self.winner,
            "provenance": self.provenance,
            "redispatches": [
                {
                    "kind": redispatch.kind,
                    "key": None if redispatch.key is None else redispatch.key.name,
                    "steps": [
                        {
                            "key": s.key,
                            "candidate": s.candidate,
                            "verdict": s.verdict,
                            "won": s.won,
                        }
                        for s in redispatch.steps
                    ],
                }
                for redispatch in self.redispatches
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.op}  (table generation {self.generation})"]
        for argument, keys in self.arguments:
            lines.append(f"  argument  {argument}  brings {', '.join(keys) or 'no key'}")
        lines.append(f"  included  {', '.join(self.included) or '-'}")
        lines.append(f"  excluded  {', '.join(self.excluded) or '-'}")
        lines.append(f"  key set   {' > '.join(self.keys) or 'empty'}")
        for number, redispatch in enumerate(self.redispatches):
            lines.append(f"  {'call' if number == 0 else 'redispatch'}")
            for step in redispatch.steps:
                mark = "->" if step.won else "  "
                lines.append(f"    {mark} [{step.key}] {step.candidate}: {step.verdict}")
            if redispatch.kind in _NO_WINNER:
                lines.append(f"    {_NO_WINNER[redispatch.kind]}")
        lines.append(f"  winner    {self.winner}")
        return "\n".join(lines)

    __repr__ = __str__


_NO_WINNER = {
    "nothing": "there is no tensor among the arguments",
    "unloaded": "a tensor carries a key whose plugin is not loaded",
    "mixed": "two backends: CPU tensors that the operator reads itself stay, 0-dim ones move over, "
    "anything else is an error",
    "missing": "MissingKernel",
    "refused": "MissingKernel: the layer's own kernel, or the operator's rule for it, is needed",
}


def explain(op: str | Operator, *args: Any, **kwargs: Any) -> Explanation:
    """How ``op(*args, **kwargs)`` would be resolved now; no kernel is called.

    Kernels that take calls by size or by predicate are asked for these very arguments.

    Raises :class:`RegistrationError` for an unknown operator and the error of the call itself
    when the arguments do not bind.
    """
    HOOKS.load_plugins()
    operator = op if isinstance(op, Operator) else TABLE.operator(op)
    full = canonicalized(operator, complete(operator, args, kwargs), operator.arity)
    s = TABLE.snapshot
    described = []
    for argument in full:
        items = argument if isinstance(argument, (list, tuple)) else (argument,)
        for item in items:
            keys = getattr(item, "keys", None)
            if isinstance(keys, int):
                described.append((checks.describe(item), s.order.names(keys)))
    return _explain(operator, keys_of(operator, full), tuple(described), full)


def explain_keys(op: str | Operator, names: tuple[str, ...]) -> Explanation:
    """How ``op`` resolves for the named keys; raises RegistrationError for an unknown key."""
    HOOKS.load_plugins()
    operator = op if isinstance(op, Operator) else TABLE.operator(op)
    order = TABLE.snapshot.order
    keys = 0
    for name in names:
        key = order.by_name.get(name)
        if key is None:
            raise RegistrationError(
                f"there is no key {name!r}",
                fix=f"known keys: {', '.join(k.name for k in order.highest_first)}",
            )
        keys |= key.bit
    return _explain(operator, keys, ())


def _explain(
    operator: Operator,
    keys: int,
    described: tuple[tuple[str, tuple[str, ...]], ...],
    arguments: tuple[Any, ...] | None = None,
) -> Explanation:
    s = TABLE.snapshot
    included, excluded = current_masks()
    keys = (keys | included) & ~excluded
    redispatches = []
    remaining = keys
    while True:
        found = walk(s, operator, remaining)
        redispatches.append(found)
        if found.key is None or found.key.kind != "layer" or found.kind == "refused":
            break
        remaining &= ~s.order.from_above(found.key)
        if s.layers[found.key.name][0].wraps:  # it goes on with what is in the wrappers
            remaining &= ~TABLE.bit("wrapped")
    if found.kind == "inplace" and operator.inplace_of is not None:
        redispatches.append(walk(s, operator.inplace_of, remaining))
    if (
        arguments is not None
        and redispatches[-1].kind == "raw"
        and len(redispatches[-1].kernels) > 1
    ):
        function = (
            operator
            if len(redispatches) == 1 or operator.inplace_of is None
            else operator.inplace_of
        )
        redispatches[-1] = _settled(redispatches[-1], function, remaining, arguments)
    return Explanation(
        operator.name,
        described,
        s.order.names(included),
        s.order.names(excluded),
        s.order.names(keys),
        tuple(redispatches),
        s.generation,
    )


def _settled(found: Resolution, op: Operator, keys: int, arguments: tuple[Any, ...]) -> Resolution:
    """``found`` with the kernels passed over that reject these arguments.

    By their size or by their predicate: what a kernel rejects only when it is called (by
    returning NotImplemented) is known where it was registered with ``accepts``.
    """
    entry = build(TABLE.snapshot, op, keys, 0)
    if not isinstance(entry, RawEntry):
        return found
    raw = entry.unwrap(arguments)
    size = getattr(raw[0], "size", None)
    kernels = found.kernels
    steps = found.steps[: -len(kernels)]
    slot = found.steps[-1].key
    for number, kernel in enumerate(kernels):
        last = number == len(kernels) - 1
        if not last and kernel.least and size is not None and size < kernel.least:
            verdict = f"rejects {size} elements, takes {kernel.least} or more"
        elif not last and kernel.when is not None and not kernel.when(*raw):
            verdict = "its predicate rejects these arguments"
        elif not last and kernel.accepts is not None and not kernel.accepts(*raw):
            verdict = "rejects these arguments when it is called"
        else:
            verdict = f"own kernel, priority {kernel.priority}"
            steps.append(Step(slot, str(kernel), verdict, True))
            overridden = "overridden, serves what is rejected"
            steps += [Step(slot, str(other), overridden) for other in kernels[number + 1 :]]
            return replace(found, kernels=kernels[number:], steps=steps)
        steps.append(Step(slot, str(kernel), verdict))
    raise AssertionError("unreachable: the last kernel takes what comes")
