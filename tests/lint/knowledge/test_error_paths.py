from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.knowledge.error_paths import complains, gives_nan, is_rare, swallows


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("return torch.tensor(float('nan'), device=x.device)", True),
        ("top = torch.full((n,), math.nan)", True),
        ('metrics["top"] = x.new_tensor(float("NaN"))', True),
        ("torch.full_like(x, torch.nan)", True),
        ("top = x.masked_fill(mask, float('nan'))", False),
        ("top = torch.tensor(nanoseconds)", False),
        ("top = torch.tensor(0.0)", False),
        ("if x: top = torch.tensor(math.nan)", False),
    ],
)
def test_what_gives_no_number(written: str, expected: bool) -> None:
    assert gives_nan(written) is expected


@pytest.mark.parametrize(
    ("exceptions", "expected"),
    [("RuntimeError", True), ("(KeyError, ValueError)", True), ("ImportError", False)],
)
def test_a_missing_package_is_missing_in_every_call(exceptions: str, expected: bool) -> None:
    assert is_rare(exceptions) is expected


def test_contexts_that_keep_errors_to_themselves() -> None:
    assert swallows("contextlib.suppress") and swallows("ignore_errors")
    assert not swallows("torch.no_grad")


def test_calls_that_say_that_something_is_wrong() -> None:
    assert complains("logger.error") and complains("self._log.warning")
    assert not complains("logger.info") and not complains("self.log_prob.error_rate")
