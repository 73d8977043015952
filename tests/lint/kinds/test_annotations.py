"""Kinds from annotations, whatever stands there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.kinds.annotations import annotation_kind
from pytest_dispatchguard.lint.kinds.fact_values import value_kind
from pytest_dispatchguard.lint.kinds.kinds import UNKNOWN


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Annotated[torch.Tensor, 'b n']", "tensor"),
        ("typing.Final[int]", "scalar"),
        ("Float[torch.Tensor, 'b n']", "tensor"),
        ("jaxtyping.Int[torch.Tensor, '']", "tensor"),
        ("project.typing.Float[torch.Tensor, 'n']", "tensor"),
        ("torch.tensor", "tensor"),
        ("project.fields.Float[project.Range, 'n']", "unknown"),
        ("Annotated[dict[str, int], 1]", "nested"),
    ],
)
def test_what_is_wrapped_counts(text: str, what: str) -> None:
    assert annotation_kind(text).what == what


@pytest.mark.parametrize("text", ["Annotated", "Final", "Float[]", "Annotated[", "Float['b n']"])
def test_what_wraps_nothing_says_nothing(text: str) -> None:
    assert annotation_kind(text).what == UNKNOWN.what


_WORDS = """
Float Annotated Optional Union Final list dict Tuple tuple Sequence torch.Tensor Int Literal Callable None int
str [ ] [ ] [ ] ( ) , , | ... ' " é Dict type
""".split()


@given(st.lists(st.sampled_from([*_WORDS, " "]), max_size=12).map("".join))
def test_any_annotation_is_answered(text: str) -> None:
    annotation_kind(text)
    for word in ("ann", "call", "name"):
        value_kind(f"{word}:{text}")
