from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from pytest_dispatchguard import nodes


def parsed(text: str) -> cst.Module:
    return cst.parse_module(textwrap.dedent(text))


TEXT = """
import a.b as c
from d import e

@deco(1)
class K(Base, metaclass=Meta):
    x: Ann = y

@wrap
def f(p: P = default, *rest, q=q0, **kw) -> R:
    global g
    for i, (j, *k) in items:
        out[i].attr = fn(i, key=val)[lo:hi]
        w = w2 = (n := v)
        t += u
    with open(path) as (h, l.m):
        return [z for z in zs if cond] + (lambda s: s)
    try:
        pass
    except Err as err:
        raise boom from cause
"""


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_Name(self, node: cst.Name) -> None:
        self.names.append(node.value)


def test_names_in_order_without_those_that_are_not_looked_up() -> None:
    found = [n.value for n in nodes.names_in(parsed(TEXT))]
    assert (
        found
        == (
            "deco Base Meta x Ann y "
            "wrap P default q0 R "
            "i j k items out i fn i val lo hi w w2 n v t u "
            "open path h l z z zs cond s Err err boom cause"
        ).split()
    )


def test_all_names_but_labels_are_those_a_visitor_meets() -> None:
    module = parsed(TEXT)
    visitor = _Names()
    module.visit(visitor)
    labels = "a b c d e K metaclass f p rest q kw g attr key m s".split()
    expected = list(visitor.names)
    for label in labels:
        expected.remove(label)
    assert sorted(n.value for n in nodes.names_in(module)) == sorted(expected)


def test_walk_stops_at_the_kinds_it_is_told() -> None:
    module = parsed("def f():\n    def g():\n        return 1\n    return 2\n")
    returns = [n for n in nodes.walk(module.body[0]) if isinstance(n, cst.Return)]
    assert len(returns) == 2
    (function,) = module.body
    assert isinstance(function, cst.FunctionDef)
    inside = list(nodes.walk(function.body, without=(cst.FunctionDef,)))
    assert sum(isinstance(n, cst.Return) for n in inside) == 1
    assert sum(isinstance(n, cst.FunctionDef) for n in inside) == 1


def test_around_knows_the_parent_of_every_node() -> None:
    module = parsed(TEXT)
    of = nodes.around(module)
    for node in nodes.walk(module):
        for child in node.children:
            if id(child) in of:
                assert of[id(child)] is node
    assert all(id(n) in of for n in nodes.walk(module) if n is not module)


@pytest.mark.parametrize(
    ("statement", "bound"),
    [
        ("a = b.c = d[0] = e", ["a", "b.c", "d[0]"]),
        ("a, (b, *c) = e", ["a", "b", "c"]),
        ("a += 1", ["a"]),
        ("a: int = 1", ["a"]),
        ("for a, b in c: pass", ["a", "b"]),
        ("[a for a in b]", ["a"]),
        ("(a := b)", ["a"]),
        ("with x as (a, b): pass", ["a", "b"]),
        ("f(a)", []),
    ],
)
def test_what_nodes_bind(statement: str, bound: list[str]) -> None:
    module = parsed(statement + "\n")
    targets = [t for node in nodes.walk(module) for t in nodes.bound_by(node)]
    assert [module.code_for_node(t) for t in targets] == bound


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("x[0] = 1", "x"),
        ("x.data = y", "x"),
        ("x.data[m] = 0", "x"),
        ("x += 1", "x"),
        ("x.data.sub_(y)", "x"),
        ("x.view(-1)[i] = True", "x"),
        ("self.x.diagonal().fill_(0)", "self.x"),
        ("x[:, 0].zero_()", "x"),
        ("nn.init.normal_(x)", "x"),
        ("torch.nn.init.normal_(x)", "x"),
        ("normal_(x)", "x"),
        ("torch._foreach_add_([x, y], z)", "x y"),
        ("F.relu(x, inplace=True)", "x"),
        ("torch.add(y, z, out=x)", "x"),
        ("dist.reduce(x, 0)", "x"),
        ("x = y.add(z)", ""),
        ("model(x).add_(y)", ""),
        ("self.relu(x)", ""),
        ("x.__len__()", ""),
        ("F.relu(x, inplace=False)", ""),
    ],
)
def test_what_is_written_into(statement: str, written: str) -> None:
    found = {
        nodes_text(target)
        for node in nodes.walk(parsed(statement))
        for target in nodes.written_by(node)
        if isinstance(target, cst.Name | cst.Attribute)
    }
    assert found == set(written.split())


def nodes_text(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)
