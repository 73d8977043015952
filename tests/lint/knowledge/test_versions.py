"""Conditions on the version of torch."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.knowledge.cold_branches import cold_branches, rest_is_cold


@pytest.mark.parametrize(
    ("condition", "cold"),
    [
        ('version.parse(torch.__version__) >= version.parse("1.8.0")', (False, True)),
        ('LooseVersion(torch.__version__) < LooseVersion("1.8")', (True, False)),
        ('torch.__version__ >= "2.0"', (False, True)),
        ("TORCH_VERSION >= (1, 8)", (False, True)),
        ("torch_version < (2, 1)", (True, False)),
        ("torch_version <= (2, 1)", (False, False)),
        ("torch_version > (2, 1)", (False, False)),
        ("digit_version(TORCH_VERSION) >= digit_version('1.10')", (False, True)),
        ('Version(torch.__version__.split("+")[0]) >= Version("1.13.0a0")', (False, True)),
        ('version.parse(torch.__version__) >= version.parse("2.6.0")', (False, False)),
        ('torch.__version__ == "1.8.0"', (False, False)),
        ("version.parse(torch.__version__) >= version.parse(needed)", (False, False)),
        ('transformers.__version__ >= "1.8.0"', (False, False)),
        ('version >= "1.8.0"', (False, False)),
        ("torch_version >= ()", (False, False)),
    ],
)
def test_what_only_old_releases_run_is_cold(condition: str, cold: tuple[bool, bool]) -> None:
    assert cold_branches(condition) == cold


def test_what_follows_a_return_for_all_releases_of_today_is_cold() -> None:
    assert rest_is_cold('version.parse(torch.__version__) >= version.parse("1.8.0")', True, ())
