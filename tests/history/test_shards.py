"""Shards of a run, as one."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.history.shards import Shard, joined
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict

MACHINE = {"cpu": "one", "python": "3.11.7", "torch": "2.13.0"}


def verdict(name: str, instructions: int = 5) -> Verdict:
    return Verdict(f"tests/test_a.py::{name}", "f", "pass", {"instructions": instructions})


def shard(name: str, *verdicts: Verdict, **machine: str) -> Shard:
    return Shard(name, verdicts, machine or MACHINE)


def test_shards_are_joined_in_order() -> None:
    files = [shard("b.json", verdict("test_b")), shard("a.json", verdict("test_a"))]
    both = joined(files)
    assert both == ([verdict("test_a"), verdict("test_b")], MACHINE)
    assert joined(list(reversed(files))) == both
    assert joined([*files, *files]) == both


def test_a_test_in_two_files_must_be_the_same() -> None:
    files = [shard("a.json", verdict("test_a", 5)), shard("b.json", verdict("test_a", 6))]
    with pytest.raises(UserError, match=r"test_a \(f\) is in a\.json and b\.json, with different"):
        joined(files)


def test_versions_must_be_the_same_and_processors_need_not() -> None:
    files = [
        shard(f"{name}.json", verdict(name), cpu=cpu, python="3.11.7")
        for name, cpu in (("test_a", "one"), ("test_b", "other"), ("test_c", "one"))
    ]
    assert joined(files)[1] == {"cpu": "one, other", "python": "3.11.7"}
    files.append(shard("last.json", verdict("test_last"), cpu="one", python="3.12.0"))
    with pytest.raises(UserError, match=r"python 3\.11\.7 and 3\.12\.0; merge them separately"):
        joined(files)


def test_a_test_that_was_run_again_counts_as_it_was_last() -> None:
    again = shard("a.json", verdict("test_a", 5), verdict("test_a", 6))
    assert joined([again])[0] == [verdict("test_a", 6)]
