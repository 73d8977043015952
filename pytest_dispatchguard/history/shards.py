"""What the shards of a run found, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict


class Shard(NamedTuple):
    """What one of them found, and on what."""

    name: str
    verdicts: Sequence[Verdict]
    machine: Mapping[str, str]


def joined(shards: Sequence[Shard]) -> tuple[list[Verdict], dict[str, str]]:
    """Shards as one. A test may be in several only where all say the same of it."""
    machine: dict[str, str] = {}
    found: dict[tuple[str, str], tuple[str, Verdict]] = {}
    for shard in shards:
        machine = _machine(machine, shard.machine, shards[0].name, shard.name)
        # A test that was run again counts as it was last.
        last = {(verdict.node_id, verdict.subject): verdict for verdict in shard.verdicts}
        for key, verdict in last.items():
            other, known = found.setdefault(key, (shard.name, verdict))
            if known != verdict:
                raise UserError(
                    f"{key[0]} ({key[1]}) is in {other} and {shard.name}, with different figures; "
                    "run each test in only one shard"
                )
    return [found[key][1] for key in sorted(found)], machine


def _machine(
    known: Mapping[str, str], other: Mapping[str, str], first: str, name: str
) -> dict[str, str]:
    """One machine of two: counters are of one Python and torch, the processors may differ."""
    both = {**known, **other}
    if not known:
        return both
    for part in both:
        if part != "cpu" and known.get(part) != other.get(part):
            raise UserError(
                f"{first} and {name} were measured with different versions: {part} "
                f"{known.get(part, 'missing')} and {other.get(part, 'missing')}; merge them separately"
            )
    if "cpu" in both:
        cpus = [cpu for said in (known, other) for cpu in said.get("cpu", "").split(", ") if cpu]
        both["cpu"] = ", ".join(dict.fromkeys(cpus))
    return both
