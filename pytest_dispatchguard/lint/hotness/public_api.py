"""Functions that work on tensors, and run again and again though nothing hot in the project calls them: the
public API of a library, which users call, and what infers something, as a decorator says."""

from __future__ import annotations

import re

from pytest_dispatchguard.lint.callgraph.families import families, holds_tensors, is_module
from pytest_dispatchguard.lint.callgraph.project import Project, class_of
from pytest_dispatchguard.lint.facts import SCRIPT, FileFacts, FunctionFact
from pytest_dispatchguard.lint.hotness.cold import in_tests, path_of
from pytest_dispatchguard.lint.knowledge.entry_points import LOADERS, OFFERED, REWORKS_A_MODEL
from pytest_dispatchguard.lint.sources.packages import APART

REASON = "called by users of the library"
INFERENCE = "works on tensors without gradients, as inference does"

_SPOKEN = frozenset(
    "__call__ __getitem__ __setitem__ __getattr__ __iter__ __enter__ __exit__".split()
)
"""Methods that Python calls on behalf of users."""
_SETS_UP = re.compile(
    r"(?:make|build|create|construct|init|initiali[sz]e|load|save|write|read|dump|convert|register|plot|draw|"
    r"show|print|parse|set_?up|configure|download|upload|export|import|validate_args|add_arguments?|compile|"
    r"install|attach|mount|hook|freeze|unfreeze|quantize|prune|fold|fuse|equali[sz]e|replace|inject|"
    r"wrap|unwrap|patch|apply_to|share|clone|copy|merge|reparameteri[sz]e|post_init|"
    r"unpack_\w*weights?|transform_(?:cpu|gpu|weights?)|zero_init|"
    r"(?:prepare|preprocess|process)_(?:model|module|dataset|data|dataloader|file|optimizer|config|args|weights)|"
    r"download|extract_archive|collate|tokenize|encode_text|"
    r"test|sweep|tune|autotune|calibrat\w+|measure|time|check_(?:model|config|version)|summar(?:y|ize)|describe|profile|benchmark|visuali[sz]e|inspect|"
    r"get_(?:model|config|dataset|loader|optimizer|scheduler|logger|args|parser|state)|"
    r"state_dict|load_state|to_(?:dict|json|onnx|file|disk)|fit|"
    r"from_(?!(?:batch|coords|dense|edges|euler|features|indices|input_ids|inputs?|lengths|lists?|logits|mask|matrix|numpy|offsets|padded|"
    r"points|probs|quat\w*|rotation\w*|rows|seq\w*|sparse|tensors?|tokens?|values|vector\w*)(?:_|$))\w+|"
    r"train(?:er)?|run|main|launch|spawn|"
    r"share_memory|pin_memory|set_\w+|enable|disable|count_(?:params|parameters|flops)|"
    r"compute_\w*stat(?:s|istics)|compute_(?:avg|average|mean)_num|guess|(?:get|make|sample)_init|\w+_(?:plots?|figures?)|"
    r"(?:get_)?(?:rand(?:om)?|dummy|fake|mock|synthetic)_(?:data|inputs?|batch)|add_\w*adapters?|partial_fit|calculate_fan|weights?_init|init_weights|fill_|kaiming|xavier|orthogonal|trunc_normal|\w+_init$)(?:_\w*)?_?"
)
"""Names of functions that run once, or are called by hand."""
_FOR_PEOPLE = re.compile(r"Test(?:er|Case)?s?$|^Test|Bench|Profiler|Demo|Example|Verifier|Tuner")
"""Classes that demonstrate, measure or display something."""
_FOR_COMPARISON = re.compile(
    r"\w+_(?:ref|reference|old|legacy|naive|slow|deprecated|orig|original|debug)"
)
"""Names of reference implementations and of compatibility code."""
_MADE_IN_CALLS = re.compile(
    r"_?(?:make|build|create|construct|init|prepare|get)_\w*(?:mask|masks|bias|biases|positions?|position_ids|inputs?|"
    r"latents|noise|grid|coords|embeds?|embeddings?|batch|labels|targets)"
)
"""Names of objects that are created for every input."""


_WITHOUT_GRADIENTS = re.compile(r"(?:torch\.)?(?:inference_mode|no_grad)")
_WORKS_ON_WEIGHTS = re.compile(r"observer|_lora|lora_|restart", re.IGNORECASE)


def why_offered(project: Project, function_id: str) -> str:
    """Why a function may run again and again though nothing hot in the project calls it: users of the library
    do, or a decorator says that it infers something from tensors. Empty where nothing says so."""
    if is_offered(project, function_id):
        return REASON
    return INFERENCE if _infers(project, function_id) else ""


def _infers(project: Project, function_id: str) -> bool:
    facts = project.functions[function_id]
    if not any(map(is_without_gradients, facts)) or "<locals>" in function_id:
        return False
    described = f"{path_of(project, function_id)}:{function_id.partition(':')[2]}"
    return (
        all(f.takes_tensors and not (f.over_loader or f.feeds_model) for f in facts)
        and not sets_up(function_id)
        and not in_tests(project, function_id)
        and not REWORKS_A_MODEL.search(described)
        and not _WORKS_ON_WEIGHTS.search(described)
    )


