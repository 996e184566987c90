"""Levels and profiles: which checks a backend must pass, as conjunctions and never percentages.

``boot``      a few operators in three dtypes: enough to create, compute and print;
``operators`` every operator on plain values, one distribution: minutes where ``training`` is hours;
``inference`` every operator, forward: values, layouts, views, writing, errors, provenance;
``training``  and gradients, mixed precision, threads;
``full``      and new processes, streams, large arrays, timings.

Profiles stand beside the levels: ``amp``, ``async``, ``large``, ``compiler`` (programs as graphs),
and one for each layout and each layer that a loaded plugin brings, under its name and under the
plugin's.
"""

from __future__ import annotations

from .case import BACKEND, Case
from .subject import SuiteError
from .tensor_layouts import profiles as layout_profiles
from .tensor_layouts import scope

__all__ = [
    "BOOT_DTYPES",
    "BOOT_OPS",
    "LEVELS",
    "PROFILES",
    "belongs",
    "checks_of",
    "checks_of_profile",
    "known_profiles",
    "require_level",
]

BOOT_OPS = (
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "exp",
    "log",
    "sqrt",
    "eq",
    "lt",
    "where",
    "sum",
    "amax",
    "matmul",
    "reshape",
    "permute",
    "clone",
    "zeros",
    "ones",
    "full",
)
BOOT_DTYPES = ("float32", "int64", "bool", "-")
#: variants of cases that take long, which only ``full`` asks for
FULL_ONLY = ("new-process", "full")
#: checks of what plugins bring, which their profiles alone ask for
OF_PLUGINS = (27, 34)
#: the check that has cases of the backend as a whole also at ``operators``
SECOND_DEVICE = 35
_BOOT = (1, 3, 4, 25)
_OPERATORS = (1, 3, 4, 14, 25, 35)
_INFERENCE = (*range(1, 12), 14, 15, 17, *range(19, 22), *range(23, 27), *range(30, 34), 35)
_TRAINING = (*_INFERENCE, 12, 13, 16)
_FULL = (*_TRAINING, 18, 22, 28)

LEVELS: dict[str, tuple[int, ...]] = {
    "boot": _BOOT,
    "operators": _OPERATORS,
    "inference": _INFERENCE,
    "training": tuple(sorted(_TRAINING)),
    "full": tuple(sorted(_FULL)),
}
PROFILES: dict[str, tuple[int, ...]] = {
    "amp": (13,),
    "async": (18,),
    "large": (22,),
    "compiler": (29,),
}


def require_level(name: str) -> str:
    """``name`` if it is a level, else :class:`SuiteError`."""
    if name not in LEVELS:
        raise SuiteError(f"there is no level {name!r}", fix=f"use one of {', '.join(LEVELS)}")
    return name


def known_profiles() -> tuple[str, ...]:
    """The names of all profiles: the suite's own, and those of loaded plugins."""
    return (*PROFILES, *(n for n in layout_profiles() if n not in PROFILES))


def checks_of_profile(name: str) -> tuple[int, ...]:
    """Numbers of the checks of a profile; raises :class:`SuiteError` where there is none."""
    if name in PROFILES:
        return PROFILES[name]
    if name not in layout_profiles():
        raise SuiteError(
            f"there is no profile {name!r}", fix=f"use one of {', '.join(known_profiles())}"
        )
    return OF_PLUGINS


def checks_of(level: str | None, profiles: tuple[str, ...]) -> set[int]:
    """Numbers of the checks that a level and profiles ask for."""
    numbers = set() if level is None else set(LEVELS[require_level(level)])
    for profile in profiles:
        numbers |= set(checks_of_profile(profile))
    return numbers


def belongs(case: Case, level: str | None, profiles: tuple[str, ...]) -> bool:
    """Whether ``case`` is among what a level and profiles ask for."""
    if case.check not in checks_of(level, profiles):
        return False
    if case.check in OF_PLUGINS:
        known = layout_profiles()
        return any(scope(case.variant) in known.get(profile, ()) for profile in profiles)
    if level in ("boot", "operators"):
        plain = case.layout in ("-", "contiguous") and case.distribution in ("-", "uniform")
        if case.op == BACKEND:
            return case.check == SECOND_DEVICE
        if not plain:
            return False
        booting = case.op in BOOT_OPS and case.dtype in BOOT_DTYPES
        if level == "boot" or booting:
            return booting
        # Broadcasting and empty arrays once; values in the dtypes that meet plain ones; a handful
        # of operators on the second device.
        if case.check == SECOND_DEVICE:
            return False
        return case.check not in (3, 4) or case.dtype in ("float32", "-")
    return case.variant.partition("+")[0] not in FULL_ONLY or level == "full"
