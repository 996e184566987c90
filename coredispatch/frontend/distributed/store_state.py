"""What a store holds, as a state machine: the same in memory, behind a socket and in a file."""

from __future__ import annotations

__all__ = ["CHANGING", "StoreState"]

#: operations that change the state; a store that is a log writes these down
CHANGING = frozenset(("set", "add", "compare_set", "delete_key", "append", "push", "pop"))


class StoreState:
    """Keys with values, and queues. All are bytes; each operation is ``apply(name, arguments)``."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, list[bytes]] = {}

    def apply(self, name: str, args: list[bytes]) -> list[bytes]:
        """Carry out one operation at once; nothing waits here."""
        result: list[bytes] = getattr(self, f"_{name}")(*args)
        return result

    def has(self, key: bytes) -> bool:
        """Whether the key was set, or a queue of that name has something in it."""
        return key in self.values or bool(self.queues.get(key))

    def _set(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = value
        return []

    def _get(self, key: bytes) -> list[bytes]:
        return [self.values[key]] if key in self.values else []

    def _add(self, key: bytes, amount: bytes) -> list[bytes]:
        total = b"%d" % (int(self.values.get(key, b"0")) + int(amount))
        self.values[key] = total
        return [total]

    def _append(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = self.values.get(key, b"") + value
        return []

    def _compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        present = self.values.get(key)
        if present is None:
            if expected:
                return [expected]
            self.values[key] = desired
            return [desired]
        if present == expected:
            self.values[key] = desired
        return [self.values[key]]

    def _delete_key(self, key: bytes) -> list[bytes]:
        gone = self.values.pop(key, None) is not None
        return [b"1" if gone else b"0"]

    def _check(self, *keys: bytes) -> list[bytes]:
        return [b"1" if all(self.has(key) for key in keys) else b"0"]

    def _keys(self) -> list[bytes]:
        return sorted(self.values)

    def _push(self, key: bytes, value: bytes) -> list[bytes]:
        self.queues.setdefault(key, []).append(value)
        return []

    def _pop(self, key: bytes) -> list[bytes]:
        queue = self.queues.get(key)
        return [queue.pop(0)] if queue else []

    def _length(self, key: bytes) -> list[bytes]:
        return [b"%d" % len(self.queues.get(key, ()))]
