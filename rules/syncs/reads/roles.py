"""How reads of tensors relate to each other (in a row, repeated, in a loop), and what the values are for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Look, NumberCall, Place, Rule, Scene, nodes

from ...same_value import may_be_skipped, positions, same_value, settled
from ...syntax import bound_names, clauses, contains, names_in, target_names
from ..data_flow import ends
from ..host_code import works_on_host
from ..waits import NUMBERS, READS, Read, asked, only_raises, read_of
from .shown import SERVICES, shown_each_round

Role = Literal["each", "invariant", "again", "row", "in-row", "iterated", "plain"]
_LOGGING = frozenset(
    "add_scalar add_scalars append debug extend info info_once log log_dict log_metric "
    "log_metrics print put report "
    "set_description set_postfix update write track record".split()
)
_TAKES_TENSORS = ("add", "sub", "mul", "div", "pow", "clamp", "where", "minimum", "maximum", "lerp")
_HOLDS_STILL = frozenset({"backward", "step", "training_step", "train_step", "zero_grad"})


def _reads(place: Place) -> list[tuple[Read, Scene]]:
    """All sure reads of the innermost function around the place, in order, outside cold regions."""
    out = []
    for call, scene in place.once(("calls that read",), lambda: _calls_that_read(place)).get(
        id(place.function), ()
    ):
        read = read_of(call, place)
        if read is not None and read.certainty == "sure":
            out.append((read, scene))
    return out


def _calls_that_read(place: Place) -> dict[int, list[tuple[cst.Call, Scene]]]:
    """Calls outside cold regions that may read a tensor, by the innermost function around them."""
    found: dict[int, list[tuple[cst.Call, Scene]]] = {}
    for call, scene in place.calls(*READS):
        if not scene.cold and not scene.deferred:
            found.setdefault(id(scene.function), []).append((call, scene))
    return found


def _role(read: Read, place: Place) -> tuple[Role, Sequence[Read]]:
    """The part a read plays among the others: one of a row, one more of the same, once per element …"""
    scene = place.scene
    if scene.deferred:
        return "plain", ()
    if iterated_by(read, scene, place) is not None:
        return "iterated", ()
    if scene.loops:
        loop = scene.loops[-1]
        if _hoistable(read, loop, place):
            return "invariant", ()
        if _per_element(read, loop, place):
            return "each", ()
    reads = place.once(("reads", id(place.function)), lambda: _reads(place))
    if next(read_before_it(read, place), None) is not None:
        return "again", ()
    row = _row(read, scene, reads, place)
    if len(row) > 1:
        return ("row" if row[0].call is read.call else "in-row"), row
    return "plain", ()


def read_before_it(read: Read, place: Place) -> Iterator[tuple[Read, Scene]]:
    """The reads before one that surely gave the same, the nearest first."""
    reads = place.once(("reads", id(place.function)), lambda: _reads(place))
    return (
        (one, scene)
        for one, scene in _before(read, reads, place)
        if one.how == read.how and same_value(one.tensor, scene, read.tensor, place.scene, place)
    )


def is_first(read: Read, place: Place) -> bool:
    """Whether no other read of the function is written the same and stands before it."""
    reads = place.once(("reads", id(place.function)), lambda: _reads(place))
    _, at = place.once(("alike", id(place.function)), lambda: _alike(reads, place))
    return at.get(id(read.call)) == 0


def _before(
    read: Read, reads: Sequence[tuple[Read, Scene]], place: Place
) -> Iterator[tuple[Read, Scene]]:
    """The reads of the same tensor before one, the nearest first."""
    alike, at = place.once(("alike", id(place.function)), lambda: _alike(reads, place))
    mine = alike[place.text(read.tensor)] if id(read.call) in at else ()
    before = at.get(id(read.call), 0)
    return reversed(mine[max(before - _MOST_BEFORE, 0) : before])


_MOST_BEFORE = 64
"""How many earlier reads of a tensor are compared."""


def _alike(
    reads: Sequence[tuple[Read, Scene]], place: Place
) -> tuple[dict[str, list[tuple[Read, Scene]]], dict[int, int]]:
    """The reads by the tensors that they read, and the place of each among those of the same."""
    alike: dict[str, list[tuple[Read, Scene]]] = {}
    at: dict[int, int] = {}
    for read, scene in reads:
        same = alike.setdefault(place.text(read.tensor), [])
        at[id(read.call)] = len(same)
        same.append((read, scene))
    return alike, at


def iterated_by(read: Read, scene: Scene, place: Place) -> cst.BaseExpression | None:
    """The tensor that a loop iterates over, if the loop variable itself is read."""
    if not isinstance(read.tensor, cst.Name):
        return None
    for loop in reversed(scene.loops):
        over = _iterated_tensor(loop, read.tensor.value, place)
        if over is not None:
            return None if bound_again(read, loop) else over
    return None


_BINDING = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr)


def bound_again(read: Read, loop: cst.CSTNode) -> bool:
    """Whether a loop gave the name that is read another value, before it in the same round."""
    if not isinstance(read.tensor, cst.Name) or not isinstance(loop, cst.For):
        return False
    of_read: set[int] = set()
    for node in nodes.walk(loop.body):
        if node is read.call:
            return False
        value = getattr(node, "value", None) if isinstance(node, _BINDING) else None
        if value is not None and any(n is read.call for n in nodes.walk(value)):
            of_read.update(map(id, (node, *getattr(node, "targets", ()))))  # `v = v.item()`
        if id(node) not in of_read and any(
            isinstance(target, cst.Name) and target.value == read.tensor.value
            for target in nodes.bound_by(node)
        ):
            return True
    return False


HANDS_ON = frozenset({"itertools.chain", "itertools.islice", "reversed"})
"""Functions that give a loop the elements of their first argument as they are."""


def _iterated_tensor(loop: cst.CSTNode, name: str, place: Place) -> cst.BaseExpression | None:
    """The device tensor whose elements a loop binds to a name: of `for v in x`, `for i, v in
    enumerate(x)`."""
    bound: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []
    if isinstance(loop, cst.For):
        bound.append((loop.target, loop.iter))
    elif isinstance(loop, cst.BaseComp):
        bound += [(clause.target, clause.iter) for clause in clauses(loop)]
    for target, over in bound:
        while isinstance(over, cst.Call) and place.name(over) in HANDS_ON and over.args:
            over = over.args[0].value
        if isinstance(target, cst.Name) and target.value == name and place.on_device(over):
            return over
        if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
            continue
        names = [e.value.value if isinstance(e.value, cst.Name) else "" for e in target.elements]
        if name not in names:
            continue
        at = names.index(name) - (place.name(over) == "enumerate")
        together = place.name(over) in ("enumerate", "zip") and 0 <= at < len(over.args)
        if together and place.on_device(over.args[at].value):
            return over.args[at].value
    return None


def _hoistable(read: Read, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a read gives the same in every iteration of the loop, and is made in every iteration."""
    if not isinstance(loop, cst.For | cst.While | cst.BaseComp):
        return False
    if isinstance(loop, cst.BaseComp) and not _in_element(read, loop, place):
        return False
    if not settled(read.tensor, place) or not place.invariant(read.tensor, loop):
        return False
    names = names_in(read.tensor)
    if names & target_names(loop):
        return False
    if isinstance(loop, cst.While) and contains(loop.test, read.call):
        return False
    if place.self_name in names and _calls_own_methods(loop, place):
        return False
    if place.once(("learns", id(loop)), lambda: _learns(loop, place)):
        return False  # an optimizer changes what it was given, wherever that is named
    inside = [test for test, _ in place.conditions if contains(loop, test)]
    return not inside


