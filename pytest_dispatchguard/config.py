"""`[tool.dispatchguard]` of the nearest pyproject.toml and the command line, as one frozen Config.

Also the two questions that only settings answer: is a rule selected, and is it ignored in a file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.settings import ALL, SETTINGS, Kind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there before 3.11 only

MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
"""What makes a folder the root of a project."""

PROFILE = Path(".dispatchguard", "profile.json")
"""Where what was recorded of a project lies in it."""
LIBRARY_FOLDERS = ("site-packages", "dist-packages")
"""Folders of installed packages: a project around them does not own what is inside."""

DEFAULT_SRC = (".", "src")

UNPARSABLE = "DG001"
"""The code of files that cannot be read."""

SURELY_FOREIGN = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    ".tox",
    ".nox",
    "node_modules",
    "__pycache__",
    "__pypackages__",
    "*.egg-info",
    ".ipynb_checkpoints",
    ".eggs",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".dispatchguard",
    *LIBRARY_FOLDERS,
)
"""Never looked into below the root."""

PERHAPS_FOREIGN = ("venv", "env", "build", "dist")
"""Not looked into below the root, unless they are packages: `env/__init__.py` is code."""


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of one run; nothing reads settings from anywhere else."""

    root: Path
    """The project root: reported paths and globs are relative to it."""
    file: Path | None = None
    """The pyproject.toml, or ``--config`` file, that the settings came from."""
    select: tuple[str, ...] | None = None
    """Codes and prefixes of the rules that speak; None for the rules of every pack."""
    extend_select: tuple[str, ...] = ()
    """Codes and prefixes added to them, rules that are off by default among them."""
    ignore: tuple[str, ...] = ()
    """Codes and prefixes of rules that stay silent."""
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Globs, as in a .gitignore, and the codes and prefixes silent in the files they match."""
    exclude: tuple[str, ...] = ()
    """Globs of what is passed over, beyond SURELY_FOREIGN, PERHAPS_FOREIGN and git's ignores."""
    hot_roots: tuple[str, ...] = ()
    """Patterns of functions, classes, modules (`pkg.ops.*`) and decorators (`@pkg.hot`)."""
    cold: tuple[str, ...] = ()
    """Patterns, as hot_roots, of what never counts as hot."""
    src: tuple[str, ...] = DEFAULT_SRC
    """Folders that imports start from, relative to the root."""
    tensor_types: tuple[str, ...] = ()
    """Dotted names of further tensor classes."""
    tree_modules: tuple[str, ...] = ()
    """Dotted names of further modules that offer a tree API."""
    baseline: Path | None = None
    """The baseline file."""
    pedantic: bool = False
    """Whether findings that are only maybe right are shown."""
    notes: bool | None = None
    """Whether all notes are shown, or none; None for as many as a page for people has room for."""
    strict: bool = False
    """Whether notes fail a run."""
    budgets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Globs of test ids, and what these tests may cost; the pytest plugin reads them."""
    requires_python: str | None = None
    """`requires-python` of the project."""
    torch_requirement: str | None = None
    """The version specifier of torch among the project's dependencies; empty when it names none."""
    nested: tuple[str, ...] = ()
    """Folders of further projects inside, from which their own packages are imported."""

    @property
    def import_roots(self) -> tuple[str, ...]:
        """The folders from which modules are imported."""
        return (*self.src, *self.nested)


def load_config(
    paths: Sequence[Path],
    *,
    cwd: Path,
    config_file: Path | None = None,
    known_codes: Collection[str],
    **overrides: Any,
) -> Config:
    """Settings for a run over paths: the file's, then what the command line says over them.

    ``overrides`` are fields of Config as the command line gave them; None means not given.
    `select` and `baseline` replace what the file says, the other lists add to it.
    """
    asked = [absolute(cwd / path) for path in paths] or [cwd]
    given = {key: value for key, value in overrides.items() if value is not None}
    chosen = None if config_file is None else absolute(cwd / config_file)
    if chosen is not None and not is_file(chosen):
        raise UserError(f"{config_file}: {_why_no_file(chosen)}")
    root = find_root(asked, chosen)
    file = chosen or next((f for f in (root / "pyproject.toml",) if is_file(f)), None)
    shown = "" if file is None else _shown(file, cwd)
    data: Mapping[str, Any] = {} if file is None else read_toml(file, shown)
    table = _own_table(data, shown, bare=file is not None and file.name != "pyproject.toml")
    settings = _from_table(table, shown, known_codes, file.parent if file else root)
    _override(settings, given, known_codes, cwd)
    owner = root / "pyproject.toml"
    if owner != file:
        data = read_toml(owner, _shown(owner, cwd)) if is_file(owner) else {}
    project = data.get("project")
    metadata: Mapping[str, Any] = project if isinstance(project, dict) else {}
    requires = metadata.get("requires-python")
    return Config(
        root=root,
        file=file,
        nested=nested_roots(root),
        requires_python=requires if isinstance(requires, str) else None,
        torch_requirement=_torch_requirement(metadata),
        **settings,
    )


