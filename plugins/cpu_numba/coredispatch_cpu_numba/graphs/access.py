"""Reading and writing elements at addresses, with what LLVM cannot find out: what is apart.

A fused loop reads and writes up to some twenty arrays. LLVM would compare all their addresses
before it dares to vectorize, and gives up beyond a few. Here each access says which operand it
belongs to, and that it touches no other one; the compiler of graphs sees to it that this is true.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["TYPES", "accessors", "add_up", "floating", "single_vectors", "word"]

#: the types of elements, by the letter that the sources use
TYPES = {
    "f": types.float32,
    "d": types.float64,
    "i": types.int64,
    "j": types.int32,
    "b": types.boolean,
}
_MEMORY = {
    "f": ir.FloatType(),
    "d": ir.DoubleType(),
    "i": ir.IntType(64),
    "j": ir.IntType(32),
    "b": ir.IntType(8),
}


def _place(builder: Any, kind: ir.Type, address: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


def _apart(builder: Any, instruction: Any, scope: int, scopes: int) -> None:
    """Mark an access as one of operand ``scope``, and of no other one."""
    module = builder.module
    text = lambda name: ir.MetaDataString(module, name)  # noqa: E731
    domain = module.add_metadata([text("coredispatch")])
    all_of_them = [module.add_metadata([text(f"operand {k}"), domain]) for k in range(scopes)]
    others = [found for k, found in enumerate(all_of_them) if k != scope]
    instruction.set_metadata("alias.scope", module.add_metadata([all_of_them[scope]]))
    if others:
        instruction.set_metadata("noalias", module.add_metadata(others))


def accessors(letter: str, scope: int, scopes: int) -> tuple[Any, Any]:
    """``load(address, index)`` and ``store(address, index, value)`` of operand ``scope``."""
    kind, memory = TYPES[letter], _MEMORY[letter]

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_place(builder, memory, *args))
            _apart(builder, value, scope, scopes)
            return builder.icmp_unsigned("!=", value, memory(0)) if letter == "b" else value

        return kind(types.intp, types.intp), codegen

    @intrinsic
    def store(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address, index, value = args
            if letter == "b":
                value = builder.zext(value, memory)
            done = builder.store(value, _place(builder, memory, address, index))
            _apart(builder, done, scope, scopes)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, kind), codegen

    return load, store


@intrinsic
def word(typingctx: Any, address: Any, index: Any) -> Any:
    """Word ``index`` of the arguments at ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(builder, ir.IntType(64), *args))

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def floating(typingctx: Any, address: Any, index: Any) -> Any:
    """Word ``index`` of the arguments at ``address``, a float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(builder, ir.DoubleType(), *args))

    return types.float64(types.intp, types.intp), codegen


@intrinsic
def add_up(typingctx: Any, total: Any, value: Any) -> Any:
    """``total + value`` in a sum whose order does not matter, so that it is vectorized."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args, flags=("reassoc", "contract"))

    return total(total, total), codegen


@intrinsic
def single_vectors(typingctx: Any) -> Any:
    """Have the loops above it, in the same function, take one vector at a time.

    LLVM takes four of them, and goes through what is left one element at a time. The branches back
    get metadata; LLVM wants its first operand to be the metadata itself.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        module, above = builder.module, []
        hint = module.add_metadata(
            [ir.MetaDataString(module, "llvm.loop.interleave.count"), ir.IntType(32)(1)]
        )
        for number, block in enumerate(builder.function.blocks):
            above.append(block)
            last = block.terminator
            if isinstance(last, ir.Branch) and last.operands[0] in above:
                label = ir.MetaDataString(module, f"loop {number} of {builder.function.name}")
                loop = module.add_metadata([label, hint])
                loop.operands = (loop, hint)
                last.set_metadata("llvm.loop", loop)
        return context.get_dummy_value()

    return types.void(), codegen
