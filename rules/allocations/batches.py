"""DG516: batches that are copied to the device while the host waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, nodes

from ..syncs.host_code import works_on_host
from ..syntax import contains, is_word, target_names
from .devices import move_target

_LOADER = re.compile(
    r"(?:^|_)(?:data|eval|test|train|val|valid)?_?(?:loaders?|dl|batches)(?:_|$)", re.IGNORECASE
)
"""What gives batches, by its name."""
_THERE = re.compile(r"prefetch|prepare|setup|cuda|gpu|device|dali", re.IGNORECASE)
"""What gives batches that are on the device, by its name, or by the name of what makes it."""
_INSIDE = frozenset({"enumerate", "islice", "iter", "tqdm", "track", "zip"})
"""What hands on the batches of what it is given."""
_TAKES = frozenset({"get", "items", "next", "pop", "values"})
"""Calls that give a part of a batch as it is."""
_LONGEST = 4
"""Names of names, and wrappers of wrappers, that are followed."""


class BatchCopyWaits(Rule):
    """A batch is copied to the device, and the host waits for the copy.

    ## What it does

    Finds `x.to(device)` and `x.cuda()` without `non_blocking=True` of what a data loader gives, in a loop
    over the loader. It is a finding where the function makes the loader with `pin_memory=True` (and without
    a `collate_fn`, whose batches may be anything), and a note elsewhere: who makes the loader has to pin its
    memory, or there is no gain.

    ## Why it costs

    The host waits until the device has worked off its queue and copied the batch, and only then launches the
    first operation of the step. From pinned memory the copy can overlap with what the device still computes,
    and the host goes on at once. Later kernels on the same stream run after the copy by themselves.

    ## Example

    ```python
    loader = DataLoader(data, batch_size=32, pin_memory=True)
    for images, labels in loader:
        images = images.to(device)
    ```

    ## Instead

    ```python
    loader = DataLoader(data, batch_size=32, pin_memory=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
    ```

    ## Fix safety

    Safe, and offered only where the loader surely pins its memory and the name gets the copy: nobody can
    write to the batch on the host before the copy is done.
    """

    code = "DG516"
    name = "batch-copy-waits"
    origin = "yolov5#a1c8406a"
    looks_for = Call("to", "cuda", place="loop")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A move of what the loop gets from a loader."""
        receiver = place.receiver(node)
        if receiver is None or place.scene.deferred:
            return None
        if not _waits(node, place) or works_on_host(place):
            return None
        for source, batch in _batches_around(node, place):
            if not batch.has(receiver):
                continue
            computed = batch.is_computed(receiver)
            pinned = (
                isinstance(source.loader, cst.Call)
                and is_word(place.argument(source.loader, None, "pin_memory"), "True")
                and place.argument(source.loader, None, "collate_fn") is None
                and not computed
            )
            return place.finding(
                node,
                f"The host waits for the copy of `{place.short(receiver, 32)}` in every iteration; "
                f"{_PINNED if pinned else _COMPUTED if computed else _UNKNOWN}",
                certainty="sure" if pinned else "note",
                fix=_fix(node, receiver, place) if pinned else None,
            )
        return None


_PINNED = "the loader pins its memory, so `non_blocking=True` lets the host go on"
_UNKNOWN = (
    "pass `non_blocking=True` so that the host goes on, which helps only if the loader is made with "
    "`pin_memory=True`"
)
_COMPUTED = (
    "what is computed on the host is not pinned, so move the batch first, with `non_blocking=True` and a "
    "loader with `pin_memory=True`, and compute on the device"
)


def _waits(node: cst.Call, place: Place) -> bool:
    """Whether a call moves something to a device, and waits for it."""
    given = [a.keyword.value for a in node.args if a.keyword is not None]
    if "non_blocking" in given or any(a.star for a in node.args):
        return False
    if place.last_name(node) == "cuda":
        return len(node.args) < 2
    return move_target(node, place) is not None


@dataclass(frozen=True, slots=True)
class _Source:
    """What gives batches to a loop."""

    loader: cst.BaseExpression
    """The call that makes it, or its name."""
    targets: frozenset[str]
    """The names that the loop gives a batch."""


def _source(loop: cst.For, place: Place) -> _Source | None:
    """What gives batches to a loop, if anything does."""
    over: cst.BaseExpression = loop.iter
    target: cst.BaseExpression = loop.target
    for _ in range(_LONGEST):
        last = place.last_name(over) if isinstance(over, cst.Call) else ""
        given = _positional(over) if isinstance(over, cst.Call) and last in _INSIDE else []
        if not given:
            break
        if last == "enumerate":
            over, target = given[0], _element(target, 1)
        elif last == "zip":
            found = [i for i, one in enumerate(given) if _loader(one, place) is not None]
            if not found:
                return None
            over, target = given[found[0]], _element(target, found[0])
        else:
            over = given[0]
    loader = _loader(over, place)
    return None if loader is None else _Source(loader, frozenset(_plain_names(target)))


def is_of_a_loader(call: cst.Call, place: Place) -> bool:
    """Whether what a method is called on is a batch as a loader gives it, or a part of one."""
    receiver = place.receiver(call)
    return (receiver is not None and not _is_moved(receiver, place)) and any(
        batch.has(receiver) for _, batch in _batches_around(call, place)
    )


def _batches_around(node: cst.Call, place: Place) -> Iterator[tuple[_Source, _Batch]]:
    """What the loops around a call get from loaders, as far as the call, that has not been moved."""
    for number, loop in enumerate(place.loops):
        if not isinstance(loop, cst.For) or _is_moved_already(loop, place):
            continue
        source = _source(loop, place)
        if source is None:
            continue
        batch = _Batch(set(source.targets))
        batch.follow(loop, node, place.loops[number + 1 :], place)
        yield source, batch


