"""A tracing layer: prints a training step as a list of operators.

    python examples/layers/trace_layer.py

It lies below autograd and autocast, so it sees what they leave, in order: the forward pass, the
operators of the backward pass, then those of the optimizer, views and in-place writes among them.
"""

import coredispatch as cd
from coredispatch.plugin import Layer, Mode, Switch, Value, hookimpl, to_raw


class tracing(Mode):
    """Collects the operators called inside, one line each, in ``lines``."""

    switch = Switch(on=("trace",))

    def __init__(self):
        self.lines, self.names, self.kept = [], {}, []

    def name(self, value, prefix="%in"):
        """The text for an argument or a result: tensors are named by their data."""
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.name(item, prefix) for item in value)}]"
        if not isinstance(value, Value):
            return repr(value)
        raw = to_raw(value)
        if id(raw) not in self.names:
            self.kept.append(raw)  # alive, so that no other array gets its id
            self.names[id(raw)] = f"{prefix}{len(self.kept)}"
        return self.names[id(raw)]


def record(call, args):
    """The layer's kernel for every operator: go on below, note what happened."""
    trace = tracing.current()
    inputs = ", ".join(map(trace.name, args))
    out = call.below(args)
    result = "" if out is None else f"{trace.name(out, '%')} = "
    trace.lines.append(f"{result}{call.op.name}({inputs})")
    return out


@hookimpl
def coredispatch_register(registrar):
    registrar.layer(Layer("trace", generic=record, below=("autograd", "autocast")))


if __name__ == "__main__":
    import sys

    cd.plugins.load("trace", sys.modules[__name__])
    net = cd.nn.Sequential(cd.nn.Linear(4, 8), cd.nn.ReLU(), cd.nn.Linear(8, 3))
    optimizer = cd.optim.Adam(net.parameters(), lr=1e-3)
    x, labels = cd.randn(5, 4), cd.tensor([0, 1, 2, 1, 0])
    with tracing() as trace:
        cd.nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
    print("\n".join(trace.lines))
