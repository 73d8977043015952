"""The pytest plugin: it makes the marker known and costs a run that does not use it nothing."""

from __future__ import annotations

import json

import pytest

HEAVY = {"torch", "libcst", "pyperf", "tree_sitter", "numpy", "sqlite3"}


def test_marker_is_listed(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    result = pytester.runpytest_subprocess(*plugin_flags, "--markers")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["@pytest.mark.overhead_budget(*): what a call may cost*"])


def test_marker_passes_strict_markers(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(dispatches=1)
        def test_marked(overhead):
            overhead(len, "a")
        """
    )
    result = pytester.runpytest_subprocess(*plugin_flags, "--strict-markers", "-W", "error")
    result.assert_outcomes(passed=1)


def test_marker_is_what_strict_markers_needs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(ratio=2.0)
        def test_marked():
            pass
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:dispatchguard", "-p", "no:pytest_dispatchguard.plugin", "--strict-markers"
    )
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*'overhead_budget' not found in `markers`*"])


@pytest.mark.fresh_python
def test_a_run_imports_nothing_heavy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import json, pathlib, sys

        def test_modules():
            pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
        """
    )
    # Other plugins of the environment import what they like; only this one is on trial.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("-p", "pytest_dispatchguard.plugin")
    result.assert_outcomes(passed=1)
    loaded = set(json.loads((pytester.path / "modules.json").read_text()))
    assert "pytest_dispatchguard.plugin" in loaded
    assert not loaded & HEAVY
    ours = {name for name in loaded if name.startswith("pytest_dispatchguard")}
    names = {
        "pytest_dispatchguard",
        "pytest_dispatchguard.pytest_run",
        "pytest_dispatchguard.pytest_run.options",
        "pytest_dispatchguard.plugin",
    }
    assert ours == names
