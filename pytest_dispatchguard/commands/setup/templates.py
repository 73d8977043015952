"""The files that `dispatchguard init` writes, like the recipes in the docs."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard import __version__

HOME = "https://github.com/pytest-dispatchguard/pytest-dispatchguard"

TABLE = """\
[tool.dispatchguard]
# `dispatchguard config` lists what can be set here.
"""

HOOK = f"""\
repos:
  - repo: {HOME}
    rev: v{__version__}
    hooks:
      # - id: dispatchguard-fix  # first applies safe fixes, so that only the rest is reported
      - id: dispatchguard
"""

_GITHUB = """\
name: overhead
on: pull_request
permissions:
  contents: read
jobs:
  regressions:
    runs-on: ubuntu-latest
    env:
      BASE: origin/${{ github.base_ref }}
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0  # the base must be there
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
      - run: pip install torch --index-url https://download.pytorch.org/whl/cpu
      - run: pip install -e . pytest-dispatchguard
      - run: dispatchguard check --diff-base "$BASE" --format github
"""
_GITHUB_BUDGETS = """\
      - run: pytest -m overhead_budget --overhead-budget=count --overhead-against="$BASE" \
--overhead-report="$GITHUB_STEP_SUMMARY"
        if: ${{ !cancelled() }}
"""

GITLAB = """\
dispatchguard:
  image: python:3.12
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
  variables:
    GIT_DEPTH: "0"
  script:
    - pip install pytest-dispatchguard
    - git fetch origin "$CI_MERGE_REQUEST_TARGET_BRANCH_NAME"
    - dispatchguard check --format gitlab --output gl-code-quality.json --exit-zero
    - dispatchguard review --base "origin/$CI_MERGE_REQUEST_TARGET_BRANCH_NAME" --post
  artifacts:
    when: always
    reports:
      codequality: gl-code-quality.json
"""


def github(*, budgets: bool) -> str:
    """A workflow; it runs pytest only if there are `budgets`, because pytest fails if it finds no test."""
    return _GITHUB + (_GITHUB_BUDGETS if budgets else "")


def budget_test(module: str, name: str, tensors: Sequence[str], *, makes: bool) -> str:
    """A test with one budget. `name` takes `tensors`; if it is a class, `makes` says so, and its instance
    takes them."""
    subject = f"{name.lower()}_layer" if makes else name
    lines = [
        f'"""What calls of {module.partition(".")[0]} may cost on the host.',
        "",
        "`pytest --overhead-budget=update` records current costs in overhead-budgets.toml; from then on",
        "`pytest --overhead-budget=count` fails where a call costs more.",
        '"""',
        "",
        "import pytest",
        "",
        'torch = pytest.importorskip("torch", reason="what is measured uses torch")',
        "",
        f"from {module} import {name}  # noqa: E402 - needs torch, asked for above",
        "",
        "",
        "@pytest.mark.overhead_budget",
        f"def test_{name.lower()}(overhead):",
        *(f"    {tensor} = torch.randn(4, 4)" for tensor in tensors),
        *([f"    {subject} = {name}()"] if makes else []),
        f"    overhead({', '.join([subject, *tensors])})",
    ]
    return "\n".join(lines) + "\n"