def selected(config: Config, code: str, default: bool = True) -> bool:
    """Whether the settings let a rule speak.

    The longest matching prefix decides between `select`/`extend-select` and `ignore`, of which ALL is the
    shortest; at equal length `ignore` wins. A rule that is off by default speaks only when one of the two
    selects it by its full code or by ALL, or `extend-select` by at least its family (`DG6`):
    `select = ["DG6"]` narrows what runs and so does not switch more on. DG001 speaks unless `ignore` names
    it.
    """
    chosen = config.select or ()
    wanted = _longest(code, chosen + config.extend_select)
    unwanted = _longest(code, config.ignore)
    if code == UNPARSABLE and unwanted == 0:
        # A file of which nothing was checked must not pass for clean.
        return True
    if wanted == 0 and (config.select is not None or unwanted):
        return False
    if wanted and unwanted >= wanted:
        return False
    return (
        default
        or code in chosen
        or ALL in (*chosen, *config.extend_select)
        or any(code.startswith(prefix) and prefix[-1:].isdigit() for prefix in config.extend_select)
    )


def _longest(code: str, prefixes: Iterable[str]) -> float:
    """How much of a code the longest prefix that stands for it has; 0 where none does, and less for ALL than
    for any other."""
    return max((_reach(code, prefix) for prefix in prefixes), default=0)


def _reach(code: str, prefix: str) -> float:
    return 0.5 if prefix == ALL else len(prefix) * code.startswith(prefix)


def ignored_in_file(config: Config, rel_path: str, code: str) -> bool:
    """Whether `per-file-ignores` silences a code in a file."""
    return any(
        _longest(code, codes) > 0 and glob_pattern(glob).fullmatch(rel_path)
        for glob, codes in config.per_file_ignores
    )


def is_project(config: Config) -> bool:
    """Whether the root is the folder of a project, so that all of it gives hotness its context."""
    if config.file is not None and config.file.parent == config.root:
        return True
    return _has_marker(config.root)


def names_project(folder: Path) -> bool:
    """Whether a folder says that what is in it is to be installed: by a `setup.py`, by what names a
    project, or because it is installed there."""
    if folder.name in LIBRARY_FOLDERS or is_file(folder / "setup.py"):
        return True
    for name, words in (("pyproject.toml", _NAMES_PROJECT), ("setup.cfg", _HAS_METADATA)):
        with suppress(OSError):
            if words.search((folder / name).read_bytes()):
                return True
    return False


_NAMES_PROJECT = re.compile(
    rb"^\s*\[(?:project|build-system|tool\.poetry|tool\.flit)", re.MULTILINE
)
_HAS_METADATA = re.compile(rb"^\s*\[(?:metadata|options)\]", re.MULTILINE)


_DEEPEST_PROJECT = 3
"""Folders below the root: deeper down nobody looks for further projects."""


def nested_roots(root: Path) -> tuple[str, ...]:
    """The folders below the root that are projects of their own, and what they import from: of a
    repository that holds several."""
    if not exists(root / ".git"):
        return ()
    found: list[str] = []
    waiting = [(root, "", 0)]
    while waiting:
        folder, rel, depth = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            names = {}
            for entry in entries:
                names[entry.name] = entry.is_dir(follow_symlinks=False)
            if rel and any(name in names for name in MARKERS[:3]):
                found.append(rel)
                if names.get("src") and not is_file(folder / "src" / "__init__.py"):
                    found.append(f"{rel}/src")
            if depth >= _DEEPEST_PROJECT or "__init__.py" in names:
                continue
            waiting.extend(
                (folder / name, f"{rel}/{name}".lstrip("/"), depth + 1)
                for name, is_folder_ in names.items()
                if is_folder_ and not name.startswith(".") and name not in _NEVER_PROJECTS
            )
    return tuple(sorted(found))


