"""A counting profiler: how often each operator ran, on how many elements.

    python examples/layers/profile_layer.py

Its generic kernel is a subclass of the call object. There is one instance of it for each operator
and key set, so that what does not change from call to call is found once, in ``__init__``.
"""

from collections import Counter

import coredispatch as cd
from coredispatch.plugin import Layer, LayerEntry, Mode, Switch, Value, hookimpl


class counting(Mode):
    """Counts the calls inside, and the elements of their results, by operator."""

    switch = Switch(on=("profile",))

    def __init__(self):
        self.calls, self.elements = Counter(), Counter()

    def table(self):
        """The counts as text, most elements first."""
        lines = [f"{'operator':24}{'calls':>8}{'elements':>12}"]
        for name, elements in self.elements.most_common():
            lines.append(f"{name:24}{self.calls[name]:>8}{elements:>12}")
        return "\n".join(lines)


class CountEntry(LayerEntry):
    """The layer's kernel: go on below, then count."""

    def __init__(self, op, *rest):
        super().__init__(op, *rest)
        self.name = op.name

    def call(self, args):
        out = self.below(args)
        counts = counting.current()
        counts.calls[self.name] += 1
        results = out if isinstance(out, (list, tuple)) else [out]
        counts.elements[self.name] += sum(x.numel() for x in results if isinstance(x, Value))
        return out


@hookimpl
def coredispatch_register(registrar):
    registrar.layer(Layer("profile", generic=CountEntry, below=("autograd", "autocast")))


if __name__ == "__main__":
    import sys

    cd.plugins.load("profile", sys.modules[__name__])
    x = cd.randn(32, 64, requires_grad=True)
    with counting() as counts:
        (cd.nn.functional.softmax(x @ x.mT, dim=1) ** 2).sum().backward()
    print(counts.table())
