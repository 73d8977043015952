"""A runner of CI jobs on this machine: as much of the documented languages of GitHub's workflows and GitLab's
jobs as the recipes use. What it does not know it refuses, so that no part of a recipe is passed over.

One thing stands in for another: `pip install` installs nothing, as what it names is here already, and notes
what it was asked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = "pytest-dispatchguard/pytest-dispatchguard@v0.1.0"
"""The action of this checkout, as workflows name it."""
Values = Mapping[str, Any]

_QUIET = {"actions/setup-python@v5"}
"""What they bring is here."""
SHELLS = {
    None: ("bash", "-e", "-c"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"),
}


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command of a job did."""

    command: str
    status: int
    out: str
    err: str
    summary: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)


def commands(folder: Path) -> Path:
    """A folder with the commands that recipes use, as this Python has them."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    noted = f'echo "$@" >> "{bin / "installed"}"'
    scripts = {
        "dispatchguard": f'exec "{sys.executable}" -m pytest_dispatchguard "$@"',
        "pytest": f'exec "{sys.executable}" -W ignore -m pytest -p no:cacheprovider "$@"',
        "pip": noted,
        "python": f'if [ "$1 $2" = "-m pip" ]; then {noted}; else exec "{sys.executable}" "$@"; fi',
    }
    for name, script in scripts.items():
        (bin / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (bin / name).chmod(0o755)
    return bin


def environment(folder: Path, told: Mapping[str, str]) -> dict[str, str]:
    """What commands of a job see: this environment without the job that may run these tests, and what is
    told."""
    foreign = ("GITHUB_", "GITLAB_", "CI_", "RUNNER_", "DISPATCHGUARD_")
    here = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **here,
        "PATH": f"{commands(folder)}:{os.environ['PATH']}",
        # Our plugin and no other that happens to be here, whether it is installed or lies on the path.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_dispatchguard.plugin",
        **told,
    }


def run(words: Sequence[str], folder: Path, told: Mapping[str, str]) -> Ran:
    """Runs a command to its end."""
    done = subprocess.run(
        words, cwd=folder, env=dict(told), capture_output=True, text=True, timeout=300, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(words[-1], done.returncode, done.stdout, done.stderr)


# -- expressions -----------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(\|\||&&|==|!=|!|\(|\))|([\w.-]+))")


def value_of(expression: str, contexts: Values) -> Any:
    """What an expression comes to: names, texts in quotes, `!`, `==`, `!=`, `&&`, `||` and status checks."""
    tokens = []
    rest = expression.strip()
    while rest:
        match = _TOKEN.match(rest)
        assert match, f"not known to these tests: {expression}"
        tokens.append(match[0].strip())
        rest = rest[match.end() :].strip()
    value = _any(tokens, contexts)
    assert not tokens, f"not known to these tests: {expression}"
    return value


def _any(tokens: list[str], contexts: Values) -> Any:
    value = _all(tokens, contexts)
    while tokens[:1] == ["||"]:
        tokens.pop(0)
        other = _all(tokens, contexts)
        value = value or other
    return value


def _all(tokens: list[str], contexts: Values) -> Any:
    value = _equal(tokens, contexts)
    while tokens[:1] == ["&&"]:
        tokens.pop(0)
        other = _equal(tokens, contexts)
        value = value and other
    return value


def _equal(tokens: list[str], contexts: Values) -> Any:
    value = _one(tokens, contexts)
    while tokens[:1] in (["=="], ["!="]):
        same = tokens.pop(0) == "=="
        value = (value == _one(tokens, contexts)) is same
    return value


def _one(tokens: list[str], contexts: Values) -> Any:
    token = tokens.pop(0)
    if token == "!":
        return not _one(tokens, contexts)
    if token == "(":
        value = _any(tokens, contexts)
        assert tokens.pop(0) == ")"
        return value
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if tokens[:2] == ["(", ")"]:
        del tokens[:2]
        return {"always": True, "cancelled": False, "success": not contexts["failed"]}[token]
    value = contexts
    for part in token.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return value


def filled(text: object, contexts: Values) -> str:
    """A text of a workflow with its expressions in it."""
    return re.sub(
        r"\$\{\{(.*?)\}\}", lambda match: _shown(value_of(match[1], contexts)), _shown(text)
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- GitHub ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request from a branch to another of a repository, number 7 of me/lib."""

    origin: Path
    branch: str
    head: str
    """The commit at its head."""
    merge: str
    """The commit that merges it."""
    base: str = "main"
    api: str = ""
    token: str = ""
    fork: bool = False

    @property
    def event(self) -> dict[str, Any]:
        """What GitHub tells of it, as far as the recipes ask."""
        repo = {"full_name": "you/lib" if self.fork else "me/lib"}
        head = {"ref": self.branch, "sha": self.head, "repo": repo}
        return {"pull_request": {"number": 7, "head": head, "base": {"ref": self.base}}}

    @property
    def context(self) -> dict[str, Any]:
        """The context `github` of a job that runs for it."""
        return {
            "event_name": "pull_request",
            "event": self.event,
            "repository": "me/lib",
            "ref": "refs/pull/7/merge",
            "sha": self.merge,
            "base_ref": self.base,
            "head_ref": self.branch,
            "token": self.token,
        }