_NEVER_PROJECTS = frozenset({*SURELY_FOREIGN, *PERHAPS_FOREIGN})


def idle_folders(config: Config) -> Iterator[str]:
    """Source folders that are not there, a line each."""
    if config.src == DEFAULT_SRC:
        return
    for folder in config.src:
        if not is_folder(config.root / folder):
            yield f'src: "{folder}" is no folder of the project'


_VERSIONS = re.compile(
    r"\s*(?:~=|===?|!=|<=?|>=?)\s*v?(?:\d+!)?\d+(?:\.\d+)*(?:\.\*)?"
    r"(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*)*(?:\+[\w.]+)?\s*",
    re.IGNORECASE,
)


def unread_python(config: Config) -> Iterator[str]:
    """What to say of a `requires-python` that is no list of versions: rules take it to admit all."""
    requires = config.requires_python or ""
    if not all(_VERSIONS.fullmatch(part) for part in requires.split(",") if part.strip()):
        yield f'requires-python: "{requires}" cannot be read, so every Python is taken to be meant'


def absolute(path: Path) -> Path:
    """The path without `..`, links left as the user wrote them."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute() keeps the `..`


def is_file(path: Path) -> bool:
    """Whether a file is there, as far as anybody may know."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file() fails below a folder that is locked


