"""Reads verdicts back from the JSON that `verdicts` writes for `--overhead-json`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

from pytest_dispatchguard.model.compiled import Compiled, CompileEvent, Guards
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layer, LayerKind, Layers
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import Base, Limit, Outcome, Verdict
from pytest_dispatchguard.report.budgets.verdicts import SCHEMA

Row = Mapping[str, Any]
T = TypeVar("T")


def load(path: Path) -> tuple[list[Verdict], dict[str, str]]:
    """The verdicts of a file, and the machine on which they were measured."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path}: cannot be read: {said}; name a file written by --overhead-json"
        ) from None
    try:
        return unpacked(text)
    except (ValueError, RecursionError) as error:
        said = str(error) or "too deep"
        raise UserError(
            f"{path}: has no verdicts that this version can read ({said}); write it again with "
            "`pytest --overhead-budget --overhead-json FILE`"
        ) from None


def traces_in(path: Path) -> list[Row]:
    """What a file that holds verdicts says of traces, as it stands there."""
    rows = json.loads(path.read_text(encoding="utf-8")).get("traces", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def unpacked(text: str) -> tuple[list[Verdict], dict[str, str]]:
    """Verdicts and machine from their JSON; raises `ValueError` if it is invalid. Details that the JSON
    does not have (how a time was measured) stay unknown."""
    data = _is(json.loads(text, parse_constant=_no_number), dict, "the file")
    if _at(data, "schema") != SCHEMA:
        raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA}")
    machine = {k: _is(v, str, "machine") for k, v in _dict(data, "machine").items()}
    return [_verdict(row) for row in _rows(data, "tests")], machine


def _verdict(row: Row) -> Verdict:
    return Verdict(
        node_id=_text(row, "nodeid"),
        subject=_text(row, "subject"),
        verdict=_one_of(_text(row, "verdict"), get_args(Outcome)),
        counters=_counts(row, "counters"),
        limits=tuple(_limit(name, value) for name, value in _dict(row, "limits").items()),
        reason=_text(row, "reason"),
        recorded=_maybe(row, "recorded", _figures),
        lines=tuple(_line(line) for line in _rows(row, "lines", older=True)),
        measured=None if row.get("pairs") is None else _measured(row),
        base=_maybe(row, "base", _base),
        varying=_texts(row, "varying", older=True),
        form=_text(row, "form"),
        layers=_maybe(row, "layers", _layers),
        reference_layers=_maybe(row, "reference_layers", _layers),
        compiled=_maybe(row, "compiled", _compiled),
    )


def _measured(row: Row) -> Measurement:
    """The times of a verdict, or of a base, which lacks the details."""
    reference = row.get("reference_us")
    return Measurement(
        subject_us=_interval(_at(row, "host_us")),
        reference_us=None if reference is None else _only(_number(reference, "reference_us")),
        ratio=_maybe(row, "ratio", _interval),
        extra_us=_maybe(row, "extra_us", _interval),
        device_us=_maybe(row, "device_us", _interval),
        control=_number(row.get("control", 1.0), "control"),
        pairs=_whole(row.get("pairs", 0), "pairs"),
        processes=_whole(row.get("processes", 0), "processes"),
    )


def _base(value: object) -> Base:
    row = _is(value, dict, "base")
    return Base(
        name=_text(row, "name"),
        counters=_counts(row, "counters"),
        measured=None if row.get("host_us") is None else _measured(row),
        change=_maybe(row, "change", _interval),
        implied_us=_maybe(row, "implied_us", _interval),
        note=_text(row, "reason"),
        layers=_maybe(row, "layers", _layers),
        compiled=_maybe(row, "compiled", _compiled),
        earlier=row.get("earlier") is True,
        pace=_maybe(row, "pace", _pace),
        other=_texts(row, "other", older=True),
    )


def _pace(value: object) -> Pace:
    row = _is(value, dict, "pace")
    return Pace(
        change=_interval(_at(row, "change")),
        each=_figures(_at(row, "each")),
        apart=_number(_at(row, "apart"), "apart"),
        subject=_maybe(row, "subject", _interval),
    )


def _layers(value: object) -> Layers:
    row = _is(value, dict, "layers")
    return Layers(
        subject=_text(row, "subject"),
        whole_us=_interval(_at(row, "whole_us")),
        layers=tuple(_layer(layer) for layer in _rows(row, "layers")),
        rounds=_whole(_at(row, "rounds"), "rounds"),
        notes=_texts(row, "notes"),
        form=_text(row, "form"),
        torch_calls=_counts(row, "torch_calls"),
        functions=_texts(row, "functions", older=True),
    )


