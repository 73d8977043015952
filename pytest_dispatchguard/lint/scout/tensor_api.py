"""What tells the scout that a function takes tensors, and that a loop in it feeds a model: signatures,
documentation and use, for want of callers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import CallFact, FunctionFact
from pytest_dispatchguard.lint.knowledge.entry_points import CALLED_MODEL, LOADERS, STEPS, TRAINS
from pytest_dispatchguard.lint.knowledge.tensor_words import TENSOR_METHODS, TORCH_OPS
from pytest_dispatchguard.lint.scout.state import Reading, Walk
from pytest_dispatchguard.lint.scout.tensor_guesses import said_to_be_tensors
from pytest_dispatchguard.lint.scout.values import text

_TENSOR = re.compile(
    r"(?<![\w.])(?:\w+\.)*(?:Tensor|TensorDict(?:Base)?|TensorLike|Parameter|PackedSequence|"
    r"(?:Float|Long|Int|Bool|Half|Byte)Tensor|Batch|Data|HeteroData|TensorType)\b"
)
_DOCUMENTED = re.compile(
    r"[(\[`: ]~?(?:torch\.)?(?:\w*Tensor|TensorDict(?:Base)?|FloatTensor|LongTensor)\b|\btensors?\b"
)
_SETS_UP = re.compile(
    r"\A[\s\"'rRuU]*(?:Loads?|Saves?|Writes?|Reads?|Downloads?|Plots?|Visuali[sz]es?|Draws?|Shows?|Prints?|"
    r"Converts? (?:a |the |an )?(?:model|checkpoint|state|weights)|Exports?|Registers?|Builds?|Sets? up|"
    r"Deprecated|Initiali[sz]es?|Constructs?|Parses?|Serializ|Deserializ|For (?:debugging|testing)|Helper "
    r"for tests)\b",
    re.IGNORECASE,
)
_SEVERAL = frozenset(
    "parameters params grads gradients tensors tensor_list input_tensors grad_tensors".split()
)
"""Names of parameters that hold tensors wherever a function works with tensors at all."""
_WALKS = ("parameters", "named_parameters", "buffers", "state_dict")
_ASKS_MODULES = frozenset(
    """eval train parameters named_parameters state_dict zero_grad requires_grad_ modules named_modules
    load_state_dict""".split()
)
"""Methods of modules; whatever has them called is one."""
_MOVES = re.compile(r"(?!\w*(?:loss|criterion|metric))(\w+)\.(?:to|cuda)")
"""What is moved, and called, is a module: nobody calls a tensor."""
_MODULE = re.compile(r"(?:^|[\[ |.,])(?:torch\.nn\.|nn\.)?(?:Module|PreTrainedModel)\b")
_ASKS_MODEL = re.compile(
    CALLED_MODEL.pattern
    + r"(?:\.(?:module|forward|encode|decode|encoder|decoder|generator|model|predict|\w+_step|step))*"
)
"""The same of a part of it, or of one of its methods."""
_RUNS_A_MODEL = re.compile(
    r"_?(?:forward_\w+|infer(?:ence)?|decode_step|generate_tokens?|predict_on_batch|score_\w+)"
)
"""Methods of models that run them as `forward` does."""
_LONGEST = 4000
"""Characters of documentation that are read."""


def document(walk: Walk, body: Node) -> str:
    """The documentation of a function; empty where it has none."""
    first = next((child for child in body.named_children if not child.is_extra), None)
    if first is None or first.type != "expression_statement" or not first.named_child_count:
        return ""
    said = first.named_children[0]
    return text(walk.source, said)[:_LONGEST] if said.type == "string" else ""


_IN_EVERY_CALL = re.compile(
    r"__call__|_?(?:step|update|apply|advance|reduce|decode|search|score|sample|compute|forward|loss)(?:_\w+)?"
)
"""Methods that are called over and over, by their names."""
_OF_OBJECTS = TENSOR_METHODS - {
    "size",
    "view",
    "dim",
    "stride",
    "t",
    "chunk",
    "narrow",
    "detach",
    "backward",
}


def _holds_tensors(reading: Reading, asked: set[str]) -> bool:
    """Whether a method works on tensors that its object holds, or makes some each time it is called."""
    fact = reading.fact
    assert fact is not None
    if not reading.self_name:
        return False
    prefix = f"{reading.self_name}."
    if _computes(asked):
        return True
    held = any(
        name.startswith(prefix) and name.count(".") > 1 and name.rpartition(".")[2] in _OF_OBJECTS
        for name in asked
    )
    made = _IN_EVERY_CALL.fullmatch(fact.name.rpartition(".")[2]) is not None and any(
        name.startswith("torch.") and name.count(".") == 1 for name in asked
    )
    return held or made


_COMPUTES_WITH = 2
"""Different operations of torch that show that a function computes."""


def _computes(asked: set[str]) -> bool:
    """Whether a function computes with tensors: it calls several operations of torch, whatever it is
    given."""
    called = {
        name.rpartition(".")[2]
        for name in asked
        if name.startswith(("torch.", "F.")) and name.count(".") == 1
    }
    return len(called & (TORCH_OPS | _JOINING)) >= _COMPUTES_WITH


_JOINING = frozenset("cat stack einsum where index_select meshgrid cdist bmm".split())


_CLOCKS = frozenset({"perf_counter", "perf_counter_ns", "elapsed_time"})
_PRINTS = 2
"""So many lines are printed for somebody who waits for them."""


def _tells_people(reading: Reading) -> bool:
    """Whether a function prints several lines, or takes the time: a check, a demonstration, a measurement."""
    clocks = any(name.rpartition(".")[2] in _CLOCKS for name, _ in reading.calls)
    return clocks or len(reading.arguments.get("print", ())) >= _PRINTS


_TELLS = re.compile(r"(?:get|has|is|num|count|to|supports)_")
"""Methods that tell something of their object."""


def takes_tensors(reading: Reading, documented: str) -> bool:
    """Whether a function works on tensors that it is given: by an annotation, its use of them, or what its
    documentation says."""
    fact = reading.fact
    assert fact is not None
    if _SETS_UP.match(documented) or _tells_people(reading):
        return False
    own = {name for name in reading.params if name not in (reading.self_name, "self", "cls")}
    looks, asked = reading.looks, {name for name, _ in reading.calls}
    if fact.tensors and (own or not _TELLS.match(fact.name.rpartition(".")[2])):
        return True
    if not own:
        return _holds_tensors(reading, asked)
    annotated = (
        value[4:]
        for name in own
        for value in reading.param_values.get(name, ())
        if value.startswith("ann:")
    )
    if any(_TENSOR.search(value) for value in annotated):
        return True
    if _holds_tensors(reading, asked):
        return True
    if any(f"{name}.{walk}" in asked for name in own for walk in _WALKS):
        return bool(reading.tensor_uses or {"call:mul_", "call:copy_", "call:lerp_"} & looks)
    if own & _SEVERAL and reading.tensor_uses:
        return True
    if _computes(asked) and not reading.hosts >= own:
        return True
    arguments = re.search(r"\b(?:Args|Arguments|Parameters|Inputs?)\b|:param", documented)
    return arguments is not None and bool(_DOCUMENTED.search(documented, arguments.start()))


def documented_tensors(reading: Reading) -> set[str]:
    """The parameters that the documentation says are tensors, where no annotation says anything."""
    return {
        name
        for name in said_to_be_tensors(reading)
        if not any(v.startswith("ann:") for v in reading.param_values.get(name, ()))
        and name not in reading.tested
        and name not in reading.hosts
    }


_READS = frozenset(
    "call:item call:tolist call:cpu call:numpy bare:float bare:int bare:bool call:any call:all call:equal "
    "call:allclose call:isfinite call:isinf call:isnan".split()
)
_LONGEST_HELPER = 30
"""Lines."""


def reads_what_it_is_given(walk: Walk, reading: Reading) -> bool:
    """Whether a function is a short helper that reads one of its parameters."""
    fact = reading.fact
    assert fact is not None
    own = reading.params - {reading.self_name, "self", "cls"}
    if not own or fact.end_line - fact.line > _LONGEST_HELPER or _READS.isdisjoint(reading.looks):
        return False
    written = _written(walk, fact)
    names = "|".join(map(re.escape, sorted(own)))
    return (
        re.search(
            rf"(?<![\w.])(?:{names})(?:\.\w+(?:\([^()]*\))?|\[[^\]]*\])*?\.(?:item|tolist|cpu|numpy)\(\)"
            rf"|(?<![\w.])(?:float|int|bool)\((?:{names})(?:\.(?!shape|size|numel|dim|item)\w+(?:\([^()]*\))?)+\)"
            rf"|(?<![\w.])(?<!def )(?:math\.)?is(?:finite|inf|nan)\((?:{names})\)"
            rf"|\b(?:if|assert|bool\(|while|not|and|or)[ \n(]+(?:not[ (]+)*"
            rf"(?:torch\.(?:any|all|equal|allclose)\([^#\n]*(?<![\w.])(?:{names})\b"
            rf"|(?:torch\.\w+\()?[^#\n=:]*(?<![\w.])(?:{names})\b(?!\.(?:shape|size|dim))[^#\n:]*\.(?:any|all)\(\))",
            written,
        )
        is not None
    )


_FORWARDS = ("forward", "__call__")


_Place = tuple[str, str]
"""The class, or what else is around a function, and its name."""


@dataclass(frozen=True, slots=True)
class ModelCallers:
    """The functions of a file that call a model, each with the class that has it or inherits it: a class that
    has a `forward` is a model itself."""

    all: frozenset[_Place] = frozenset()
    in_loops: frozenset[_Place] = frozenset()
    """Those that call it in loops of their own only."""


def model_callers(walk: Walk) -> ModelCallers:
    """The functions of the file that call a model."""
    readings = [
        reading
        for reading in walk.readings
        if reading.fact is not None and not reading.fact.name.endswith("__init__")
    ]
    models = {_place_of(r) for r in readings if r.self_name and _place_of(r)[1] == "forward"}
    models |= _inherited(walk, models)
    found: dict[_Place, bool] = {}
    for reading in readings:
        calls = _model_calls(walk, reading, models)
        if calls:
            found[_place_of(reading)] = all(_only_in_loops(reading, call) for call in calls)
    in_loops = {place for place, loops in found.items() if loops}
    return ModelCallers(
        frozenset(models | found.keys() | _inherited(walk, set(found))),
        frozenset(in_loops | _inherited(walk, in_loops)),
    )


def called_by_forward(walk: Walk) -> set[tuple[str, str]]:
    """What the `forward` of a class calls beside it: the whole of such a function is hot, not only its
    loops."""
    return {
        _beside(name, reading)
        for reading in walk.readings
        if reading.fact is not None and _place_of(reading)[1] in _FORWARDS
        for name, how in reading.calls
        if how == "call"
    }


def _place_of(reading: Reading) -> _Place:
    """The class, or what else is around a function, and its name."""
    assert reading.fact is not None
    owner, _, name = reading.fact.name.rpartition(".")
    return owner, name


def _inherited(walk: Walk, found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The same methods of the classes of the file that inherit them, from classes before them."""
    own = {_place_of(reading) for reading in walk.readings if reading.fact is not None}
    of: dict[str, set[str]] = {}
    for owner, name in found:
        of.setdefault(owner, set()).add(name)
    more: set[tuple[str, str]] = set()
    for class_ in walk.facts.classes:
        names = set().union(*(of.get(base, ()) for base in class_.bases))
        gained = {name for name in names if (class_.name, name) not in own}
        if gained:
            of.setdefault(class_.name, set()).update(gained)
            more |= {(class_.name, name) for name in gained}
    return more


