"""Layers as bars, as Markdown, as JSON, as a drawing; and what of them takes more than elsewhere."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layer, LayerKind, Layers
from pytest_dispatchguard.model.measurements import Interval, Scaling, Sized
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict
from pytest_dispatchguard.report.budgets import layers as report
from pytest_dispatchguard.report.budgets import scaling
from pytest_dispatchguard.report.budgets.blame import slower_layers
from pytest_dispatchguard.report.budgets.verdicts import explained


def around(us: float, wide: float = 0.01) -> Interval:
    return Interval(us, us - wide, us + wide)


def layer(name: str, kind: LayerKind, us: float, depth: int = 0, **more: object) -> Layer:
    return Layer(name, kind, around(us), depth, **more)  # type: ignore[arg-type]  # as Layer has it


CALL = Layers(
    "f(x | y)",
    around(4.0),
    (
        layer("f", "python", 1.0, path="lib.py", line=3),
        layer("scope", "context", 0.5, 1, times=2, path="lib.py", line=9),
        layer("torch's binding", "binding", 1.0, note="from Python to C++"),
        layer("kernels", "kernel", 1.5, note="aten::add"),
    ),
    100,
    form="f(a0)",
    torch_calls={"torch.add": 1},
)
REFERENCE = Layers(
    "torch.add",
    around(2.0),
    (layer("torch's binding", "binding", 0.9), layer("kernels", "kernel", 1.1)),
    100,
    torch_calls={"torch.add": 1},
)


def test_bars_begin_where_the_one_before_ends() -> None:
    assert report.as_text([CALL], width=60).splitlines() == [
        "f(x | y)  4.00 µs a call",
        "  f                         1.00 µs ±0.01   25%  ██▊",
        "    with scope (2 times)    0.50 µs ±0.01   12%     █▏",
        "  torch's binding           1.00 µs ±0.01   25%      ██▉",
        "  kernels                   1.50 µs ±0.01   38%         ████",
        "  the whole call            4.00 µs ±0.01  100%  ███████████",
        "  medians of 100 blocks of each, by turns",
    ]


def test_what_the_parts_do_not_come_to_is_said() -> None:
    short = Layers("f", around(4.0), CALL.layers[:3], 100, ("one thing more",))
    told = report.as_text([short])
    assert "the parts come to 62% of the whole: +1.50 µs not attributed" in told
    assert "one thing more" in told


def test_an_interval_without_ends_is_no_trouble() -> None:
    open_ended = Interval(1.0, -math.inf, math.inf)
    call = Layers("f", open_ended, (Layer("f", "python", open_ended),), 3)
    assert "±?" in report.as_text([call])
    plain = json.loads(report.as_json([call], {}))["calls"][0]
    assert plain["whole_us"] == {"value": 1.0, "low": None, "high": None}
    ET.fromstring(report.as_svg([call], {}))


def test_json_has_all_that_is_known() -> None:
    told = json.loads(report.as_json([CALL], {"python": "3.11"}))
    assert (told["schema"], told["machine"]) == (1, {"python": "3.11"})
    (call,) = told["calls"]
    assert call["sum_us"] == 4.0
    assert call["torch_calls"] == {"torch.add": 1}
    assert [one["name"] for one in call["layers"]] == ["f", "scope", "torch's binding", "kernels"]
    assert call["layers"][1]["times"] == 2


def test_markdown_keeps_bars_in_their_cells() -> None:
    told = report.as_markdown([CALL], {"torch": "2.13.0"})
    assert "#### `f(x | y)`: 4.00 µs a call" in told
    assert "| &nbsp;&nbsp;`with scope (2 times)` | 0.50 | 0.49 to 0.51 | 12% | lib.py:9 |" in told


def test_a_drawing_shows_one_call() -> None:
    words = "".join(ET.fromstring(report.as_svg([CALL], {})).itertext())
    assert "with scope (2 times)" in words and "the whole call" in words
    with pytest.raises(UserError, match="one drawing shows one call"):
        report.as_svg([CALL, CALL], {})


def test_what_is_new_or_dearer_comes_first() -> None:
    rows = slower_layers(CALL, REFERENCE)
    assert [(row.layer.called, round(row.more, 2)) for row in rows] == [
        ("f", 1.0),
        ("with scope", 0.5),
        ("kernels", 0.4),
        ("torch's binding", 0.1),
    ]
    assert slower_layers(REFERENCE, CALL) == []


def test_functions_of_one_name_are_held_against_all_of_that_name() -> None:
    twice = (layer("g", "python", 1.0), layer("g", "python", 1.0, 1))
    once = (layer("g", "python", 2.0),)
    assert slower_layers(Layers("f", around(2), twice, 9), Layers("f", around(2), once, 9)) == []


def failing(**more: object) -> Verdict:
    limit = Limit("ratio", 1.5)
    reason = "ratio: 2.000 (1.900 to 2.100), allowed 1.5"
    return Verdict("t.py::t", "f", "fail", {"instructions": 9}, (limit,), reason, **more)  # type: ignore[arg-type]  # as Verdict has it


def test_a_failing_budget_names_what_takes_more_than_its_reference() -> None:
    told = explained(failing(layers=CALL, reference_layers=REFERENCE))
    assert "most of the +2.00 µs that it takes beyond its reference is spent here:" in told
    assert "  +1.00 µs  f                new                   lib.py:3" in told
    assert "  +0.40 µs  kernels          1.10 → 1.50 µs        aten::add" in told
    assert "calls torch more" not in told


def test_what_was_too_short_there_is_not_called_new() -> None:
    short = Layers("g", around(2.0), REFERENCE.layers, 9, functions=("f",))
    told = explained(failing(layers=CALL, reference_layers=short))
    assert "  +1.00 µs  f                not measured separately there  lib.py:3" in told
    assert "  +0.50 µs  with scope       new" in told


def test_a_call_that_is_faster_has_no_layers_to_blame() -> None:
    told = explained(failing(layers=REFERENCE, reference_layers=CALL))
    assert "takes beyond" not in told


def test_layers_that_are_hardly_known_are_said_to_be() -> None:
    wide = Layers("f", around(4.0), (Layer("f", "python", Interval(1.0, -9.0, 9.0)),), 9)
    assert "1 of 1 layers are uncertain by more than 10% of the call" in report.as_text([wide])


def test_a_base_says_more_than_a_reference() -> None:
    before = Layers("f", around(3.5), CALL.layers[1:], 9, torch_calls={"torch.mul": 1})
    base = Base("origin/main", {"instructions": 8}, layers=before)
    told = explained(failing(layers=CALL, reference_layers=REFERENCE, base=base))
    assert "beyond origin/main is spent here:" in told
    assert "it calls torch more than origin/main: torch.add" in told
    assert "with scope" not in told


def test_without_anything_to_hold_it_against_all_layers_are_shown() -> None:
    told = explained(failing(layers=CALL))
    assert "where its time goes:" in told and "█" in told


SIZES = Scaling(
    "f",
    (Sized(1, around(2.0), around(0.1)), Sized(100, around(4.0), around(2.1))),
    2.0,
    0.02,
    1.0,
    98.3,
    0.03,
)


def test_sizes_are_told_with_what_they_say() -> None:
    told = scaling.as_text(SIZES)
    assert "2.00 µs at any size, and 0.02 µs · n^1 on top (off by at most 3%)" in told
    assert "kernels take more than the overhead from about size 98 on" in told
    assert "95%" in told and "48%" in told
    assert json.loads(scaling.as_json(SIZES, {}))["dominates"] == 98.3
    assert "| 100 | 4.00 µs | 2.10 µs |  | 48% |" in scaling.as_markdown(SIZES, {})
    ET.fromstring(scaling.as_svg(SIZES, {}))


@pytest.mark.parametrize(
    ("sizes", "dominates", "said"),
    [
        ((Sized(1, around(2.0), around(0.1)),), None, "at every size measured"),
        (
            (Sized(1, around(2.0), around(1.9)),),
            1.0,
            "kernels take more than the overhead at every",
        ),
        ((Sized(1, around(2.0)),), None, "kernels cannot be separated"),
    ],
)
def test_sizes_that_tell_nothing_say_so(
    sizes: tuple[Sized, ...], dominates: float | None, said: str
) -> None:
    found = Scaling("f", sizes, dominates=dominates)
    assert any(said in line for line in scaling.conclusion(found))


def test_a_ratio_is_drawn_where_there_is_a_reference() -> None:
    sizes = tuple(Sized(n, around(2.0 * n), around(1.0 * n), around(1.2)) for n in (1, 10, 100))
    found = Scaling("f", sizes, 1.0, 1.0, 1.0, 1.0)
    assert "1.20 ±0.01" in scaling.as_text(found)
    assert "as fast as the reference" in "".join(
        ET.fromstring(scaling.as_svg(found, {})).itertext()
    )
