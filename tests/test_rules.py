"""Every built-in rule against its page and its specimens: flagged, silent on look-alikes, fixed to good,
and good does what bad did."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from pytest_dispatchguard import Finding, Rule
from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.runtime.watch.findings import observed

rules = pytest.importorskip(
    "dispatchguard_rules",
    reason="the rule pack is not importable: install the project (pip install -e .)",
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FAMILY_OF = {
    "trees": "DG1",
    "contexts": "DG2",
    "closures": "DG3",
    "syncs": "DG4",
    "allocations": "DG5",
    "python": "DG6",
    "compile": "DG7",
}
SECTIONS = ("What it does", "Why it costs", "Example", "Instead", "Fix safety")
_EXPECT = re.compile(r"#\s*expect:\s*([A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)\s*$")
_NOTE = re.compile(r"#\s*note:\s*([A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)\s*$")
_KEBAB = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")

CLASSES: dict[str, type[Rule]] = {cls.code: cls for cls in rules.dispatchguard_rules()}
RUNNING = {code for code, cls in CLASSES.items() if cls.running}
"""What the linter does not look for."""
RUN = sorted(FIXTURES.glob("DG*/specimen*.py"))
SPECIMENS = [path for path in RUN if path.parent.name not in RUNNING]
LOOKALIKES = sorted(FIXTURES.glob("DG*/lookalikes*.py"))


def shown(path: Path) -> str:
    return path.relative_to(FIXTURES).with_suffix("").as_posix()


def code_of(path: Path) -> str:
    return path.parent.name


def expected(text: str, said: re.Pattern[str] = _EXPECT) -> Counter[tuple[int, str]]:
    """Line and code of all that a specimen says must be flagged, or that a look-alike says is noted."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        match = said.search(line)
        if match:
            found.update((number, code.strip()) for code in match.group(1).split(","))
    return found


# A project of its own around each text: heat and settings of this checkout must not reach it.
@pytest.fixture(scope="module")
def lint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("specimens")
    (root / "pyproject.toml").write_text("[project]\nname = 'specimens'\n", encoding="utf-8")

    @cache
    def run(text: str, select: tuple[str, ...], fix: Any) -> Checked:
        file = root / "specimen.py"
        file.write_text(text, encoding="utf-8")
        request = Request(
            (file,), root, settings={"select": select}, fix=fix, write=False, cache=False
        )
        checked = check(request)
        assert not checked.problems, checked.problems
        return checked

    return run


def findings(lint: Any, text: str, *select: str) -> tuple[Finding, ...]:
    return tuple(lint(text, select or ("DG",), "no").report.findings)


def fixed(lint: Any, text: str, code: str) -> str:
    checked = lint(text, (code,), "unsafe")
    return str(checked.after.get("specimen.py", text))


# -- the pages --------------------------------------------------------------------------------------


def test_a_comment_for_what_runs_is_not_unused(lint: Any) -> None:
    comment = "# dispatchguard: ignore[DG711] -- a reason"
    text = f"import torch\n\n@torch.compile\ndef step(x):\n    return x  {comment}\n"
    assert not findings(lint, text, "DG0", "DG7")


def test_there_are_enough_rules_in_every_family() -> None:
    assert len(CLASSES) >= 30
    assert {code[:3] for code in CLASSES} == set(FAMILY_OF.values())


def test_codes_and_names_are_taken_once() -> None:
    classes = list(rules.dispatchguard_rules())
    assert [code for code, n in Counter(c.code for c in classes).items() if n > 1] == []
    assert [name for name, n in Counter(c.name for c in classes).items() if n > 1] == []


def test_every_module_with_rules_is_listed() -> None:
    root = Path(rules.__file__).parent
    files = {
        f for f in root.rglob("*.py") if re.search(r"^    code = ", f.read_text("utf-8"), re.M)
    }
    named = {".".join(f.relative_to(root).with_suffix("").parts) for f in files}
    assert {n for n in named if not n.startswith("specimens.")} == set(rules.MODULES)


@pytest.mark.parametrize("module", rules.MODULES)
def test_codes_belong_to_their_family(module: str) -> None:
    classes = rules.rule_classes(module)
    assert classes, f"rules/{module} defines no rule"
    assert {c.code[:3] for c in classes} == {FAMILY_OF[module.partition(".")[0]]}


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_a_rule_has_its_page(code: str) -> None:
    cls = CLASSES[code]
    info = cls.info()
    assert re.fullmatch(r"DG[1-7]\d\d", code)
    assert _KEBAB.fullmatch(cls.name), cls.name
    assert cls.origin.strip()
    assert info.summary.endswith(".") and len(info.summary) <= 130, info.summary
    headings = re.findall(r"^## (.+)$", info.help, re.MULTILINE)
    assert headings == list(SECTIONS)
    sections = dict(
        zip(headings, re.split(r"^## .+$", info.help, flags=re.MULTILINE)[1:], strict=True)
    )
    for heading in ("Example", "Instead"):
        blocks = re.findall(r"```python\n(.*?)```", sections[heading], re.DOTALL)
        assert blocks, f"{heading} shows no code"
        for block in blocks:
            ast.parse(block)
    assert sections["Example"] != sections["Instead"]
    assert len(sections["Fix safety"].split()) >= 4
    assert bool(cls.looks()) != cls.running


