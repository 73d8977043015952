"""Fixes of reads: the value stays on the device as a tensor, and is read where it is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Edit, Fix, Place, nodes

from ...fresh_names import fresh_name
from ...syntax import bound_names, contains, names_in
from ..data_flow import around, ends, held_by, loads
from ..waits import Read

_COUNTS = ("int", "bool")


def unread(read: Read, place: Place) -> Fix | None:
    """`x.detach()` for `x.item()`, where all that is made of the number is tensors; a sum of numbers as a
    tensor, which is read after the loop."""
    dtype = place.kind(read.tensor).dtype
    fits = read.how == "item" or (read.how == "float") is (dtype not in _COUNTS)
    if read.certainty != "sure" or not fits or read.how not in ("item", "float", "int"):
        return None
    if "\n" in place.text(read.tensor) or read.call.lpar:
        return None
    kept = f"{_bracketed(read.tensor, place)}.detach()"
    if isinstance(read.tensor, cst.Call) and place.last_name(read.tensor) == "detach":
        kept = place.text(read.tensor)
    stops = ends(read.call, place)
    if stops == {"tensor"} and _beside_tensors(read.call, place):
        return place.replace(
            read.call,
            kept,
            safety="unsafe",
            message="Keep the value on the device; the result has the precision of its tensor",
        )
    return _summed(read, kept, place) if stops == {"sum"} else None


def _beside_tensors(node: cst.BaseExpression, place: Place, depth: int = 3) -> bool:
    """Whether a number is only an operand of tensors, itself or with a number between. Some functions take a
    number alone."""
    parent = around(node, place)
    while isinstance(parent, cst.UnaryOperation | cst.BinaryOperation):
        if isinstance(parent, cst.BinaryOperation):
            other = parent.right if parent.left is node else parent.left
            if place.is_tensor(other):
                return True
        node, parent = parent, around(parent, place)
    if isinstance(parent, cst.Comparison):
        sides = [parent.left, *(c.comparator for c in parent.comparisons)]
        return any(place.is_tensor(side) for side in sides if side is not node)
    if isinstance(parent, cst.AugAssign):
        return place.is_tensor(parent.target)
    name = held_by(node, place) if depth else ""
    found = [_beside_tensors(load, place, depth - 1) for load in loads(name, place)] if name else []
    return bool(found) and all(found)


def _summed(read: Read, kept: str, place: Place) -> Fix | None:
    """The same of `total += x.item()` in a loop in whose rounds nothing else looks at `total`, but for
    branches taken now and then."""
    statement = place.parent(read.call)
    if not isinstance(statement, cst.AugAssign) or statement.value is not read.call:
        return None
    target = statement.target
    if (
        not isinstance(statement.operator, cst.AddAssign)
        or not isinstance(target, cst.Name)
        or not any(isinstance(loop, cst.For | cst.While) for loop in place.loops)
    ):
        return None
    reads = [load for load in loads(target.value, place) if load is not target]
    scaled = [
        node
        for node in nodes.walk(place.function.body)
        if isinstance(node, cst.AugAssign) and _scales(node, target.value, place)
    ]
    if not _started(target.value, len(scaled), place) or not (reads or scaled):
        return None
    if any(_spelled_out(load, place) for load in reads):
        return None
    number = "int" if _is_count(read.tensor, place) else "float"
    edits: list[tuple[cst.CSTNode, str]] = [(read.call, kept)]
    for one in scaled:
        sign = "/" if isinstance(one.operator, cst.DivideAssign) else "*"
        by = _bracketed(one.value, place)
        edits.append((one, f"{target.value} = {number}({target.value}) {sign} {by}"))
    behind = [later for one in scaled for later in _behind(one, place)]
    for load in reads:
        if not _made_a_number(load, place) and not any(contains(later, load) for later in behind):
            edits.append((load, f"{number}({load.value})"))
    return place.edits(
        edits,
        safety="unsafe",
        message="Sum on the device, in the precision of its tensor, and read the sum where it is used",
    )


_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)


def _bracketed(node: cst.BaseExpression, place: Place) -> str:
    """The source of an expression as an operand, or with a method behind it."""
    source = place.text(node)
    return source if isinstance(node, _ATOMS) or node.lpar else f"({source})"


def _scales(statement: cst.AugAssign, name: str, place: Place) -> bool:
    """Whether a statement makes a mean of a sum after its loop: `total /= len(loader)`."""
    return (
        isinstance(statement.target, cst.Name)
        and statement.target.value == name
        and isinstance(statement.operator, cst.DivideAssign | cst.MultiplyAssign)
        and "\n" not in place.text(statement.value)
        and name not in names_in(statement.value)
        and not contains(place.loops[-1], statement)
    )


def _behind(statement: cst.AugAssign, place: Place) -> Sequence[cst.CSTNode]:
    """What follows a statement in its block, where nothing is summed up any more."""
    body = place.function.body
    for block in nodes.walk(body):
        lines = block.body if isinstance(block, cst.IndentedBlock) else ()
        for number, line in enumerate(lines):
            if isinstance(line, cst.SimpleStatementLine) and statement in line.body:
                rest = lines[number + 1 :]
                return () if any(contains(one, place.loops[-1]) for one in rest) else rest
    return ()


def _is_count(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a tensor holds a whole number, as the sum of a comparison does."""
    if place.kind(node).dtype in _COUNTS:
        return True
    source = place.receiver(node) if isinstance(node, cst.Call) else None
    return (
        isinstance(node, cst.Call)
        and place.last_name(node) in ("sum", "detach", "cpu")
        and source is not None
        and _is_count(source, place)
    )


