"""A rule pack is a pip package with one entry point: its rules run, are listed, selected, fixed and
suppressed as the built-in ones are; a pack that is broken is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import started

PACK = '''\
"""Rules of Acme."""

import libcst as cst

from pytest_dispatchguard import Call, Rule, hookimpl


class SlowSum(Rule):
    """`acme.slow_sum` is called on every call.

    ## What it does

    Finds calls of `acme.slow_sum`.
    """

    code = "ACME101"
    name = "slow-sum"
    origin = "acme#1"
    looks_for = Call("slow_sum")
    fixes = "safe"

    def judge(self, node, place):
        new = node.with_changes(func=cst.Name("fast_sum"))
        fix = place.replace(node, new, safety="safe", message="use fast_sum")
        return place.finding(node, "`slow_sum` is slow", fix=fix)


class Optional(SlowSum):
    """`acme.odd` is called."""

    code = "ACME102"
    name = "odd-call"
    looks_for = Call("odd")
    default = False
    fixes = "none"

    def judge(self, node, place):
        return place.finding(node, "odd")


@hookimpl
def dispatchguard_rules():
    return [SlowSum, Optional]


@hookimpl
def dispatchguard_hot_roots():
    return {"acme.Layer": ["compute"]}
'''

CODE = """\
import acme
from acme import slow_sum, fast_sum


class Mine(acme.Layer):
    def compute(self, x):
        odd(x)
        return slow_sum(x)  # the sum

    def other(self, x):
        return slow_sum(x)
"""


@dataclass(frozen=True)
class Packs:
    """A folder that packs are installed into, and a project to lint."""

    site: Path
    project: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(self.site), *([inherited] if inherited else [])])
        done = started.dispatchguard(self.project, *words, environment={"PYTHONPATH": path})
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def findings(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.run("check", "--format", "json", *words).stdout
        )["findings"]
        return found

    def plant(self, name: str, source: str, entry: str | None = None) -> None:
        """What installing a pack comes to, without pip's seconds."""
        (self.site / f"{name}.py").write_text(textwrap.dedent(source))
        info = self.site / f"{name}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dispatchguard]\n{name} = {entry or name}\n")


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    site, project = tmp_path / "site", tmp_path / "project"
    site.mkdir()
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (project / "mine.py").write_text(CODE)
    return Packs(site, project)


