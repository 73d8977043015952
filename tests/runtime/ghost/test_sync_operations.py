"""What makes the host wait and what does not, case by case, as on a GPU."""

from __future__ import annotations

import itertools
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="tells what torch's operations wait for")

from pytest_dispatchguard.runtime.ghost.ghost import ghost  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.ghost.sync_operations import TABLE, SyncOp, syncs  # noqa: E402 - as above

BENCH = Path(__file__).parents[3] / "bench"
CASES = runpy.run_path(str(BENCH / "sync_cases.py"))
WAITS, GOES_ON, Given = CASES["WAITS"], CASES["GOES_ON"], CASES["Given"]
on_the_ghost = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real GPU here")


@on_the_ghost
@pytest.mark.parametrize("case", WAITS)
def test_the_host_waits(case: str) -> None:
    with ghost() as seen:
        given = Given()
        seen.times.clear()
        WAITS[case](given)
    assert seen.total == CASES["SEVERAL"].get(case, 1)
    for sync in seen.times:
        assert sync.code.startswith(("DG4", "DG5")) and sync.why


@on_the_ghost
@pytest.mark.parametrize("case", GOES_ON)
def test_the_host_goes_on(case: str) -> None:
    with ghost() as seen:
        given = Given()
        seen.times.clear()
        GOES_ON[case](given)
    assert seen.times == {}


@on_the_ghost
def test_what_torch_does_not_compare_fails_as_it_does_there() -> None:
    with ghost():
        x = torch.eye(3, device="cuda").to_sparse()
        with pytest.raises(NotImplementedError, match="aten::equal"):
            torch.equal(x, x.clone())


@pytest.mark.gpu
@pytest.mark.parametrize("case", [c for c in (*WAITS, *GOES_ON) if c not in CASES["UNTOLD"]])
def test_a_gpu_agrees(case: str) -> None:
    waited = runpy.run_path(str(BENCH / "bench_waits.py"))["waited"]
    assert waited(case) == (case in WAITS)


def test_the_ghost_agrees_with_what_a_gpu_said() -> None:
    results = BENCH / "results" / "gpu" / "waits.json"
    if not results.exists():
        pytest.skip("bench_waits.py has not run on a GPU yet")
    known = json.loads(results.read_text(encoding="utf-8"))
    if known["torch"].split("+")[0] != torch.__version__.split("+")[0]:
        pytest.skip(f"a GPU was asked with torch {known['torch']}")
    told = {case: said for case, said in known["waited"].items() if case not in CASES["UNTOLD"]}
    assert told == {case: case in WAITS for case in told}


@on_the_ghost
def test_every_entry_of_the_table_has_a_case() -> None:
    met: set[str] = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # torch is not read when types are checked
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            met.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    for case in WAITS.values():
        with ghost():
            given = Given()
            with Watch():
                case(given)
    # Older forms of the same operation, and those that others are made of, come from other releases.
    spared = {
        "aten::is_nonzero",
        "aten::_unique",
        "aten::unique_dim_consecutive",
        "aten::_index_put_impl_",
    }
    assert set(TABLE) - met == spared


def test_entries_name_operations_of_torch() -> None:
    for name in TABLE:
        assert torch._C._jit_get_schemas_for_operator(name), f"torch has no {name}"


def test_every_wait_is_in_the_docs(root: Path) -> None:
    page = (root / "docs" / "syncs.md").read_text(encoding="utf-8")
    table = page[page.index("## What makes the host wait") : page.index("No wait:")]
    words = {
        "bool": "the truth",
        "mask read": "x[mask]",
        "mask write": "x[mask] = tensor",
        "linalg": "torch.linalg",
        "index": "an index that is",
        "copy to the device": "copies to the device",
        "copy to the host": "copies to the host",
        "write of a number": "x[indices] = 1.0",
    }
    for entry in itertools.chain.from_iterable(TABLE.values()):
        assert words.get(entry.name, entry.name) in table, entry.name
        assert entry.code in table
        assert not entry.until or f"until torch {entry.until}" in table, entry.name


def test_entries_hold_for_some_releases() -> None:
    op = SyncOp("x", "y", "DG411", since="2.4", until="2.15")
    assert [
        op.in_force(v) for v in ("2.3.1", "2.4.0", "2.13.0+cpu", "2.14.1", "2.15.0", "3.0")
    ] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert not SyncOp("x", "y", "DG411", until="2.15").in_force("2.15.0a0+git123")
    older, newer = syncs("2.14.0"), syncs("2.15.0")
    assert len(older["aten::index_put_"]) == len(newer["aten::index_put_"]) + 1
    assert older.keys() == newer.keys()
