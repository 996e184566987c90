"""``cd.nested``: programs import it; there are no nested tensors yet."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_function

__all__ = ["as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]

_FIX = "pad with nn.utils.rnn.pad_sequence and keep a mask"

as_nested_tensor = announced_function("nested.as_nested_tensor", _FIX)
nested_tensor = announced_function("nested.nested_tensor", _FIX)
nested_tensor_from_jagged = announced_function("nested.nested_tensor_from_jagged", _FIX)
to_padded_tensor = announced_function("nested.to_padded_tensor", _FIX)
