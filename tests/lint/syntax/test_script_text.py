from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.syntax.grammar import tree_of
from pytest_dispatchguard.lint.syntax.script_text import first_loop, script_text


def script(text: str) -> str:
    return script_text(text.encode()).decode()


def test_definitions_and_imports_are_left_out_where_they_stand() -> None:
    text = textwrap.dedent("""\
        import torch; x = torch.ones(3)
        @decorated
        def f():
            return 1
        if f():
            class C:
                pass
            y = C()
        """)
    shown = [line.replace(" ", "_") for line in script(text).split("\n")]
    assert shown == [
        "pass________;_x_=_torch.ones(3)",
        "pass______",
        "________",
        "____________",
        "if_f():",
        "____pass____",
        "____________",
        "____y_=_C()",
        "",
    ]


def test_an_import_over_several_lines_with_something_behind_it_stays() -> None:
    text = "from a import (\n    b,\n); x = b()\n"
    assert script(text) == text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_stay(newline: str) -> None:
    text = newline.join(["from a import (", "    ß,", ")", "x = ß()", ""])
    found = script(text)
    assert [len(line.encode()) for line in text.split(newline)] == [
        len(line.encode()) for line in found.split(newline)
    ]
    assert found.endswith(f"x = ß(){newline}")


STATEMENTS = st.recursive(
    st.sampled_from(
        [
            "x = 1",
            "import a.b as c",
            "from a import (b,\n  c)",
            "import a; y = 'def f(): pass'",
            "def f(x=[1 for _ in y]): return x",
            "@a.b(1)\n@c\ndef f():\n    '''text\n    more'''\n\n    return 1  # done",
            "class C(A):\n    x: int = 3\n\n    def m(self): ...",
            "async def f():\n    await g()",
            "z = lambda: [i for i in x]",
            'text = """\nimport a\n"""',
        ]
    ),
    lambda inner: st.builds(
        lambda head, body: head + "\n" + textwrap.indent("\n".join(body), "    "),
        st.sampled_from(
            ["if x:", "for i in y:", "while x:", "with a as b:", "try:\n    pass\nfinally:"]
        ),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(st.lists(STATEMENTS, min_size=1, max_size=5))
def test_what_is_left_parses_and_stands_where_it_stood(statements: list[str]) -> None:
    text = "\n".join(statements) + "\n"
    found = script(text)
    assert len(found) == len(text) and found.count("\n") == text.count("\n")
    left = ast.parse(found)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    assert not any(isinstance(node, kinds) for node in ast.walk(left))

    def others(tree: ast.Module) -> list[str]:
        """The other statements, with their places, that stand in no definition."""
        told: list[str] = []
        waiting: list[ast.AST] = [tree]
        while waiting:
            for child in ast.iter_child_nodes(waiting.pop()):
                if isinstance(child, (*kinds, ast.Import, ast.ImportFrom, ast.Pass)):
                    continue
                if isinstance(child, ast.stmt):
                    told.append(ast.dump(child, include_attributes=True).partition("body=")[0])
                    waiting.append(child)
        return sorted(told)

    assert others(left) == others(ast.parse(text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\nfor i in y:\n    pass\n", 2),
        ("def f():\n    for i in y: pass\nif x:\n    try:\n        while x: pass\n    except E: pass\n", 5),
        ("match x:\n    case 1:\n        for i in y: pass\n", 3),
        ("class C:\n    for i in y: pass\n", 0),
        ("x = [i for i in y]\n", 0),
    ],
)  # fmt: skip
def test_the_first_loop_is_of_the_module_itself(text: str, line: int) -> None:
    found = first_loop(tree_of(text.encode()).root_node)
    assert (found.start_point[0] + 1 if found is not None else 0) == line
