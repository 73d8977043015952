"""A small part of the attack on the cache: bytes of it flipped, at random."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ATTACK = Path(__file__).parents[2] / "bench" / "attacks" / "cache_flips.py"


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_change_nothing(tmp_path: Path, seed: int) -> None:
    attack = runpy.run_path(str(ATTACK))
    attack["write_project"](tmp_path)
    found = attack["flip_bytes"](tmp_path, seed, 15, attack["EDITED"])
    assert found.count == 15
    assert found.wrong == []