def test_the_docs_quote_a_short_rule_in_full() -> None:
    page = (FIXTURES.parent / "docs" / "writing-a-rule.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^````python\n(.*?)^````$", page, re.DOTALL | re.MULTILINE)
    code = re.search(r'code = "(\w+)"', quoted)
    assert code is not None
    assert quoted == inspect.getsource(CLASSES[code.group(1)])
    without_page = re.sub(r'""".*?"""\n', "", quoted, count=1, flags=re.DOTALL)
    assert sum(bool(line.strip()) for line in without_page.splitlines()) <= 30


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_a_rule_has_specimens_and_lookalikes(code: str) -> None:
    assert list((FIXTURES / code).glob("specimen*.py")), f"fixtures/{code}/specimen.py is missing"
    assert list((FIXTURES / code).glob("lookalikes*.py")), (
        f"fixtures/{code}/lookalikes.py is missing"
    )


def test_every_folder_of_specimens_has_its_rule() -> None:
    assert {p.name for p in FIXTURES.glob("DG*")} <= set(CLASSES)


# -- what the linter says of them -------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECIMENS, ids=shown)
def test_bad_is_flagged_and_good_is_not(path: Path, lint: Any) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = expected(text)
    codes = {code_of(path), *(code for _, code in wanted)}
    assert any(code == code_of(path) for _, code in wanted), "no line says `# expect:` of the rule"
    said = Counter((f.span.line, f.code) for f in findings(lint, text, *sorted(codes)))
    assert said == wanted


@pytest.mark.parametrize("path", SPECIMENS, ids=shown)
def test_findings_say_why_the_place_is_hot(path: Path, lint: Any) -> None:
    text = path.read_text(encoding="utf-8")
    codes = sorted({code_of(path), *(code for _, code in expected(text))})
    for finding in findings(lint, text, *codes):
        assert finding.hot is not None and finding.hot.path, finding
        assert len(finding.message) > 20 and not finding.message.endswith("."), finding.message


@pytest.mark.parametrize("path", LOOKALIKES, ids=shown)
def test_lookalikes_stay_silent(path: Path, lint: Any) -> None:
    text = path.read_text(encoding="utf-8")
    if code_of(path) in RUNNING:
        return  # tried where it runs
    assert len(_hot_functions(text)) >= 4, "at least four look-alikes, in hot functions"
    told = findings(lint, text, code_of(path))
    assert [(f.span.line, f.message) for f in told if f.certainty != "note"] == []
    assert Counter((f.span.line, f.code) for f in told) == expected(text, _NOTE)


def _hot_functions(text: str) -> list[str]:
    lines = text.splitlines()
    marked = [
        n for n, line in enumerate(lines, 1) if re.search(r"#\s*dispatchguard:\s*(hot|cold)", line)
    ]
    methods = re.findall(
        r"^\s+def (?:forward|__call__|call|step|training_step|update|__torch_\w+__)\(", text, re.M
    )
    return [*(lines[n - 1] for n in marked), *methods]


# -- what fixes make of them ------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECIMENS, ids=shown)
def test_the_fix_of_bad_is_good(path: Path, lint: Any) -> None:
    text, code = path.read_text(encoding="utf-8"), code_of(path)
    offered = {f.fix.safety for f in findings(lint, text, code) if f.fix is not None}
    if CLASSES[code].fixes == "none":
        assert not offered, "the rule says it has no fix"
        return
    assert offered <= {"safe", "unsafe"} if CLASSES[code].fixes == "safe" else offered <= {"unsafe"}
    if not offered:
        assert path.stem != "specimen", "the fix must show in the first specimen"
        return
    made = ast.parse(fixed(lint, text, code))
    bad, good = _definition(made, "bad"), _definition(made, "good")
    assert ast.unparse(bad) == ast.unparse(good)


@pytest.mark.parametrize("path", SPECIMENS, ids=shown)
def test_a_second_fix_changes_nothing(path: Path, lint: Any) -> None:
    text, code = path.read_text(encoding="utf-8"), code_of(path)
    if CLASSES[code].fixes == "none":
        return  # and none is offered, as another test has it
    once = fixed(lint, text, code)
    assert fixed(lint, once, code) == once
    ast.parse(once)
    if once != text:
        left = [f.span.line for f in findings(lint, once, code) if f.fix is not None]
        assert left == []


@pytest.mark.parametrize("code", sorted(c for c, cls in CLASSES.items() if cls.fixes != "none"))
def test_a_rule_that_promises_a_fix_has_one(code: str, lint: Any) -> None:
    safeties = {
        f.fix.safety
        for path in (FIXTURES / code).glob("specimen*.py")
        for f in findings(lint, path.read_text(encoding="utf-8"), code)
        if f.fix is not None
    }
    assert CLASSES[code].fixes in safeties


