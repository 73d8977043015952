"""Functions that return functions: factories, and decorators with the wrappers they put in place."""

from __future__ import annotations

import re

from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import FunctionFact

_FUNCTION_NAME = re.compile(
    r"_*(?:fn|func|f|fun|function|method|obj|cls|klass|class_|wrapped|wrapped_\w+|forward|callable_?|"
    r"target|user_function|\w+_(?:fn|func|function|method|class))"
)


def returned_functions(project: Project, function_id: str) -> list[str]:
    """The functions that a factory or decorator returns: nested ones, and functions of its module."""
    found: list[str] = []
    module = function_id.partition(":")[0]
    for fact in project.functions.get(function_id, ()):
        for call in fact.calls:
            if call.how != "returned":
                continue
            for inner in (f"{function_id}.<locals>.{call.name}", f"{module}:{call.name}"):
                if inner in project.functions:
                    if inner not in found:
                        found.append(inner)
                    break
    return found


def wrappers(project: Project, decorator_id: str) -> list[str]:
    """The functions that a decorator, or a decorator factory, replaces the decorated function with."""
    result: list[str] = []
    queue = [(decorator_id, 0)]
    while queue:
        current, depth = queue.pop(0)
        for inner in returned_functions(project, current):
            if ".<locals>." not in inner:
                continue
            if any(_decorates(fact) for fact in project.functions[inner]):
                if depth < 4:
                    queue.append((inner, depth + 1))
            else:
                result.append(inner)
    return result


def _decorates(fact: FunctionFact) -> bool:
    """Whether a nested function is itself a decorator: it takes one parameter, named like a function."""
    return len(fact.params) == 1 and _FUNCTION_NAME.fullmatch(fact.params[0]) is not None
