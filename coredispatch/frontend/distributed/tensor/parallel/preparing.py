"""Styles that leave parameters alone: how the inputs and outputs of a module shall lie."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.tensor.parallel.styles import ParallelStyle, as_placed
from coredispatch.frontend.distributed.tensor.placements import Placement
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__ = ["PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput"]

Layouts = Placement | tuple[Placement | None, ...] | None


def _tuple(layouts: Layouts) -> tuple[Placement | None, ...]:
    if layouts is None:
        return ()
    return layouts if isinstance(layouts, tuple) else (layouts,)


def _prepared(
    values: tuple[Any, ...],
    mesh: DeviceMesh,
    layouts: tuple[Placement | None, ...],
    desired: tuple[Placement | None, ...],
    local: bool,
    what: str,
) -> tuple[Any, ...]:
    if len(values) != len(layouts):
        raise ValueError(
            f"module {what} and {what}_layouts should have same length: {len(values)} and "
            f"{len(layouts)}\n  fix: give None for what shall stay as it is"
        )
    made = []
    for value, layout, wanted in zip(values, layouts, desired, strict=True):
        if layout is not None and wanted is not None and isinstance(value, Tensor):
            value = as_placed(value, mesh, layout, wanted)
            value = value.to_local() if local else value
        made.append(value)
    return tuple(made)


class PrepareModuleInput(ParallelStyle):
    """Let the inputs of a module lie as it needs them.

    Args:
        input_layouts: how they lie, one for each positional input; None leaves one alone.
        desired_input_layouts: how they shall lie.
        input_kwarg_layouts, desired_input_kwarg_layouts: by name, for keyword inputs.
        use_local_output: give tensors with this rank's parts, rather than DTensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        super().__init__()
        self.input_layouts = _tuple(input_layouts)
        self.desired_input_layouts = _tuple(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if input_layouts is not None and len(self.input_layouts) != len(self.desired_input_layouts):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        if set(self.input_kwarg_layouts) != set(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have "
                                 "the same keys!")  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def enter(part: Module, args: Any, kwargs: Any) -> Any:
            if self.input_layouts:
                args = _prepared(
                    args, device_mesh, self.input_layouts, self.desired_input_layouts,
                    self.use_local_output, "input",
                )  # fmt: skip
            for name, layout in self.input_kwarg_layouts.items():
                if name in kwargs:
                    desired = (self.desired_input_kwarg_layouts[name],)
                    (kwargs[name],) = _prepared(
                        (kwargs[name],), device_mesh, (layout,), desired, self.use_local_output,
                        "input",
                    )  # fmt: skip
            return args, kwargs

        module.register_forward_pre_hook(enter, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Let the outputs of a module lie as what follows needs them.

    Args:
        output_layouts: how they lie, one for each output; None leaves one alone.
        desired_output_layouts: how they shall lie.
        use_local_output: give tensors with this rank's parts, rather than DTensors.
    """

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        super().__init__()
        self.output_layouts = _tuple(output_layouts)
        self.desired_output_layouts = _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same "
                                 "length!")  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def leave(part: Module, inputs: Any, output: Any) -> Any:
            values = output if isinstance(output, tuple) else (output,)
            made = _prepared(
                values, device_mesh, self.output_layouts, self.desired_output_layouts,
                self.use_local_output, "output",
            )  # fmt: skip
            return made if isinstance(output, tuple) else made[0]

        module.register_forward_hook(leave)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """:class:`PrepareModuleInput` and :class:`PrepareModuleOutput` together."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        super().__init__()
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