def is_without_gradients(fact: FunctionFact) -> bool:
    """Whether a decorator switches gradients off."""
    return any(map(_WITHOUT_GRADIENTS.fullmatch, fact.decorators))


def is_offered(project: Project, function_id: str) -> bool:
    """Whether users of the library call a function, judged by its name and parameters. It may still be
    cold."""
    known = project.memo_offered.get(function_id)
    if known is None:
        known = project.memo_offered[function_id] = _is_offered(project, function_id)
    return known


def sets_up(function_id: str) -> bool:
    """Whether a function is named like one that runs once."""
    name = function_id.rpartition(".")[2].rpartition(":")[2].lower()
    if _FOR_COMPARISON.fullmatch(name):
        return True
    return _SETS_UP.fullmatch(name) is not None and _MADE_IN_CALLS.fullmatch(name) is None


def _is_offered(project: Project, function_id: str) -> bool:
    facts = project.functions[function_id]
    name = function_id.partition(":")[2]
    *around, last = name.split(".")
    works = any(map(_works_on_tensors, facts)) or _is_of_a_container(project, function_id)
    # Most functions are decided here; looking at where they are defined takes longer.
    if not works and last not in OFFERED:
        return False
    if "<locals>" in name or not _is_in_library(project, function_id):
        return False
    if is_training_script(project.files[path_of(project, function_id)]):
        return False
    if any(part.startswith("_") or _FOR_PEOPLE.search(part) for part in around):
        return False
    owner = class_of(project, function_id)
    if owner and any(last in known.offered for _, known in families(project, owner, {})):
        return True
    if not works or in_tests(project, function_id):
        return False
    if any(map(takes_all, facts)):
        return False  # it runs once an epoch
    if any(map(_is_registered, facts)):
        return True
    return (not last.startswith("_") or last in _SPOKEN) and not sets_up(function_id)


def takes_all(fact: FunctionFact) -> bool:
    """Whether a function is given all batches of an epoch, by the names of its parameters."""
    return any(map(LOADERS.fullmatch, fact.params))


def is_training_script(facts: FileFacts) -> bool:
    """Whether a file is a program that trains, with what it needs for that beside it."""
    trains = any(fact.training_loop for fact in facts.functions)
    return trains and any(fact.name in ("main", SCRIPT) for fact in facts.functions)


_REGISTERS = re.compile(
    r"(?:\w*[._])?(?:register(?:_(?!fake|abstract|buffer)\w+)?|implements(?:_\w+)?|impl|custom_op)"
)


def _is_registered(fact: FunctionFact) -> bool:
    """Whether a decorator registers a function, for example in a table of operations."""
    return any(_REGISTERS.fullmatch(name.rpartition(".")[2]) for name in fact.decorators)


_NO_CONTAINER = re.compile(
    r"Collat|(?:App|Batcher|Builder|Calculator|Callback|Client|Config|Controller|Data(?:set|loader|Module)|Engine|Env|"
    r"Factory|Generator|Hook|Linear|Loader|Logger|Manager|Modifier|Observer|Posterior|Pruner|Quantizer|Reader|"
    r"Reporter|Runner|Sampler|Server|Session|Solver|Trainer|Window|Worker|Writer)s?(?![a-z])"
)
"""Classes that are no containers of tensors, by their names, though they may hold some."""


def _is_of_a_container(project: Project, function_id: str) -> bool:
    """Whether a method belongs to a class whose instances hold tensors, and is no module."""
    owner = function_id.rpartition(".")[0]
    class_ = project.classes.get(owner)
    return (
        class_ is not None
        and holds_tensors(class_)
        and _NO_CONTAINER.search(class_.name) is None
        and not function_id.endswith(".__init__")
        and not is_module(project, owner)
    )


def _works_on_tensors(fact: FunctionFact) -> bool:
    return (fact.takes_tensors and not fact.name.endswith(".__init__")) or _launches(fact)


_LAUNCHERS = re.compile(
    r"(?!.*(?:Builder|Compiler|Factory|Pass|Prepare|Registry))"
    r".*(?:Kernel|Launch|Compiled|Fusion|J[Ii][Tt]|C[Uu][Dd][Aa]Graph|Graphed|Executable)"
)


def _launches(fact: FunctionFact) -> bool:
    """Whether a method runs something compiled with whatever it is given, in every call of that."""
    owner, _, last = fact.name.rpartition(".")
    if last != "__call__":
        return False
    passes_on = any(re.fullmatch(r"\*\w+", name) for name in fact.params[1:2])
    return passes_on and _LAUNCHERS.match(owner) is not None


def _is_in_library(project: Project, function_id: str) -> bool:
    path = path_of(project, function_id)
    return any(path.startswith(f"{folder}/") for folder in project.packaged) and not APART.search(
        path
    )
