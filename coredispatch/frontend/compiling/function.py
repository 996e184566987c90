"""A compiled function: which of its programs serves a call, and when a new one is captured."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.compiling.arguments import Arguments
from coredispatch.frontend.compiling.capture import Capture
from coredispatch.frontend.compiling.graphs import masked_call
from coredispatch.frontend.compiling.joint import CompiledProgram
from coredispatch.frontend.compiling.modes import modes_in_force
from coredispatch.frontend.compiling.program import Leaf, Program, Unseen
from coredispatch.frontend.compiling.recording import Unsupported, capturing
from coredispatch.frontend.compiling.settings import COUNTERS, SETTINGS, STANCE
from coredispatch.frontend.modes import fresh_keys, is_inference_mode_enabled
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph.compilers import eager
from coredispatch.plugin import Value

__all__ = ["CompiledFunction"]


class CompiledFunction:
    """What ``compile`` makes of a function or of a module's forward.

    Attributes:
        programs: key of the arguments and modes -> the programs for it, the last one used first.
        problems: why calls ran eagerly: ``(reason, (file, line, function))``.
        recompilations: why the programs there were did not serve a call.
    """

    def __init__(
        self, fn: Callable[..., Any], compiler: Any, fullgraph: bool, dynamic: bool | None
    ) -> None:
        self._fn = fn
        self.compiler, self.fullgraph, self.dynamic = compiler, fullgraph, dynamic
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn, updated=())
        self.reset()

    def reset(self) -> None:
        """Forget all programs."""
        self.programs: dict[Any, list[Program]] = {}
        self.problems: list[tuple[str, Any]] = []
        self.recompilations: list[str] = []
        self.moving: set[int] = set()
        self.plain = False
        self.places: set[Any] = set()
        self.captures = 0
        self.misses = 0
        self.eager_calls = 0
        self.seconds = 0.0
        self.given_up: str | None = None
        self.generation = SETTINGS.generation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if capturing.current() is not None:  # a part of the program that is captured
            return self._fn(*args, **kwargs)
        if self.generation != SETTINGS.generation:
            self.reset()
        modes = None if STANCE.name == "force_eager" or SETTINGS.disable else modes_in_force()
        if modes is None:
            return self._eagerly(args, kwargs)
        given = Arguments(args, kwargs, self.moving)
        key = (modes, given.key)
        programs = self.programs.get(key)
        if programs is not None:
            for i, program in enumerate(programs):
                if program.guards.hold(given.leaves):
                    if i:
                        programs.insert(0, programs.pop(i))
                    try:
                        return execute(program, given)
                    except Unseen:
                        return self._capture(key, given, args, kwargs, program)
        return self._capture(key, given, args, kwargs, None)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _eagerly(self, args: Any, kwargs: Any) -> Any:
        self.eager_calls += 1
        COUNTERS["eager_calls"] += 1
        return self._fn(*args, **kwargs)

    # -- capturing -------------------------------------------------------------------------------

    def _capture(self, key: Any, given: Arguments, args: Any, kwargs: Any, known: Any) -> Any:
        """Run eagerly, and keep the program for the next time."""
        if self.given_up is not None or STANCE.name == "eager_on_recompile" and self.programs:
            return self._eagerly(args, kwargs)
        if STANCE.name == "fail_on_recompile" and self.programs:
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile'"
            )
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return self._eagerly(args, kwargs)
        try:
            if known is None and self._explain(key, given):
                given = Arguments(args, kwargs, self.moving)
                key = (key[0], given.key)
            if self.given_up is not None:
                return self._eagerly(args, kwargs)
            return self._captured(key, given, args, kwargs, known)
        finally:
            self._lock.release()

    def _explain(self, key: Any, given: Arguments) -> bool:
        """Note why there is no program for a call; whether a number became an input."""
        found = False
        total = sum(map(len, self.programs.values()))
        if key in self.programs:
            program = self.programs[key][0]
            for record in program.guards.changed():
                if type(record.value) in (int, float) and type(record.now()) is type(record.value):
                    self.places.add((record.kind, id(record.holder), record.key))
            self.recompilations.append(program.guards.broken(given.leaves) or "a guard failed")
        elif self.programs:
            self.recompilations.append(self._difference(key))
            if self.dynamic is not False and not self.plain:
                found = self._moved(given)
        if total >= SETTINGS.recompile_limit and total:
            self.given_up = (
                f"{total} programs were captured (config.recompile_limit), the last because "
                f"{self.recompilations[-1] if self.recompilations else 'of new arguments'}"
            )
            if self.fullgraph or SETTINGS.fail_on_recompile_limit_hit:
                raise Unsupported(self.given_up)
        return found

    def _difference(self, key: Any) -> str:
        modes, arguments = next(reversed(self.programs))
        if modes != key[0]:
            return "a mode or a setting differs"
        for i, (then, now) in enumerate(zip(arguments, key[1])):
            if then != now:
                return f"argument {i}: {_described(then)} -> {_described(now)}"
        return "the number of arguments differs"

    def _moved(self, given: Arguments) -> bool:
        """Numbers among the arguments that differ from before become inputs."""
        before = getattr(self, "_numbers", None)
        found = False
        if given.containers:  # the program may write to them: it is to see them, and no copies
            return False
        if before is not None and len(before) == len(given.numbers):
            for place, (then, now) in enumerate(zip(before, given.numbers)):
                if type(then) is type(now) and then != now and place not in self.moving:
                    self.moving.add(place)
                    found = True
        return found

    def _captured(self, key: Any, given: Arguments, args: Any, kwargs: Any, known: Any) -> Any:
        capture = Capture(self._fn, given, self.places, self.fullgraph, self.plain)
        capture.run(args, kwargs)
        self.captures += 1
        self._numbers = list(given.numbers)
        self.seconds += capture.seconds
        if capture.problem is not None:
            self.problems.append(capture.problem)
            COUNTERS["problems"] += 1
            self.misses += 1
            if self.misses >= SETTINGS.recompile_limit:
                self.given_up = capture.problem[0]
            return self._eagerly(args, kwargs) if capture.taken_back else capture.result
        if capture.taken_back:  # numbers of ours were not what the program took them for
            self.plain, self.moving = True, set()
            given = Arguments(args, kwargs, self.moving)
            return self._captured((key[0], given.key), given, args, kwargs, None)
        if capture.passing:
            self.misses += 1
            if self.misses < SETTINGS.recompile_limit:
                return capture.result
        self._keep(key, capture, known)
        return capture.result

    def _keep(self, key: Any, capture: Capture, known: Program | None) -> None:
        """Compile what was captured."""
        compiler, examples = self.compiler, capture.recorder.examples
        if capture.overlaps():
            compiler = eager  # who writes to one input writes to another: in the program's order
        leaf = capture.leaf
        assert leaf is not None  # a capture without a problem has come to its end
        if leaf.joint is not None:
            leaf.joint.compiler = compiler
        if known is not None and len(known.leaves()) >= SETTINGS.branch_limit:
            self.given_up = f"values that it looks at differ in every call: {_places(known)}"
            return
        if known is not None and known.merged(capture):
            known.compile(compiler, examples)
        else:
            program = Program(key, capture)
            program.compile(compiler, examples)
            self.programs.setdefault(key, []).insert(0, program)
            COUNTERS["unique_graphs"] += len(program.segments())
        self.misses = 0


def _places(program: Program) -> str:
    lines = {"{}:{}".format(*s.decision.where) for s in program.segments() if s.decision}
    return ", ".join(sorted(lines))


def _described(part: Any) -> str:
    if isinstance(part, tuple) and len(part) >= 6 and isinstance(part[0], type):
        return f"a tensor of shape {tuple(part[1])}, {part[2]}"
    if isinstance(part, tuple) and len(part) == 2:
        return repr(part[1])
    return repr(part)


def execute(program: Program, given: Arguments) -> Any:
    """Run the graphs of a program, write what it writes, and return what it returns."""
    env: dict[Any, Any] = {}
    leaves = given.leaves
    for node, origin in program.inputs:
        kind = origin.kind
        if kind == "constant":
            env[node] = origin.value
        elif kind == "leaf":
            env[node] = leaves[origin.place]
        elif kind == "item":
            env[node] = origin.place.now()
        elif kind == "grad":
            env[node] = origin.place._grad
        else:
            env[node] = leaves[origin.place]._grad
    infers = is_inference_mode_enabled()
    segment = program.root
    undo = program.undoing(env) if segment.decision is not None else None
    while True:
        run = segment.run
        if run is None:
            run = segment.compiled(program.compiler, env)
        made = masked_call(run, [env[node] for node in segment.inputs])
        if infers:
            made = [_inferred(value) for value in made]
        env.update(zip(segment.outputs, made))
        if segment.decision is None:
            break
        following = segment.child(env[segment.decision.node])
        if following is None:
            if undo is not None:
                undo()
            raise Unseen
        segment = following
    leaf = segment.leaf
    assert leaf is not None
    for new, old in leaf.aliases.items():
        env[new] = env[old]
    if leaf.joint is not None:
        attach(leaf, env)
    result = leaf.result(env)
    values = [build(env) for _, build in leaf.effects]
    for (write, _), value in zip(leaf.effects, values):
        if hasattr(write, "write"):
            write.write(given, value)
        else:
            write(value)
    program.calls += 1
    return result


def _inferred(value: Any) -> Any:
    """A result made in inference mode."""
    if isinstance(value, Value) and not value.keys & AUTOGRAD:
        value.keys = fresh_keys(value.keys)
    return value


def attach(leaf: Leaf, env: dict[Any, Any]) -> None:
    """Make the results a node of autograd."""
    joint = leaf.joint
    outs = [env[node] for node in joint.outs]
    saved = [env[node] for node in joint.saved]
    inputs = [env[node] for node in joint.ins]
    found = CompiledProgram.apply(joint, outs, saved, *inputs)
    env.update(zip(joint.outs, found))