class Runner:
    """Runs the steps of a job for a pull request, one after another."""

    def __init__(self, pull: PullRequest, folder: Path) -> None:
        self._pull = pull
        self._folder = folder
        self.workspace = folder / "lib"
        temporary, event = folder / "temp", folder / "event.json"
        temporary.mkdir(parents=True)
        self.workspace.mkdir()
        event.write_text(json.dumps(pull.event), encoding="utf-8")
        names = ("event_name", "repository", "ref", "sha", "base_ref", "head_ref")
        told = {
            **{f"GITHUB_{name.upper()}": pull.context[name] for name in names},
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": pull.api,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(temporary),
        }
        self._environment = environment(folder, told)
        self._contexts = {"github": pull.context, "runner": {"temp": str(temporary)}}
        self.ran: list[Ran] = []
        self.uploaded: list[tuple[str, Values]] = []
        """What was given to actions that send something somewhere."""

    @property
    def installed(self) -> str:
        """What pip was asked for."""
        return (self._folder / "bin" / "installed").read_text(encoding="utf-8")

    @property
    def failed(self) -> bool:
        """Whether a step did."""
        return any(ran.status for ran in self.ran)

    def job(self, workflow: Values, name: str) -> None:
        """Runs a job of a workflow for pull requests."""
        assert workflow[True] == "pull_request"  # YAML takes `on` for a truth
        job = workflow["jobs"][name]
        assert set(workflow) <= {True, "name", "permissions", "jobs"}
        assert set(job) <= {"runs-on", "steps", "env"}
        self._steps(job["steps"], self._contexts, job.get("env", {}))

    def _steps(self, steps: Sequence[Values], known: Values, shared: Values) -> None:
        done: dict[str, Any] = {}
        for step in steps:
            assert set(step) <= {
                *("name", "id", "if", "run", "uses", "with", "env", "shell"),
                "working-directory",
            }
            contexts = {**known, "steps": done, "failed": self.failed}
            wanted = re.sub(r"\$\{\{(.*)\}\}", r"\1", str(step.get("if", "success()")))
            checks = re.search(r"always\(|cancelled\(|success\(", wanted)
            if not value_of(wanted, contexts) or (self.failed and not checks):
                continue
            if "uses" in step:
                given = {k: filled(v, contexts) for k, v in step.get("with", {}).items()}
                self._use(step["uses"], given)
                continue
            told = {k: filled(v, contexts) for k, v in {**shared, **step.get("env", {})}.items()}
            where = self.workspace / filled(step.get("working-directory", "."), contexts)
            ran = self._script(filled(step["run"], contexts), step.get("shell"), where, told)
            done[step.get("id", "")] = {"outputs": ran.outputs}

    def _script(self, script: str, shell: str | None, where: Path, told: Values) -> Ran:
        kept = {name: self._folder / f"{name}-{len(self.ran)}" for name in ("output", "summary")}
        for file in kept.values():
            file.touch()
        files = {
            "GITHUB_OUTPUT": str(kept["output"]),
            "GITHUB_STEP_SUMMARY": str(kept["summary"]),
        }
        ran = run((*SHELLS[shell], script), where, {**self._environment, **files, **told})
        output, summary = (file.read_text(encoding="utf-8") for file in kept.values())
        pairs = dict(line.split("=", 1) for line in output.splitlines())
        self.ran.append(Ran(script, ran.status, ran.out, ran.err, summary, pairs))
        return self.ran[-1]

    def _use(self, action: str, given: Values) -> None:
        if action == "actions/checkout@v4":
            self._check_out(**{name.replace("-", "_"): value for name, value in given.items()})
        elif action == OURS:
            self._act(given)
        elif action.startswith(("actions/upload-artifact@", "github/codeql-action/upload-sarif@")):
            self.uploaded.append((action, given))
        else:
            assert action in _QUIET, f"not known to these tests: {action}"

    def _check_out(self, ref: str = "", fetch_depth: str = "1") -> None:
        """As the action does: without a depth one commit, with 0 all branches."""
        commit, name = ref or self._pull.merge, "refs/remotes/pull/7/merge"
        every = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        depth, more = ((), every) if fetch_depth == "0" else (("--depth", fetch_depth), ())
        for words in (
            ("init", "--quiet"),
            ("remote", "add", "origin", self._pull.origin.as_uri()),
            ("fetch", "--quiet", *depth, "origin", *more, f"+{commit}:{name}"),
            ("checkout", "--quiet", "--force", name),
        ):
            subprocess.run(("git", *words), cwd=self.workspace, check=True)

    def _act(self, given: Values) -> None:
        """The steps of this checkout's own action."""
        import yaml

        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        assert set(given) <= set(action["inputs"]), f"the action does not know all of {set(given)}"
        usual = {
            name: filled(one.get("default", ""), self._contexts)
            for name, one in action["inputs"].items()
        }
        contexts = {**self._contexts, "inputs": {**usual, **given}}
        self._steps(action["runs"]["steps"], contexts, {"GITHUB_ACTION_PATH": str(ROOT)})


# -- GitLab ----------------------------------------------------------------------------------------


def gitlab_job(job: Values, folder: Path, told: Mapping[str, str]) -> list[Ran]:
    """Runs the script of a job, up to the first line that fails."""
    assert set(job) <= {"image", "rules", "variables", "script", "artifacts"}
    whole = {**environment(folder, told), **{k: str(v) for k, v in job["variables"].items()}}
    ran: list[Ran] = []
    for line in job["script"]:
        ran.append(run(("sh", "-c", line), folder / "lib", whole))
        if ran[-1].status:
            break
    return ran
