"""The layers of a compiled call beside its Python functions: guards, and the calls of generated code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from pytest_dispatchguard.measure.layers.functions import Part
from pytest_dispatchguard.measure.layers.python import Around, PythonLayers, arm_of
from pytest_dispatchguard.measure.layers.statements import Statement, statements_arm
from pytest_dispatchguard.measure.timing.calling import Call, spelt
from pytest_dispatchguard.measure.timing.interleaved import Arm, Clock, InterleavedTimes
from pytest_dispatchguard.model.layers import Layer, LayerKind
from pytest_dispatchguard.runtime.compiled.calls import (
    Checks,
    Made,
    checks_of,
    guards_skipped,
    is_generated,
    is_rewritten,
    keeps_out,
    lets_in,
    made_by,
    unrecorded,
)
from pytest_dispatchguard.runtime.hooks.call_tree import PythonCall
from pytest_dispatchguard.runtime.torch_private.compiler import only_compiled_code
from pytest_dispatchguard.runtime.torch_private.dispatcher import in_grad_state
from pytest_dispatchguard.runtime.torch_private.guard_trees import no_guards_tree

_UNGUARDED = "whole without guards"
_PIECES: tuple[tuple[LayerKind, str], ...] = (("allocation", "allocation"), ("kernel", "kernels"))


class CompiledLayers:
    """The layers of a call that runs compiled code."""

    def __init__(
        self,
        calls: Sequence[PythonCall],
        python: PythonLayers,
        whole: Call,
        prepare: Callable[[], object],
        clock: Clock,
    ) -> None:
        self.python = python
        owners = python.owners(calls)
        self.arms: dict[str, Arm] = {}
        self.notes: list[str] = []
        self._guards: dict[int, dict[str, float]] = {}
        """The time of guards, by the part that calls the rewritten function."""
        rewritten = list(filter(is_rewritten, calls))
        checks = list(zip((owners[c.parent] for c in rewritten), checks_of(rewritten), strict=True))
        if all(one is not None for _, one in checks):
            self._check([(owner, one) for owner, one in checks if one is not None], clock)
        elif _runs_unguarded(whole, prepare):
            self.arms[_UNGUARDED] = Arm(whole.block(clock), guards_skipped, prepare)
            self._guards[checks[0][0]] = {"whole": 1.0, _UNGUARDED: -1.0}
            self.notes.append(
                "guards hold only within the call: told is what skipping them saves, which leaves those of "
                "tensors in place"
            )
        else:
            self.notes.append(
                "guards cannot be told apart: they hold only within the call, and cannot be skipped"
            )
        self._owned: dict[str, int] = {}
        self._told: dict[str, str] = {}
        self._kinds: dict[str, LayerKind] = {}
        made = [(call, one) for call in calls if is_generated(call) for one in made_by(call)]
        for kind, name in _PIECES:
            chosen = [(call, one) for call, one in made if one.kind == kind]
            if chosen:
                statements = [_statement(one) for _, one in chosen]
                self.arms[name] = statements_arm(statements, clock, unrecorded)
                self._owned[name] = owners[chosen[0][0].number]
                self._kinds[name] = kind
                self._told[name] = ", ".join(dict.fromkeys(one.name for _, one in chosen))

    def _check(self, checks: Sequence[tuple[int, Checks]], clock: Clock) -> None:
        """Times the guards of each part against as many empty trees."""
        groups: dict[tuple[int, tuple[bool, bool]], list[Checks]] = {}
        for owner, one in checks:
            groups.setdefault((owner, one.state), []).append(one)
        for (owner, state), found in groups.items():
            name, nothing = f"guards {owner} {state}", f"no guards {owner} {state}"
            pairs = [(root, one.values) for one in found for root in one.roots]
            around = partial(in_grad_state, *state)
            self.arms[name] = _checking(pairs, clock, around)
            nothings = [(no_guards_tree(), values) for _, values in pairs]
            self.arms[nothing] = _checking(nothings, clock, around)
            self._guards.setdefault(owner, {}).update({name: 1.0, nothing: -1.0})
        for number, part in enumerate(self.python.parts):
            if part.kind == "guards" and part.parent in self._guards:
                # Calls written in Python have a row of their own.
                self._guards[part.parent][arm_of(number)] = -1.0

    def layers(self, found: InterleavedTimes) -> list[Layer]:
        """The layers, each after its function."""
        others: dict[int, dict[str, float]] = {owner: {**s} for owner, s in self._guards.items()}
        for name, owner in self._owned.items():
            others.setdefault(owner, {})[name] = 1.0
        made = self.python.layers(found, others)
        rows: list[Layer] = []
        for number, layer in enumerate(made):
            rows.append(layer)
            if number in self._guards:
                note = "checks of what the compiled code was made for"
                us = found.us(self._guards[number])
                rows.append(Layer("guards", "guards", us, layer.depth + 1, note=note))
            rows += [
                Layer(
                    name,
                    self._kinds[name],
                    found.us({name: 1.0}),
                    layer.depth + 1,
                    note=self._told[name],
                )
                for name, owner in self._owned.items()
                if owner == number
            ]
        return rows


def _checking(pairs: Sequence[tuple[Any, Mapping[str, Any]]], clock: Clock, around: Around) -> Arm:
    checks = [Statement("{0}({1})", [root.check, values]) for root, values in pairs]
    return statements_arm(checks, clock, around)


def _runs_unguarded(whole: Call, prepare: Callable[[], object]) -> bool:
    """Whether a call finds its compiled code if guards are skipped."""
    try:
        prepare()
        with guards_skipped():
            whole.once()()
    except Exception:  # noqa: BLE001 - whatever the compiler says
        return False
    return True


def _statement(made: Made) -> Statement:
    given = [f"{{{i + 1}}}" for i in range(len(made.args))]
    words, values = spelt(given, made.kwargs, 1 + len(made.args))
    return Statement(f"{{0}}({words})", [made.function, *made.args, *values])


def around_part(calls: Sequence[PythonCall]) -> Callable[[Part], Around]:
    """The context that a part is called in: below the compile wrapper functions run compiled, unless torch
    disables Dynamo for them."""
    inside: set[int] = set()
    for call in calls:
        if lets_in(call) or (call.parent in inside and not keeps_out(call)):
            inside.add(call.number)

    def around(part: Part) -> Around:
        first = part.first
        return only_compiled_code if first is not None and first.parent in inside else nullcontext

    return around