def _definition(tree: ast.Module, name: str) -> ast.AST:
    """The function or class of that name, as if it had none: name and docstring left out."""
    wanted = (name, name.capitalize())
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    found = [n for n in tree.body if isinstance(n, kinds) and n.name in wanted]
    assert found, f"no {name}"
    node = found[0]
    node.name = "it"
    for inner in ast.walk(node):
        if isinstance(inner, kinds) and ast.get_docstring(inner) is not None:
            inner.body = inner.body[1:] or [ast.Pass()]
        if isinstance(inner, ast.Name) and inner.id in wanted:
            inner.id = "it"
    return node


# -- what they do -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip(
        "torch", reason="torch is not installed: specimens were read, not run"
    )


def _load(path: Path) -> ModuleType:
    name = f"dispatchguard_specimen_{code_of(path)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling in specimens look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


@pytest.mark.parametrize("path", RUN, ids=shown)
@pytest.mark.filterwarnings("ignore")
def test_good_returns_what_bad_returned(path: Path, torch: Any) -> None:
    torch.manual_seed(0)
    module = _load(path)
    results = []
    for name in ("bad", "good"):
        torch.manual_seed(0)
        results.append(getattr(module, name)(*module.inputs()))
    _assert_same(torch, *results)


def _assert_same(torch: Any, bad: Any, good: Any) -> None:
    if isinstance(bad, torch.Tensor):
        assert isinstance(good, torch.Tensor)
        torch.testing.assert_close(good, bad, equal_nan=True)
    elif isinstance(bad, list | tuple):
        assert type(bad) is type(good) and len(bad) == len(good)
        for one, other in zip(bad, good, strict=True):
            _assert_same(torch, one, other)
    elif isinstance(bad, dict):
        assert bad.keys() == good.keys()
        for key in bad:
            _assert_same(torch, bad[key], good[key])
    elif isinstance(bad, float):
        assert good == pytest.approx(bad, nan_ok=True)
    else:
        assert bad == good


@pytest.mark.parametrize("path", LOOKALIKES, ids=shown)
@pytest.mark.filterwarnings("ignore")
def test_lookalikes_are_code_that_runs(path: Path, torch: Any) -> None:
    _load(path)


# -- what is seen of them running ----------------------------------------------------------------------


@pytest.fixture
def seen(torch: Any) -> Iterator[Any]:
    """Runs something, and says by line what is found by rules that only running code tells."""
    from pytest_dispatchguard.runtime.compiled.program import Compiling

    def run(path: Path, what: Any) -> Counter[tuple[int, str]]:
        watched = Compiling()
        with watched.watching():
            what()
        told, _ = observed(watched.times, lambda p: p if Path(p) == path else None, {})
        assert all(len(f.message) > 20 and not f.message.endswith(".") for f in told)
        return Counter((f.span.line, f.code) for f in told)

    torch.compiler.reset()
    yield run
    torch.compiler.reset()


def ran(path: Path, name: str) -> None:
    module = _load(path)
    for _ in range(3):
        getattr(module, name)(*module.inputs())


@pytest.mark.parametrize("path", [p for p in RUN if code_of(p) in RUNNING], ids=shown)
@pytest.mark.filterwarnings("ignore")
def test_bad_is_seen_running_and_good_is_not(path: Path, seen: Any, torch: Any) -> None:
    if torch.__version__ not in SpecifierSet(CLASSES[code_of(path)].torch, prereleases=True):
        pytest.skip("nothing is seen on this torch")
    wanted = expected(path.read_text(encoding="utf-8"))
    assert {code for _, code in wanted} == {code_of(path)}
    assert seen(path, lambda: ran(path, "bad")) == wanted
    assert not seen(path, lambda: ran(path, "good"))


@pytest.mark.parametrize("code", sorted(RUNNING))
@pytest.mark.filterwarnings("ignore")
def test_lookalikes_run_in_silence(code: str, seen: Any) -> None:
    for path in (FIXTURES / code).glob("lookalikes*.py"):
        assert not seen(path, lambda path=path: _load(path))


# -- the harness itself -----------------------------------------------------------------------------


def test_expectations_are_read_from_the_end_of_lines() -> None:
    text = "x.item()  # expect: DG401\n# expect: nothing\ny = 1  # expect: DG401, DG402\n"
    assert expected(text) == Counter({(1, "DG401"): 1, (3, "DG401"): 1, (3, "DG402"): 1})


def test_definitions_are_compared_without_names_and_docstrings() -> None:
    one = ast.parse('def bad(x):\n    """Bad."""\n    return x\n')
    other = ast.parse("def good(x):\n    return x\n")
    assert ast.unparse(_definition(one, "bad")) == ast.unparse(_definition(other, "good"))


def test_loading_the_pack_imports_no_torch() -> None:
    call = (
        "import sys; from pytest_dispatchguard.lint.judge import packs; packs.load(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", call], check=False).returncode == 0