def _spelled_out(load: cst.Name, place: Place) -> bool:
    """Whether a name is shown as it is written: `f"{total=}"`."""
    shown = around(load, place)
    return isinstance(shown, cst.FormattedStringExpression) and shown.equal is not None


def _started(name: str, scaled: int, place: Place) -> bool:
    """Whether a function binds a local name to numbers as they are written, and else only adds to it at one
    place, and scales it at so many."""
    body = place.function.body
    shared = (node for node in nodes.walk(body) if isinstance(node, cst.Global | cst.Nonlocal))
    if any(item.name.value == name for node in shared for item in node.names):
        return False
    begun = [
        node.value
        for node in _assignments(body)
        if any(isinstance(t.target, cst.Name) and t.target.value == name for t in node.targets)
    ]
    numbers = all(isinstance(value, cst.Float | cst.Integer) for value in begun)
    return bool(begun) and numbers and place.assignments(name) == len(begun) + 1 + scaled


def _assignments(body: cst.CSTNode) -> Sequence[cst.Assign]:
    return [node for node in nodes.walk(body) if isinstance(node, cst.Assign)]


def _made_a_number(load: cst.Name, place: Place) -> bool:
    parent = around(load, place)
    return isinstance(parent, cst.Call) and place.name(parent) in ("float", "int")


def read_together(row: Sequence[Read], place: Place) -> Fix | None:
    """`a, b = torch.stack([x, y]).tolist()` for statements that read one number each, one after the other."""
    kinds = [place.kind(r.tensor) for r in row]
    if any(k.ndim != 0 for k in kinds) or len({k.dtype for k in kinds}) > 1:
        return None
    if any(r.certainty != "sure" or r.how not in ("item", "float") for r in row):
        return None
    if any(r.how == "float" for r in row) and kinds[0].dtype != "float":
        return None
    found = [_reading(r, place) for r in row]
    lines = [one for one in found if one is not None]
    if len(lines) != len(row) or len({id(line) for line, _ in lines}) != len(row):
        return None
    at = [i for i, s in enumerate(place.block) if any(s is line for line, _ in lines)]
    if at != list(range(at[0], at[0] + len(row))):
        return None
    names = [name for _, name in lines]
    tensors = [place.text(r.tensor) for r in row]
    gone: list[Edit] = []
    for line, _ in lines[1:]:
        edit = place.without(line)
        if edit is None:
            return None
        gone.append(edit)
    first = lines[0][0]
    if len(set(names)) != len(names) or any("\n" in t for t in tensors):
        return None
    return place.edits(
        [(first.body[0], f"{', '.join(names)} = torch.stack([{', '.join(tensors)}]).tolist()")],
        safety="unsafe",
        message="Read once; needs one device and one dtype",
        imports=("import torch",),
        more=gone,
    )


_MOST_READ = 8
"""Numbers in one row that still fit on a line or two."""
_WIDEST = 100


