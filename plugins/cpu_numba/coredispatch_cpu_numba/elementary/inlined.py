"""The decorator of the scalar functions in this folder."""

from __future__ import annotations

from ..building import compiled

__all__ = ["inlined"]

# contract only: nnan, ninf and nsz would let LLVM drop special cases, reassoc the rounding
# tricks. error_model="numpy" removes the zero-division branch, which stops vectorization.
# forceinline: LLVM keeps the longer ones out of line otherwise, and a loop with a call in it
# does not vectorize.
inlined = compiled(fastmath={"contract"}, forceinline=True)
