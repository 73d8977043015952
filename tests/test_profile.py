"""The recorded profile as a file: it comes back whole, adds up over runs, and refuses what is none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.profile import MOST_CALLEES, Profile, Seen, digest, load, packed

NAMES = st.tuples(st.sampled_from(["a.py", "b/c.py"]), st.sampled_from(["f", "C.m", "é"]))
COUNTS = st.integers(1, 10**6)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    functions = draw(
        st.dictionaries(
            NAMES,
            st.builds(
                Seen,
                st.sampled_from(["0", "1"]),
                COUNTS,
                st.dictionaries(NAMES, COUNTS).map(Counter),
                st.dictionaries(
                    st.sampled_from("xy"),
                    st.dictionaries(st.sampled_from(["tensor", "int"]), COUNTS, min_size=1).map(
                        Counter
                    ),
                ),
                st.sampled_from([0.0, 0.25, 12.0]),
                st.booleans(),
            ),
        )
    )
    return Profile(functions)


@given(profile=profiles())
def test_it_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    file = tmp_path_factory.mktemp("profile") / "profile.json"
    file.write_text(packed(profile), encoding="utf-8")
    assert load(file) == profile
    assert packed(profile) == packed(Profile(dict(reversed(profile.functions.items()))))


@given(profiles(), profiles())
def test_runs_add_up_and_the_newer_text_wins(one: Profile, other: Profile) -> None:
    before = {name: (seen.digest, seen.calls) for name, seen in one.functions.items()}
    one.merge(other)
    assert one.functions.keys() == before.keys() | other.functions.keys()
    for name, seen in one.functions.items():
        newer = other.functions.get(name)
        if newer is None:
            assert (seen.digest, seen.calls) == before[name]
        elif name in before and before[name][0] == newer.digest:
            assert seen.calls >= before[name][1]
            assert seen.per_step >= newer.per_step and seen.loops >= newer.loops
        else:
            assert seen == newer


def test_of_many_callees_the_rarest_are_left_out() -> None:
    callees = Counter({("a.py", f"f{i}"): i + 1 for i in range(MOST_CALLEES + 5)})
    text = packed(Profile({("a.py", "main"): Seen("0", 1, callees)}))
    assert '"f5"' in text and '"f4"' not in text


def test_blanks_at_the_ends_of_lines_are_no_change() -> None:
    assert digest(["def f():", "    pass"]) == digest(["def f():  ", "    pass\r"])
    assert digest(["def f():", "    pass"]) != digest(["def f():", "   pass"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\0",
        '{"dispatchguard-profile": 2, "files": {}}',
        '{"dispatchguard-profile": 1}',
        '{"dispatchguard-profile": 1, "files": {"a.py": {"f": {}}}}',
    ],
)
def test_what_is_no_profile_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(UserError, match="delete it, and record anew"):
        load(file)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") is None
    with pytest.raises(UserError, match="is no plain file; remove it"):
        load(tmp_path)
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe\xe9")
    with pytest.raises(UserError, match="it is no text"):
        load(tmp_path / "latin.json")


def test_what_is_no_longer_there_is_forgotten() -> None:
    old = Profile(
        {("a.py", "f"): Seen("1", 3), ("a.py", "g"): Seen("1", 3), ("b.py", "h"): Seen("1")}
    )
    newer = Profile({("a.py", "f"): Seen("1", 2)}, {"a.py": {"f": "1", "g": "2"}})
    old.merge(newer)
    assert {name: seen.calls for name, seen in old.functions.items()} == {
        ("a.py", "f"): 5,
        ("b.py", "h"): 0,  # whose file nobody read
    }
