"""DG516: batches that are copied to the device while the host waits."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, nodes

from ..syncs.waits import works_on_host
from ..syntax import is_word, names_in, target_names
from .devices import move_target

_LOADER = re.compile(r"(?:^|_)(?:data_?)?(?:loaders?|dl|batches)(?:_|$)", re.IGNORECASE)
"""What gives batches, by its name."""
_THERE = re.compile(r"prefetch|cuda|gpu|device|dali", re.IGNORECASE)
"""What gives batches that are on the device, by its name."""
_WRAPPERS = frozenset({"enumerate", "islice", "iter", "tqdm", "track", "trange", "zip"})
_LONGEST = 4
"""Names of names, and wrappers of wrappers, that are followed."""


class BatchCopyWaits(Rule):
    """A batch is copied to the device, and the host waits for the copy.

    ## What it does

    Finds `x.to(device)` and `x.cuda()` without `non_blocking=True` of what a data loader gives, in a loop
    over the loader. It is a finding where the function makes the loader with `pin_memory=True`, and a note
    elsewhere: who makes the loader has to pin its memory, or nothing is won.

    ## Why it costs

    The host waits until the device has worked off its queue and copied the batch, and only then launches the
    first operation of the step. From pinned memory the copy can run beside what the device still computes,
    and the host goes on at once. What is asked of the device later in the step waits for the copy by itself.

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
        if receiver is None or not _waits(node, place) or works_on_host(place):
            return None
        for number, loop in enumerate(place.loops):
            if not isinstance(loop, cst.For):
                continue
            loader = _loader(loop.iter, place)
            if loader is None:
                continue
            if not _is_part(receiver, _of_the_batch(loop, place.loops[number + 1 :])):
                continue
            pinned = (
                isinstance(loader, cst.Call)
                and is_word(place.argument(loader, None, "pin_memory"), "True")
                and not _is_computed(receiver)
            )
            means = (
                "the loader pins its memory, so `non_blocking=True` lets the host go on"
                if pinned
                else "with `non_blocking=True` it goes on, if the loader is made with `pin_memory=True`"
            )
            return place.finding(
                node,
                f"The host waits for the copy of `{place.short(receiver, 32)}` in every iteration; {means}",
                certainty="sure" if pinned else "note",
                fix=_fix(node, receiver, place) if pinned else None,
            )
        return None


def _waits(node: cst.Call, place: Place) -> bool:
    """Whether a call moves something to a device, and waits for it."""
    given = [a.keyword.value for a in node.args if a.keyword is not None]
    if "non_blocking" in given or any(a.star for a in node.args):
        return False
    if place.last_name(node) == "cuda":
        return len(node.args) < 2
    return move_target(node, place) is not None


def _loader(node: cst.BaseExpression, place: Place, depth: int = 0) -> cst.BaseExpression | None:
    """What gives batches to a loop, as far as it is known: the call that makes it, or its name."""
    if depth > _LONGEST:
        return None
    if isinstance(node, cst.Call):
        last = place.last_name(node)
        if last == "DataLoader":
            return node
        given = node.args if last in _WRAPPERS else ()
        found = (_loader(a.value, place, depth + 1) for a in given)
        return next((one for one in found if one is not None), None)
    held = place.value_of(node) if isinstance(node, cst.Name) else None
    if isinstance(held, cst.Call):
        made = _loader(held, place, depth + 1)
        if made is not None:
            return made
    last = place.dotted(node).rpartition(".")[2]
    return node if _LOADER.search(last) and not _THERE.search(place.dotted(node)) else None


def _of_the_batch(loop: cst.For, inner: tuple[cst.CSTNode, ...]) -> set[str]:
    """The names of a batch, of its parts, and of what loops inside go through of them."""
    own = set(target_names(loop))
    for statement in nodes.walk(loop.body):
        if isinstance(statement, cst.Assign) and _is_part(statement.value, own):
            for target in statement.targets:
                if isinstance(target.target, cst.Name | cst.Tuple):
                    own |= names_in(target.target)
    for one in inner:
        if isinstance(one, cst.For):
            own |= target_names(one) if names_in(one.iter) & own else set()
        elif isinstance(one, cst.BaseComp) and names_in(one.for_in.iter) & own:
            own |= target_names(one)
    return own


def _is_part(node: cst.BaseExpression, own: set[str]) -> bool:
    """Whether an expression is a batch or parts of it: `batch`, `batch["x"]`, `batch.x`."""
    if isinstance(node, cst.Tuple):
        return any(_is_part(element.value, own) for element in node.elements)
    while isinstance(node, cst.Subscript | cst.Attribute | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return is_word(node, *own)


def _is_computed(node: cst.BaseExpression) -> bool:
    """Whether something is done to a batch before it is moved: what that gives is pinned no more."""
    return any(isinstance(part, cst.Call | cst.BinaryOperation) for part in nodes.walk(node))


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
