"""The price table as a file, and findings that are told with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Hot, Price, Span
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.prices import Priced, PriceTable
from pytest_dispatchguard.prices import load, packed, priced, unpacked

US = st.floats(-1e6, 1e6)
INTERVALS = st.none() | st.tuples(US, US, US).map(lambda us: Interval(*_around(us)))
SPECIMENS = st.builds(
    Priced,
    st.sampled_from(["DG101", "DG102", "DG401"]),
    st.sampled_from(["specimen", "specimen_é"]),
    INTERVALS,
    INTERVALS,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.text(max_size=20),
    st.integers(1, 9),
)
TABLES = st.builds(
    PriceTable,
    st.dictionaries(st.sampled_from(["cpu", "python", "torch"]), st.text(max_size=9)),
    st.lists(SPECIMENS, max_size=6, unique_by=lambda one: (one.code, one.specimen)).map(tuple),
)


def _around(us: tuple[float, float, float]) -> tuple[float, float, float]:
    low, value, high = sorted(us)
    return value, low, high


def saving(code: str, us: float, wide: float = 0.1, waits: tuple[int, int] = (0, 0)) -> Priced:
    saves = Interval(us, us - wide, us + wide)
    return Priced(code, f"specimen_{us:g}", Interval(us + 5, us + 4, us + 6), saves, waits)


def finding(code: str, hot: Hot | None = None, price: Price | None = None) -> Finding:
    return Finding(code, "rule", "a.py", Span(1, 1, 1, 2), "f", "said", hot=hot, price=price)


@given(TABLES)
def test_it_comes_back_whole(table: PriceTable) -> None:
    again = unpacked(packed(table))
    assert sorted(again.specimens, key=repr) == sorted(table.specimens, key=repr)
    assert again.machine == table.machine
    assert packed(again) == packed(table)


@given(TABLES)
def test_prices_are_of_what_proves_itself(table: PriceTable) -> None:
    for code, price in table.prices().items():
        forms = [one for one in table.specimens if one.code == code and one.proven]
        assert forms
        if price.us is None:
            assert price.waits == 1
            assert any(one.waiting for one in forms)
        on_host = price if price.us is not None else price.dry
        assert (on_host is not None) == any(not one.waiting for one in forms)
        if on_host is not None:
            assert not on_host.waits and on_host.dry is None
            assert on_host.us is not None
            assert on_host.low is not None and on_host.high is not None
            # A number next to nothing, divided among places, may be none.
            assert 0 <= on_host.low <= on_host.us <= on_host.high


def test_one_price_of_several_forms() -> None:
    table = PriceTable(
        {"cpu": "EPYC", "python": "3.11"},
        (saving("DG101", 1), saving("DG101", 3), saving("DG101", 8), saving("DG102", 0.05)),
    )
    assert table.prices() == {"DG101": Price(3, 0.9, 8.1, "EPYC")}


def test_a_price_is_of_one_place() -> None:
    three = replace(saving("DG101", 6, 0.3), places=3)
    assert PriceTable({}, (three,)).prices() == {
        "DG101": Price(pytest.approx(2), pytest.approx(1.9), pytest.approx(2.1))
    }


def test_what_waits_has_no_microseconds() -> None:
    table = PriceTable({}, (saving("DG401", 9, waits=(3, 1)),))
    assert table.prices() == {"DG401": Price(None, waits=1)}


def test_what_need_not_wait_has_two_prices() -> None:
    table = PriceTable({}, (saving("DG502", 9, waits=(3, 1)), saving("DG502", 4)))
    dry = Price(4, 3.9, 4.1)
    assert table.prices() == {"DG502": Price(None, waits=1, dry=dry)}
    waits, host = priced([finding("DG502"), replace(finding("DG502"), dry=True)], {}, table)
    assert (waits.price, host.price) == (Price(None, waits=1), dry)
    always = PriceTable({}, (saving("DG502", 9, waits=(3, 1)),))
    assert priced([replace(finding("DG502"), dry=True)], {}, always)[0].price is None


def test_a_table_of_before_has_specimens_of_one_place() -> None:
    table = PriceTable({}, (saving("DG101", 1),))
    rows = json.loads(packed(table))
    del rows["specimens"][0]["places"]
    assert unpacked(json.dumps(rows)) == table


def test_the_price_of_this_machine_wins_over_that_of_the_pack() -> None:
    shipped = {"DG101": Price(1.0, machine="EPYC"), "DG102": Price(2.0, machine="EPYC")}
    own = PriceTable({"cpu": "Xeon"}, (saving("DG102", 5),))
    found = priced([finding("DG101"), finding("DG102"), finding("DG103")], shipped, own)
    assert [one.price for one in found] == [shipped["DG101"], Price(5, 4.9, 5.1, ""), None]
    said = finding("DG101", price=Price(7.0))
    assert priced([said], shipped, own) == [said]


def test_what_costs_most_comes_first() -> None:
    once, loop = Hot("f", ("f",), "said"), Hot("f", ("f",), "said", loop=True)
    often = Hot("f", ("f",), "said", seen=50.0)
    dear, cheap, waiting = Price(3.0), Price(1.0), Price(None, waits=1)
    ranks = [
        finding("DG101", once).rank,
        finding("DG101", once, cheap).rank,
        finding("DG101", once, dear).rank,
        finding("DG101", loop, cheap).rank,
        finding("DG101", often, cheap).rank,
        finding("DG401", once, waiting).rank,
        finding("DG401", loop, waiting).rank,
    ]
    assert ranks == sorted(set(ranks))


def test_no_file_is_no_table(tmp_path: Path) -> None:
    assert load(tmp_path / "prices.json") is None
    (tmp_path / "file").touch()
    assert load(tmp_path / "file" / "prices.json") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"schema": 2, "machine": {}, "specimens": []}',
        '{"schema": 1, "machine": [], "specimens": []}',
        '{"schema": 1, "machine": {}, "specimens": [{}]}',
        '{"schema": 1, "machine": {}, "specimens": [3]}',
        "[" * 5000,
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"prices\.json: is no price table .*`dispatchguard price`"):
        load(file)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "prices.json").mkdir()
    with pytest.raises(UserError, match=r"prices\.json: is no plain file; remove it"):
        load(tmp_path / "prices.json")


def test_the_table_that_is_shipped_prices_every_rule(root: Path) -> None:
    rules = pytest.importorskip("dispatchguard_rules", reason="the rule pack is not importable")
    table = load(root / "rules" / "prices.json")
    assert table is not None
    assert {one.code for one in table.specimens} >= {
        cls.code for cls in rules.dispatchguard_rules() if not cls.python and not cls.torch
    }
    assert [f"{one.code}/{one.specimen}" for one in table.specimens if not one.proven] == []
    measured = json.loads((root / "bench" / "results" / "prices.json").read_text())
    assert json.loads(packed(table)) == measured