def _in_element(read: Read, loop: cst.BaseComp, place: Place) -> bool:
    """Whether a comprehension evaluates a read in every iteration, not once for its first iterable."""
    return not contains(loop.for_in.iter, read.call)


def _calls_own_methods(loop: cst.CSTNode, place: Place) -> bool:
    return any(
        place.name(call).startswith("self.") and loop in scene.loops
        for call, scene in place.calls()
    )


def _trains(loop: cst.CSTNode, place: Place) -> bool:
    return any(loop in scene.loops for _, scene in place.calls(*_HOLDS_STILL))


def _learns(loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop takes gradients, for an optimizer to step by."""
    return any(loop in scene.loops for _, scene in place.calls("backward", "zero_grad"))


def _per_element(read: Read, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop reads one tensor after the other: those it runs over, not what a training step gives."""
    if isinstance(loop, cst.BaseComp):
        return bool(names_in(read.tensor) & target_names(loop)) and _in_element(read, loop, place)
    if not isinstance(loop, cst.For) or place.hot.per == "step" or place.hot.only_loops:
        return False
    if place.once(("trains", id(loop)), lambda: _trains(loop, place)):
        return False
    return bool(names_in(read.tensor) & target_names(loop))


def _row(read: Read, scene: Scene, reads: Sequence[tuple[Read, Scene]], place: Place) -> list[Read]:
    """Reads of numbers that follow each other with nothing between that needs the first: one
    wait would do."""
    if not _rows(read, scene):
        return []
    key = ("rows", id(place.function), id(scene.block))
    rows = place.once(key, lambda: _rows_in(scene.block, reads, place))
    return rows.get(id(read.call), [])


def _rows_in(
    block: Sequence[cst.CSTNode], reads: Sequence[tuple[Read, Scene]], place: Place
) -> dict[int, list[Read]]:
    """The rows of a block, by the reads in them."""
    at = positions(block, place)
    rows: dict[int, list[Read]] = {}
    row: list[Read] = []
    known: set[str] = set()
    bound: set[str] = set()
    """The names that are bound since the row began."""
    last = 0
    for read, scene in reads:
        if scene.block is not block or not _rows(read, scene) or may_be_skipped(read.call, place):
            continue
        here = at[id(scene.statement)]
        if row and here - last <= 1:
            bound |= bound_names(block[last:here])
        if not row or here - last > 1 or names_in(read.tensor) & bound:
            row, known, bound = [], set(), set()
        if place.text(read.tensor) not in known:
            known.add(place.text(read.tensor))
            row.append(read)
            rows[id(read.call)] = row
            last = here
    return rows


def _rows(read: Read, scene: Scene) -> bool:
    return (
        read.how != "tolist"
        and isinstance(scene.statement, cst.SimpleStatementLine)
        and not any(isinstance(loop, cst.BaseComp) for loop in scene.loops)
    )


def use(read: Read, place: Place) -> str:
    """What the value is for, as advice: logged, summed up, a size, a number for torch."""
    if shown_each_round(read, place):
        return "It is shown in each round: show it every N rounds, and read it only there."
    node: cst.CSTNode = read.call
    parent = place.parent(node)
    while isinstance(
        parent, cst.BinaryOperation | cst.UnaryOperation | cst.Dict | cst.List | cst.Tuple
    ) or (isinstance(parent, cst.Call) and place.name(parent) in (*NUMBERS, "round", "abs")):
        node, parent = parent, place.parent(parent)
    if (
        isinstance(parent, cst.AugAssign)
        and read.how in ("item", "float")
        and not isinstance(node, cst.BinaryOperation)
    ):
        total = place.short(parent.target)
        more = detached(read, place)
        made_on_cpu = place.kind(parent.target).is_tensor and not place.on_device(parent.target)
        if made_on_cpu:
            where = f"{place.short(read.tensor)}.device"
            return (
                f"Create `{total}` on the device (`device={where}`), accumulate there (`{total} += "
                f"{more}`), and read it where it is logged."
            )
        return f"Accumulate on the device (`{total} += {more}`), and read `{total}` where it is logged."
    alone = isinstance(parent, cst.Assign) and len(parent.targets) == 1
    if isinstance(parent, cst.Assign) and alone and ends(read.call, place) == {"sum"}:
        total, more = place.short(parent.targets[0].target), detached(read, place)
        return f"Accumulate on the device (add `{more}`), and read `{total}` where it is logged."
    if isinstance(parent, cst.Call):
        last, logs = place.last_name(parent), _logger(parent, place)
        if logs == "keeps":
            return f"Pass on the tensor (`{detached(read, place)}`), and read it only when it is logged."
        if logs == "shows":
            return "Log it only every N steps."
        if last == "range" or (
            place.name(parent).startswith("torch.")
            and last in ("zeros", "ones", "empty", "full", "arange")
        ):
            return "Pass the size along as a Python number from where the host knows it."
        if place.is_torch(parent, *_TAKES_TENSORS):
            return (
                f"`torch.{last}` takes the tensor itself: pass `{place.short(read.tensor)}` unread."
            )
    if _checks(parent if isinstance(parent, cst.Comparison) else node, place):
        where = "where the values are created, or only behind a debug option."
        return f"Check on the device (`torch._assert_async`), {where}"
    if isinstance(parent, cst.Comparison):
        return (
            "Compare on the device and select with `torch.where`, or decide by something the "
            "host already knows."
        )
    return (
        "Keep it on the device as a tensor, or read it outside the hot path, at a point where the "
        "host waits anyway."
    )


def avoidable(read: Read, place: Place) -> bool:
    """Whether the host surely need not read a number: it goes back into tensors, is summed up or logged in a
    loop, or only checked. What shapes, Python values and callers are made of has to be read."""
    if read.how == "tolist" or _read_anyway(read, place):
        return False
    return _is_avoidable(read, place)


def _read_anyway(read: Read, place: Place) -> bool:
    """Whether the host needs the same number for something else, a few lines on, or copies there what it is
    computed from."""
    reads = place.once(("reads", id(place.function)), lambda: _reads(place))
    alike, _ = place.once(("alike", id(place.function)), lambda: _alike(reads, place))
    if any(
        one.call is not read.call and not _is_avoidable(one, place)
        for one, scene in alike.get(place.text(read.tensor), ())
        if scene.loops == place.scene.loops
    ):
        return True
    return copied_beside(read, place)


def copied_beside(read: Read, place: Place) -> bool:
    """Whether the tensor that a number is computed from is copied to the host whenever the number is read."""
    stem = _stem(read.tensor, place)
    copied = (
        place.receiver(call)
        for call, scene in place.calls("cpu", "numpy")
        if scene.loops == place.loops and set(scene.conditions) <= set(place.conditions)
    )
    return any(one is not None and place.same(_stem(one, place), stem) for one in copied)


def _stem(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """What methods, and functions of torch, compute a value from: `x` of `torch.exp(x.detach()).mean()`."""
    while isinstance(node, cst.Call):
        of_torch = place.name(node).startswith("torch.")
        first = place.argument(node, 0, "input") if of_torch else place.receiver(node)
        if first is None:
            break
        node = first
    return node


def _is_avoidable(read: Read, place: Place) -> bool:
    if shown_each_round(read, place):
        return False
    stops = ends(read.call, place)
    if stops <= {"tensor", "check", "sum"}:
        return True
    return _logged(read, place)


def reported(node: cst.CSTNode, place: Place) -> bool:
    """Whether a value goes into a table of figures by its name, for whoever logs them: `{"loss": …}`,
    `logs["loss"] = …`."""
    parent = place.parent(node)
    while isinstance(parent, cst.BinaryOperation | cst.IfExp) or (
        isinstance(parent, cst.Call) and place.name(parent) in (*NUMBERS, "round")
    ):
        node, parent = parent, place.parent(parent)
    if isinstance(parent, cst.Dict):
        keys = (
            e.key for e in parent.elements if isinstance(e, cst.DictElement) and e.value is node
        )
        return any(isinstance(k, cst.SimpleString | cst.FormattedString) for k in keys)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        return (
            isinstance(target, cst.Subscript)
            and _FIGURES.search(place.dotted(target.value)) is not None
            and isinstance(target.slice[0].slice, cst.Index)
            and place.kind(target.slice[0].slice.value).what == "text"
        )
    return False


_FIGURES = re.compile(
    r"log(?!it|prob)|metric|stat(?!e)|info|figure|history|report|summary|result", re.IGNORECASE
)


def _logged(read: Read, place: Place) -> bool:
    """Whether a number is read in every step for a log only, which need not have it at once."""
    parent = place.parent(read.call)
    while isinstance(parent, cst.Dict | cst.Tuple | cst.BinaryOperation) or (
        isinstance(parent, cst.Call) and place.name(parent) in (*NUMBERS, "round")
    ):
        parent = place.parent(parent)
    logs = _logger(parent, place) if isinstance(parent, cst.Call) else ""
    if logs != "shows" and reported(read.call, place):
        return True
    stepwise = place.loops or place.hot.only_loops or place.hot.per == "step"
    return logs == "keeps" and bool(stepwise)


_LISTS = frozenset({"append", "extend", "insert", "put"})
_OF_TRAINING = re.compile(
    r"(?<![a-z])(?:acc|accuracy|accuracie|correct|cost|err|error|grad|kl|loss|losse|mean|metric|mse|nll|norm|"
    r"perplexitie|ppl|pred|prediction|prob|ret|return|reward|rms|score|sum|target|time|total|value)s?(?![a-z])",
    re.IGNORECASE,
)
"""What is collected for a log, or to be looked at in the end, by its name."""


def _logger(call: cst.Call, place: Place) -> Literal["keeps", "shows", ""]:
    """Whether a call keeps a number for a log, or shows it in one at once; empty where it may need it."""
    last = place.last_name(call)
    if last not in _LOGGING and not last.startswith(("log", "record", "report", "write", "track")):
        return ""
    if not isinstance(place.parent(call), cst.Expr):
        return ""  # its result depends on the number
    if last in _LISTS:
        receiver = place.receiver(call)
        name = "" if receiver is None else place.text(receiver)
        return "keeps" if _FIGURES.search(name) or _OF_TRAINING.search(name) else ""
    shows = place.name(call).startswith(SERVICES) or last.startswith("add_scalar")
    return "shows" if shows else "keeps"


def _checks(node: cst.CSTNode, place: Place) -> bool:
    """Whether a value is only asked whether all is well."""
    if not isinstance(node, cst.BaseExpression):
        return False
    who = asked(node, place)
    return who.asker == "assert" or only_raises(who.by)


def detached(read: Read, place: Place) -> str:
    """The source of the tensor that is read, detached from its gradient."""
    shown = place.short(read.tensor)
    if isinstance(read.tensor, cst.BinaryOperation | cst.UnaryOperation | cst.Comparison):
        shown = f"({shown})"
    return shown if "detach" in shown else f"{shown}.detach()"


def found(place: Place, read: Read, message: str, fix: Fix | None = None) -> Finding:
    """The finding on a read, as sure as the read is."""
    return place.finding(read.call, message, certainty=read.certainty, fix=fix)


READ_CALLS: tuple[Look, ...] = (Call("item", "tolist", arguments=0), NumberCall())
"""What reads one tensor."""


class ReadRule(Rule):
    """What the rules about single reads share: they judge a call if it plays their part."""

    roles: ClassVar[tuple[Role, ...]]
    looks_for: ClassVar[Look | tuple[Look, ...]] = READ_CALLS

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Reports only reads of this rule's roles."""
        if works_on_host(place) or told_on_failure(node, place):
            return None
        read = place.once(("read", id(node)), lambda: read_of(node, place))
        if read is None:
            return None
        role, row = place.once(("role", id(node)), lambda: _role(read, place))
        if role not in self.roles:
            return None
        told = replace(read, certainty="maybe") if _is_of_keywords(read, place) else read
        return self.report(told, row, place)

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """The verdict on a read that plays the part."""
        raise NotImplementedError


def given_text(node: cst.CSTNode, place: Place) -> str:
    """The last name of the function that a text is made for."""
    parent = place.parent(node)
    while isinstance(parent, cst.BinaryOperation | cst.ConcatenatedString | cst.IfExp):
        parent = place.parent(parent)
    return place.last_name(parent) if isinstance(parent, cst.Call) else ""


def _is_of_keywords(read: Read, place: Place) -> bool:
    """Whether what is read is one of the keyword arguments of a call, whatever those are: meters that callers
    give numbers, `def update(self, **figures):`, read what is a tensor nonetheless."""
    params = getattr(place.function, "params", None)
    keywords = params.star_kwarg if isinstance(params, cst.Parameters) else None
    return keywords is not None and any(
        isinstance(loop, cst.For)
        and isinstance(loop.iter, cst.Call)
        and place.text(loop.iter.func)
        in (f"{keywords.name.value}.{way}" for way in ("items", "values"))
        and bool(names_in(read.tensor) & target_names(loop))
        for loop in place.loops
    )


def told_on_failure(node: cst.CSTNode, place: Place) -> bool:
    """Whether a place is in a function that a check calls when it fails: `check(ok, lambda: f"got {x}")`."""
    parent = place.parent(node) if place.scene.deferred else None
    while parent is not None:
        if isinstance(parent, cst.Lambda):
            return goes_to_a_check(parent, place)
        parent = place.parent(parent)
    return False


def goes_to_a_check(node: cst.CSTNode, place: Place) -> bool:
    """Whether a text is what a check says when it fails."""
    return re.search(r"check|assert", given_text(node, place), re.IGNORECASE) is not None
