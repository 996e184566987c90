"""What a case is, and what can become of it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["BACKEND", "CHECKS", "DRAWN", "Case", "Result", "Status", "check_name"]

#: in the place of an operator's name: a case about the backend as a whole
BACKEND = "backend"
#: variant of the cases whose samples Hypothesis draws, which only a run with a fresh seed has
DRAWN = "drawn"

CHECKS: dict[int, str] = {
    1: "values",
    2: "promotion",
    3: "broadcasting",
    4: "empty and 0-d",
    5: "layouts",
    6: "views",
    7: "in-place and out",
    8: "special values",
    9: "integer edges",
    10: "determinism",
    11: "random numbers",
    12: "gradients",
    13: "autocast",
    14: "error inputs",
    15: "device mixing",
    16: "concurrency",
    17: "leaks",
    18: "streams",
    19: "serialization",
    20: "interchange",
    21: "fallback transparency",
    22: "large",
    23: "meta",
    24: "composite",
    25: "coverage",
    26: "caches",
    27: "tensor layouts",
    28: "performance",
    29: "compiled programs",
    30: "sizes",
    31: "state",
    32: "exactness",
    33: "arguments",
    34: "layers",
    35: "second device",
}


def check_name(number: int) -> str:
    """The name of a check as it stands in case ids: ``in-place-and-out``."""
    return CHECKS[number].replace(" ", "-")


class Status(StrEnum):
    """What became of a case. Only ``pass`` counts towards a level."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    WAIVED = "waived"
    XPASS = "xpass"
    VACUOUS = "vacuous"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Case:
    """One combination of the covering array for one check of one operator.

    Attributes:
        check: number of the check, a key of :data:`CHECKS`.
        op: name of the operator, or :data:`BACKEND`.
        dtype: name of the dtype the arrays have, or ``-``.
        layout: how the arrays lie in memory, a name of ``covering_array.LAYOUTS``, or ``-``.
        distribution: which values they hold, a name of ``distributions.DISTRIBUTIONS``, or ``-``.
        variant: what distinguishes cases of one check that share a combination.
        mandatory: whether the level asks for the case whatever the backend declares.
        rows: which of the op's samples the case uses, ``(remainder, modulus)``; no part of the
            id, so that a new sample in an operator definition does not rename anybody's cases.
    """

    check: int
    op: str
    dtype: str = "-"
    layout: str = "-"
    distribution: str = "-"
    variant: str = "-"
    mandatory: bool = True
    rows: tuple[int, int] = (0, 1)

    @property
    def content(self) -> str:
        """The text that identity and seed derive from."""
        parts = (self.op, check_name(self.check), self.dtype, self.layout, self.distribution)
        return "/".join((*parts, self.variant))

    @property
    def digest(self) -> str:
        """A stable hash of the content: no run, process or set order changes it."""
        return hashlib.sha256(self.content.encode()).hexdigest()[:8]

    @property
    def id(self) -> str:
        """Readable, unique and stable: ``add/values/float32/step2/uniform:1f0c...``."""
        shown = [self.op, check_name(self.check)]
        shown += [x for x in (self.dtype, self.layout, self.distribution, self.variant) if x != "-"]
        return "/".join(shown) + ":" + self.digest

    @property
    def seed(self) -> int:
        """Seed of the case's random values."""
        return int(self.digest, 16)


@dataclass(slots=True)
class Result:
    """What became of one case.

    Attributes:
        case: id of the case.
        status: a :class:`Status`.
        seconds: wall time.
        assertions: number of things that were asserted; a pass with none is ``vacuous``.
        message: the first failure, or why the case did not count.
        margin: the largest error over its bound (1 is the edge), where values were compared; over
            a part of the bound where it is less than half of that.
        details: further findings, such as who served the op.
    """

    case: str
    check: int
    op: str
    dtype: str
    status: Status
    mandatory: bool = True
    seconds: float = 0.0
    assertions: int = 0
    message: str = ""
    margin: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, status: Status, message: str = "", **more: Any) -> Result:
        """A result for ``case``."""
        return cls(
            case.id,
            case.check,
            case.op,
            case.dtype,
            status,
            case.mandatory,
            message=message,
            **more,
        )

    @property
    def blocks(self) -> bool:
        """Whether it stands between the backend and a level: only what is optional may be left."""
        if self.status is Status.PASS:
            return False
        return self.mandatory or self.status not in (Status.UNSUPPORTED, Status.NOT_RUN)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(self)
        data["status"] = str(self.status)
        data["seconds"] = round(self.seconds, 6)
        if self.margin is not None:
            data["margin"] = float(f"{self.margin:.4g}")
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Result:
        """The inverse of :meth:`to_dict`."""
        return cls(**{**data, "status": Status(data["status"])})
