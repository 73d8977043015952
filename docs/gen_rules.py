"""Makes the rule pages of the site from the rules, when mkdocs builds it: nothing is written twice.

Used as a mkdocs hook; run as a script it prints the pages, to read them without a site.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pytest_dispatchguard.model.findings import Price
from pytest_dispatchguard.report.wording import cost

FAMILIES = {
    "DG0": ("Files and comments", "What the linter says of files and of its own comments."),
    "DG1": ("Trees", "Flatten and map over what is one tensor."),
    "DG2": ("Contexts", "Context managers entered per call."),
    "DG3": ("Closures", "Functions built per call."),
    "DG4": ("Syncs", "Places where the host waits for the device."),
    "DG5": ("Allocations", "Tensors built per call, and copies to the device."),
    "DG6": ("Python", "Work of the interpreter that could be done once."),
    "DG7": ("Dispatch and compile", "Around the dispatcher and `torch.compile`."),
}

FIXES = {"safe": "safe", "unsafe": "unsafe", "none": "by hand"}


def rules() -> list[dict[str, Any]]:
    """The rules, as ``dispatchguard rules --format json`` tells them."""
    # Not by the name of the command: it need not be on PATH where mkdocs is.
    call = "import sys; from pytest_dispatchguard.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "rules", "--format", "json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found: list[dict[str, Any]] = told["rules"] if isinstance(told, dict) else told
    return sorted(found, key=lambda rule: str(rule["code"]))


def rule_page(rule: dict[str, Any]) -> str:
    """The page of one rule."""
    facts = [
        f"**Fix:** {FIXES[rule['fix']]}",
        f"**Origin:** {rule['origin']}" if rule["origin"] else "",
        f"**Price:** {cost(Price(**rule['price']))}" if rule.get("price") else "",
        "**Seen** only in [code that runs](../running.md)" if rule.get("running") else "",
        "" if rule.get("default", True) else f"**Off** unless selected by `{rule['code']}`",
    ]
    aside = f"# dispatchguard: ignore[{rule['code']}] -- the reason"
    return "\n\n".join(
        [
            f"# {rule['name']} ({rule['code']})",
            rule["summary"],
            " · ".join(fact for fact in facts if fact),
            rule["help"],
            f"To leave one place out: `{aside}` ([more](../suppressing.md)).",
        ]
    )


def index_page(found: list[dict[str, Any]]) -> str:
    """The list of all rules, by family."""
    said = (
        f"{len(found)} rules. They look at hot code only ([how that is decided](../hotness.md)). "
        "`dispatchguard rule CODE` shows a page in the terminal."
    )
    parts = ["# Rules", said]
    for family, (title, about) in FAMILIES.items():
        members = [rule for rule in found if rule["code"].startswith(family)]
        if members:
            rows = [
                f"| [{rule['code']}]({rule['code']}.md) | {rule['name']} | "
                f"{rule['summary'].replace('|', chr(92) + '|')} | {FIXES[rule['fix']]} |"
                for rule in members
            ]
            table = "\n".join(
                ["| code | name | what it is about | fix |", "| --- | --- | --- | --- |", *rows]
            )
            parts += [f"## {family}xx {title}", about, table]
    return "\n\n".join(parts)


def pages() -> dict[str, str]:
    """Every page, by its path in the site."""
    found = rules()
    made = {f"rules/{rule['code']}.md": rule_page(rule) for rule in found}
    made["rules/index.md"] = index_page(found)
    return {path: text + "\n" for path, text in sorted(made.items())}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the site."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


if __name__ == "__main__":
    for name, content in pages().items():
        print(f"<!-- {name} -->\n{content}")
