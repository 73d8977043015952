"""The server as an agent meets it: the official client, and a process of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the server needs mcp")

from pytest_dispatchguard.agents.tools import TOOLS

from .conftest import NET, SLOW, Talk, connected, git

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="budgets run torch code"
)
PATCH = """\
--- a/net/ops.py
+++ b/net/ops.py
@@ -2,6 +2,4 @@


 def damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
-    if mask.any():
-        x = x.masked_fill(mask, 0.0)
-    return x
+    return x.masked_fill(mask, 0.0)
"""
WRONG = PATCH.replace(
    "+    return x.masked_fill(mask, 0.0)", "+    return x.masked_fill(mask, 2.0)"
)
# Runs without torch, which every process would take seconds to import.
LEAN = SLOW.replace(
    "import torch\n",
    "from __future__ import annotations\n\nfrom typing import TYPE_CHECKING\n\n"
    "if TYPE_CHECKING:\n    import torch\n",
)
LEAN_TESTS = """\
import pytest

from net.ops import damp


class Values(list):
    def any(self):
        return any(self)

    def masked_fill(self, mask, value):
        return Values(value if masked else one for one, masked in zip(self, mask))


def test_damped():
    assert damp(Values([1.0, 2.0]), Values([True, False])) == [0.0, 2.0]


def test_nothing_is_damped():
    assert damp(Values([1.0]), Values([False])) == [1.0]


@pytest.mark.overhead_budget(instructions=100_000)
def test_budget(overhead):
    overhead(damp, Values([1.0, 2.0]), Values([False, True]))