def read_ahead(row: Sequence[Read], place: Place) -> Fix | None:
    """Names for the numbers of a row, read together before the first statement that needs one. A line that
    makes a read and nothing else goes."""
    first = place.statement
    if any(r.certainty != "sure" or r.how not in ("item", "float") or r.call.lpar for r in row):
        return None
    dtypes = {place.kind(r.tensor).dtype or "float" for r in row}
    if len(dtypes) > 1 or not isinstance(first, cst.SimpleStatementLine) or len(row) > _MOST_READ:
        return None
    if dtypes != {"float"} and any(r.how == "float" for r in row):
        return None
    names: list[str] = []
    pairs: list[tuple[cst.CSTNode, str]] = []
    more: list[Edit] = []
    inserted = True
    for read in row:
        line, name = _reading(read, place) or (None, "")
        if line is None:
            source = place.text(read.tensor)
            name = fresh_name(source, place, ending="value", but=_NO_NAMES)
            if not name:
                return None
            pairs.append((read.call, name))
        elif line is first:
            inserted = False
        else:
            gone = None if _needed_before(name, first, line, place) else place.without(line)
            if gone is None:
                return None
            more.append(gone)
        names.append(name)
    whole = _stack(names, [_as_scalar(r.tensor, place) for r in row], place.indent(first))
    if not whole or len(set(names)) != len(names):
        return None
    if inserted:
        more.append(place.before(first, f"{whole}\n{place.indent(first)}"))
    else:
        pairs.append((first.body[0], whole))
    return place.edits(
        pairs,
        safety="unsafe",
        message="Read all at once, before the first is needed; needs one device, and converts mixed dtypes",
        imports=("import torch",),
        more=more,
    )


def _needed_before(name: str, first: cst.CSTNode, line: cst.CSTNode, place: Place) -> bool:
    """Whether a statement between the first of a row and a line uses what a name holds until then."""
    block = list(place.block)
    between = block[block.index(first) : block.index(line)]
    return any(name in names_in(statement) for statement in between)


def _stack(names: Sequence[str], sources: Sequence[str], indent: str) -> str:
    """The statement that reads several tensors at once; empty where it would not look good."""
    if re.search(r"\n|#|:=|\bawait\b|\byield\b", "".join(sources)):
        return ""
    listed = ", ".join(sources)
    whole = f"{', '.join(names)} = torch.stack([{listed}]).tolist()"
    if len(indent) + len(whole) > _WIDEST:
        whole = f"{', '.join(names)} = torch.stack(\n{indent}    [{listed}]\n{indent}).tolist()"
    fits = all(len(indent) + len(line) <= _WIDEST + 20 for line in whole.split("\n"))
    return whole if fits else ""


def _as_scalar(node: cst.BaseExpression, place: Place) -> str:
    """The source of a tensor of one element, without dimensions."""
    if place.kind(node).ndim == 0:
        return place.text(node)
    return f"{_bracketed(node, place)}.squeeze()"


_NO_NAMES = frozenset(
    "data detach item float long int bool half double cpu mean sum abs max min reshape view squeeze".split()
)
"""Words that say little of a value."""


def _reading(read: Read, place: Place) -> tuple[cst.SimpleStatementLine, str] | None:
    """The line `a = x.item()` that makes a read and nothing else, and its name."""
    for line in place.block:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        small = line.body[0]
        if isinstance(small, cst.Assign) and small.value is read.call and len(small.targets) == 1:
            target = small.targets[0].target
            return (line, target.value) if isinstance(target, cst.Name) else None
    return None


def read_before(read: Read, place: Place) -> Fix | None:
    """A name for the value before the loop that reads it in every round."""
    loop = place.loops[-1]
    outer: cst.CSTNode = place.statement if isinstance(loop, cst.BaseComp) else loop
    alone = isinstance(outer, cst.SimpleStatementLine | cst.For | cst.While)
    if not alone or len(place.loops) != 1 or read.certainty != "sure" or read.call.lpar:
        return None
    if isinstance(loop, cst.BaseComp) and isinstance(outer, cst.SimpleStatementLine):
        first = outer.body[0]
        if bound_names([outer]) & names_in(read.tensor) or len(outer.body) != 1:
            return None
        if not isinstance(first, cst.Assign | cst.Return | cst.Expr):
            return None
    ending = _READ_AS.get(read.how, "number")
    name = fresh_name(place.text(read.tensor), place, ending=ending, most=2)
    source = place.text(read.call)
    if not name or "\n" in source:
        return None
    more = place.before(outer, f"{name} = {source}\n{place.indent(outer)}")
    return place.edits(
        [(read.call, name)],
        safety="unsafe",
        message="Read it once before the loop, also where the loop has no round",
        more=(more,),
    )


_READ_AS = {"tolist": "list", "int": "int", "float": "float"}
