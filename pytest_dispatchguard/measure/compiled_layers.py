"""What a compiled call takes beside its Python: guards, and what the generated code calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from pytest_dispatchguard.measure.calling import Call, spelt
from pytest_dispatchguard.measure.parts import Part
from pytest_dispatchguard.measure.python_layers import Around, PythonLayers
from pytest_dispatchguard.measure.statements import Statement, statements_arm
from pytest_dispatchguard.measure.turns import Arm, Clock, Turned
from pytest_dispatchguard.model import Layer, LayerKind
from pytest_dispatchguard.runtime.call_tree import PythonCall
from pytest_dispatchguard.runtime.compiled_calls import (
    Made,
    guards_skipped,
    is_generated,
    is_rewritten,
    keeps_out,
    lets_in,
    made_by,
    unrecorded,
)
from pytest_dispatchguard.runtime.torch_private import compiled_code_found

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
        rewritten = [call for call in calls if is_rewritten(call)]
        # Guards are checked by who calls: by the time that a rewritten function runs they have passed.
        self._guarding = owners[rewritten[0].parent] if rewritten else 0
        self.arms: dict[str, Arm] = {}
        self.notes: list[str] = []
        if _runs_unguarded(whole, prepare):
            self.arms[_UNGUARDED] = Arm(whole.block(clock), guards_skipped, prepare)
        else:
            self.notes.append(
                "guards cannot be skipped: the call is compiled anew, or left uncompiled"
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

    def layers(self, found: Turned) -> list[Layer]:
        """The layers, each after the function that it is in."""
        guards = {"whole": 1.0, _UNGUARDED: -1.0}
        guarded = _UNGUARDED in self.arms
        others: dict[int, dict[str, float]] = {self._guarding: dict(guards)} if guarded else {}
        for name, owner in self._owned.items():
            others.setdefault(owner, {})[name] = 1.0
        made = self.python.layers(found, others)
        rows: list[Layer] = []
        for number, layer in enumerate(made):
            rows.append(layer)
            if guarded and number == self._guarding:
                note = "checks of what the compiled code was made for"
                rows.append(Layer("guards", "guards", found.us(guards), layer.depth + 1, note=note))
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


def _runs_unguarded(whole: Call, prepare: Callable[[], object]) -> bool:
    """Whether a call finds compiled code for it without its guards."""
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
    """What a part is called in: below Dynamo's way in, functions are found in their compiled form, unless
    torch keeps Dynamo out of them."""
    inside: set[int] = set()
    for call in calls:
        if lets_in(call) or (call.parent in inside and not keeps_out(call)):
            inside.add(call.number)

    def around(part: Part) -> Around:
        first = part.first
        return compiled_code_found if first is not None and first.parent in inside else nullcontext

    return around
