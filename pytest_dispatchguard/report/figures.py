"""Numbers as people write them."""

from __future__ import annotations

from decimal import Decimal

_MINUS, _TIMES = "\u2212", "\u00d7"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """A number for people: ``1,000``, ``0.05``, ``10⁷``."""
    exact = Decimal(f"{value:.12g}")
    if not exact or 1e-4 <= abs(value) < 1e6:
        return f"{exact.normalize():,f}".replace("-", _MINUS) if exact else "0"
    digits, power = f"{exact:.11e}".replace("-", _MINUS, exact < 0).split("e")
    raised = "10" + str(int(power)).translate(_RAISED)
    digits = digits.rstrip("0").rstrip(".")
    return digits.replace("1", raised) if digits.strip(_MINUS) == "1" else digits + _TIMES + raised


def figure(value: float, unit: str = "") -> str:
    """A measured value with its significant digits and unit: ``1.20 µs``."""
    size = abs(float(f"{value:.3g}"))
    if 0.1 <= size < 1e6:
        decimals = 2 if size < 10 else 1 if size < 100 else 0
        return written(f"{value:,.{decimals}f}".replace("-", _MINUS), unit)
    return written(number(float(f"{value:.{2 if size < 1 else 3}g}")), unit)


def written(words: str, unit: str) -> str:
    """A number with its unit, separated by a space if the unit is a word."""
    return words + ("" if unit in ("", "%", _TIMES) else " ") + unit
