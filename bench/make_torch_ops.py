"""Writes `pytest_dispatchguard/lint/kinds/torch_ops.py`: what torch's functions and methods return, from the
operator schemas of the torch that is installed. Run with: python bench/make_torch_ops.py"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import torch
import torch.nn.functional as functional

HERE = Path(__file__).resolve().parent.parent / "pytest_dispatchguard" / "lint" / "torch_ops.py"
HAND = {
    # Python functions of torch without a schema of the same name.
    "einsum": "tensor", "cdist": "tensor", "norm": "tensor", "stft": "tensor", "istft": "tensor",
    "tensordot": "tensor", "cartesian_prod": "tensor", "block_diag": "tensor", "chain_matmul": "tensor",
    "unravel_index": "tuple", "meshgrid": "tuple", "split": "list", "broadcast_tensors": "list",
    "atleast_1d": "tensor", "atleast_2d": "tensor", "atleast_3d": "tensor", "unique": "overloaded",
    "unique_consecutive": "overloaded", "lu": "tuple", "tensor": "tensor", "as_tensor": "tensor",
    "eye": "tensor", "randint": "tensor", "randperm": "tensor", "tril_indices": "tensor",
    "triu_indices": "tensor", "hann_window": "tensor", "hamming_window": "tensor",
    "blackman_window": "tensor", "bartlett_window": "tensor", "kaiser_window": "tensor",
    "asarray": "tensor", "from_numpy": "tensor", "from_dlpack": "tensor", "frombuffer": "tensor",
}  # fmt: skip
HAND_METHODS = dict.fromkeys(
    "float half int long short byte char bool double bfloat16 type new_tensor index_fill softmax exp "
    "clone_ ipu xpu cfloat cdouble register_hook_ log_softmax lerp as_subclass view_as_real".split(),
    "tensor",
) | {
    "split": "list",
    "tolist": "host",
    "item": "host",
    "unique": "overloaded",
    "unique_consecutive": "overloaded",
}


def returned(name: str) -> str:
    """tensor, tuple, list, host or overloaded: what the overloads of one operator return."""
    seen = set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if (
            schema.overload_name.endswith(("out", "dimname", "names"))
            or "out" in schema.overload_name
        ):
            continue
        if any(
            a.type.str() in ("int", "float", "complex") and not i
            for i, a in enumerate(schema.arguments)
        ):
            continue  # the scalar overloads of TorchScript: `add(int a, int b)`
        first = schema.arguments[0].type.str() if schema.arguments else ""
        if first in ("str", "t[]", "Dict(str, t)") or first.startswith("Dict"):
            continue
        kinds = [r.type.str() for r in schema.returns]
        if kinds == ["Tensor"]:
            seen.add("tensor")
        elif kinds in (["List[Tensor]"], ["Tensor[]"]):
            seen.add("list")
        elif len(kinds) > 1 and kinds[0] == "Tensor":
            seen.add("tuple")
        elif kinds:
            seen.add("host")
    if len(seen) == 1:
        return seen.pop()
    return "overloaded" if seen >= {"tensor", "tuple"} else ("tensor" if "tensor" in seen else "")


def table(names: set[str], hand: dict[str, str]) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {
        "tensor": set(),
        "tuple": set(),
        "list": set(),
        "overloaded": set(),
        "host": set(),
    }
    for name in names:
        if name.startswith("__") or (name.startswith("_") and not name.startswith("_foreach")):
            continue
        kind = hand.get(name) or returned(name)
        if kind:
            out[kind].add(name)
    return out


def rendered(name: str, doc: str, words: set[str]) -> str:
    body = textwrap.fill(
        " ".join(sorted(words)), 100, break_on_hyphens=False, break_long_words=False
    )
    return f'{name} = frozenset(\n    """\n{body}\n""".split()\n)\n"""{doc}"""\n'


def main() -> None:
    functions = {
        n for n in dir(torch._C._VariableFunctions) if callable(getattr(torch, n, None))
    } | set(HAND)
    methods = {n for n in dir(torch.Tensor) if callable(getattr(torch.Tensor, n, None))}
    nn = {
        n
        for n in dir(functional)
        if callable(getattr(functional, n)) and n.islower() and not n.startswith("_")
        and not inspect.isclass(getattr(functional, n))
        and n not in ("handle_torch_function", "has_torch_function", "has_torch_function_unary",
                      "has_torch_function_variadic", "boolean_dispatch", "overload", "assert_int_or_pair",
                      "importlib", "math", "warnings")
    }  # fmt: skip
    f, m = table(functions, HAND), table(methods, HAND_METHODS)
    text = (
        '"""What torch\'s functions and methods return.\n\nMade by `bench/make_torch_ops.py` from the '
        f"operator schemas of torch {torch.__version__.split('+')[0]}; not written by hand.\n"
        '"""\n\nfrom __future__ import annotations\n\n'
    )
    text += rendered("FUNCTIONS", "`torch.NAME(...)` that returns one tensor.", f["tensor"]) + "\n"
    text += (
        rendered(
            "FUNCTIONS_TUPLE",
            "`torch.NAME(...)` that returns several tensors.",
            f["tuple"] | f["list"],
        )
        + "\n"
    )
    text += (
        rendered("FUNCTIONS_OVERLOADED", "One tensor, or several with `dim=`.", f["overloaded"])
        + "\n"
    )
    text += (
        rendered("FUNCTIONS_HOST", "`torch.NAME(...)` that returns a Python value.", f["host"])
        + "\n"
    )
    text += rendered("METHODS", "`tensor.NAME(...)` that returns one tensor.", m["tensor"]) + "\n"
    text += (
        rendered(
            "METHODS_TUPLE",
            "`tensor.NAME(...)` that returns several tensors.",
            m["tuple"] | m["list"],
        )
        + "\n"
    )
    text += (
        rendered("METHODS_OVERLOADED", "One tensor, or several with `dim=`.", m["overloaded"])
        + "\n"
    )
    text += (
        rendered("METHODS_HOST", "`tensor.NAME(...)` that returns a Python value.", m["host"])
        + "\n"
    )
    text += rendered(
        "NN_FUNCTIONS",
        "`torch.nn.functional.NAME(...)`: one tensor.",
        nn - {"multi_head_attention_forward"},
    )
    HERE.write_text(text)


if __name__ == "__main__":
    main()
