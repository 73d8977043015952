"""Our positions are those of libcst's own provider, node by node."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

import pytest_dispatchguard
from pytest_dispatchguard.lint.syntax.positions import positions

_PACKAGE = Path(pytest_dispatchguard.__file__).parents[1]
_ODD = (
    '# c\r\n@d  # e\r\ndef f(a, *, b=1) -> "é":\r\n\tx = """1\r\n 2"""; y = (\r\n  1 +\\\r\n 2)\r\n'
    "\treturn x\r\n"
    "class A(B): pass\n\x0cif x : y\nelif z:\n    with a as b, (c): ...\nelse:\n"
    "  try:\n   p\n  finally:\n   q\n"
    "f'{a!r:>{w}}' 'b'\nmatch x:\n    case [1, *_] if y: pass\n"
    "x = [*a , *(b), (*c,), f(*d, **e)]\n"
)


class _Nodes(cst.CSTVisitor):
    def __init__(self) -> None:
        self.nodes: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.nodes.append(node)
        return True


@pytest.mark.parametrize(
    "text", [_ODD, *(p.read_text() for p in sorted(_PACKAGE.glob("lint/**/r*.py")))]
)
def test_positions_are_those_of_libcst(text: str) -> None:
    module = cst.parse_module(text)
    wanted = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    got = positions(module)
    collector = _Nodes()
    module.visit(collector)
    assert len(collector.nodes) > 100
    for node in collector.nodes:
        if node in wanted and not isinstance(node, cst.SimpleWhitespace):
            place = wanted[node]
            own = (place.start.line, place.start.column, place.end.line, place.end.column)
            assert got[id(node)] == own, type(node)