def _model_calls(walk: Walk, reading: Reading, models: set[_Place]) -> list[CallFact]:
    """The calls of a model, or a part of one, by its name, or of the `forward` of something, in a function
    that goes through no batches of an epoch."""
    fact = reading.fact
    assert fact is not None
    calls = [
        call
        for (name, how), call in reading.calls.items()
        if how == "call"
        and (
            _ASKS_MODEL.fullmatch(name)
            or _is_forward(name, reading)
            or _beside(name, reading) in models
        )
    ]
    if not calls:
        return []
    takes_all = fact.training_loop or any(map(LOADERS.fullmatch, reading.params))
    if takes_all and all(call.loop for call in calls):
        return []
    over = reading.rounds and _OVER_LOADER.search(_written(walk, fact))
    return [] if over else calls


def _beside(name: str, reading: Reading) -> tuple[str, str]:
    """What a name stands for: a method of the same class, or a function of the file."""
    root, dot, last = name.partition(".")
    if name == reading.self_name and name != "cls":
        return _place_of(reading)[0], "forward"
    if not dot:
        return "", name
    if root == reading.self_name and "." not in last:
        return _place_of(reading)[0], last
    return name, ""


def _written(walk: Walk, fact: FunctionFact) -> str:
    return walk.source[fact.start_byte : fact.end_byte].decode("utf-8", "replace")


