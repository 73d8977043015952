"""Places of traces and findings of the linter, brought together."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from pytest_dispatchguard.model.findings import Finding, Span
from pytest_dispatchguard.model.traces import Joined, Line, Overhead, Trace, Wait
from pytest_dispatchguard.traces.joining import joined
from pytest_dispatchguard.traces.operators import fits

TEXT = """\
import torch


def decorated(function):
    return function


@decorated
@torch.no_grad()
def step(x):
    a = x.item()
    b = x[x > 0]

    def inner(y):
        return y.item()

    return a, b, inner(x), [one.item() for one in x]


class Model:
    def forward(self, x):
        return float(x)


class Other:
    def forward(self, x):
        return x + 1


class Third:
    def forward(self, x):
        return (lambda y: y.item())(x)


torch.cuda.synchronize()
"""


def finding(line: int, code: str = "DG411", *, dry: bool | None = False, end: int = 0) -> Finding:
    return Finding(code, "a-rule", "train.py", Span(line, 9, end or line, 20), "", "", dry=dry)


FINDINGS = (
    finding(11),
    finding(12, "DG422"),
    finding(12, "DG302"),
    finding(15),
    finding(17),
    finding(22, "DG412"),
    finding(32, "DG411"),
    finding(35, "DG431"),
)


def place(
    line: int,
    function: str,
    operator: str = "aten::item",
    *,
    exact: bool = False,
    text: str | None = TEXT,
    findings: tuple[Finding, ...] = FINDINGS,
) -> tuple[Joined, Wait]:
    """The only place of a trace that waits there."""
    here = Line("train.py", line, function, exact, ours=True)
    wait = Wait(here, "cudaStreamSynchronize", "stream", operator, "", 2, 9.0, 0.0, 0.0, 5.0)
    trace = Trace("t.json", None, (), True, True, (), (wait,), ())
    (found,) = joined(trace, findings, {"train.py": text}.get)
    return found, wait


def lines(*arguments: object, **options: object) -> list[int]:
    found, wait = place(*arguments, **options)  # type: ignore[arg-type]  # as the test says
    assert set(found.behind(wait)) <= set(found.findings)
    return [one.span.line for one in found.behind(wait)]


@pytest.mark.parametrize("first", [8, 10, 13, 16])
def test_a_function_is_found_by_any_of_its_lines(first: int) -> None:
    """That of a decorator, of `def`, and where a generator goes on."""
    assert lines(first, "step") == [11, 17]


def test_the_operator_decides_which_findings_can_be_behind_a_wait() -> None:
    assert lines(8, "step", "aten::index") == [12]
    assert lines(8, "step", "aten::nonzero") == [12]
    assert lines(8, "step", "aten::unique_dim") == []
    assert lines(8, "step", "mylib::nms") == []


def test_a_truth_test_is_behind_an_item_only_if_nothing_else_can_be() -> None:
    both = (finding(11), finding(12, "DG401"))
    assert lines(8, "step", "aten::item", findings=both) == [11]
    assert lines(8, "step", "aten::is_nonzero", findings=both) == [12]
    assert lines(8, "step", "aten::item", findings=both[1:]) == [12]
    assert lines(8, "step", "aten::is_nonzero", findings=both[:1]) == [11]


def test_code_with_a_frame_of_its_own_is_left_to_that_frame() -> None:
    assert lines(14, "inner") == [15]
    assert lines(32, "<lambda>") == [32]
    assert lines(31, "forward") == [32], "a lambda on one line cannot be told from its line"
    assert lines(17, "<listcomp>") == [17]


def test_the_code_of_a_module_is_a_place_like_others() -> None:
    assert lines(1, "<module>", "") == [35]
    assert lines(1, "<module>", "aten::item") == []


def test_methods_of_one_name_are_told_apart_by_their_lines() -> None:
    assert lines(21, "forward") == [22]
    assert lines(26, "forward") == []


def test_where_lines_have_moved_a_function_is_found_by_its_name() -> None:
    assert lines(300, "step") == [11, 17]
    assert lines(2, "inner") == [15]
    assert lines(300, "gone") == []


def test_of_several_moved_functions_the_only_one_with_a_finding_is_meant() -> None:
    two = (finding(22, "DG412"), finding(32))
    assert lines(300, "forward", findings=two) == []
    assert lines(300, "forward", findings=two[:1]) == [22]


def test_an_exact_line_has_what_is_said_of_that_line() -> None:
    found, wait = place(12, "step", "aten::index", exact=True)
    assert [one.code for one in found.findings] == ["DG302", "DG422"]
    assert [one.code for one in found.behind(wait)] == ["DG422"]
    long = (finding(10, "DG422", end=13),)
    assert lines(12, "step", "aten::index", exact=True, findings=long) == [10]
    assert lines(16, "step", "aten::item", exact=True) == [11, 17], "nothing on it: the function"


def test_an_exact_line_counts_for_more_than_an_operator_that_is_not_known() -> None:
    found, wait = place(12, "step", "mylib::select", exact=True)
    assert [one.code for one in found.behind(wait)] == ["DG422"]


def test_an_exact_line_that_has_moved_is_its_function() -> None:
    assert lines(22, "step", "aten::index", exact=True) == [12]


def test_what_surely_waits_for_nothing_is_behind_no_wait() -> None:
    dry = (finding(11, dry=True), finding(12, dry=None))
    assert lines(8, "step", findings=dry) == [12]


@pytest.mark.parametrize("text", [None, "def step(:\n"])
def test_a_file_that_cannot_be_read_has_no_functions(text: str | None) -> None:
    assert lines(8, "step", text=text) == []
    assert lines(11, "step", exact=True, text=text) == [11]


def test_places_that_only_cost_have_findings_that_are_not_of_waits() -> None:
    here = Line("train.py", 8, "step", ours=True)
    cost = Overhead(here, 3, 2, 50.0, 20.0, 5.0)
    trace = Trace("t.json", None, (), True, True, (), (), (cost,))
    (found,) = joined(trace, FINDINGS, {"train.py": TEXT}.get)
    assert found.overhead == cost
    assert [one.code for one in found.findings] == ["DG302"]


def test_what_is_not_of_the_project_is_not_joined() -> None:
    elsewhere = Line("/opt/other.py", 3, "run")
    wait = Wait(elsewhere, "cudaStreamSynchronize", "stream", "", "", 1, 1.0, 0.0, 0.0, 1.0)
    trace = Trace("t.json", None, (), True, True, (), (wait,), ())
    assert joined(trace, FINDINGS, {"train.py": TEXT}.get) == ()


@pytest.mark.skipif(find_spec("torch") is None, reason="the ghost's table needs torch")
def test_operators_are_those_that_the_ghost_follows() -> None:
    """What the ghost knows to wait, and the rule about it, is known here."""
    from pytest_dispatchguard.runtime.ghost.sync_operations import TABLE

    missing = [
        (operator, op.code)
        for operator, ops in TABLE.items()
        for op in ops
        if not fits(op.code, operator)
    ]
    assert not missing