def is_folder(path: Path) -> bool:
    """Whether a folder is there, as far as anybody may know."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def exists(path: Path) -> bool:
    """Whether anything is there, as far as anybody may know."""
    return os.path.exists(path)  # noqa: PTH110 - as above


def top_package(path: Path) -> Path | None:
    """The outermost package that holds a file or folder, or None outside of packages."""
    folder = path if is_folder(path) else path.parent
    top = None
    while is_file(folder / "__init__.py") and folder.parent != folder:
        top, folder = folder, folder.parent
    return top


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """A .gitignore-like glob as a pattern for the full relative path of a file.

    Without a slash it matches a name at any depth, with one it starts at the root; what lies under
    a matched folder matches too. A folder is asked for with a slash at its end.
    """
    text = glob.strip().removeprefix("./")
    only_folders = text.endswith("/")
    anchored = "/" in text.rstrip("/")
    text = text.strip("/")
    parts = [] if anchored else ["(?:.*/)?"]
    at = 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif text.startswith("**", at):
            parts.append(".*")
            at += 2
        elif text[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif text[at] == "?":
            parts.append("[^/]")
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            negated = inside[0] in "!^"
            parts.append(f"[^/{inside[1:]}]" if negated else f"[{inside}]")
            at = end + 1
        else:
            parts.append(re.escape(text[at]))
            at += 1
    parts.append("/.*" if only_folders else "(?:/.*)?")
    return re.compile("".join(parts), re.DOTALL)


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word most like a mistaken one, letter case aside."""
    # Only mistakes need it, and it takes milliseconds to import.
    import difflib

    by_fold = {option.casefold(): option for option in sorted(valid, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.5)
    return by_fold[close[0]] if close else None


def did_you_mean(word: str, valid: Collection[str]) -> str:
    """The end of an error line: the nearest valid word, or all of them where none is near."""
    near = nearest(word, valid)
    if near is not None:
        return f'did you mean "{near}"?'
    return f"valid are: {', '.join(sorted(valid))}" if valid else "none is known"


def unknown_code(code: str, known_codes: Collection[str]) -> str | None:
    """What to say of a code or prefix that names no rule; None when it names one. Where `known_codes` is a
    mapping to names, a rule's name is answered with its code."""
    if code == ALL or (code and any(known.startswith(code) for known in known_codes)):
        return None
    names = known_codes if isinstance(known_codes, Mapping) else {}
    near_name = nearest(code, names.values()) if "-" in code else None
    if near_name is not None:
        named = next(known for known, name in names.items() if name == near_name)
        return f'"{code}" is no code; for {near_name} write "{named}"'
    stem = next(
        code[:n] for n in range(len(code), -1, -1) if _having(code[:n], known_codes) or not n
    )
    if 4 <= len(stem) < len(code) and (same := _having(stem, known_codes)) and stem not in same:
        return f'unknown code "{code}"; those of {stem} are: {", ".join(same)}'
    families = sorted({known[:-2] for known in known_codes})
    if code[-1:].isdigit() and stem == code[:-1] and any(f[:-1] == stem for f in families):
        return f'unknown code "{code}"; families are: {", ".join(_having(stem, families))}'
    return (
        f'unknown code "{code}"; {did_you_mean(code, known_codes if len(code) > 3 else families)}'
    )


def _having(prefix: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(prefix))


def find_root(paths: Sequence[Path], config_file: Path | None = None) -> Path:
    """The root of the project that holds all the (absolute) paths.

    The nearest folder whose pyproject.toml has a `[tool.dispatchguard]`, so that one file of a
    monorepo is judged as the whole repository is; else the git work tree; else the nearest with any
    marker; else the folder of the ``--config`` file when the paths lie under it; else the folder above the
    outermost package, or the folder itself.
    """
    common = Path(os.path.commonpath([p if is_folder(p) else p.parent for p in paths]))
    first = None
    for folder in _own_ancestors(common):
        pyproject = folder / "pyproject.toml"
        if is_file(pyproject) and _configures(pyproject):
            return folder
        if exists(folder / ".git"):
            return folder
        if first is None and _has_marker(folder):
            first = folder
    if first is not None:
        return first
    if config_file is not None and config_file.parent in (common, *common.parents):
        return config_file.parent
    package = top_package(common)
    return common if package is None else package.parent


def _own_ancestors(folder: Path) -> Iterator[Path]:
    """The folder and those above it, up to one of installed packages."""
    for candidate in (folder, *folder.parents):
        if candidate.name in LIBRARY_FOLDERS:
            return
        yield candidate


def _has_marker(folder: Path) -> bool:
    return any(exists(folder / marker) for marker in MARKERS)


def _configures(pyproject: Path) -> bool:
    try:
        data = pyproject.read_bytes()
        if b"dispatchguard" not in data:
            return False
        return "dispatchguard" in tomllib.loads(data.decode("utf-8-sig")).get("tool", {})
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _why_no_file(path: Path) -> str:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "no such configuration file"


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if cwd in path.parents else str(path)


def read_toml(path: Path, shown: str) -> dict[str, Any]:
    """What a file of TOML holds, which is `shown` as such in what is said of it."""
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        data: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{shown}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown}: not valid TOML: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{shown}: not valid TOML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UserError(f"{shown}: cannot be read: nested too deeply") from None
    return data


def _own_table(data: Mapping[str, Any], shown: str, *, bare: bool) -> Mapping[str, Any]:
    tool = data.get("tool")
    if isinstance(tool, dict) and "dispatchguard" in tool:
        table = tool["dispatchguard"]
        if not isinstance(table, dict):
            raise UserError(f"{shown}: [tool.dispatchguard] must be a table")
        return table
    return data if bare else {}


def _strings(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f'{where} must be a list of strings, such as ["…"]')
    if not all(item.strip() for item in value):
        raise UserError(f"{where} holds an empty string; remove it")
    return tuple(item.strip() for item in value)


def _codes(value: object, where: str, known_codes: Collection[str]) -> tuple[str, ...]:
    written = _strings(value, where)
    codes = tuple(w if "-" in w else w.upper() for w in written)
    for code in codes:
        complaint = unknown_code(code, known_codes)
        if complaint is not None:
            raise UserError(f"{where}: {complaint}")
    return codes


def _globs(value: object, where: str) -> tuple[str, ...]:
    globs = _strings(value, where)
    for glob in globs:
        _check_glob(glob, where)
    return globs


def _check_glob(glob: str, where: str) -> None:
    if glob.startswith("!"):
        raise UserError(f'{where}: "{glob}": no negation here; name what to match')
    if not glob.strip("./"):
        raise UserError(f'{where}: "{glob}" names the whole project; name a part of it')
    try:
        glob_pattern(glob)
    except re.error as error:
        raise UserError(f'{where}: "{glob}" is not a pattern: {error.msg}') from None