"""
READING = [tool.name for tool in TOOLS if not tool.writes]


def told(result: Any) -> dict[str, Any]:
    """The answer in a result, which says the same as text."""
    assert not result.is_error, result.content
    (text,) = result.content
    assert json.loads(text.text) == result.structured_content
    assert len(text.text) < 60_000
    answer: dict[str, Any] = result.structured_content
    assert "\n" not in answer["summary"]
    return answer


def refusal(result: Any) -> str:
    """The one line of a result that is an error."""
    assert result.is_error
    (text,) = result.content
    assert "\n" not in text.text
    said: str = text.text
    return said


# -- the protocol ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_are_listed(talk: Talk, mode: str) -> None:
    async def list_tools(client: Any) -> Any:
        return (await client.list_tools()).tools

    tools = talk(list_tools, mode=mode)
    assert [tool.name for tool in tools] == READING
    for tool in tools:
        assert tool.description and tool.title
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["required"] == ["summary"]
        assert tool.annotations.destructive_hint is False
    by_name = {tool.name: tool for tool in tools}
    assert by_name["check"].annotations.read_only_hint
    assert not by_name["run_budget"].annotations.read_only_hint


def test_the_tool_that_writes_is_offered_only_where_edits_are_allowed(talk: Talk) -> None:
    async def list_tools(client: Any) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    async def apply(client: Any) -> str:
        return refusal(await client.call_tool("apply_patch", {"diff": PATCH}))

    assert talk(list_tools, "--allow-edits") == [*READING, "apply_patch"]
    assert "no tool 'apply_patch'" in talk(apply)


def test_schemas_are_json_schemas() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the schemas")
    for tool in TOOLS:
        jsonschema.Draft202012Validator.check_schema(tool.schema)


def test_only_the_protocol_goes_to_standard_output(project: Path) -> None:
    lines = [
        {
            "method": "initialize",
            "id": 1,
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"method": "tools/call", "id": 2, "params": {"name": "check", "arguments": {}}},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_dispatchguard", "mcp"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("this is no JSON\n" + text)
    process.stdin.flush()
    seen: list[dict[str, Any]] = []
    while not any(one.get("id") == 2 for one in seen):
        seen.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=60)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert process.returncode == 0
    assert "Traceback" not in errors


# -- each tool -------------------------------------------------------------------------------------


def test_each_tool_that_reads(project: Path, talk: Talk) -> None:
    (project / "net/ops.py").write_text(SLOW)

    async def talked(client: Any) -> list[dict[str, Any]]:
        calls = [
            ("check", {}),
            ("check", {"paths": ["net"], "limit": 1, "select": ["DG4"]}),
            ("check_diff", {"base": "HEAD"}),
            ("explain_rule", {"code": "DG401"}),
            ("explain_rule", {"code": "item-read"}),
            ("why_hot", {"path": "net/ops.py", "line": 5}),
            ("why_hot", {"path": "tests/test_plain.py", "line": 1}),
            ("propose_fix", {"path": "net"}),
        ]
        return [told(await client.call_tool(name, given)) for name, given in calls]

    whole, part, change, rule, named, hot, cold, fix = talk(talked)
    (found,) = [one for one in whole["findings"] if one["code"] == "DG401"]
    place = (found["path"], found["line"], found["column"], found["end_line"], found["end_column"])
    assert place == ("net/ops.py", 5, 8, 5, 18)
    assert found["hot"] == "forward of a torch.nn.Module: net.model.Gate.forward -> net.ops.damp"
    assert found["waits"] == 1 and found["price"] == "waits for the device"
    assert part["findings"] == [found] and part["next"] is None
    assert [one["code"] for one in change["findings"]] == ["DG401"]
    assert (
        rule["code"] == "DG401" and "def bad(" in rule["specimen"] and "## Instead" in rule["page"]
    )
    assert named["code"] == "DG411"
    assert hot["function"] == "damp"
    assert hot["hot"]["path"] == ["net.model.Gate.forward", "net.ops.damp"]
    assert hot["costs"] and hot["findings_total"] == 1
    assert cold["hot"] is None
    assert fix["diff"] == "" and fix["left_total"] == 1


def test_fixes_are_proposed_as_a_diff_that_applies(
    project: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    (project / "net/ops.py").write_text(
        "import torch\n\n\ndef damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:\n"
        "    scale = torch.zeros(3).to(x.device)\n    return x * scale\n"
    )
    before = states(project)

    async def propose(client: Any) -> dict[str, Any]:
        return told(await client.call_tool("propose_fix", {"path": ".", "unsafe": True}))

    diff = talk(propose)["diff"]
    assert states(project) == before
    (project / "fix.diff").write_text(diff)
    git(project, "apply", "fix.diff")
    assert "torch.zeros(3, device=x.device)" in (project / "net/ops.py").read_text()


def test_long_lists_are_told_in_parts(project: Path, talk: Talk) -> None:
    body = "".join(f"    if mask.any():\n        x = x + {n}\n" for n in range(70))
    (project / "net/ops.py").write_text(
        "import torch\n\n\ndef damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:\n"
        f"{body}    return x\n"
    )

    async def everything(client: Any) -> list[dict[str, Any]]:
        parts, offset = [], 0
        while True:
            given = {"limit": 50, "offset": offset}
            parts.append(told(await client.call_tool("check", given)))
            if parts[-1]["next"] is None:
                return parts
            offset = parts[-1]["next"]["offset"]

    parts = talk(everything)
    assert len(parts) > 1
    assert parts[0]["left"] == parts[0]["total"] - len(parts[0]["findings"]) > 0
    found = [(one["line"], one["code"]) for part in parts for one in part["findings"]]
    assert len(found) == len(set(found)) == parts[0]["total"]


def test_a_trace_is_read(project: Path, talk: Talk) -> None:
    from ..cli.test_trace import Recorded

    Recorded().write(project / "trace.json.gz")

    async def read(client: Any) -> dict[str, Any]:
        return told(await client.call_tool("read_trace", {"path": "trace.json.gz", "limit": 1}))

    answer = talk(read)
    assert answer["host_bound"] is True
    assert len(answer["waits"]) == 1 and answer["left"] == answer["total"] - 1


@needs_torch
@pytest.mark.slow
@pytest.mark.thorough
def test_budgets_run_in_a_copy(
    project: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    before = states(project)

    async def run(client: Any) -> list[dict[str, Any]]:
        none = {"tests": ["tests/test_plain.py"]}
        return [told(await client.call_tool("run_budget", given)) for given in ({}, none)]

    everything, none = talk(run)
    assert everything["summary"] == "budgets: 1 pass"
    (budget,) = everything["budgets"]
    assert budget["test"] == "tests/test_gate.py::test_budget"
    assert budget["counters"]["dispatches"] >= 1
    assert budget["limits"] == {"instructions": 100_000}
    assert none["budgets"] == []
    assert states(project) == before


# -- from a change to a verified patch -------------------------------------------------------------


@pytest.mark.slow
def test_from_check_this_diff_to_a_verified_patch(
    project: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    (project / "net/ops.py").write_text(LEAN)  # not committed
    (project / "tests/test_ops.py").write_text(LEAN_TESTS)
    before = states(project)

    async def agent(client: Any) -> tuple[dict[str, Any], ...]:
        async def ask(name: str, **given: Any) -> dict[str, Any]:
            return told(await client.call_tool(name, given))

        change = await ask("check_diff", base="HEAD")
        (found,) = change["findings"]
        rule = await ask("explain_rule", code=found["code"])
        assert "masked_fill" in rule["page"]
        hot = await ask("why_hot", path=found["path"], line=found["line"])
        assert hot["function"] == found["function"] == "damp"
        tests = ["tests/test_ops.py::test_damped", "tests/test_ops.py"]
        budgets = ["tests/test_ops.py::test_budget"]
        wrong = await ask("verify_patch", diff=WRONG, tests=tests, budgets=budgets)
        untested = await ask("verify_patch", diff=PATCH)
        right = await ask("verify_patch", diff=PATCH, tests=tests, budgets=budgets)
        assert states(project) == before
        written = await ask("apply_patch", diff=PATCH)
        return wrong, untested, right, written, await ask("check_diff", base="HEAD")

    wrong, untested, right, written, after = talk(agent, "--allow-edits")
    assert not wrong["verified"]
    assert wrong["problems"] == ["tests/test_ops.py::test_damped failed, passed before"]
    assert "2.0" in wrong["output"]
    assert not untested["verified"] and "no tests were named" in untested["problems"][0]
    assert right["verified"], right
    assert right["problems"] == [] and right["files"] == ["net/ops.py"]
    assert [one["code"] for one in right["gone"]] == ["DG401"] and right["new"] == []
    assert right["tests"] == 3 and right["output"] == ""
    was, now = right["gains"][0]["moved"]["instructions"]
    assert now < was
    assert written["files"] == ["net/ops.py"]
    assert (project / "net/ops.py").read_text().endswith(":\n    return x.masked_fill(mask, 0.0)\n")
    assert after["findings"] == []


def test_a_diff_is_checked_before_it_is_applied(
    project: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    before = states(project)
    diff = "".join(
        (
            "--- a/net/ops.py\n+++ b/net/ops.py\n",
            # Counts as agents write them: wrong.
            "@@ -4,9 +4,9 @@\n",
            " def damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:\n",
            "-    return x.masked_fill(mask, 0.0)\n",
            "+    return x * mask.sum().item()",
        )
    )

    async def check(client: Any) -> dict[str, Any]:
        return told(await client.call_tool("check_diff", {"diff": diff}))

    answer = talk(check)
    assert [one["code"] for one in answer["findings"]] == ["DG411"]
    assert answer["findings"][0]["path"] == "net/ops.py"
    assert answer["files"] == ["net/ops.py"]
    assert states(project) == before


# -- hostile arguments -----------------------------------------------------------------------------

OUTSIDE = [
    "../secret.py",
    "net/../../secret.py",
    "..",
    "/etc/passwd",
    "//host/share",
    "~/secret.py",
    "C:\\secret.py",
    "..\\secret.py",
    "link.py",
    "folder/secret.py",
    "circle",
]
NEW = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+x = 1\n"
DIFFS = {
    "not a diff": "does not apply",
    NEW.format("../evil.py"): "does not apply",
    NEW.format(".git/hooks/post-checkout"): "does not apply",
    NEW.format("folder/evil.py"): "through a link",
    "--- a/net/none.py\n+++ b/net/none.py\n@@ -1 +1 @@\n-a\n+b\n": "none.py",
    "diff --git a/evil b/evil\nnew file mode 120000\n--- /dev/null\n+++ b/evil\n@@ -0,0 +1 @@\n+/etc\n"
    "\\ No newline at end of file\n": "a link",
}


@pytest.fixture
def hostile(project: Path) -> Path:
    """A project with links that lead out."""
    outside = project.parent / "outside"
    outside.mkdir()
    for place in (project.parent / "secret.py", outside / "secret.py"):
        place.write_text(SLOW.replace("def damp", "# dispatchguard: hot\ndef leaked"))
    (project / "link.py").symlink_to(project.parent / "secret.py")
    (project / "folder").symlink_to(outside)
    (project / "circle").symlink_to("circle")
    return project


def test_paths_outside_the_root_are_refused(hostile: Path, talk: Talk) -> None:
    async def talked(client: Any) -> list[str]:
        said = []
        for path in OUTSIDE:
            for name, given in (
                ("check", {"paths": [path]}),
                ("why_hot", {"path": path, "line": 1}),
                ("propose_fix", {"path": path}),
                ("read_trace", {"path": path}),
                ("run_budget", {"tests": [f"{path}::test_x"]}),
                ("verify_patch", {"diff": PATCH, "tests": [path]}),
            ):
                said.append(refusal(await client.call_tool(name, given)))
        # It goes on after all of them, and a whole check tells nothing of what is outside.
        whole = told(await client.call_tool("check", {"level": "maybe"}))
        assert "leaked" not in json.dumps(whole)
        return said

    for line in talk(talked):
        assert "outside the root" in line or "relative to the root" in line


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("check", {"paths": "net"}, "paths must be a list of strings"),
        ("check", {"paths": ["net"] * 51}, "paths has 51 items; name 50 at most"),
        ("check", {"paths": ["none.py"]}, "there is no such file"),
        ("check", {"paths": ["net\0"]}, "without NUL characters"),
        ("check", {"paths": ["a" * 5000]}, "has 5000 characters"),
        ("check", {"limit": 0}, "limit must be from 1 to 50"),
        ("check", {"limit": True}, "limit must be an integer"),
        ("check", {"offset": -1}, "offset must be from 0"),
        ("check", {"level": "all"}, "level must be one of sure, note, maybe"),
        ("check", {"select": ["XX9"]}, "XX9"),
        ("check", {"pahts": ["net"]}, "unknown argument 'pahts'; the nearest is paths"),
        ("check", {"\x1b[2J\n" * 100: 1}, "unknown argument"),
        ("check_diff", {}, "name either base"),
        ("check_diff", {"base": "HEAD", "diff": PATCH}, "name either base"),
        ("check_diff", {"base": "--output=evil"}, "--output=evil"),
        ("check_diff", {"base": "no-such-branch"}, "no-such-branch"),
        ("check_diff", {"diff": "x" * 200_001}, "at most 200000 are taken"),
        ("explain_rule", {"code": "DG4O1"}, "no rule 'DG4O1'; the nearest is DG4"),
        ("explain_rule", {}, "the argument code is missing"),
        ("why_hot", {"path": "net", "line": 1}, "name a file"),
        ("read_trace", {"path": "net/ops.py"}, ""),
        ("run_budget", {"tests": ["-p"]}, "name a file of the project"),
        ("run_budget", {"tests": ["@args"]}, "name a file of the project"),
        ("run_budget", {"tests": ["--rootdir=/::x"]}, "name a file of the project"),
        ("run_budget", {"timeout": 601}, "timeout must be from 1 to 600"),
        ("verify_patch", {"diff": ""}, "diff must not be empty"),
        ("none", {}, "no tool 'none'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(
    project: Path, name: str, given: dict[str, Any], said: str
) -> None:
    """Without a process each: the same code answers."""
    from mcp_types import CallToolRequestParams

    from pytest_dispatchguard.agents.serving import Desk
    from pytest_dispatchguard.agents.workplace import Workplace

    async def call() -> Any:
        desk = Desk(Workplace(project.resolve()))
        try:
            return await desk.called(None, CallToolRequestParams(name=name, arguments=given))
        finally:
            desk.close()

    line = refusal(asyncio.run(call()))
    assert said in line
    assert "internal error" not in line
    assert not (project / "evil").exists()


def test_diffs_that_reach_outside_are_refused(
    hostile: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    before = states(hostile.parent)

    async def talked(client: Any) -> dict[str, list[str]]:
        said: dict[str, list[str]] = {}
        for diff in DIFFS:
            for name in ("check_diff", "verify_patch", "apply_patch"):
                said.setdefault(diff, []).append(
                    refusal(await client.call_tool(name, {"diff": diff}))
                )
        return said

    for diff, lines in talk(talked, "--allow-edits").items():
        for line in lines:
            assert DIFFS[diff] in line, (diff, line)
    assert states(hostile.parent) == before


def test_a_file_that_changed_meanwhile_is_not_written_over(project: Path) -> None:
    import threading

    from pytest_dispatchguard.agents.copies import copied, patched
    from pytest_dispatchguard.agents.workplace import begin
    from pytest_dispatchguard.model.errors import UserError
    from pytest_dispatchguard.verify.writing import write_back

    (project / "net/ops.py").write_text(SLOW)
    with copied(project.resolve(), begin(threading.Event(), 60)) as scratch:
        files = patched(scratch, scratch.copy(), PATCH)
        (project / "net/ops.py").write_text(SLOW + "# more\n")
        with pytest.raises(UserError, match="changed meanwhile"):
            write_back(scratch, files)
    assert (project / "net/ops.py").read_text() == SLOW + "# more\n"
    assert not scratch.folder.exists()


# -- long work -------------------------------------------------------------------------------------

SLEEPS = """\
import os, pathlib, time

