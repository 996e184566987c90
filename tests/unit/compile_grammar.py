"""The grammar of generated programs: statements over the state of ``compile_worlds``, and events.

A template has holes: ``{R}`` a tensor of rows, ``{V}`` one of two elements, ``{S}`` one of none,
``{N}`` a number of Python's, ``{C}`` a condition, ``{W}`` what is written to, ``{B}`` a block. The
first templates of each kind are the simplest: failures shrink towards them.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

__all__ = ["events", "programs"]

RULES: dict[str, list[str]] = {
    "R": """
        x|y|net(x)|x * {N}|y * 2|y + {V}|x - {V}|y @ net.w|lib(x)|helper(y, {N})|y.detach()|
        x[...]|Double.apply(y)|x.view(-1, 2)|cd.cat([x, y])|y.to(x.dtype)|y.T.T|x[1:]|y.clone()|
        y.relu()|y[: {N}]|x.data|y.contiguous()""",
    "V": """
        v|par|buf|cd.ones(2)|x[0]|{R}.sum(0)|net.b|net.mean|obj.t|rec.x|kept[-1]|box["t"]|
        {V} * {N}|{V} + {V}|par.data|par.detach()|net.w[0]|net.w.T[1]|cd.from_numpy(arr)|
        cd.rand(2)|par.grad|cd.rand(2, generator=gen)|cd.tensor([1.0, {N}])|net.memory|v[:]|
        net.b.grad|kept[0]|deq[-1]""",
    "L": "2|k|n % 3|x.shape[0]|min(len(items), 4)|int(obj.p) % 3",
    "S": "s|{R}.sum()|{V}.sum()|(par * {V}).sum()|{V}[0]|net(x).sum()|(s * {N})|{V}.max()|{V}[{N}]",
    "N": """
        k|2|n|COUNT|obj.n|len(items)|x.shape[0]|cfg["a"]|net.calls|Net.scale|rec.n|obj.kind|
        obj.p|s.item()|items[0]|items[-1]|default[0]|len(kept)|opt.param_groups[0]["lr"]|
        {N} + 1|{N} - {N}|len(cfg)|next(iter(order))|list(order.values())[0]|deq[0]|len(deq)|
        max(items)|0.5|len(marks)|y.numel()|10 / {N}|int({N})|sum(items)|{V}.mean().item()|
        sched.last_epoch|net.scale""",
    "C": """
        {S} > 1|{S} > 10|x.shape[0] > 2|k > 1|{N} > 2|n % 2 == 0|FLAG|len(items) > 2|
        net.training|{V}.requires_grad|par.grad is not None|(x > 0).all()|cd.is_grad_enabled()|
        1 in marks|"b" in cfg|hasattr(obj, "extra")|{V} is {V}|x.equal(y)|net.memory is None|
        {S}.item() > 2|not {C}|y is x|isinstance({V}, nn.Parameter)""",
    "W": """
        par.data|buf|v|obj.t|net.b.data|net.mean|kept[-1]|par.detach()|buf[:1]|net.b.detach()|
        rec.x|box["t"]|net.w.data[0]|x|y|x.data|x[0]|par.data.data|v.data|net.w.detach().T[0]|
        v[1:]|par|net.memory|y[:1]|cd.from_numpy(arr)""",
    "F": """
        v + cd.ones(3)|x.view({N}, -1)|y.view(-1, 3)|v[{N}]|x[{N}]|x @ cd.ones(3, 1)|items[{N}]|
        cfg["missing"]|cd.ones(4).view({N}, 2)|par.grad + 1|obj.extra|1 / (k - 1)|
        cd.stack([v, x])""",
}

SIMPLE = """
        y = {R}|v = {V}|s = {S}|{W}.add_(1)|{W}.mul_({N})|{W}.copy_({V})|{W}.zero_()|
        {W}[0] = {N}|{W}.add_({V})|n += 1|COUNT += 1|COUNT = {N}|n = {N}|obj.n += 1|rec.n += 1|
        net.calls += 1|y += 1|v *= {N}|v = v + {F}|made = {F}|made = f"{n} {COUNT:3d}"|
        made = f"{s.item():.2f}"|s = s + v.sum()|items.append({N})|items.pop()|items.pop(0)|
        items.insert(0, {N})|del items[0]|items.reverse()|items.sort()|
        items.clear(); items.extend([1, 2])|items[:] = items[1:]|items[0] = {N}|items += [1]|
        items.remove(items[0])|kept.append({V})|kept.append({V}.detach())|kept.pop(0)|
        kept[-1] = {V}|kept = kept[-2:]|kept = [*kept[:9], {V}]|
        kept[0] = kept[0] + {V}.detach()|default.append(2)|cfg["a"] = cfg.pop("a") + 1|
        cfg["b"] = {N}|cfg.pop("b", None)|cfg.setdefault("c", {N})|cfg[k] = n|
        cfg.clear(); cfg.update(a=1)|cfg["t"] = {V}|del cfg["b"]|cfg.update(a={N})|
        cfg["a"] += 1|order.move_to_end(next(iter(order)))|order.popitem(last=False)|
        order["z"] = {N}|order.popitem()|order["p"] = order.pop("p", 0) + 1|
        order.move_to_end("r", last=False)|box["t"] = {V}|box["t"] = box["t"] + {V}.detach()|
        box["u"].append({N})|box["u"] = [*box["u"], n]|deq.append({N})|deq.popleft()|
        deq.rotate(1)|deq.appendleft({N})|deq.append({V}.detach())|marks.add({N})|
        marks.discard(1)|marks.clear()|obj.t = {V}|obj.extra = {N}|del obj.extra|obj.p = {N}|
        obj.p += 1|obj.items.append(n)|obj.items = [n]|Obj.kind += 1|Net.scale = {N}|
        net.memory = {V}|net.memory = None|net.log.append({N})|net.log = net.log[-1:] + [n]|
        rec.x = {V}.detach()|rec = Rec({V}, n)|buf = {V}|buf = buf + {V}.detach()|
        FLAG = not FLAG|obj.bump({V})|made = obj.bump({V})|y = helper(y, {N})|
        cd.add({V}, {V}, out=buf)|arr[0] += 1|v = v * float(arr.sum())|cd.mul({V}, 2, out=v)|
        par = nn.Parameter({V}.detach().clone())|net.register_buffer("late", {V}.detach())|
        net.mean = {V}.detach()|net.mean = net.mean * 0.5 + {V}.detach()|
        net.b = nn.Parameter({V}.detach().clone())|net.b.requires_grad_(False)|
        net.b.requires_grad_()|net.eval()|net.train()|lib.eval()|lib.train()|
        par.data = {V}.detach() * 1|net.b.data = net.b.data * 0.5|opt.zero_grad()|
        {S}.backward()|opt.step()|opt.zero_grad(set_to_none=False)|sched.step()|
        {S}.backward(retain_graph=True)|{S}.backward(inputs=[net.b])|par.grad = None|
        par.grad = {V}.detach()|net.b.grad = None|par.grad.mul_(0.5)|
        opt.param_groups[0]["lr"] *= 0.5|v = cd.autograd.grad({S}, [net.b])[0]|
        nn.utils.clip_grad_norm_(params, 1.0)|opt.param_groups[0]["lr"] = {N}|net.zero_grad()|
        gen.manual_seed(3)|v = v + cd.rand(2)|v = v + cd.rand(2, generator=gen)|
        v = v.bernoulli(0.5)|v = sum([t * 2 for t in kept], v)|v = cd.stack(kept).sum(0)|
        made = {i: v * i for i in items}|made = [t.sum() for t in kept]|
        made = [i * 2 for i in items if i > 1]|made = {k: t for k, t in cfg.items()}|
        v = v.clone().requires_grad_()|y, v = y * 1, v + y.sum(0)|buf, obj.t = obj.t, buf|
        made = [*map(float, items)]|kept.sort(key=lambda t: t.sum().item())|x = x * 2|
        v.requires_grad_()|net.b, net.memory = nn.Parameter(net.b.detach() + 1), net.b|
        setattr(obj, f"e{n % 2}", {N})|buf.numpy()[0] += 1|made = v.detach().numpy()|arr += 1|
        obj.child = Obj()|del obj.items|obj.items = obj.items + [n]|kept.append(buf)|
        kept.append(x)|kept.append(y)|obj.t = buf[:]|box["t"] = buf|box["v"] = box["t"]|
        obj.t = x|setattr(net, "late", {N})|del net.late|del net.memory|opt.state[par]["k"] = n|
        opt.state.pop(par, None)|opt.state.clear()|items.extend([n] * 2)|del items[1:]|
        items *= 1 + (len(items) < 9)|made = sorted(items)|made = items.index(1)|
        cfg["d"] = {"a": n}|cfg.get("d", {})["a"] = {N}|made = {**cfg, "a": {N}}|
        box.pop("v", None)|made = [*reversed(items)]|made = list(zip(items, kept))|
        made = min(items, default=0)|s = sum(t.sum() for t in kept)|y.retain_grad()|
        y.backward(cd.ones_like(y))|made = x.grad|x.grad = None|made = x.requires_grad|
        y = y[y > 1]|y = cd.where(y > 1, y, 0.0)|made = (y > 1).nonzero()|y = y[None]|x.t_()|
        y = y[::2]|y = y.unique()|rec = dataclasses.replace(rec, n=rec.n + 1)|state = (v, n)|
        state = (state[0] + 1, n)|made = state|name += "a"|v = v + len(name)|name = name[1:]|
        state = None|pair = pair._replace(n={N})|pair = Pair({V}, n)|v = v * pair.n|
        v = v + pair.t|made = pair|Obj.shared.append(n)|Obj.shared[0] += 1|Obj.shared = [n]|
        v = v + len(Obj.shared)|step.calls = getattr(step, "calls", 0) + 1|slot.n += 1|
        slot.t = {V}.detach()|v = v * slot.n + slot.t|del slot.n|net.steps += 1|
        net.steps.add_(n)|v = v * net.steps|net.mean.mul_(0.5).add_({V}.detach())|
        v = v + lib[1].running_mean|lib[2].p = 0.25|lib[1].momentum = None|
        s = s + lib[1].num_batches_tracked|v = v[cd.tensor([1, 0])]|buf[cd.tensor([0])] = {N}|
        obj.shape = x.shape|n += x.shape[0]|cfg[x.shape[0]] = n|
        v = cd.zeros(len(items)).sum() + v|y = y.repeat(len(kept), 1)|y = y.expand(2, *y.shape)|
        s = cd.arange(k).sum()|items[:2] = [n, k]|kept = [t + 1 for t in kept]|
        kept = [t.detach() for t in kept]|box["t"], obj.t = obj.t, box["t"]|
        cfg = {**cfg, "a": n}|items = items + [n]|items = sorted(items)|
        order = collections.OrderedDict(reversed(order.items()))|deq.extend(items)|
        marks.update({n})|marks = {*marks, k}|made = [*deq]|deq.reverse()|deq[0] = {N}|
        deq.clear()|net.train(not net.training)|net.log += [n]|net.cfg = {"n": n}|
        made = net.state_dict()|net.load_state_dict(net.state_dict())|par.grad.zero_()|
        par.grad = par.grad.clone()|net.w.grad.add_(1)|opt.param_groups[0]["lr"] = 1 / (n + 1)|
        (par * {S}).sum().backward()|obj.grads = [p.grad for p in params]|
        {S}.backward(inputs=[par])|net.w.requires_grad_(not net.w.requires_grad)|v = v.double()|
        v = v.float()|obj.t.copy_({V})|par.grad = par.grad * 0.5|made = y.tolist()|
        made = obj.items|made = Rec(v, n)|made = kept|s = {S}.detach()|cd.manual_seed(n)"""

BLOCKS = """
        if {C}:/{B}|if {C}:/{B}/else:/{B}|with cd.no_grad():/{B}|for i in range({L}):/{B}|
        for t in kept[:3]:/{B}|try:/{B}/except Exception:/{B}|try:/{B}/finally:/{B}|
        for t in kept[:2]:/{B}|for i in items[:3]:/{B}|j = 0/while j < 2:/    j += 1/{B}|
        if {C}:/    return {O}|while n < 3:/    n += 1|with cd.enable_grad():/{B}|
        for i, t in enumerate(kept[:3]):/    v = v + t * i/{B}|
        for key, t in list(cfg.items()):/{B}|with cd.autocast("cpu", dtype=cd.bfloat16):/{B}|
        if {C}:/    raise ValueError("no")|
        for p in net.parameters():/    if p.grad is not None:/        p.data.sub_(p.grad)|
        if n == 0:/{B}|with contextlib.suppress(Exception):/{B}|
        try:/    made = {F}/except ValueError:/    n += 1/except Exception:/{B}|
        try:/{B}/    made = {F}/except Exception:/    COUNT += 1|
        try:/    made = {F}/finally:/    obj.n += 1|if {C}:/    n += 1/else:/    n = 0|
        def inner(t):/    nonlocal n/    n += 1/    return t * n/v = inner({V})|
        if len(kept) > 2:/    kept.pop(0)|if len(items) > 4:/    items.clear()|
        if net.memory is None:/    net.memory = {V}.data/else:/    net.memory = net.memory + v.data|
        if par.grad is not None:/    par.data.sub_(par.grad)/    par.grad = None|
        while len(items) < 3:/    items.append(n)|
        for name in sorted(cfg, key=str):/    s = s + cfg[name]|assert {C}|
        with cd.no_grad():/    for p in params:/        p.mul_(0.5)|match k:/    case 1:/    {B}"""

RULES["O"] = """
        y|v|s|y, v|n|{R}|{V}|{S}|{N}|made|{O}, {O}|[y, y.detach()]|y.detach(), y|v.data, v|
        {"y": y, "s": s}|x|x[0]|y[1:]|y.T|v, v|kept|items|obj|rec|Rec(v, n)|s.item()|net.w|
        par.grad|par|list(kept)|dict(cfg)|box|[v, [v, (s,)]]|s.detach(), y.sum()|
        v.view(1, 2), v|par.data|None|net.b.detach()|y.requires_grad_()|f"{n}"|v.unbind()|
        tuple(items)|(v[:1], v[1:])|{"out": {O}, "log": [n, {O}]}|x.T, x"""

RULES["call"] = """
        call(X(3), 1)|call(X(3), 1)|call(X(3), 1)|call(X(3), 1)|call(X(4), 1)|call(X(2), 1)|
        call(X(5), 1)|call(X(3), 2)|call(X(3), 3)|call(X(4), 2)|call(X(1), 1)|call(X(0), 1)|
        call(X(3, -1.0), 1)|call(X(3, 9.0), 1)|call(X(4, -2.0), 2)|call(X(3)[:, :1], 1)|
        call(X(3).double(), 1)|call(X(3), 0)|call(X(3).requires_grad_(), 1)|
        call(X(4).requires_grad_(), 1)|call(X(3), 0.5)|call(held, 1)|
        with cd.no_grad(): call(X(3), 1)|with cd.no_grad(): call(X(4), 2)|call(X(6)[::2], 1)|
        call(X(2).T, 1)|call(net.w, 1)|call(buf.view(1, 2), 1)|call(X(3), k=1)|
        call(x=X(3), k=1)|with cd.inference_mode(): call(X(3), 1)"""

RULES["event"] = """
        late()|spoil()|net.eval()|net.train()|lib.eval()|lib.train()|COUNT = 7|cell("n", 5)|
        items.pop()|items.append(5)|cfg["a"] = 4|cfg["new"] = 1|cfg["b"] = cfg.pop("b", 2)|
        obj.n = 10|obj.t = cd.zeros(2)|buf = cd.ones(2)|buf.add_(1)|par.data = cd.zeros(2)|
        par.data.add_(1)|net.b.data = cd.ones(2)|opt.zero_grad()|par.grad = None|
        net.b.grad = cd.ones(2)|net.b = nn.Parameter(cd.zeros(2))|
        par = nn.Parameter(cd.ones(2))|net.b.requires_grad_(False)|net.b.requires_grad_(True)|
        net.load_state_dict(Net().state_dict())|Net.scale = 3|Obj.kind = 2|
        rec = Rec(cd.zeros(2), 3)|rec.x = cd.zeros(2)|FLAG = not FLAG|arr[1] = 3|
        arr = np.zeros(2, np.float32)|deq.append(9)|order["w"] = 1|order.move_to_end("p")|
        marks.add(7)|box["t"] = cd.full((2,), 3.0)|box["t"] = buf|net.memory = cd.ones(2)|
        net.memory = buf|net.double()|cell("kept", [cd.zeros(2)])|gen.manual_seed(5)|
        cd.manual_seed(5)|opt.param_groups[0]["lr"] = 0.25|sched.step()|opt.step()|
        params[0].requires_grad_(False)|net.register_forward_hook(counting)|
        par.register_hook(counting)|obj.extra = 3|items = [4, 5]|helper = lambda t, n: t - n|
        net.mean = cd.ones(2)|net.mean.add_(1)|obj = Obj()|out = None|x = spoil()|
        given[0].add_(1)|given[0].mul_(-1)|slot.n = 5|state = (cd.ones(2), 3)|name = 'ab'|
        pair = Pair(buf, 2)|lib[2].p = 0.0|net.steps += 1|opt.register_step_post_hook(counting)|
        par.register_post_accumulate_grad_hook(counting)|
        net.register_forward_pre_hook(counting)|items.clear()|
        kept_view = buf[:1]; obj.t = buf[:]|opt.zero_grad(); par.sum().backward()|
        buf = par.data|obj.t = par.detach()|net.b.data = buf|net.float()|obj.t = buf|
        par.sum().backward()|net(X(2)).sum().backward()"""


def _parts(text: str) -> list[str]:
    """Alternatives: ``|`` parts them where no space is around it."""
    return [part.strip() for part in re.split(r"\|(?:\s*\n\s*)?", text) if part.strip()]


def _read(rules: dict[str, Any]) -> dict[str, list[str]]:
    return {name: _parts(text) for name, text in rules.items()}


GRAMMAR = _read({**RULES, "simple": SIMPLE, "block": BLOCKS})
_ATOM = re.compile(r"[\w.]*(\[[^\[\]]*\])?")
_HOLE = re.compile(r"\{([RVSNCWFOL])\}")


def _filled(draw: Any, template: str, depth: int) -> str:
    """The template with something in its holes."""

    def choose(found: Any) -> str:
        options = GRAMMAR[found[1]]
        if depth >= 2:  # nothing that has holes itself
            options = [option for option in options if not _HOLE.search(option)]
        chosen = _filled(draw, draw(st.sampled_from(options)), depth + 1)
        return chosen if _ATOM.fullmatch(chosen) else f"({chosen})"

    return _HOLE.sub(choose, template)


def _block(draw: Any, depth: int) -> list[str]:
    """The lines of a block."""
    most = (7, 3, 1)[depth]
    kinds = draw(
        st.lists(
            st.sampled_from([0, 0, 1] if depth < 2 else [0]),
            min_size=2 - bool(depth),
            max_size=most,
        )
    )
    lines: list[str] = []
    for kind in kinds:
        if not kind:
            lines.append(_filled(draw, draw(st.sampled_from(GRAMMAR["simple"])), 0))
            continue
        for line in draw(st.sampled_from(GRAMMAR["block"])).split("/"):
            if line.endswith("{B}"):
                indent = line[: -len("{B}")] + "    "
                lines += [indent + inner for inner in _block(draw, depth + 1)]
            else:
                lines.append(_filled(draw, line, 1))
    return lines


@st.composite
def programs(draw: Any) -> str:
    """The body of a program."""
    lines = _block(draw, 0)
    return "\n".join([*lines, "return " + _filled(draw, draw(st.sampled_from(GRAMMAR["O"])), 0)])


def events() -> Any:
    """What happens: calls, most of them again and again, and changes in between."""
    calls, changes = (st.sampled_from(GRAMMAR[name]) for name in ("call", "event"))
    again = st.tuples(calls, st.sampled_from([1, 3, 2, 4])).map(lambda pair: [pair[0]] * pair[1])
    one = st.one_of(again, again, changes.map(lambda change: [change]))
    return st.lists(one, min_size=1, max_size=6).map(lambda parts: sum(parts, []))
