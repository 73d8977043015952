"""Writes `pytest_dispatchguard/lint/knowledge/torch_classes.py`: which classes of torch and the
libraries around it are modules, functions, optimizers, metrics …, read from their sources without importing
them.

Run with: python bench/make_torch_classes.py FOLDER…, where each folder holds packages (site-packages,
unpacked wheels).
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from pathlib import Path

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.families import families
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.knowledge.entry_points import LIBRARY_ROOTS
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.sources.module_names import module_name

HERE = Path(__file__).resolve().parent.parent / "pytest_dispatchguard" / "lint" / "torch_classes.py"
PACKAGES = ("torch", "torchvision", "torchaudio", "torcheval", "torchtnt")
HEAD = '''"""The classes of torch and the libraries around it by what they inherit from: package, then the
entry of
`libraries.LIBRARY_ROOTS`, then the last names of classes.

Made by `bench/make_torch_classes.py` from {versions}; not written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES: Mapping[str, Mapping[str, str]] = {{
'''
TAIL = """}

CLASSES: Mapping[str, Mapping[str, str]] = {
    package: {name: known for known, names in by_family.items() for name in names.split()}
    for package, by_family in _NAMES.items()
}
\"\"\"By package, the entry of each class.\"\"\"
"""


def facts_of(folder: Path, package: str) -> dict[str, FileFacts]:
    found = {}
    for file in sorted((folder / package).rglob("*.py")):
        rel = file.relative_to(folder).as_posix()
        if "/test" in rel or "/_test" in rel:
            continue
        text = file.read_text("utf-8", "replace")
        found[rel] = scan(text, module_name(rel), file.name == "__init__.py")
    return found


def classes_of(project: Project, package: str) -> dict[str, str]:
    """The family of each class name of a package that is known; none where two of one name differ in it."""
    found: dict[str, set[str]] = defaultdict(set)
    for class_id in project.classes:
        name = class_id.rpartition(":")[2]
        if class_id.partition(".")[0].partition(":")[0] != package or "." in name:
            continue
        known = [base for base, _ in families(project, class_id, {}) if base in LIBRARY_ROOTS]
        found[name].add(known[0] if known else "")
    return {
        name: bases.pop() for name, bases in found.items() if len(bases) == 1 and "" not in bases
    }


def version(folder: Path, package: str) -> str:
    infos = sorted(folder.glob(f"{package}-*.dist-info"))
    return (
        f"{package} {infos[-1].name.removesuffix('.dist-info').split('-')[1].partition('+')[0]}"
        if infos
        else package
    )


def main() -> None:
    facts: dict[str, FileFacts] = {}
    versions = []
    for folder in map(Path, sys.argv[1:]):
        for package in PACKAGES:
            if (folder / package / "__init__.py").exists():
                facts.update(facts_of(folder, package))
                versions.append(version(folder, package))
    project = build(facts)
    parts = [HEAD.format(versions=", ".join(versions))]
    for package in PACKAGES:
        by_family: dict[str, list[str]] = defaultdict(list)
        for name, family in sorted(classes_of(project, package).items()):
            by_family[family].append(name)
        parts.append(f'    "{package}": {{\n')
        for family, names in sorted(by_family.items()):
            wrapped = textwrap.fill(" ".join(names), 100)
            parts.append(f'        "{family}": """\n{wrapped}\n""",\n')
        parts.append("    },\n")
    HERE.write_text("".join(parts) + TAIL, "utf-8")


if __name__ == "__main__":
    main()
