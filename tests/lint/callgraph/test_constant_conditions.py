"""Conditions on parameters that hold one of a few literals."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.callgraph.constant_conditions import truth


@pytest.mark.parametrize(
    ("condition", "literals", "expected"),
    [
        ("mask is None", {"mask": ["None"]}, True),
        ("mask is not None", {"mask": ["None"]}, False),
        ("mask is not None and mask.any()", {"mask": ["None"]}, False),
        ("mask is None or mask.any()", {"mask": ["None"]}, True),
        ("mask.any()", {"mask": ["None"]}, None),
        ("not flag", {"flag": ["False"]}, True),
        ("flag", {"flag": ["False", "True"]}, None),
        ("flag", {"flag": ["False", "None", "0"]}, False),
        ("mode == 'slow'", {"mode": ["'fast'", '"quick"']}, False),
        ("mode in ('slow', 'fast')", {"mode": ["'fast'"]}, True),
        ("mode not in modes", {"mode": ["'fast'"]}, None),
        ("n > 1", {"n": ["1"]}, False),
        ("n > 'a'", {"n": ["1"]}, None),
        ("isinstance(mask, Tensor)", {"mask": ["None"]}, False),
        ("isinstance(mask, int)", {"mask": ["1"]}, None),
        ("norm == inf", {"norm": ["2.0"]}, False),
        ("norm == torch.inf", {"norm": ["2.0"]}, False),
        ("norm != math.inf", {"norm": ["2"]}, True),
        ("norm == other", {"norm": ["2.0"]}, None),
        ("norm == cfg.inf", {"norm": ["2.0"]}, None),
        ("mask is None", {"mask": ["..."]}, False),
        ("mask is not None", {"mask": ["...", "1"]}, True),
        ("mask", {"mask": ["..."]}, None),
        ("not mask", {"mask": ["..."]}, None),
        ("mask == 1", {"mask": ["..."]}, None),
        ("mask is True", {"mask": ["..."]}, None),
        ("mask in (1, 2)", {"mask": ["..."]}, None),
        ("isinstance(mask, int)", {"mask": ["..."]}, None),
        ("other", {"mask": ["None"]}, None),
        ("", {"mask": ["None"]}, None),
        ("mask is (", {"mask": ["None"]}, None),
        ("x if mask is None else y", {"mask": ["None"]}, None),
    ],
)
def test_a_condition_is_decided_where_all_literals_agree(
    condition: str, literals: dict[str, list[str]], expected: bool | None
) -> None:
    assert truth(condition, literals) is expected


LITERALS = st.sampled_from(["None", "True", "False", "0", "1", "-2", "2.5", "'a'", "''"])
ATOMS = st.one_of(
    st.sampled_from(["a", "b", "c"]),
    st.builds(
        lambda left, op, right: f"{left} {op} {right}",
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["is", "is not", "==", "!=", "<", "<=", ">", ">="]),
        LITERALS,
    ),
    st.builds(lambda left, right: f"{left} in ({right}, 1)", st.sampled_from(["a", "b"]), LITERALS),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("(not ({}))".format, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
    ),
    max_leaves=6,
)


@given(CONDITIONS, LITERALS, LITERALS, LITERALS)
def test_what_is_decided_is_what_python_says(condition: str, a: str, b: str, c: str) -> None:
    decided = truth(condition, {"a": [a], "b": [b]})
    if decided is None:
        return
    values = {"a": ast.literal_eval(a), "b": ast.literal_eval(b), "c": ast.literal_eval(c)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", SyntaxWarning
            )  # `is` with a number, which is on purpose
            python = bool(eval(condition, {}, values))
    except TypeError:
        return
    assert decided is python
