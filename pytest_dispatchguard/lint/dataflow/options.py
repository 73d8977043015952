"""Branches that run only for those who ask for something: an option whose default leaves them out."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard.lint.callgraph.constant_conditions import truth
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.dataflow.scene import Scene
from pytest_dispatchguard.lint.facts import default_of
from pytest_dispatchguard.lint.syntax.spelling import text

_IN_A_NAME = "self__"


def left_out_by_default(reader: Reader, scene: Scene) -> tuple[cst.BaseExpression, bool] | None:
    """The condition around a place that is not as it would have to be, true or false, with the default of an
    option of the class."""
    if not scene.conditions or reader.cls is None or not reader.self_name:
        return None
    for condition, holds in scene.conditions:
        written, given = _with_defaults(reader, text(condition))
        if given and truth(written, given) is (not holds):
            return condition, holds
    return None


def _with_defaults(reader: Reader, condition: str) -> tuple[str, dict[str, list[str]]]:
    """A condition with names in place of attributes of `self`, and the defaults of those that are options."""
    given: dict[str, list[str]] = {}

    def named(found: re.Match[str]) -> str:
        default = default_of(reader.cls.attrs.get(found[1], ())) if reader.cls is not None else ""
        if not default:
            return found[0]
        given[_IN_A_NAME + found[1]] = [default]
        return _IN_A_NAME + found[1]

    attribute = rf"(?<![\w.]){re.escape(reader.self_name)}\.(\w+)(?!\w|\s*[.(\[])"
    return re.sub(attribute, named, condition), given