def _is_moved_already(loop: cst.For, place: Place) -> bool:
    """Whether a loop goes over what `accelerator.prepare` gave: that puts each batch on the device itself."""
    over = {place.dotted(one) for one in nodes.walk(loop.iter)} - {"", place.self_name}
    return any(
        place.dotted(argument.value) in over
        for call, _ in place.calls(*_PREPARING)
        for argument in call.args
    )


_PREPARING = ("prepare", "prepare_data_loader", "setup_dataloaders")
"""Methods of Accelerate and Fabric that take data loaders."""


def _positional(call: cst.Call) -> list[cst.BaseExpression]:
    return [a.value for a in call.args if a.keyword is None and not a.star]


def _element(target: cst.BaseExpression, number: int) -> cst.BaseExpression:
    """One part of what a loop binds; all of it, where that is not written out."""
    if isinstance(target, cst.Tuple | cst.List) and number < len(target.elements):
        return target.elements[number].value
    return target


def _plain_names(target: cst.BaseExpression) -> Iterator[str]:
    """The local names in what is assigned to."""
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _plain_names(element.value)


def _loader(node: cst.BaseExpression, place: Place, depth: int = 0) -> cst.BaseExpression | None:
    """What gives batches, as far as it is known: the call that makes it, or its name."""
    if depth > _LONGEST:
        return None
    if isinstance(node, cst.Call):
        last = place.last_name(node)
        if last == "DataLoader":
            return node
        given = _positional(node) if last in _INSIDE else []
        found = (_loader(one, place, depth + 1) for one in given)
        return next((one for one in found if one is not None), None)
    held = place.value_of(node) if isinstance(node, cst.Name) else None
    last = place.dotted(node).rpartition(".")[2]
    if isinstance(held, cst.Call):
        made = _loader(held, place, depth + 1)
        if made is not None:
            return made
        if _THERE.search(place.last_name(held)) or last.endswith("batches"):
            return None
    return node if _LOADER.search(last) and not _THERE.search(place.dotted(node)) else None


@dataclass(slots=True)
class _Batch:
    """The names of a batch and of its parts, at a place in the loop."""

    names: set[str]
    computed: set[str] = field(default_factory=set)
    """Those of what was computed from it on the host."""

    def has(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the batch or parts of it: `batch`, `batch["x"]`, `batch.x`."""
        if isinstance(node, cst.Tuple):
            return any(self.has(element.value) for element in node.elements)
        return is_word(_root(node), *self.names)

    def is_computed(self, node: cst.BaseExpression) -> bool:
        """Whether something is done to the batch before: what that gives is not pinned."""
        root = _root(node)
        return is_word(root, *self.computed) or any(
            isinstance(part, cst.BinaryOperation)
            or (isinstance(part, cst.Call) and _called(part) not in _TAKES)
            for part in nodes.walk(node)
        )

    def follow(
        self, loop: cst.For, node: cst.Call, inner: Sequence[cst.CSTNode], place: Place
    ) -> None:
        """Follows the names from the beginning of the loop to a call, and into the loops around it."""
        for statement in nodes.walk(loop.body):
            if statement is node:
                break
            if not isinstance(statement, cst.Assign) or contains(statement, node):
                continue
            for target in statement.targets:
                self._bind(target.target, statement.value, place)
        for one in inner:
            over = one.iter if isinstance(one, cst.For) else None
            over = one.for_in.iter if isinstance(one, cst.BaseComp) else over
            inside = isinstance(over, cst.Call) and _called(over) in _INSIDE
            given = _positional(over) if inside and isinstance(over, cst.Call) else []
            if over is not None and (self.has(over) or any(map(self.has, given))):
                self.names |= target_names(one)

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression, place: Place) -> None:
        if (
            isinstance(target, cst.Tuple)
            and isinstance(value, cst.Tuple)
            and len(target.elements) == len(value.elements)
        ):
            for one, other in zip(target.elements, value.elements, strict=True):
                self._bind(one.value, other.value, place)
            return
        names = set(_plain_names(target))
        moved = _is_moved(value, place)
        part, computed = self.has(value), self.is_computed(value)
        self.names -= names
        self.computed -= names
        if part and not moved:
            self.names |= names
            self.computed |= names if computed else set()


def _is_moved(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression, or what its methods are called on, is moved to a device."""
    while isinstance(node, cst.Call):
        if place.last_name(node) == "cuda" or move_target(node, place) is not None:
            return True
        receiver = place.receiver(node)
        if receiver is None:
            break
        node = receiver
    return False


def _called(call: cst.Call) -> str:
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return name.value if isinstance(name, cst.Name) else ""


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    """Of `batch["x"].float()`, `batch`."""
    while isinstance(node, cst.Subscript | cst.Attribute | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node


def _fix(node: cst.Call, receiver: cst.BaseExpression, place: Place) -> Fix | None:
    """`non_blocking=True`, where the copy takes the name of what is copied."""
    parent = place.parent(node)
    same = (
        isinstance(parent, cst.Assign)
        and len(parent.targets) == 1
        and place.same(parent.targets[0].target, receiver)
    )
    if not same or not isinstance(receiver, cst.Name) or "#" in place.text(node):
        return None
    given = [
        f"{a.keyword.value}={place.text(a.value)}" if a.keyword is not None else place.text(a.value)
        for a in node.args
    ]
    return place.replace(
        node,
        f"{place.text(node.func)}({', '.join([*given, 'non_blocking=True'])})",
        safety="safe",
        message="let the host go on while the batch is copied",
    )
