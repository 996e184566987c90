"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

__all__ = [
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
]


class InputKind(enum.Enum):
    """What an input of the graph stands for."""

    USER_INPUT = "user input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT_TENSOR = "constant tensor"


class OutputKind(enum.Enum):
    """What an output of the graph stands for."""

    USER_OUTPUT = "user output"
    BUFFER_MUTATION = "buffer mutation"
    PARAMETER_MUTATION = "parameter mutation"
    USER_INPUT_MUTATION = "user input mutation"


@dataclasses.dataclass
class InputSpec:
    """One input: the name in the graph, and of a parameter or buffer its path in the module."""

    kind: InputKind
    name: str
    target: str | None = None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        kept = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.name}: {self.kind.name}{target}{kept}"


@dataclasses.dataclass
class OutputSpec:
    """One output: the name in the graph (None of a constant), and what it is the new value of."""

    kind: OutputKind
    name: str | None
    target: str | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The paths of the parameters."""
        return tuple(str(s.target) for s in self._inputs(InputKind.PARAMETER))

    @property
    def buffers(self) -> tuple[str, ...]:
        """The paths of the buffers."""
        return tuple(str(s.target) for s in self._inputs(InputKind.BUFFER))

    @property
    def non_persistent_buffers(self) -> set[str]:
        """The paths of the buffers that no state_dict holds."""
        return {str(s.target) for s in self._inputs(InputKind.BUFFER) if s.persistent is False}

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of the tensors that the program made of numbers."""
        return tuple(str(s.target) for s in self._inputs(InputKind.CONSTANT_TENSOR))

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """The names of the inputs that a caller gives."""
        return tuple(s.name for s in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self) -> tuple[str | None, ...]:
        """The names of the outputs that a caller gets."""
        return tuple(s.name for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Name of the input -> path of the parameter."""
        return {s.name: str(s.target) for s in self._inputs(InputKind.PARAMETER)}

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Name of the input -> path of the buffer."""
        return {s.name: str(s.target) for s in self._inputs(InputKind.BUFFER)}

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Name of the input -> name of the constant."""
        return {s.name: str(s.target) for s in self._inputs(InputKind.CONSTANT_TENSOR)}

    def _mutations(self, kind: OutputKind) -> dict[str, str]:
        return {str(s.name): str(s.target) for s in self.output_specs if s.kind is kind}

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Name of the output -> path of the buffer that it is the new value of."""
        return self._mutations(OutputKind.BUFFER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Name of the output -> name of the input that it is the new value of."""
        return self._mutations(OutputKind.USER_INPUT_MUTATION)

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