def _layer(row: Row) -> Layer:
    return Layer(
        name=_text(row, "name"),
        kind=_one_of(_text(row, "kind"), get_args(LayerKind)),
        us=_interval(_at(row, "us")),
        depth=_whole(_at(row, "depth"), "depth"),
        times=_whole(_at(row, "times"), "times"),
        note=_text(row, "note"),
        path=_text(row, "path"),
        line=_whole(_at(row, "line"), "line"),
    )


def _compiled(value: object) -> Compiled:
    row = _is(value, dict, "compiled")
    return Compiled(
        guards=tuple(_guards(group) for group in _rows(row, "guards")),
        breaks=_events(row, "breaks"),
        recompiles=_events(row, "recompiles"),
        compile_s=_figures(_at(row, "compile_s")),
        guard_us=_maybe(row, "guard_us", _interval),
    )


def _guards(row: Row) -> Guards:
    extra = row.get("extra")
    return Guards(
        kind=_text(row, "kind"),
        source=_text(row, "source"),
        pattern=_text(row, "pattern"),
        number=_whole(_at(row, "number"), "number"),
        place=_text(row, "place"),
        text=_text(row, "text"),
        last=_text(row, "last"),
        extra=None if extra is None else _whole(extra, "extra"),
    )


def _events(row: Row, name: str) -> tuple[CompileEvent, ...]:
    return tuple(CompileEvent(_text(e, "place"), _text(e, "reason")) for e in _rows(row, name))


def _line(row: Row) -> CostlyLine:
    extra = row.get("extra")
    return CostlyLine(
        _text(row, "path"),
        _whole(_at(row, "line"), "line"),
        _whole(_at(row, "instructions"), "instructions"),
        _text(row, "text"),
        None if extra is None else _whole(extra, "extra"),
    )


def _limit(name: str, value: object) -> Limit:
    if isinstance(value, list):
        if len(value) != 2:
            raise ValueError(f"limits: {name} is a list of {len(value)}")
        return Limit(name, _number(value[0], "limits"), _number(value[1], "limits"))
    return Limit(name, _number(value, "limits"))


def _interval(value: object) -> Interval:
    """A figure; an end that is null is unknown."""
    row = _is(value, dict, "a figure")
    low, high = _at(row, "low"), _at(row, "high")
    return Interval(
        _number(_at(row, "value"), "value"),
        -math.inf if low is None else _number(low, "low"),
        math.inf if high is None else _number(high, "high"),
    )


def _only(value: float) -> Interval:
    return Interval(value, -math.inf, math.inf)


def _at(row: Row, name: str) -> Any:
    if name not in row:
        raise ValueError(f"there is no {name}")
    return row[name]


def _maybe(row: Row, name: str, read: Callable[[object], T]) -> T | None:
    value = row.get(name)
    return None if value is None else read(value)


def _is(value: object, kind: type[T], name: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _dict(row: Row, name: str) -> dict[str, Any]:
    return _is(_at(row, name), dict, name)


def _rows(row: Row, name: str, *, older: bool = False) -> list[dict[str, Any]]:
    """A list of objects; empty for a file from before the field existed."""
    if older and name not in row:
        return []
    return [_is(one, dict, name) for one in _is(_at(row, name), list, name)]


def _text(row: Row, name: str) -> str:
    return _is(_at(row, name), str, name)


def _texts(row: Row, name: str, *, older: bool = False) -> tuple[str, ...]:
    if older and name not in row:
        return ()
    return tuple(_is(one, str, name) for one in _is(_at(row, name), list, name))


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _fits(value):
        raise ValueError(f"{name} is no number")
    return value


def _fits(value: float) -> bool:
    """Whether a number is usable: 1e999 is infinite, and 10**400 does not fit a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is no whole number")
    return value


def _counts(row: Row, name: str) -> dict[str, int]:
    return {key: _whole(value, name) for key, value in _dict(row, name).items()}


def _figures(value: object) -> dict[str, float]:
    return {key: _number(one, key) for key, one in _is(value, dict, "figures").items()}


def _one_of(word: str, known: Sequence[Any]) -> Any:
    if word not in known:
        raise ValueError(f"{word!r} is none of {', '.join(known)}")
    return word


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