def _is_forward(name: str, reading: Reading) -> bool:
    """Whether a name is the `forward` of another object."""
    owner, _, last = name.rpartition(".")
    return last == "forward" and owner not in ("", "super()", reading.self_name)


_NO_STEPS = re.compile(
    r"for [^\n]*?\b\w*(?:epochs?|datasets?|loaders?|tasks?|splits?|folds?|seeds?|trials?|benchmarks?)\b"
    r"[^\n]*? in "
)
"""Loops whose rounds are larger than steps, by what they go over."""


_HEAD = 200


def loop_head(walk: Walk, loop: int) -> str:
    """How a loop begins, that starts at a byte."""
    return walk.source[loop : loop + _HEAD].decode("utf-8", "replace")


def feeds_by(
    walk: Walk, reading: Reading, models: ModelCallers, forwarded: set[tuple[str, str]]
) -> bool:
    """Whether a loop calls a function beside it, or a method of its own class, that calls a model; in a
    function that is not `forwarded` to. A loop over epochs, or data sets, feeds none by a function that loops
    itself."""
    fact = reading.fact
    assert fact is not None
    if _place_of(reading) in forwarded or _place_of(reading)[1] in _FORWARDS:
        return False
    for (name, how), call in reading.calls.items():
        rounds = reading.rounds.get((name, how))
        if how != "call" or not call.loop or not rounds:
            continue
        if {around[-1] for around in rounds} <= _asking_loops(reading):
            continue
        places = {_beside(name, reading), (f"{fact.name}.<locals>", name)}
        if not places.isdisjoint(models.in_loops) and all(
            _NO_STEPS.match(loop_head(walk, around[-1])) for around in rounds
        ):
            continue
        if not places.isdisjoint(models.all):
            return True
    return False