def test_sleeps():
    pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
    time.sleep(600)
"""


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def sleeping(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that tells the process of a test which sleeps."""
    (project / "tests/test_sleeps.py").write_text(SLEEPS)
    monkeypatch.setenv("PID_FILE", str(project.parent / "pid"))
    return project.parent / "pid"


@pytest.mark.thorough
def test_a_run_that_takes_too_long_is_ended(project: Path, talk: Talk, sleeping: Path) -> None:
    diff = NEW.format("net/more.py")

    async def verify(client: Any) -> str:
        given = {"diff": diff, "tests": ["tests/test_sleeps.py"], "timeout": 15}
        return refusal(await client.call_tool("verify_patch", given))

    assert "not finished within 15 s" in talk(verify)
    assert gone(int(sleeping.read_text()))


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["leaves", "ends it"])
def test_what_runs_ends_with_the_client(project: Path, sleeping: Path, how: str) -> None:
    request = {
        "name": "verify_patch",
        "arguments": {"diff": NEW.format("net/more.py"), "tests": ["tests/test_sleeps.py"]},
    }
    start = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    lines = [
        {"method": "initialize", "id": 1, "params": start},
        {"method": "notifications/initialized"},
        {"method": "tools/call", "id": 2, "params": request},
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_dispatchguard", "mcp"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in lines))
    process.stdin.flush()
    for _ in range(600):
        if sleeping.exists() and sleeping.read_text():
            break
        time.sleep(0.1)
    if how == "leaves":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    assert gone(int(sleeping.read_text()))
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


def test_a_client_that_cancels_is_answered_next(project: Path, sleeping: Path) -> None:
    async def conversation() -> dict[str, Any]:
        async with connected(project) as client:
            given = {"diff": NEW.format("net/more.py"), "tests": ["tests/test_sleeps.py"]}
            call = asyncio.ensure_future(client.call_tool("verify_patch", given))
            for _ in range(600):
                await asyncio.sleep(0.1)
                if sleeping.exists() and sleeping.read_text():
                    break
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return told(await client.call_tool("explain_rule", {"code": "DG401"}))

    assert asyncio.run(conversation())["code"] == "DG401"
    assert gone(int(sleeping.read_text()))


# -- nothing is written ----------------------------------------------------------------------------


def test_nothing_is_written_to_the_tree(
    project: Path, talk: Talk, states: Callable[[Path], dict[str, bytes]]
) -> None:
    (project / "net/model.py").write_text(NET.replace("damp(x, mask)", "damp(x, mask).item()"))
    before = states(project)
    git_before = sorted((project / ".git").rglob("*"))

    async def talked(client: Any) -> None:
        for name, given in (
            ("check", {}),
            ("check_diff", {"base": "HEAD"}),
            ("why_hot", {"path": "net/ops.py", "line": 5}),
            ("propose_fix", {"path": ".", "unsafe": True}),
            ("verify_patch", {"diff": NEW.format("net/more.py"), "tests": ["tests/test_plain.py"]}),
        ):
            told(await client.call_tool(name, given))

    talk(talked)
    assert states(project) == before
    assert sorted((project / ".git").rglob("*")) == git_before