def files(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.slow
def test_a_pack_installed_with_pip(packs: Packs, tmp_path: Path) -> None:
    source = tmp_path / "acme-rules"
    files(
        source,
        {
            "acme_rules/__init__.py": PACK,
            "pyproject.toml": """
                [build-system]
                requires = ["setuptools"]
                build-backend = "setuptools.build_meta"
                [project]
                name = "acme-rules"
                version = "1.0"
                [project.entry-points.dispatchguard]
                acme = "acme_rules"
                """,
        },
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(packs.site)]
    # The cache of a run without the pack must not hide it afterwards.
    assert packs.findings() == []
    done = subprocess.run([*pip, *options, str(source)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr.strip()[-200:]}")
    (found,) = packs.findings()
    assert (found["code"], found["rule"], found["line"]) == ("ACME101", "slow-sum", 8)
    assert found["hot"]["root"] == "mine.Mine.compute"
    assert packs.findings() == [found]


def test_its_rules_are_listed_and_explained(packs: Packs) -> None:
    packs.plant("acme_rules", PACK)
    listed = json.loads(packs.run("rules", "--format", "json").stdout)["rules"]
    assert {"ACME101", "ACME102", "DG001"} <= {r["code"] for r in listed}
    assert "ACME101" in packs.run("rules").stdout
    for word in ("ACME101", "slow-sum"):
        page = packs.run("rule", word)
        assert page.returncode == 0
        assert "Finds calls of" in page.stdout


def test_its_rules_are_selected_as_others_are(packs: Packs) -> None:
    packs.plant("acme_rules", PACK)
    config = packs.project / "pyproject.toml"

    def codes(table: str, *words: str) -> list[str]:
        config.write_text(f"[tool.dispatchguard]\n{table}\n")
        return [f["code"] for f in packs.findings(*words)]

    assert codes("") == ["ACME101"]
    assert codes('select = ["DG"]') == []
    assert codes('select = ["ACME"]') == ["ACME101"]
    assert codes('select = ["DG"]\nextend-select = ["ACME1"]') == ["ACME102", "ACME101"]
    assert codes('ignore = ["ACME101"]') == []
    assert codes("", "--extend-select", "ACME102") == ["ACME102", "ACME101"]
    config.write_text('[tool.dispatchguard]\nselect = ["ACME109"]\n')
    assert "the codes in ACME10 are: ACME101, ACME102" in packs.run("check").stderr


def test_its_fix_suppression_and_baseline(packs: Packs) -> None:
    packs.plant("acme_rules", PACK)
    assert packs.run("check", "--baseline", "b.json", "--write-baseline").returncode == 0
    assert packs.run("check", "--baseline", "b.json").returncode == 0
    mine = packs.project / "mine.py"
    mine.write_text(CODE.replace("# the sum", "# dispatchguard: ignore[ACME101] -- known"))
    assert packs.run("check").returncode == 0
    mine.write_text(CODE)
    assert packs.run("check", "--fix").returncode == 0
    fixed = "        return fast_sum(x)  # the sum\n"
    assert mine.read_text() == CODE.replace("        return slow_sum(x)  # the sum\n", fixed)


def test_its_hot_roots_are_roots(packs: Packs) -> None:
    assert "compute" not in packs.run("hot").stdout
    packs.plant("acme_rules", PACK)
    assert "Mine.compute" in packs.run("hot").stdout


def test_a_changed_pack_is_judged_anew(packs: Packs) -> None:
    packs.plant("acme_rules", PACK)
    assert [f["message"] for f in packs.findings()] == ["`slow_sum` is slow"]
    packs.plant("acme_rules", PACK.replace("is slow", "is very slow"))
    assert [f["message"] for f in packs.findings()] == ["`slow_sum` is very slow"]
    packs.plant("acme_rules", PACK.replace('["compute"]', '["other"]'))
    assert [f["line"] for f in packs.findings()] == [11]


def test_rules_in_a_package_below_the_entry_point_are_watched(packs: Packs) -> None:
    helper = packs.site / "acme" / "deep" / "words.py"
    files(
        packs.site,
        {
            "acme/__init__.py": "",
            "acme/deep/__init__.py": "",
            "acme/deep/words.py": "SAID = 'one'\n",
            "acme/rules.py": PACK.replace(
                "import libcst", "from acme.deep.words import SAID\nimport libcst"
            ).replace('"`slow_sum` is slow"', "SAID"),
        },
    )
    packs.plant("acme_pack", "from acme import rules as pack\n", "acme_pack:pack")
    assert [f["message"] for f in packs.findings()] == ["one"]
    assert [f["message"] for f in packs.findings()] == ["one"]
    helper.write_text("SAID = 'three'\n")
    assert [f["message"] for f in packs.findings()] == ["three"]


RULE = """
    from pytest_dispatchguard import Call, Rule, hookimpl

    class Mine(Rule):
        code = {code!r}
        name = "mine"
        origin = "me"
        looks_for = {looks}

    @hookimpl
    def {hook}():
        return {answer}
"""


def rule(
    code: object = "ACME101",
    looks: str = 'Call("x")',
    hook: str = "dispatchguard_rules",
    answer: str = "[Mine]",
) -> str:
    return RULE.format(code=code, looks=looks, hook=hook, answer=answer)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("def f(:\n", "SyntaxError"),
        ("import sys\nsys.exit()\n", "cannot be loaded (SystemExit"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines"),
        (rule(code="DG001"), "rule Mine has the code DG001 of the linter itself"),
        (rule(code="DG411"), "rule Mine has the code DG411 of"),
        (rule(code="acme1"), "no valid code ('acme1')"),
        (rule(code=7), "no valid code (7)"),
        (rule(looks="'x'"), "looks for 'x', which is not a Look"),
        (rule(looks="()"), "does not set 'looks_for'"),
        (rule(answer="[Mine()]"), "which is not a subclass of Rule"),
        (rule(answer="[int]"), "which is not a subclass of Rule"),
        (rule(answer="[Mine, Mine]"), "rule Mine has the code ACME101 of Mine"),
        (rule(answer="3"), "cannot be loaded (TypeError"),
        (rule(answer="1 / 0"), "ZeroDivisionError"),
        (rule(hook="dispatchguard_rule"), "unknown hook 'dispatchguard_rule'"),
        (rule(hook="dispatchguard_hot_roots", answer="{'a.B': 'run'}"), "list of method names"),
        (rule(hook="dispatchguard_hot_roots", answer="['a.B']"), "cannot be loaded"),
    ],
)
def test_a_broken_pack_is_one_line(packs: Packs, source: str, told: str) -> None:
    packs.plant("broken_rules", source)
    done = packs.run("check")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dispatchguard: rule pack 'broken_rules'")
    assert told in line


CTRL_C = """
    class Field:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    class Node:
        field = Field()
"""


def test_ctrl_c_while_a_pack_is_loaded_is_no_fault_of_the_pack(packs: Packs) -> None:
    packs.plant("broken_rules", CTRL_C)
    done = packs.run("check")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "dispatchguard: interrupted; nothing was half-written\n"


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("return 'odd'", "TypeError: judge returned 'odd', not a Finding"),
        ("return ['odd']", "TypeError: judge returned 'odd', not a Finding"),
        ("return 3", "TypeError: judge returned 3, not a Finding"),
    ],
)
def test_a_rule_that_fails_is_one_line_and_the_others_speak(
    packs: Packs, way: str, told: str
) -> None:
    packs.plant("acme_rules", PACK)
    failing = PACK.replace("ACME", "BAD").replace('return place.finding(node, "odd")', way)
    failing = failing.replace("default = False", "default = True").replace(
        "return [SlowSum, Optional]", "return [Optional]"
    )
    packs.plant("bad_rules", failing)
    for _ in range(2):
        done = packs.run("check", "--format", "json")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert f"rule BAD102 failed in Mine.compute: {told}" in line
        assert [f["code"] for f in json.loads(done.stdout)["findings"]] == ["ACME101"]
