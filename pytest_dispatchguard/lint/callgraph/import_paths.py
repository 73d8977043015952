"""From where a file imports: scripts see what stands beside them, or in a folder above that is no package,
before what the root of the project holds."""

from __future__ import annotations

from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.knowledge.tensor_words import EXTERNAL


def located(project: Project, module: str, dotted: str) -> str:
    """A dotted name as it reads from the root of the project, as a file of this module imports it."""
    root = dotted.partition(".")[0]
    folder = module.rpartition(".")[0]
    if not folder or root in EXTERNAL:
        return dotted
    key = (folder, root)
    above = project.memo_located.get(key)
    if above is None:
        above = project.memo_located[key] = _folder_with(project, folder, root)
    if not above:
        return dotted
    whole = f"{above}.{dotted}"
    # What a relative import means has been worked out before: `model.blocks`, from `model/model.py`.
    return whole if _known(project, whole) - above.count(".") > _known(project, dotted) else dotted


def _known(project: Project, dotted: str) -> int:
    """How many parts of a dotted name are a package or module of the project, in all."""
    parts = dotted.split(".")
    known = 0
    while known < len(parts) and ".".join(parts[: known + 1]) in project.packages:
        known += 1
    return known


def _folder_with(project: Project, folder: str, root: str) -> str:
    """The folder of a file, or one above, that holds a module or package, and is no package itself; empty
    where it is the root of the project, or there is none."""
    first = folder
    while folder:
        is_package = project.modules.get(folder, "").endswith("/__init__.py")
        if not is_package and f"{folder}.{root}" in project.packages:
            return folder
        if folder is first and root in project.packages:
            return ""
        folder = folder.rpartition(".")[0]
    return ""
