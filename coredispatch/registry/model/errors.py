"""Every error the framework raises: what was called, what was expected, and the nearest fix.

Each class also derives from the built-in class PyTorch raises in the same place, so that
``except RuntimeError`` or ``except IndexError`` written for PyTorch keeps working.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

__all__ = [
    "ArgumentError",
    "AutogradError",
    "ChoiceError",
    "ChoiceTypeError",
    "CoreDispatchError",
    "DTypeError",
    "DataDependentError",
    "DeviceError",
    "DimError",
    "IndexTypeError",
    "KernelError",
    "LinAlgError",
    "MissingKernel",
    "ModeError",
    "NoDeviceError",
    "NotATensorError",
    "NumberRangeError",
    "OpError",
    "OptionError",
    "OutOfMemoryError",
    "PluginError",
    "RegistrationError",
    "RequirementError",
    "SchemaError",
    "ShapeError",
    "UnknownTypeError",
    "UnsupportedShapeError",
]

_MAX_LINES = 10


def text_of(thing: object) -> str:
    """``str(thing)``, for an object of unknown make whose ``__str__`` may itself raise."""
    try:
        return str(thing)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{type(thing).__name__} whose text cannot be had: {type(error).__name__}>"


def shown_value(thing: object) -> str:
    """``repr(thing)`` on one line of at most 60 characters, for an object of unknown make."""
    try:
        text = " ".join(repr(thing).split())
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = f"<a {type(thing).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


class CoreDispatchError(Exception):
    """Base of all errors; ``fix`` is the nearest fix, printed on a line of its own.

    ``call`` names the call that was refused. Where only ``inside`` is set, an operator refused
    the type of an argument, and each composite around it may still find that this was an
    argument of its own: the user is told of the call that was written, not of one inside it.
    An empty ``inside`` says the same of an error whose message names the call.
    """

    #: how texts spell the package; set while it goes by another name (see spelling.py)
    spelled: ClassVar[Callable[[str], str]] = str

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        self.message = message
        self.fix = fix
        self.call: str | None = None
        self.inside: str | None = None
        super().__init__(message)

    def __str__(self) -> str:
        call = self.call or self.inside
        lines = [f"{call}: {self.message}" if call else self.message]
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        lines = "\n".join(lines).splitlines()
        if len(lines) > _MAX_LINES:
            lines = [*lines[: _MAX_LINES - 1], f"  ... ({len(lines) - _MAX_LINES + 1} more lines)"]
        return type(self).spelled("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.fix, self.call or self.inside))


def _rebuild(
    cls: type[CoreDispatchError], message: str, fix: str | None, call: str | None
) -> CoreDispatchError:
    error = cls(message, fix=fix)
    error.call = call
    return error


class OpError(CoreDispatchError, RuntimeError):
    """An operator refused its arguments; ``call`` names the op with shapes, dtypes and keys."""


class DataDependentError(OpError):
    """The value of an element is needed where there are shapes and no data."""


class ShapeError(OpError, ValueError):
    """Shapes do not fit the operator.

    PyTorch raises ``RuntimeError`` for them in compiled code and ``ValueError`` in Python code.
    """


class UnsupportedShapeError(OpError, NotImplementedError):
    """There is no such operation for this number of dimensions: ``interpolate`` in PyTorch."""


class DimError(OpError, IndexError):
    """A dimension or an index is out of range."""


class DTypeError(OpError, TypeError, NotImplementedError):
    """A dtype or an argument type does not fit the operator.

    PyTorch raises ``NotImplementedError`` for a dtype that no kernel was compiled for,
    ``RuntimeError`` for one that a check refuses, and ``TypeError`` for a type.
    """


class ArgumentError(OpError, ValueError):
    """A non-tensor argument has a value the operator does not take."""


class OptionError(OpError):
    """An option is none of those that there are; raised as one of the classes below."""

    @classmethod
    def among(cls, name: str, value: object, allowed: Sequence[object]) -> OptionError:
        """The error of an argument ``name`` that is none of ``allowed``."""
        choices = ", ".join(map(repr, allowed))
        return cls(f"{name}={value!r} is not one of {choices}", fix=f"use {choices}")


class ChoiceError(OptionError, ArgumentError):
    """An option whose other values have no meaning: a reduction, a norm."""


class ModeError(OptionError, NotImplementedError):
    """A way to compute that there is not: the modes of ``interpolate`` and ``pad``."""


class ChoiceTypeError(ChoiceError, DTypeError):
    """An option that is chosen by its name is no string: ``ValueError`` or ``TypeError`` there."""


class NotATensorError(OpError, AttributeError):
    """What a parameter is made of is no tensor: PyTorch finds that it has no ``detach``."""


class UnknownTypeError(DTypeError, AttributeError):
    """A type of tensors by a name that nothing has: PyTorch looks it up as an attribute."""


class IndexTypeError(DimError, DTypeError):
    """What stands in ``x[...]`` is no index: ``IndexError`` of numbers in PyTorch, ``TypeError`` of
    anything else."""


class RequirementError(ArgumentError, AssertionError):
    """A value that PyTorch refuses with an ``assert`` statement."""


class LinAlgError(OpError):
    """A matrix has no decomposition or inverse, or an iteration did not converge."""


class NumberRangeError(ArgumentError, OverflowError):
    """A number does not fit the dtype it would be computed with or written in."""


class DeviceError(OpError):
    """Tensors sit on different devices, or a device is unknown or absent."""


class NoDeviceError(DeviceError, AssertionError):
    """There is no such device here: what PyTorch asserts when it is built without CUDA."""


class MissingKernel(OpError, NotImplementedError):
    """No kernel, decomposition or declared fallback serves the operator for these keys."""


class KernelError(OpError):
    """A kernel failed, or returned something the operator's definition does not allow.

    Where the kernel raised a built-in error, the class derives from that as well.
    """

    builtin: type[Exception] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        if self.builtin is None:
            return super().__reduce__()
        call = self.call or self.inside
        return (_rebuild_kernel_error, (self.builtin, self.message, self.fix, call))


class OutOfMemoryError(KernelError, MemoryError):
    """A device, or the host, has not the memory that a result needs."""

    builtin = MemoryError


_KERNEL_ERRORS: dict[type[Exception], type[KernelError]] = {MemoryError: OutOfMemoryError}


def kernel_error(builtin: type[Exception]) -> type[KernelError]:
    """The :class:`KernelError` that is also a ``builtin``."""
    if builtin not in _KERNEL_ERRORS:
        details = {"__module__": KernelError.__module__, "builtin": builtin}
        _KERNEL_ERRORS[builtin] = type("KernelError", (KernelError, builtin), details)
    return _KERNEL_ERRORS[builtin]


def _rebuild_kernel_error(
    builtin: type[Exception], message: str, fix: str | None, call: str | None
) -> CoreDispatchError:
    return _rebuild(kernel_error(builtin), message, fix, call)


class AutogradError(OpError):
    """A derivative rule, a saved tensor or an in-place write broke the rules of autograd."""


class MissingDerivative(AutogradError, NotImplementedError):
    """A gradient is wanted of an operator that has none."""


class RegistrationError(CoreDispatchError, ValueError):
    """A registration was refused; the table is as it was before."""


class SchemaError(RegistrationError, TypeError):
    """An operator's signature or metadata is not a valid schema."""


class PluginError(CoreDispatchError, RuntimeError):
    """A plugin could not be found, imported, registered or unloaded."""