def _dotted(value: object, where: str) -> tuple[str, ...]:
    names = _strings(value, where)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f'{where}: "{name}" is no dotted name, such as "package.Name"')
    return names


def _per_file(
    value: object, where: str, known_codes: Collection[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise UserError(
            f'{where} must be a table of globs to lists of codes, such as {{"tests/*" = ["DG4"]}}'
        )
    for glob in value:
        _check_glob(glob, where)
    return tuple(
        (glob, _codes(codes, f'{where} "{glob}"', known_codes)) for glob, codes in value.items()
    )


def _budgets(value: object, where: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise UserError(
            f"{where} must be a table of test ids to limits, such as "
            '{"tests/test_ops.py::*" = {dispatches = 1}}'
        )
    return tuple(value.items())


def budgets_of(pyproject: Path | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """`[tool.dispatchguard.budgets]`: globs of test ids, and limits."""
    if pyproject is None or not is_file(pyproject):
        return ()
    table = _own_table(read_toml(pyproject, pyproject.name), pyproject.name, bare=False)
    where = f"{pyproject.name}: [tool.dispatchguard] budgets"
    return _budgets(table["budgets"], where) if "budgets" in table else ()


def _boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{where} must be true or false")
    return value


def _path(value: object, where: str, folder: Path) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise UserError(f"{where} must be the path of a file")
    return absolute(folder / value)


def _from_table(
    table: Mapping[str, Any], shown: str, known_codes: Collection[str], folder: Path
) -> dict[str, Any]:
    readers: dict[Kind, Callable[[object, str], object]] = {
        "codes": lambda value, where: _codes(value, where, known_codes),
        "codes by glob": lambda value, where: _per_file(value, where, known_codes),
        "globs": _globs,
        "patterns": _strings,
        "folders": _strings,
        "names": _dotted,
        "file": lambda value, where: _path(value, where, folder),
        "flag": _boolean,
        "budgets": _budgets,
    }
    kinds = {setting.key: setting.kind for setting in SETTINGS}
    settings = {}
    where = f"{shown}: [tool.dispatchguard]"
    for key, value in table.items():
        if key not in kinds:
            advice = did_you_mean(key, kinds)
            raise UserError(f'{where}: unknown key "{key}"; {advice}')
        settings[key.replace("-", "_")] = readers[kinds[key]](value, f"{where} {key}")
    return settings


def _override(
    settings: dict[str, Any], given: Mapping[str, Any], known_codes: Collection[str], cwd: Path
) -> None:
    """Lay the command line over the file's settings, in place."""
    for key, value in given.items():
        option = "--" + key.replace("_", "-")
        if key in ("pedantic", "strict"):
            settings[key] = bool(value) or settings.get(key, False)
        elif key == "notes":
            settings[key] = settings.get(key) if value is None else value
        elif key == "baseline":
            settings[key] = _path(value, option, cwd)
        elif key in ("select", "extend_select", "ignore"):
            codes = _codes(list(value), option, known_codes)
            settings[key] = codes if key == "select" else (*settings.get(key, ()), *codes)
            if key != "ignore":
                # Who names a code on the command line wants it, whatever the file ignores.
                own = given.get("ignore") or ()
                settings["ignore"] = tuple(
                    code for code in settings.get("ignore", ()) if code in own or code not in codes
                )
        else:
            raise TypeError(f"{key} is no setting of the command line")


_TORCH = re.compile(r"\s*torch\s*(?:\[[^\]]*\]\s*)?(?P<specifier>(?![\w.-])[^;@]*)", re.IGNORECASE)


def _torch_requirement(project: Mapping[str, Any]) -> str | None:
    extras = project.get("optional-dependencies")
    groups = [project.get("dependencies"), *(extras.values() if isinstance(extras, dict) else ())]
    found = None
    for group in groups:
        for requirement in group if isinstance(group, list) else ():
            match = _TORCH.match(requirement) if isinstance(requirement, str) else None
            if match is None:
                continue
            specifier = match["specifier"].strip().strip("()").replace(" ", "")
            if specifier:
                return specifier
            found = ""
    return found