_OVER_LOADER = re.compile(
    r"^[ \t]*(?:async )?for (?:[^\n]+?|\([^()]*\)) in "
    r"[^\n]*\b\w*(?:data_?loader|loader|data_?set|data_?source)\b",
    re.MULTILINE,
)


_ITERATOR = re.compile(
    r"(?:\w*_)?(?:data|batch|loader|dl|train|val|valid|eval|test)\w*?_?iter(?:ator)?|iterator",
    re.IGNORECASE,
)
"""Names of iterators over batches."""


def takes_a_batch(reading: Reading) -> bool:
    """Whether a function asks an iterator over batches, which it is given, for the next one: it runs once for
    each of them."""
    asks = "bare:next" in reading.looks and "loop:next" not in reading.looks
    return asks and not reading.yields and any(map(_ITERATOR.fullmatch, reading.params))


def goes_over_a_loader(walk: Walk, reading: Reading) -> bool:
    """Whether a function that is called as a step goes through a data loader or set, by its name: all batches
    of an epoch."""
    fact = reading.fact
    assert fact is not None
    if "loop" not in reading.looks or not STEPS.fullmatch(fact.name.rpartition(".")[2]):
        return False
    return _OVER_LOADER.search(_written(walk, fact)) is not None


_ENVIRONMENT = re.compile(
    r"^[ \t]*\(?[\w.\[\]]+(?:,\s*[\w.\[\]]+){3,4}\)?\s*=\s*([\w.]+\.step)\(", re.MULTILINE
)
"""`state, reward, done, info = env.step(action)`: what every environment of reinforcement learning gives."""


