"""A compiled function: which of its programs serves a call, and when a new one is captured."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from coredispatch.frontend.compiling.arguments import Arguments
from coredispatch.frontend.compiling.capture import Capture
from coredispatch.frontend.compiling.classes import held_by_name
from coredispatch.frontend.compiling.executing import caller, execute
from coredispatch.frontend.compiling.matching import matcher
from coredispatch.frontend.compiling.memory import overlaps
from coredispatch.frontend.compiling.modes import modes_in_force
from coredispatch.frontend.compiling.program import Failed, Program, Segment, Unseen
from coredispatch.frontend.compiling.recording import Unsupported
from coredispatch.frontend.compiling.replaced import alike
from coredispatch.frontend.compiling.settings import COUNTERS, SETTINGS, STANCE
from coredispatch.frontend.compiling.sizes import OpenSizes
from coredispatch.frontend.compiling.switches import capturing
from coredispatch.frontend.compiling.timing import timed
from coredispatch.graph.compilers import eager
from coredispatch.plugin import CoreDispatchError
from coredispatch.registry.around.checks import came_by_signal

__all__ = ["CompiledFunction"]


#: how many programs are asked before a key is made of the arguments
_MOST_READY = 4
#: how often a capture with open sizes is tried before the sizes are taken for numbers
_MOST_TRIES = 5


class Ready(NamedTuple):
    """A program by functions that are written for it.

    Attributes:
        modes: what is in force around its calls.
        match: of :func:`matcher`.
        hold: of its guards.
        call: of :func:`caller`.
    """

    modes: Any
    match: Callable[..., Any]
    hold: Callable[[list[Any]], bool]
    call: Callable[[list[Any], list[Any]], Any]


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
        self._untimed, self.fullgraph, self.dynamic = compiler, fullgraph, dynamic
        self.backend: Any = compiler
        self.settings: dict[str, Any] = {}
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn, updated=())
        self._numbers: list[Any] | None = None
        self._captures: list[Capture] = []  # of the call that is made
        self._own_names: frozenset[str] = frozenset()
        self.reset()
        self._own_names = frozenset(vars(self))  # all others are the program's

    def reset(self) -> None:
        """Forget all programs."""
        self.programs: dict[Any, list[Program]] = {}
        self.ready: list[Ready] = []
        self.problems: list[tuple[str, Any]] = []
        self.recompilations: list[str] = []
        self.moving: set[int] = set()
        self.plain = False
        self.places: set[Any] = set()
        self.apart: set[type] = set()  # classes of arguments whose objects are taken apart
        self.whole: set[type] = set()  # those that are not
        self.kinds: dict[type, int] = {}  # class of an argument -> the id of the first such object
        self.sizes = OpenSizes(self.dynamic)
        self.captures = 0
        self.misses = 0
        self.eager_calls = 0
        self.capture_seconds = 0.0
        self.compiler = timed(self._untimed)
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
        for i, ready in enumerate(self.ready):
            if ready.modes == modes:
                leaves = ready.match(args, kwargs)
                if leaves is not None and ready.hold(leaves):
                    if i:
                        self.prefer(ready)
                    try:
                        return ready.call(leaves, [])
                    except Unseen:
                        continue
                    except Failed as failed:
                        error = failed.__cause__
                    return self._failed(error, args, kwargs)
        return self._found(modes, args, kwargs)

    def _given(self, args: Any, kwargs: Any) -> Arguments:
        return Arguments(args, kwargs, self.moving, self.sizes.open, self.apart)

    def _takes_apart(self, given: Arguments) -> bool:
        """Whether objects of a class that come anew in each call are arguments by what they hold.

        Their programs are given up: they are for objects that do not come again.
        """
        fresh = set()
        for item in given.objects:
            kind = type(item)
            if self.kinds.setdefault(kind, id(item)) != id(item) and kind not in self.whole:
                if held_by_name(kind):
                    fresh.add(kind)
        self.apart |= fresh
        for key, programs in list(self.programs.items()) if fresh else ():
            if any(type(item) in fresh for program in programs for item in program.objects):
                del self.programs[key]
        if fresh:
            self.ready = []
        return bool(fresh)

    def _keeps(self, capture: Capture) -> bool:
        """Whether objects that were taken apart had better not be."""
        kept = capture.kept if self.apart else set()
        self.apart -= kept
        self.whole |= kept
        return bool(kept)

    def _found(self, modes: Any, args: Any, kwargs: Any) -> Any:
        """The call by the program for it; a new one where there is none."""
        try:
            given = self._given(args, kwargs)
            key = (modes, given.key)
            programs = self.programs.get(key, [])
        except RecursionError:  # an argument that holds itself, or is as deep as Python goes
            return self._eagerly(args, kwargs)
        unseen: Program | None = None
        for program in [*programs]:
            if not program.guards.hold(given.leaves):
                continue
            self.prepare(program, modes, given, args, kwargs)
            try:
                result = execute(program, given.leaves, given.containers)
            except Unseen:  # another one may know this answer: everything is as it was
                unseen = unseen or program
                continue
            except Failed as failed:
                return self._failed(failed.__cause__, args, kwargs)
            if program is not programs[0]:
                programs.remove(program)
                programs.insert(0, program)
            if program.ready:
                self.prefer(program.ready)
            return result
        if unseen is not None:
            return self._capture(key, given, args, kwargs, unseen)
        return self._capture(key, given, args, kwargs, None)

    def prepare(self, program: Program, modes: Any, given: Arguments, args: Any, kw: Any) -> None:
        """Write the functions that serve such calls, before this one changes its arguments."""
        if program.ready is None:
            match = matcher(given, args, kw)
            call = caller(program) or functools.partial(execute, program)
            program.ready = match is not None and Ready(modes, match, program.guards.hold, call)

    def prefer(self, ready: Ready) -> None:
        """Ask this one first from now on."""
        others = [other for other in self.ready if other is not ready]
        self.ready = [ready, *others[: _MOST_READY - 1]]

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        return self  # as of functions

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _eagerly(self, args: Any, kwargs: Any) -> Any:
        self.eager_calls += 1
        COUNTERS["eager_calls"] += 1
        return self._fn(*args, **kwargs)

    def _failed(self, error: BaseException | None, args: Any, kwargs: Any) -> Any:
        """Fail as Python does, at the program's line, or go on where it catches the error.

        What no operator raised is a fault of the compiler, and raised.
        """
        assert error is not None
        if came_by_signal(error):
            raise error
        result = self._eagerly(args, kwargs)
        if isinstance(error, CoreDispatchError) and error.call is not None:
            return result
        if _of_numbers(error) and not _while_compiling(error):
            return result  # where the program caught it
        raise error

    # -- capturing -------------------------------------------------------------------------------

    def _capture(self, key: Any, given: Arguments, args: Any, kwargs: Any, known: Any) -> Any:
        """Run eagerly, and keep the program for the next time."""
        if self.given_up is not None or STANCE.name == "eager_on_recompile":
            return self._eagerly(args, kwargs)
        if STANCE.name == "fail_on_recompile":
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile'"
            )
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return self._eagerly(args, kwargs)
        try:
            if known is None:
                if given.objects and self._takes_apart(given):
                    given = self._given(args, kwargs)
                    key = (key[0], given.key)
                fresh = self._explain(key, given)
                if self.sizes.extend(given) or fresh:
                    given = self._given(args, kwargs)
                    key = (key[0], given.key)
            if self.given_up is not None:
                return self._eagerly(args, kwargs)
            if known is not None and self._opens_numbers(known, given):
                self.recompilations.append("a number that decides shapes differs in each call")
                given = self._given(args, kwargs)
            opening = given.sizes or self.sizes.of_state
            if opening and (known is None or given.open_numbers or self.sizes.state_numbers):
                program = self._open_program(key[0], args, kwargs)
                if program is not None:
                    return self._first_call(program, args, kwargs)
                given = self._given(args, kwargs)
                key = (key[0], given.key)
            return self._captured(key, given, args, kwargs, known)
        finally:
            while self._captures:
                self._captures.pop().release()
            self._lock.release()

    def _opens_numbers(self, known: Program, given: Arguments) -> bool:
        """Whether numbers that decide shapes, and come with another value, become symbols."""
        origins = known.shaping()
        kept = [origin.place for origin in origins if origin.kind == "item"]
        opened = self.sizes.extend_state(kept)
        return (bool(origins) and self.sizes.extend_numbers(given)) or opened

    def _open_program(self, modes: Any, args: Any, kwargs: Any) -> Program | None:
        """A program for all sizes that are open; None where the call is to be captured as it is."""
        for _ in range(_MOST_TRIES):
            given = self._given(args, kwargs)
            if not given.sizes and not self.sizes.of_state:
                return None
            capture = self._run(given, args, kwargs, open_=True)
            if capture.vacant or self._keeps(capture):
                return None
            if self.sizes.settled(capture):
                why = "one after the other is needed as a number"
                continue
            if capture.leaf is None:
                found = capture.problem or (capture.reason, None)
                if found[0] is None:
                    found = "types are looked at", capture.state.asking
                if self.sizes.close_numbers(found[1]) or self.sizes.close_state(capture, found[1]):
                    continue
                self.sizes.give_up(*found)
                return None
            if not capture.passing:
                self.captures += 1
                self._numbers = list(given.numbers)
                return self._keep((modes, given.key), capture, None)
            why = "what it depends on changes in every call"
        self.sizes.give_up(why, None)
        return None

    def _run(self, given: Arguments, args: Any, kwargs: Any, *, open_: bool = False) -> Capture:
        whole, plain = self.fullgraph, self.plain
        capture = Capture(self._fn, given, self.places, whole, plain, self.sizes, open_=open_)
        try:
            capture.run(args, kwargs)
        finally:
            self._captures.append(capture)
        self.capture_seconds += capture.seconds
        return capture

    def _first_call(self, program: Program, args: Any, kwargs: Any) -> Any:
        """The call for which a program of open sizes was made: that run was taken back."""
        given = self._given(args, kwargs)
        if program.guards.hold(given.leaves):
            self.misses = 0
            return execute(program, given.leaves, given.containers)
        self.programs[program.key].remove(program)
        self.sizes.give_up(program.guards.broken(given.leaves) or "a guard failed", None)
        given = self._given(args, kwargs)
        return self._captured((program.key[0], given.key), given, args, kwargs, None)

    def _explain(self, key: Any, given: Arguments) -> bool:
        """Note why there is no program for a call; whether a number became an input."""
        found = False
        if key in self.programs:
            program = self.programs[key][0]
            for record in program.guards.changed():
                if type(record.value) in (list, dict):
                    continue
                now, then = record.now(), record.value
                if self.sizes.differ(record.place, now, then) or alike(now, then):
                    self.places.add(record.place)
            self.recompilations.append(program.guards.broken(given.leaves) or "a guard failed")
        elif self.programs:
            self.recompilations.append(self._difference(key))
            if self.dynamic is not False and not self.plain:
                found = self._moved(given)
        self._too_many(self.recompilations[-1] if self.recompilations else "of new arguments")
        return found

    def _too_many(self, why: str) -> bool:
        """Whether there are as many programs as there may be: from now on Python runs."""
        total = sum(map(len, self.programs.values()))
        if not total or total < SETTINGS.recompile_limit:
            return False
        self.given_up = (
            f"{total} programs were captured (config.recompile_limit), the last because {why}"
        )
        if self.fullgraph or SETTINGS.fail_on_recompile_limit_hit:
            raise Unsupported(self.given_up)
        return True

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
        before = self._numbers
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
        capture = self._run(given, args, kwargs)
        self.captures += 1
        if self._keeps(capture) and not capture.taken_back:
            return capture.result
        self._numbers = list(given.numbers)
        self.sizes.seen(given)
        if capture.problem is not None:
            self.problems.append(capture.problem)
            COUNTERS["problems"] += 1
            self.misses += 1
            if self.misses >= SETTINGS.recompile_limit:
                self.given_up = capture.problem[0]
            return self._eagerly(args, kwargs) if capture.taken_back else capture.result
        if capture.taken_back and self.plain:  # it fails with ordinary numbers, too
            self.misses += 1
            return self._eagerly(args, kwargs)
        if capture.taken_back:  # numbers of ours were not what the program took them for
            self.plain, self.moving = True, set()
            given = Arguments(args, kwargs, self.moving, apart=self.apart)
            return self._captured((key[0], given.key), given, args, kwargs, None)
        if capture.passing:
            self.misses += 1
            if self.misses < SETTINGS.recompile_limit:
                return capture.result
        self._keep(key, capture, known)
        return capture.result

    def _keep(self, key: Any, capture: Capture, known: Program | None) -> Program | None:
        """Compile what was captured."""
        compiler, examples = self.compiler, capture.recorder.examples
        if overlaps(capture.recorder):
            compiler = eager  # who writes to one input writes to another: in the program's order
        leaf = capture.leaf
        assert leaf is not None  # a capture without a problem has come to its end
        if leaf.joint is not None:
            leaf.joint.compiler = compiler
        if known is not None and len(known.leaves()) >= SETTINGS.branch_limit:
            self.given_up = f"values that it looks at differ in every call: {_places(known)}"
            return None
        if known is not None and known.merged(capture):
            self.ready = [ready for ready in self.ready if ready is not known.ready]
            known.ready = None
            known.compile(compiler, examples)
            program = known
        else:
            if known is not None and self._too_many("values that it looks at differ"):
                return None
            program = Program(key, capture)
            program.compile(compiler, examples)
            self.programs.setdefault(key, []).insert(0, program)
            COUNTERS["unique_graphs"] += len(program.graphs())
        self.misses = 0
        return program


def _of_numbers(error: BaseException) -> bool:
    """Whether arithmetic of Python raised the error, or a function of ``math``."""
    of_math = ("math domain", "math range", "expected a")  # the last since Python 3.14
    domain = isinstance(error, ValueError) and str(error).startswith(of_math)
    return domain or isinstance(error, ArithmeticError)


def _while_compiling(error: BaseException) -> bool:
    """Whether a compiler raised the error, and not what it made."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code is not Segment.compiled.__code__:
        at = at.tb_next
    return at is not None


def _places(program: Program) -> str:
    lines = {"{}:{}".format(*s.decision.where) for s in program.segments() if s.decision}
    return ", ".join(sorted(lines))


def _described(part: Any) -> str:
    if isinstance(part, tuple) and len(part) >= 6 and isinstance(part[0], type):
        return f"a tensor of shape {tuple(part[1])}, {part[2]}"
    if isinstance(part, tuple) and len(part) == 2:
        return repr(part[1])
    return repr(part)
