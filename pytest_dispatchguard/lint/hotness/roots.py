"""Entry points: the functions that are hot by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pytest_dispatchguard.lint.callgraph.calls import scope_of, symbols_called
from pytest_dispatchguard.lint.callgraph.class_hierarchy import method_owner, method_owners
from pytest_dispatchguard.lint.callgraph.factories import returned_functions
from pytest_dispatchguard.lint.callgraph.families import families, looks_like_module
from pytest_dispatchguard.lint.callgraph.project import Project, class_of, dotted_id, imports_torch
from pytest_dispatchguard.lint.facts import CallFact, FunctionFact
from pytest_dispatchguard.lint.hotness.cold import Coldness, in_tests, is_kept, path_of
from pytest_dispatchguard.lint.hotness.patterns import Patterns, decorator_names, picked_by
from pytest_dispatchguard.lint.hotness.profile import Observed
from pytest_dispatchguard.lint.hotness.public_api import sets_up
from pytest_dispatchguard.lint.knowledge.cold_names import (
    COPIED_PACKAGES,
    COPIED_PATHS,
    EXPORT_PLACEHOLDERS,
    ONE_TIME_LOOPS,
)
from pytest_dispatchguard.lint.knowledge.entry_points import (
    FORWARDS,
    HOT_ANYWHERE,
    HOT_DECORATORS,
    KERNELS,
    REWORKS_A_MODEL,
    STEPS,
    Known,
)

_PROCESSOR = re.compile(r".*[:.]\w*(?:Attn|Attention)\w*Processor\w*\.__call__")
"""Recognized by the name of the class: attention modules call the processor they are given, and
processors have no common base class."""


_OFTEN = 1.5
"""Calls a step from which a function counts as called more than once in each."""


_HOOK = "a hook that torch calls"


class Root(NamedTuple):
    """A function that is hot by itself."""

    target: str
    reason: str
    per: Literal["call", "step"] = "call"
    only_loops: bool = False
    """Only its loops are hot: the function runs once, its loops run for every batch."""
    surely: bool = False
    """Hot even if its name or location would make it cold."""


def named_roots(project: Project, hot: Patterns) -> dict[str, Root]:
    """Functions that the user named as hot, by comments or in the configuration. A function named itself
    is always hot; if its class or module is named, the usual set-up methods stay cold."""
    roots: dict[str, Root] = {}
    marked = {name for name, class_ in project.classes.items() if class_.mark == "hot"}
    for function_id, facts in project.functions.items():
        if any(fact.mark == "hot" for fact in facts):
            roots[function_id] = Root(function_id, "marked hot", surely=True)
            continue
        if marked and function_id.rpartition(".")[0] in marked:
            roots[function_id] = Root(function_id, "its class is marked hot")
        picked = picked_by(project, function_id, hot, facts)
        if picked:
            exact = picked == dotted_id(function_id) or picked.startswith("@")
            roots[function_id] = Root(function_id, f"matches {picked} in hot-roots", surely=exact)
    return roots


def ran_roots(project: Project, observed: Observed) -> dict[str, Root]:
    """The functions that ran in every step of a trace, or whose loops did."""
    roots: dict[str, Root] = {}
    for function_id, seen in observed.seen.items():
        if function_id not in project.functions:
            continue
        if seen.per_step >= 1:
            once = seen.per_step < _OFTEN
            often = "in every" if once else f"{seen.per_step:.3g} times a"
            reason = f"called {often} step of a trace"
            per: Literal["call", "step"] = "step" if once else "call"
            roots[function_id] = Root(function_id, reason, per, surely=True)
        elif seen.loops:
            reason = "a loop that ran in every step of a trace"
            roots[function_id] = Root(function_id, reason, "step", only_loops=True, surely=True)
    return roots


def library_roots(project: Project, extra: Mapping[str, Known]) -> Iterator[Root]:
    """The methods that libraries call on subclasses of their classes."""
    for class_id in project.classes:
        for name, known in families(project, class_id, extra):
            if name == "torch.autograd.Function" and _is_placeholder(project, class_id):
                continue
            for method in sorted(known.methods):
                for owner in method_owners(project, class_id, method, False):
                    whole = known.module and method in _FORWARDS and owner.endswith("Pipeline")
                    yield Root(
                        f"{owner}.{method}",
                        f"{method} of {known.article} {name}",
                        "step" if whole or method in known.per_step else "call",
                        whole or method in known.only_loops,
                    )
        forward = f"{class_id}.forward"
        if forward in project.functions and looks_like_module(project, class_id):
            yield Root(forward, "forward of what looks like a module")


_FORWARDS = frozenset({"forward", "__call__"})
"""Of what is called a pipeline, these answer a whole request: only their loops are hot."""


def _is_placeholder(project: Project, class_id: str) -> bool:
    """Whether a function of autograd only says what a graph that is exported has in its place."""
    return (
        EXPORT_PLACEHOLDERS.search(class_id.partition(":")[2].rpartition(".")[2]) is not None
        and f"{class_id}.symbolic" in project.functions
        and f"{class_id}.backward" not in project.functions
    )


_IN_STEPS = {"backward": ("step",), "unscale_": ("step", "update")}
"""Methods that a training loop calls in every step, and others beside them that it calls too."""


def _step_roots(project: Project) -> Iterator[Root]:
    """The methods that a training loop calls in every step, on classes with both `backward` and `step`, and
    of scalers of gradients."""
    for known, beside in _IN_STEPS.items():
        for class_id in project.definers.get(known, ()):
            owners = {
                method: method_owner(project, class_id, method) for method in (known, *beside)
            }
            of_module = any(one.module for _, one in families(project, class_id, {}))
            if not owners["step"] or of_module:
                continue
            for method, owner in owners.items():
                if owner:
                    reason = f"{method} of a class with both {known} and step"
                    yield Root(f"{owner}.{method}", reason, "step")


_ACTION = re.compile(r"_?(?:\w+_)?(?:act|actions?)(?:_\w+)?|a")
"""What an environment is given in each step, by its name."""


def _environment_roots(project: Project) -> Iterator[Root]:
    """The `step` of an environment of reinforcement learning: it is given an action, beside a `reset`."""
    for class_id in project.definers.get("reset", ()):
        target = f"{class_id}.step"
        for fact in project.functions.get(target, ())[:1]:
            given = fact.params[1:2]
            if given and _ACTION.fullmatch(given[0]) and _uses_torch(project, target):
                yield Root(target, "step of an environment", "step")


def _computes_a_loss(project: Project, function_id: str, fact: FunctionFact) -> bool:
    """Whether what is called `loss` is given the tensors that it is computed from, and not a data loader."""
    given = [name for name in fact.params if name not in ("self", "cls")]
    loops = fact.over_loader or fact.training_loop or fact.feeds_model
    return (
        len(given) > 1 and fact.takes_tensors and not loops and not in_tests(project, function_id)
    )


def _takes_steps(project: Project, function_id: str, last: str) -> bool:
    """Whether a function is named like a training step, in a file that uses torch."""
    if not STEPS.fullmatch(last) or (last == "act" and not class_of(project, function_id)):
        return False
    return _uses_torch(project, function_id) and not in_tests(project, function_id)


_GIVEN_TO_MODELS = frozenset(
    "attention_mask hidden_states input_ids inputs_embeds pixel_values position_ids".split()
)
"""Names of parameters that hold tensors where there are two of them, whatever a function does with them."""


_FORWARD_OF = re.compile(r"self\._?(?:\w+_)?(?:model|network|module)(?:\.forward)?")
"""The model that a class holds, and calls."""


def model_calls(fact: FunctionFact) -> frozenset[tuple[str, bool]]:
    """The calls of the model that an object holds, each with whether it stands in a loop."""
    return frozenset(
        (call.name, call.loop)
        for call in fact.calls
        if call.name.startswith("self.") and _FORWARD_OF.fullmatch(call.name)
    )


def _forward_loops(fact: FunctionFact) -> list[bool]:
    """Of each call of its `forward`, by that name, whether it stands in a loop."""
    return [loop for name, loop in model_calls(fact) if name.endswith(".forward")]


def _uses_torch(project: Project, function_id: str) -> bool:
    return imports_torch(project.files[path_of(project, function_id)])


def _runs_its_model(project: Project, function_id: str, fact: FunctionFact) -> bool:
    """Whether a method calls the `forward` of the model that its object holds, by that name, as servers do
    for each batch."""
    return (
        class_of(project, function_id) != ""
        and bool(_forward_loops(fact))
        and _uses_torch(project, function_id)
        and not sets_up(function_id)
        and not in_tests(project, function_id)
        and not REWORKS_A_MODEL.search(_described(project, function_id))
    )


_OF_A_TRAINING = frozenset({"callback", "engine", "epoch", "logger", "runner", "step", "trainer"})
"""Parameters of what a training calls now and then."""


def _wraps_its_model(project: Project, function_id: str, fact: FunctionFact) -> bool:
    """Whether a `__call__` is given something and calls the model that its object holds with it: a wrapper of
    a model, and no callback of a training, which also puts the model into another mode."""
    return (
        function_id.endswith(".__call__")
        and bool(model_calls(fact))
        and len(fact.params) > 1
        and _OF_A_TRAINING.isdisjoint(fact.params)
        and not any(call.name.endswith((".eval", ".train")) for call in fact.calls)
        and not (fact.training_loop or fact.feeds_model or in_tests(project, function_id))
        and _uses_torch(project, function_id)
    )


def _named_forward(project: Project, function_id: str, fact: FunctionFact) -> bool:
    """Whether a function is named like what runs in place of a module's `forward`, and is no loop that trains
    or feeds a model. What a class calls plainly `forward` or `backward` is one of a module, or anything, but
    for a `forward` that calls the model that the class holds."""
    last = fact.name.rpartition(".")[2]
    if fact.training_loop or fact.feeds_model or in_tests(project, function_id):
        return False
    if last in ("forward", "backward") and class_of(project, function_id):
        return last == "forward" and bool(model_calls(fact)) and _uses_torch(project, function_id)
    given = fact.takes_tensors or len(_GIVEN_TO_MODELS & set(fact.params)) > 1
    return given and FORWARDS.fullmatch(last) is not None


def _is_kernel(project: Project, function_id: str, fact: FunctionFact) -> bool:
    """Whether a decorator registers a function as an operation, in a file that uses torch."""
    if not any(KERNELS.fullmatch(name.rpartition(".")[2]) for name in fact.decorators):
        return False
    return _uses_torch(project, function_id) and not in_tests(project, function_id)


def _other_roots(project: Project, coldness: Coldness) -> Iterator[Root]:
    """Protocol methods, compiled functions, training loops, hooks."""
    for function_id, facts in project.functions.items():
        last = function_id.rpartition(".")[2].rpartition(":")[2]
        one_time = ONE_TIME_LOOPS.fullmatch(last) is not None
        if (
            facts[0].params
            and _takes_steps(project, function_id, last)
            and not any(fact.over_loader for fact in facts)
        ):
            yield Root(function_id, "a training step, by its name", "step")
        if last == "loss" and _computes_a_loss(project, function_id, facts[0]):
            yield Root(function_id, "a loss, by its name", "step")
        everywhere = HOT_ANYWHERE.get(last)
        if everywhere and class_of(project, function_id):
            yield Root(function_id, everywhere)
        if facts[0].params[1:2] == ["attn"] and _PROCESSOR.fullmatch(function_id):
            yield Root(function_id, "__call__ of an attention processor")
        for fact in facts:
            if _is_kernel(project, function_id, fact):
                yield Root(function_id, "registered as an operation")
            for name in decorator_names(project, function_id, fact):
                if name in HOT_DECORATORS:
                    yield Root(function_id, HOT_DECORATORS[name])
            if fact.takes_batch and not in_tests(project, function_id):
                yield Root(function_id, "takes the next batch of a given iterator", "step")
            if fact.training_loop and not one_time and not in_tests(project, function_id):
                yield Root(function_id, "a training loop", "step", True, True)
            elif (
                fact.feeds_model
                and not (one_time or is_kept(fact) or in_tests(project, function_id))
                and not REWORKS_A_MODEL.search(_described(project, function_id))
            ):
                yield Root(function_id, "a loop that feeds a model", "step", True, True)
            elif _named_forward(project, function_id, fact):
                yield Root(function_id, "a forward, by its name")
            elif _wraps_its_model(project, function_id, fact):
                yield Root(function_id, "calls the model that it holds")
            elif _runs_its_model(project, function_id, fact):
                only_loops = all(_forward_loops(fact))
                yield Root(function_id, "calls the forward of its model", "step", only_loops)
            elif fact.training_step and not one_time and not in_tests(project, function_id):
                yield Root(function_id, "runs backward and an optimizer's step", "step")
            for call in fact.calls:
                if call.how.startswith("hook") and not in_tests(project, function_id):
                    yield from _handed_over(project, function_id, fact, call)


def _described(project: Project, function_id: str) -> str:
    """The names of a function, its class and its file."""
    return f"{path_of(project, function_id).rpartition('/')[2]}:{function_id.partition(':')[2]}"


def _handed_over(
    project: Project, function_id: str, fact: FunctionFact, call: CallFact
) -> Iterator[Root]:
    """The functions that are registered with torch as hooks, or put in place of operations."""
    scope = scope_of(project, function_id)
    for thing in symbols_called(project, scope, fact, call.name):
        if thing.kind != "function":
            continue
        if call.how == "hook-factory":
            for target in returned_functions(project, thing.id):
                yield Root(target, _HOOK)
        elif call.how == "hook":
            yield Root(thing.id, _HOOK)
        elif call.how == "hook-closure":
            yield Root(thing.id, "a closure that an optimizer calls", "step")
        elif not sets_up(thing.id):
            yield Root(thing.id, "put in place of an operation")


def _is_copied(project: Project, function_id: str) -> bool:
    """Whether a function was copied from another project, as its folder says."""
    path = path_of(project, function_id)
    return COPIED_PATHS.search(path) is not None or _is_in_copied_package(project, path)


def _is_in_copied_package(project: Project, path: str) -> bool:
    """Whether a file belongs to a package of others that stands beside, or in, what is no library itself."""
    *folders, _ = path.split("/")
    for number, name in enumerate(folders, 1):
        if name in COPIED_PACKAGES:
            folder = "/".join(folders[:number])
            own = any(f"{folder}/".startswith(f"{one}/") for one in project.packaged)
            return not own and f"{folder}/__init__.py" in project.module_of
    return False


def _trains(project: Project, function_id: str) -> bool:
    """Whether a `forward` is a whole training itself: only its loop is hot then."""
    forward = function_id.endswith(".forward")
    return forward and any(fact.training_loop for fact in project.functions[function_id])


def find_roots(
    project: Project, named: Mapping[str, Root], extra: Mapping[str, Known], coldness: Coldness
) -> list[Root]:
    """All roots, one per function, sorted by function id. What was copied from other projects has none: it
    runs where this project calls it."""
    roots = dict(named)
    for root in library_roots(project, extra):
        if not _trains(project, root.target) and not _is_copied(project, root.target):
            roots.setdefault(root.target, root)
    others = (
        *_other_roots(project, coldness),
        *_step_roots(project),
        *_environment_roots(project),
    )
    for root in others:
        if not _is_copied(project, root.target):
            roots.setdefault(root.target, root)
    return [roots[target] for target in sorted(roots)]
