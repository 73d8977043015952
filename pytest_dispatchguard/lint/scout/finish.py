"""What can be decided only when a whole function, or the whole file, has been read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import (
    CPU,
    PART,
    SCRIPT,
    CallFact,
    FileFacts,
    FunctionFact,
    Value,
    is_telling,
)
from pytest_dispatchguard.lint.knowledge import tensor_words as words
from pytest_dispatchguard.lint.knowledge.cold_branches import names_in
from pytest_dispatchguard.lint.scout.arguments import forms, origin
from pytest_dispatchguard.lint.scout.calls import note_tensor_use
from pytest_dispatchguard.lint.scout.state import Reading, Walk, binding_values, local_values
from pytest_dispatchguard.lint.scout.tensor_api import (
    ModelCallers,
    called_by_forward,
    documented_tensors,
    feeding_rounds,
    feeds_a_model,
    feeds_by,
    goes_over_a_loader,
    loop_head,
    model_callers,
    reads_what_it_is_given,
    takes_a_batch,
    takes_tensors,
)
from pytest_dispatchguard.lint.scout.tensor_guesses import counts, may_be_tensor_attribute
from pytest_dispatchguard.lint.scout.values import text

_MAKES_A_TRAINER = re.compile(
    r"(?:^|\.)optim\.[A-Z]|(?:Adam\w*|SGD|RMSprop|DistributedDataParallel|DDP)$"
)
"""What a function makes that sets up a training of its own, and shows one step of it."""


def settle(walk: Walk, reading: Reading, declared: bool) -> None:
    """Decides what could not be decided before the whole function was read."""
    fact = reading.fact
    assert fact is not None
    outer, walk.reading = walk.reading, reading
    _note_what_layers_take(walk, reading)
    for token in reading.pending:
        if token not in reading.looks and counts(walk, reading, token):
            reading.looks.add(token)
    if _calls_what_it_made(reading):
        reading.looks.add("made-call")
    if any((name, "call") in reading.calls for name in reading.capturing):
        reading.looks.add("def:plain")
    fact.tensors = _tensors(reading)
    fact.yields = reading.yields
    given = [node for node in reading.returns if node is None or node.type != "none"]
    fact.on_cpu = (
        walk.tensors_here
        and bool(given)
        and all(node is not None and origin(walk, reading, node) == CPU for node in given)
    )
    fact.training_loop = reading.backward and reading.step
    fact.training_step = (
        len(reading.trains) == 2
        and not (reading.backward or reading.step)
        and not any(_MAKES_A_TRAINER.search(name) for name, _ in reading.calls)
    )
    if fact.training_loop and reading.step_rounds:
        _leave_steps(walk, reading)
    fact.feeds_model = walk.tensors_here and feeds_a_model(walk, reading)
    fact.over_loader = goes_over_a_loader(walk, reading)
    fact.takes_batch = walk.tensors_here and takes_a_batch(reading)
    fact.returns_function = _returns_function(reading)
    if not declared and not reading.yields:
        fact.returns = _agreed_return(walk, reading)
    walk.reading = outer
    _keep_calls(walk, reading)


_LAYER = re.compile(
    r"call:torch\.nn\.(?!(?:Identity|Module|ModuleDict|ModuleList|Parameter\w*|RNN\w*|LSTM\w*|GRU\w*)$)[A-Z]\w*"
)
"""A layer of torch that takes a tensor, and nothing else; some take packed sequences too."""
_NO_LAYER = frozenset({"none", "call:torch.nn.Identity"})


def _note_what_layers_take(walk: Walk, reading: Reading) -> None:
    """Notes that `x` is a tensor where the function calls `self.norm(x)`, and `self.norm` is a layer of
    torch."""
    if reading.owner is None:
        return
    attributes = reading.owner.attrs
    for name, calls in reading.arguments.items():
        owner, _, attribute = name.rpartition(".")
        if owner != reading.self_name or attribute not in attributes:
            continue
        values = [value for value in attributes[attribute] if value not in _NO_LAYER]
        if not values or not all(map(_LAYER.fullmatch, values)):
            continue
        for arguments in calls:
            for given in arguments.named_children[:1]:
                if arguments.type == "argument_list" and given.type == "identifier":
                    note_tensor_use(walk, text(walk.source, given))


def _leave_steps(walk: Walk, reading: Reading) -> None:
    """Of a training, only what a step does is done again and again: not what an epoch does."""
    whole = [around for around, what in reading.step_rounds.items() if "step" in what]
    whole = [around for around in whole if "backward" in reading.step_rounds[around]]
    steps = {
        around[-1]
        for around, what in reading.step_rounds.items()
        # A step with no backward, around a loop that has both, is for what an epoch leaves over.
        if "backward" in what
        or not any(one != around and one[: len(around)] == around for one in whole)
    }
    outer = {loop for around in whole for loop in around[:-1]}
    # An evaluation beside the training: its loop feeds the model as well.
    steps |= {around[-1] for around in feeding_rounds(walk, reading) if around[-1] not in outer}
    for key, call in reading.calls.items():
        loops = reading.rounds.get(key)
        if loops and not any(steps.intersection(around) for around in loops):
            call.loop = False


def _returns_function(reading: Reading) -> bool:
    """Whether it hands out a function made in it, or what it was given, and nothing else."""
    if not reading.nested and not any(
        n is not None and n.type == "lambda" for n in reading.returns
    ):
        return False
    made = False
    for node in reading.returns:
        if node is None or node.type == "none":
            continue
        names = _names_of(node)
        if node.type == "lambda" or names & reading.nested:
            made = True
        elif node.type != "identifier" or not names <= reading.params:
            return False
    return made


def _names_of(node: Node) -> set[str]:
    """The names that stand in an expression."""
    found: set[str] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if part.type == "identifier" and part.text is not None:
            found.add(part.text.decode())
        stack.extend(part.named_children)
    return found


def _calls_what_it_made(reading: Reading) -> bool:
    """Whether a local that holds the result of a call, or a lambda, is called."""
    return any(
        not isinstance(bound, bool) and bound.type in ("call", "lambda")
        for name, how in reading.calls
        if how == "call"
        for bound in reading.bindings.get(name, ())
    )


def _tensors(reading: Reading) -> list[str]:
    """The names that the function uses as only a tensor can be used."""
    found = []
    for name in reading.tensor_uses:
        if (
            name in reading.tested
            or name in (reading.self_name, "self", "cls")
            or name in reading.hosts
            or name in reading.no_tensors
        ):
            continue
        if any(part in words.NOT_RECEIVERS for part in name.lower().split("_")):
            continue
        root, dot, _ = name.partition(".")
        if dot:
            if root not in reading.bindings and root not in (reading.self_name, "self", "cls"):
                found.append(name)
            continue
        bound = reading.bindings.get(name)
        if name not in reading.params and (bound is None or len(bound) != 1 or bound[0] is False):
            continue
        found.append(name)
    return sorted(found)


def _agreed_return(walk: Walk, reading: Reading) -> Value:
    agreed: list[Value] = []
    for node in reading.returns:
        new = ["none"] if node is None else local_values(walk, node)
        if new == ["unknown"] or len(new) > 1:
            return "unknown"
        agreed.extend(v for v in new if v not in agreed)
        if len(agreed) > 1:
            return "unknown"
    if not agreed:
        return "none"
    return agreed[0]


def _keep_calls(walk: Walk, reading: Reading) -> None:
    """Keeps of all calls, reads and names passed on those that can lead to a function of the
    project."""
    fact = reading.fact
    assert fact is not None
    kept: list[CallFact] = []
    given: dict[str, list[str]] = {}
    own_package = walk.module.partition(".")[0]
    for (name, how), call in reading.calls.items():
        root, dot, rest = name.partition(".")
        if how == "returned":
            if root in reading.nested or not (root in reading.bindings or root in reading.params):
                kept.append(call)
            continue
        if _leads_on(walk, reading, root, rest.rpartition(".")[2] if dot else "", own_package):
            kept.append(call)
            if call.under and call.loop:
                call.under = [c for c in call.under if not reading.bindings.keys() & names_in(c)]
            if how in ("call", "new-scope"):
                if name not in given:
                    given[name] = forms(walk, reading, name)
                call.given = given[name]
    called = {call.name for call in kept}
    for name, call in reading.passed.items():
        root, dot, _ = name.partition(".")
        if root == reading.self_name or root in reading.nested:
            kept.append(call)
        elif root in reading.params or root in reading.bindings:
            if not dot and binding_values(walk, reading, root):
                fact.locals[root] = binding_values(walk, reading, root)
                kept.append(call)
        elif (
            root in walk.imports and walk.imports[root].partition(".")[0] not in words.EXTERNAL
        ) or (root not in walk.imports and root not in words.BUILTINS):
            kept.append(call)
    for name, call in reading.reads.items():
        if name not in called and (name not in reading.passed):
            kept.append(call)
    if not reading.removes:
        kept.extend(reading.hooks)
    fact.calls = kept


_TEXT = re.compile(
    r"token|text|str|json|codec|label|prompt|name|url|path|buffer|random|rng", re.IGNORECASE
)
"""What is no module, by its name."""


def _leads_on(walk: Walk, reading: Reading, root: str, last: str, own_package: str) -> bool:
    fact = reading.fact
    assert fact is not None
    if root in ("super()", reading.self_name) or root in reading.nested:
        return True
    if root in reading.params or root in reading.bindings:
        bound = binding_values(walk, reading, root)
        if bound:
            fact.locals[root] = bound
            return True
        return is_telling(last) and not _TEXT.search(root)
    if _is_given_around(reading, root):
        return is_telling(last) and not _TEXT.search(root)
    target = walk.imports.get(root)
    if target is not None:
        top = target.partition(".")[0]
        return top == own_package or top not in words.EXTERNAL
    return True


def _is_given_around(reading: Reading, name: str) -> bool:
    """Whether a name is a parameter of a function around, and so no name of the module."""
    around = reading.outer
    while around is not None and name not in around.nested:
        if name in around.params:
            return True
        around = around.outer
    return False


def finish(walk: Walk) -> FileFacts:
    """The facts of the file, when all of it has been walked."""
    facts = walk.facts
    own = (
        set(walk.reading.nested)
        | set(facts.assigns)
        | {c.name for c in facts.classes}
        | set(walk.imports)
    )
    methods: dict[str, set[str]] = {}
    for function in facts.functions:
        owner, _, name = function.name.rpartition(".")
        methods.setdefault(owner, set()).add(name)
    has_torch = any(target.partition(".")[0] == "torch" for target in walk.imports.values())
    has_torch = has_torch or any(
        n == "*" and t.partition(".")[0] == "torch" for n, t in facts.imports
    )
    registered = _registered(facts)
    models = model_callers(walk) if walk.tensors_here else ModelCallers()
    forwarded = called_by_forward(walk) if models.all else set()
    stars = any(name == "*" for name, _ in facts.imports)
    for reading in walk.readings:
        fact = reading.fact
        assert fact is not None
        if not has_torch:
            fact.tensors = []
        elif reading.document:
            fact.tensors = sorted({*fact.tensors, *documented_tensors(reading)})
        fact.feeds_model = fact.feeds_model or feeds_by(walk, reading, models, forwarded)
        fact.reads = has_torch and reads_what_it_is_given(walk, reading)
        fact.takes_tensors = has_torch and takes_tensors(reading, reading.document)
        if fact.name in walk.operations:
            fact.decorators = [*fact.decorators, "torch.library.impl"]
        attributes = reading.owner.attrs if reading.owner is not None else {}
        defined = methods.get(reading.owner.name, set()) if reading.owner is not None else set()
        kept = _kept_calls(reading, attributes, defined, own, stars)
        if _is_undone(reading):
            kept = [call for call in kept if not call.how.startswith("hook")]
        fact.calls = [*_spelled_out(kept, defined), *registered.get(fact.name, ())]
        _settle_hinges(reading, fact, attributes, defined)
        fact.looks = sorted(reading.looks)
    if facts.functions and facts.functions[-1].name == SCRIPT:
        is_program = has_torch and _is_program(walk, walk.readings[-1])
        facts.functions = facts.functions if is_program else facts.functions[:-1]
    return facts


def _is_undone(reading: Reading) -> bool:
    """Whether a function around this one takes away its hooks again, as one does that summarizes a model."""
    outer = reading.outer
    while outer is not None and not outer.removes:
        outer = outer.outer
    return outer is not None


def _kept_calls(
    reading: Reading,
    attributes: Mapping[str, object],
    defined: set[str],
    own: set[str],
    stars: bool,
) -> list[CallFact]:
    """The calls of a function without those of builtins, and of attributes that are no methods."""
    fact = reading.fact
    assert fact is not None
    prefix = f"{reading.self_name}."
    kept: list[CallFact] = []
    for call in fact.calls:
        root = call.name.partition(".")[0]
        hooked = call.how.startswith("hook")
        builtin = root in words.BUILTINS and root not in own and root not in reading.nested
        if not hooked and builtin and not stars:
            continue
        if call.how in ("read", "passed") and call.name.startswith(prefix):
            attribute = call.name[len(prefix) :].partition(".")[0]
            if attribute in attributes and attribute not in defined:
                continue
        kept.append(call)
    return kept


_TRIES = re.compile(r"for (?!\w*epoch)\w+ in range\(\d+\)\s*:")
"""A loop that does something a few times: a test of what the file defines, or a measurement."""


def _is_program(walk: Walk, reading: Reading) -> bool:
    """Whether what a module does itself is a training, or feeds a model with more than a number of tries."""
    fact = reading.fact
    assert fact is not None
    loops = {loop for rounds in reading.rounds.values() for around in rounds for loop in around}
    heads = (loop_head(walk, loop) for loop in loops)
    return fact.training_loop or (fact.feeds_model and not all(map(_TRIES.match, heads)))


def _settle_hinges(
    reading: Reading, fact: FunctionFact, attributes: dict[str, list[Value]], methods: set[str]
) -> None:
    """Decides what hinges on attributes of the class; what hinges on calls is left for those who know what
    they return."""
    for token, hinges in reading.pending.items():
        if token in reading.looks:
            continue
        held = any(may_be_tensor_attribute(attributes, name, token) for name in hinges.attributes)
        if held or any(_is_of_attribute(call, reading, methods) for call in hinges.calls):
            reading.looks.add(token)
        elif hinges.calls:
            fact.hinges[token] = sorted(hinges.calls)


def _is_of_attribute(call: str, reading: Reading, methods: set[str]) -> bool:
    """Whether what a token hinges on is a part of what an attribute of self gives, which is no method of the
    class itself: a module, perhaps, that gives several tensors."""
    owner, _, last = call.removesuffix(PART).rpartition(".")
    return call.endswith(PART) and owner.endswith(f".{reading.self_name}") and last not in methods


def _spelled_out(calls: list[CallFact], methods: set[str]) -> list[CallFact]:
    """Calls by the beginning of a name as calls of each method of the class that begins so."""
    found = []
    for call in calls:
        if not call.name.endswith("*"):
            found.append(call)
            continue
        owner, _, begins = call.name[:-1].rpartition(".")
        found += [
            replace(call, name=f"{owner}.{method}")
            for method in sorted(methods)
            if method.startswith(begins)
        ]
    return found


def _registered(facts: FileFacts) -> dict[str, list[CallFact]]:
    """Of functions that hand on by type (`functools.singledispatch`): those that are registered with them."""
    found: dict[str, list[CallFact]] = {}
    dispatching = {
        function.name
        for function in facts.functions
        if any(d.rpartition(".")[2] == "singledispatch" for d in function.decorators)
    }
    for function in facts.functions if dispatching else ():
        for decorator in function.decorators:
            name, _, last = decorator.rpartition(".")
            if last == "register" and name in dispatching:
                found.setdefault(name, []).append(CallFact(function.name, function.line))
    return found
