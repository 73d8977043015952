"""Fixes of reads: the value stays on the device as a tensor, and is read where it is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import Edit, Fix, Place, nodes

from ...allocations.aliases import is_written_through
from ...fresh_names import fresh_name
from ...syntax import bound_names, called_name, contains, is_word, line_before, names_in
from ..data_flow import around, ends, held_by, loads
from ..waits import REDUCING, Read

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
        if is_written_through(read.tensor, place):
            return None
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
    statement = _added_by(read.call, place)
    if statement is None or not any(isinstance(loop, cst.For | cst.While) for loop in place.loops):
        return None
    target = statement.target
    if not isinstance(target, cst.Name):
        return None
    begun = list(_begun(target.value, place.function.body))
    scaled = [
        node
        for node in nodes.walk(place.function.body)
        if isinstance(node, cst.AugAssign) and _scales(node, target.value, place)
    ]
    if not _only_adds(target.value, [value for _, value in begun], len(scaled), place):
        return None
    elsewhere = _of_other_sums(target.value, [start for start, _ in begun], read.call, place)
    scaled = [node for node in scaled if not elsewhere(node)]
    reads = [load for load in loads(target.value, place) if not elsewhere(load)]
    reads = [load for load in reads if load is not target]
    if not (reads or scaled) or any(_spelled_out(load, place) for load in reads):
        return None
    added = [one for one in _added_to(target.value, place) if not elsewhere(one)]
    counted = _is_count(read.tensor, place)
    # A sum of whole numbers takes no others in place.
    if counted and (len(added) > 1 or statement.value is not read.call):
        return None
    number = "int" if counted else "float"
    edits: list[tuple[cst.CSTNode, str]] = [(read.call, kept)]
    for one in scaled:
        sign = "/" if isinstance(one.operator, cst.DivideAssign) else "*"
        by = _bracketed(one.value, place)
        edits.append((one, f"{target.value} = {number}({target.value}) {sign} {by}"))
    behind = [later for one in scaled for later in _behind(one, place)]
    for load in reads:
        if not _made_a_number(load, place) and not _holds(behind, load):
            edits.append((load, f"{number}({load.value})"))
    return place.edits(
        edits,
        safety="unsafe",
        message="Sum on the device, in the precision of its tensor, and read the sum where it is used",
    )


def _added_by(node: cst.BaseExpression, place: Place) -> cst.AugAssign | None:
    """The statement `total += x.item()`, or `total += x.item() * n` or `** 2`, of what it reads."""
    parent = place.parent(node)
    while isinstance(parent, cst.BinaryOperation):
        times = isinstance(parent.operator, cst.Multiply)
        over = isinstance(parent.operator, cst.Divide | cst.Power) and parent.left is node
        other = parent.right if parent.left is node else parent.left
        if not (times or over) or not _is_number(other, place, left=parent.right is node):
            return None
        node, parent = parent, place.parent(parent)
    adds = isinstance(parent, cst.AugAssign) and isinstance(parent.operator, cst.AddAssign)
    return parent if isinstance(parent, cst.AugAssign) and adds and parent.value is node else None


def _is_number(node: cst.BaseExpression, place: Place, *, left: bool) -> bool:
    """Whether an expression is a number of Python, as far as anybody knows. One of NumPy at the left of a
    tensor would do the work itself."""
    what = place.kind(node).what
    named = isinstance(node, cst.Name | cst.Attribute)
    return what == "scalar" or (what == "unknown" and named and not left)


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
    rest = _rest(statement, place)
    return () if _holds(rest, place.loops[-1]) else rest


def _rest(statement: cst.BaseSmallStatement, place: Place) -> Sequence[cst.CSTNode]:
    """The lines that follow a statement in its block."""
    for block in nodes.walk(place.function.body):
        lines = block.body if isinstance(block, cst.IndentedBlock) else ()
        for number, line in enumerate(lines):
            if isinstance(line, cst.SimpleStatementLine) and statement in line.body:
                return lines[number + 1 :]
    return ()


def _holds(lines: Sequence[cst.CSTNode], node: cst.CSTNode) -> bool:
    return any(contains(line, node) for line in lines)


def _is_count(node: cst.BaseExpression, place: Place, depth: int = 4) -> bool:
    """Whether a tensor holds a whole number, as the sum of a comparison does."""
    if place.kind(node).dtype in _COUNTS:
        return True
    if isinstance(node, cst.Name):
        held = place.value_of(node) if depth else None
        return held is not None and _is_count(held, place, depth - 1)
    source = place.receiver(node) if isinstance(node, cst.Call) else None
    return (
        isinstance(node, cst.Call)
        and place.last_name(node) in ("sum", "detach", "cpu")
        and source is not None
        and _is_count(source, place, depth)
    )


def _spelled_out(load: cst.Name, place: Place) -> bool:
    """Whether a name is shown as it is written: `f"{total=}"`."""
    shown = around(load, place)
    return isinstance(shown, cst.FormattedStringExpression) and shown.equal is not None


def _only_adds(name: str, begun: Sequence[cst.BaseExpression], scaled: int, place: Place) -> bool:
    """Whether a local name begins as numbers, and the function else only adds to it, and scales it at so many
    places."""
    body = place.function.body
    shared = (node for node in nodes.walk(body) if isinstance(node, cst.Global | cst.Nonlocal))
    if any(item.name.value == name for node in shared for item in node.names):
        return False
    added = len(_added_to(name, place))
    numbers = all(_is_begun(value, name, place) for value in begun)
    numbers = numbers and not any(_is_word_first(v, name) and _in_round(v, place) for v in begun)
    return bool(begun) and numbers and place.assignments(name) == len(begun) + added + scaled


def _added_to(name: str, place: Place) -> list[cst.AugAssign]:
    """The statements that add to a name."""
    return [
        node
        for node in nodes.walk(place.function.body)
        if isinstance(node, cst.AugAssign)
        and isinstance(node.operator, cst.AddAssign)
        and is_word(node.target, name)
    ]


def _of_other_sums(
    name: str, begun: Sequence[cst.Assign], read: cst.CSTNode, place: Place
) -> Callable[[cst.CSTNode], bool]:
    """Asks of a place whether what the name holds there is never the sum that a read is added to: the name
    begins anew before it, on every way from there."""
    order = {id(node): number for number, node in enumerate(nodes.walk(place.function.body))}
    rests = [(start, _rest(start, place)) for start in begun]
    around = [loop for loop in place.loops if isinstance(loop, cst.For | cst.While)]

    def elsewhere(node: cst.CSTNode) -> bool:
        starts = [(order[id(s)], s, rest) for s, rest in rests if _holds(rest, node)]
        if not starts:
            return False
        _, start, rest = max(starts, key=lambda one: one[0])
        if not _holds(rest, read):
            return True
        # Both follow one start: another round may come from the read to the place without passing it.
        again = any(contains(loop, node) and not contains(loop, start) for loop in around)
        return order[id(node)] < order[id(read)] and not again

    return elsewhere


def _begun(name: str, body: cst.CSTNode) -> Iterator[tuple[cst.Assign, cst.BaseExpression]]:
    """The assignments to a name, and what they give it: of `a, b = 0, 1`, its own."""
    for node in nodes.walk(body):
        for target in node.targets if isinstance(node, cst.Assign) else ():
            to, value = target.target, node.value
            if is_word(to, name):
                yield node, value
            elif isinstance(to, cst.Tuple) and isinstance(value, cst.Tuple):
                for one, own in zip(to.elements, value.elements, strict=False):
                    if is_word(one.value, name):
                        yield node, own.value


def _is_begun(value: cst.BaseExpression, name: str, place: Place) -> bool:
    """Whether a sum begins with a value: a number as it is written, or a mean or root that it has become."""
    if _is_word_first(value, name):
        return True
    if isinstance(value, cst.BinaryOperation):
        value = value.left
    if isinstance(value, cst.Call):
        made = place.name(value) in ("float", "int") and len(value.args) == 1
        return made and is_word(value.args[0].value, name)
    return isinstance(value, cst.Float | cst.Integer)


def _is_word_first(value: cst.BaseExpression, name: str) -> bool:
    """Whether a value is made of a sum, that is read once for it: `total / n`, `total ** 0.5`."""
    return (
        isinstance(value, cst.BinaryOperation)
        and is_word(value.left, name)
        and name not in names_in(value.right)
    )


def _in_round(node: cst.CSTNode, place: Place) -> bool:
    return contains(place.loops[-1], node)


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
            name = fresh_name(source, first, place, ending="value", but=_NO_NAMES)
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
        more.append(line_before(first, whole, place))
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
    if place.kind(node).ndim == 0 or _is_reduced(node):
        return place.text(node)
    return f"{_bracketed(node, place)}.squeeze()"


def _is_reduced(node: cst.BaseExpression) -> bool:
    """Whether a method without arguments makes one number of all elements."""
    name = called_name(node) if isinstance(node, cst.Call) and not node.args else ""
    return name in REDUCING and name != "detach"


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
    ending = READ_AS.get(read.how, "number")
    name = fresh_name(place.text(read.tensor), outer, place, ending=ending, most=2)
    source = place.text(read.call)
    if not name or "\n" in source:
        return None
    more = line_before(outer, f"{name} = {source}", place)
    return place.edits(
        [(read.call, name)],
        safety="unsafe",
        message="Read it once before the loop, also where the loop has no round",
        more=(more,),
    )


READ_AS = {"tolist": "list", "int": "int", "float": "float", "bool": "bool"}
"""How the names of numbers and lists end that are read in a certain way."""