def _goes_through_an_environment(walk: Walk, reading: Reading) -> bool:
    """Whether a loop has an environment take a step, as a rollout does between two calls of its policy."""
    fact = reading.fact
    assert fact is not None
    stepped = [
        name
        for (name, how), call in reading.calls.items()
        if how == "call"
        and name.endswith(".step")
        and call.loop
        and reading.rounds.get((name, how))
    ]
    if not stepped:
        return False
    return any(found in stepped for found in _ENVIRONMENT.findall(_written(walk, fact)))


def _takes_training_steps(reading: Reading) -> bool:
    """Whether a loop calls what is named like a step of a training."""
    return any(
        call.loop and how == "call" and TRAINS.fullmatch(name.rpartition(".")[2])
        for (name, how), call in reading.calls.items()
        if reading.rounds.get((name, how))
    )


def feeds_a_model(walk: Walk, reading: Reading) -> bool:
    """Whether a loop calls what is surely a module, goes through an environment, or takes steps of a
    training, by their names."""
    if _goes_through_an_environment(walk, reading) or _takes_training_steps(reading):
        return True
    return bool(feeding_rounds(walk, reading))


_WARMS_UP = re.compile(r"for \w+ in range\([^\n]*warm_?up")


def feeding_rounds(walk: Walk, reading: Reading) -> set[tuple[int, ...]]:
    """The loops around calls of what is surely a module, outermost first; but for those that ask somebody for
    every input, and those that only warm up."""
    found: set[tuple[int, ...]] = set()
    for name in _modules(reading):
        call = reading.calls.get((name, "call"))
        if call is not None and call.loop:
            found |= reading.rounds.get((name, "call"), set())
    asking = _asking_loops(reading) if found else set()
    return {
        around
        for around in found
        if around[-1] not in asking and not _WARMS_UP.match(loop_head(walk, around[-1]))
    }


def _asking_loops(reading: Reading) -> set[int]:
    """The loops in which somebody is asked for an input, each the innermost."""
    loops = map(_loop_around, reading.arguments.get("input", ()))
    return {loop.start_byte for loop in loops if loop is not None}


def _only_in_loops(reading: Reading, call: CallFact) -> bool:
    """Whether a function makes a call in loops only."""
    given = reading.arguments.get(call.name, ())
    return call.loop and all(_loop_around(one) is not None for one in given)


def _loop_around(node: Node) -> Node | None:
    """The innermost loop of its function around a node."""
    around = node.parent
    while around is not None and around.type not in _ENCLOSING:
        around = around.parent
    return around if around is not None and around.type in _LOOPS else None


_LOOPS = frozenset({"for_statement", "while_statement"})
_ENCLOSING = _LOOPS | {"function_definition"}


def _modules(reading: Reading) -> set[str]:
    """The names of what is surely a module: the function asks it for its parameters, sets it to evaluate,
    says that it is one, calls it one, or calls its `forward`; and of its methods that run it otherwise."""
    modules = {
        name.rpartition(".")[0]
        for name, how in reading.calls
        if how == "call" and name.rpartition(".")[2] in _ASKS_MODULES and "." in name
    }
    modules |= {
        name
        for name, values in reading.param_values.items()
        if any(value.startswith("ann:") and _MODULE.search(value[4:]) for value in values)
    }
    modules |= {
        moved[1]
        for name, how in reading.calls
        if how == "call" and (moved := _MOVES.fullmatch(name)) is not None
    }
    modules |= {
        name
        for name, how in reading.calls
        if how == "call" and (CALLED_MODEL.fullmatch(name) or _is_forward(name, reading))
    }
    for name, how in reading.calls:
        owner, _, last = name.rpartition(".")
        known = owner in modules or CALLED_MODEL.fullmatch(owner) is not None
        if how == "call" and known and _RUNS_A_MODEL.fullmatch(last):
            modules.add(name)
    return modules - {"", reading.self_name, "super()", "self"}
