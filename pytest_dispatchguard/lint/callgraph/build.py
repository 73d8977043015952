"""Build the project's tables from the facts of its files, and update them when files change."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from pytest_dispatchguard.lint.callgraph.class_hierarchy import mro
from pytest_dispatchguard.lint.callgraph.name_resolution import bases
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import ClassFact, FileFacts, FunctionFact
from pytest_dispatchguard.lint.sources.module_names import module_name


def build(
    files: Mapping[str, FileFacts],
    roots: Sequence[str] = (),
    packaged: frozenset[str] = frozenset(),
) -> Project:
    """The project of these files, by path relative to the project root; `packaged` are its packages that get
    installed."""
    modules: dict[str, str] = {}
    module_of: dict[str, str] = {}
    for path in sorted(files):
        module = module_name(path, roots)
        if module in modules:
            module = module_name(path)
            while module in modules:
                module += "_"
        modules[module] = path
        module_of[path] = module
    functions: dict[str, list[FunctionFact]] = {}
    classes: dict[str, ClassFact] = {}
    definers: dict[str, list[str]] = {}
    methods: dict[str, list[str]] = {}
    bound: dict[str, dict[str, list[str]]] = {}
    stars: dict[str, list[str]] = {}
    for module, path in modules.items():
        facts = files[path]
        for class_ in facts.classes:
            identity = f"{module}:{class_.name}"
            classes[identity] = class_
        for function in facts.functions:
            functions.setdefault(f"{module}:{function.name}", []).append(function)
        for class_id, name in methods_defined(facts, module, classes):
            definers.setdefault(name, []).append(class_id)
            methods.setdefault(class_id, []).append(name)
        starred = [target for name, target in facts.imports if name == "*"]
        if starred:
            stars[module] = starred
        bound[module] = names_bound(facts, module)
    project = Project(
        dict(files),
        modules,
        module_of,
        functions,
        classes,
        definers,
        methods,
        packages_of(modules),
        bound,
        stars,
        bases,
        packaged=packaged,
    )
    for identity in classes:
        for base in mro(project, identity)[1:]:
            if ":" in base:
                project.subclasses.setdefault(base, []).append(identity)
    return project


def packages_of(modules: Iterable[str]) -> frozenset[str]:
    """The names of modules, and of the packages that contain them."""
    found: set[str] = set()
    for module in modules:
        name = module
        while name and name not in found:
            found.add(name)
            name = name.rpartition(".")[0]
    return frozenset(found)


def methods_defined(
    facts: FileFacts, module: str, classes: Container[str]
) -> Iterator[tuple[str, str]]:
    """Class ids with the names of the methods that the classes of a file define, each once, in order."""
    for name in dict.fromkeys(function.name for function in facts.functions):
        owner, _, last = name.rpartition(".")
        if f"{module}:{owner}" in classes:
            yield f"{module}:{owner}", last


def names_bound(facts: FileFacts, module: str) -> dict[str, list[str]]:
    """The names of a module, as in `Project.bound`."""
    names: dict[str, list[str]] = {}
    for class_ in facts.classes:
        if "." not in class_.name:
            names.setdefault(class_.name, []).append(f"={module}:{class_.name}")
    for name in dict.fromkeys(f.name for f in facts.functions if "." not in f.name):
        names.setdefault(name, []).append(f"={module}:{name}")
    for name, target in facts.imports:
        if name != "*":
            names.setdefault(name, []).append(target)
    for name, found in facts.assigns.items():
        if name not in names:
            names[name] = ["@" + v for v in found if v.startswith(("name:", "call:", "item:"))]
    return names


def replace_facts(project: Project, new: Mapping[str, FileFacts]) -> None:
    """Replace the facts of files whose classes and imports stay the same. What names stand for is not looked
    up again: the caller knows that it still holds."""
    for rel, facts in new.items():
        module = project.module_of[rel]
        old = project.files[rel]
        project.files[rel] = facts
        for function in old.functions:
            project.functions.pop(f"{module}:{function.name}", None)
            project.memo_calls.pop(f"{module}:{function.name}", None)
            project.memo_offered.pop(f"{module}:{function.name}", None)
        for function in facts.functions:
            project.functions.setdefault(f"{module}:{function.name}", []).append(function)
        project.classes.update((f"{module}:{class_.name}", class_) for class_ in facts.classes)
        project.bound[module] = names_bound(facts, module)
        had = dict.fromkeys(methods_defined(old, module, project.classes))
        has = dict.fromkeys(methods_defined(facts, module, project.classes))
        if had.keys() != has.keys():
            _redefine(project, had, has)


def _redefine(
    project: Project, had: Iterable[tuple[str, str]], has: Collection[tuple[str, str]]
) -> None:
    for class_id, name in had:
        project.definers[name].remove(class_id)
        project.methods[class_id].remove(name)
    for class_id, name in has:
        project.definers.setdefault(name, []).append(class_id)
        project.methods.setdefault(class_id, []).append(name)
    places = {module: number for number, module in enumerate(project.modules)}
    for _, name in has:
        # Stable: within a module they are in order.
        project.definers[name].sort(key=lambda class_id: places[class_id.partition(":")[0]])
