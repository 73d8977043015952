"""What the reader makes of values: kinds through assignments, unpacking, annotations, narrowing, loops."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.lint.callgraph import build
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.dataflow.statements import read_function
from pytest_dispatchguard.lint.facts import Brief
from pytest_dispatchguard.lint.hotness import solve
from pytest_dispatchguard.lint.judge import briefs, judge
from pytest_dispatchguard.lint.kinds.kinds import Kind
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.syntax import chunks
from pytest_dispatchguard.lint.syntax.spelling import text

HEAD = """
from __future__ import annotations
import math
from typing import Dict, List, Optional, Tuple, Union
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
"""


def project_brief(source: str) -> tuple[str, Brief]:
    whole = HEAD + textwrap.dedent(source)
    made = build.build({"mod.py": scan.scan(whole, "mod", False)})
    return whole, briefs.Briefer(made, solve.solve(made)).brief("mod.py")


def read(source: str) -> Reader:
    """The reader after reading the hot function (or method) of the source that calls `show`."""
    whole, brief = project_brief(source)
    facts = scan.scan(whole, "mod", False)
    lines = chunks.Lines(whole)
    for outline in chunks.worth_judging(facts, brief.hot, (), {}, (), frozenset({"call:show"})):
        return read_function(judge.Chunk(lines, outline).function, brief, outline.name)
    raise AssertionError("no hot function calls show")


def shown(source: str) -> list[Kind]:
    """The kinds of what is given to `show(...)`, call by call, in the order of reading."""
    reader = read(source)
    calls = [e.node for e in reader.events if e.event == "call" and e.name == "show"]
    return [reader.kinds[id(a.value)] for c in calls if isinstance(c, cst.Call) for a in c.args]


def body(statements: str, params: str = "x: torch.Tensor") -> str:
    inner = textwrap.indent(textwrap.dedent(statements), "    ")
    return f"# dispatchguard: hot\ndef f({params}):\n{inner}\n"


def word(kind: Kind) -> str:
    """A kind in one word: what it is, `?` where nobody is sure, `@cpu` where it surely is there."""
    name = kind.what + ("" if kind.sure or kind.what == "unknown" else "?")
    if kind.host:
        name += "@cpu"
    if kind.roaming:
        name += "@any"
    return name + ("|none" if kind.optional else "")


def words(source: str) -> list[str]:
    return [word(k) for k in shown(source)]


# -- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    expression: str
    kind: str


TENSORS = """
x -x x+1 1-x x@x x*2.0 x[0] x[:,None] x[x>0] x==1 x!=x x>0.5 ~(x>0) x.sum() x.sum(0) x.max() x.any() x.T
x.data x.detach() x.clone() x.view(-1) x.reshape(2,-1) x.to(torch.float16) x.float() x.long() x.cuda()
x.to(device) x.new_zeros(3) x.unsqueeze(0).expand(2,-1) x.masked_fill(x>0,0) torch.relu(x) F.relu(x)
F.softmax(x,dim=-1) torch.cat([x,x]) torch.stack([x,x]) torch.where(x>0,x,0) torch.zeros_like(x)
torch.einsum("ij->i",x) torch.linalg.norm(x) torch.zeros(3,device=device) torch.ones(2,device="cuda")
torch.sort(x)[0] x.topk(2)[1] x.max(dim=0)[0] x.max(0).values x.chunk(2)[0] torch.Tensor.relu(x)
sum([x,x]) max(x,x) abs(x) (x)
""".split()

HOST_TENSORS = """
torch.zeros(3) torch.ones(2,2) torch.tensor([1,2]) torch.tensor(0.5) torch.arange(4) torch.rand(1)
torch.randperm(4) torch.full((2,),1.0) torch.zeros(3,device="cpu") torch.from_numpy(a) x.cpu()
x.to("cpu") x.to(torch.device("cpu")) x.sum().cpu() torch.zeros(3)+1 torch.zeros(3)>0.5 torch.rand(1)>p
torch.arange(4)*scale torch.zeros(3)[0] torch.zeros(3).sum() torch.stack([torch.zeros(2),torch.ones(2)])
torch.relu(torch.zeros(3)) torch.zeros_like(torch.ones(2)) torch.arange(4).max(dim=0)[0] torch.div(7,2)
torch.zeros_like(x,device="cpu") torch.sort(torch.rand(3))[0] x.cpu().new_zeros(2) torch.zeros(3).T
torch.where(torch.rand(3)>0.5)[0] torch.empty(1).uniform_(0,1) torch.tensor(x.cpu())
""".split()

SCALARS = """
1 0.5 True 1j -1 not_x x.shape[0] x.shape[-1] x.size(0) x.size(-1) x.dim() x.ndim x.numel() x.nelement()
len(x) x.requires_grad x.is_cuda x.is_leaf x.item() x.sum().item() int(x) float(x.sum()) bool(x)
x.is_floating_point() x.is_contiguous() x.element_size() x.data_ptr() x.stride(0) x.shape[0]//2
x.shape[0]==2 x.dtype==torch.bool x.device==x.device xisNone xisnotNone isinstance(x,Tensor) hasattr(x,"a")
math.sqrt(2) torch.is_tensor(x) torch.equal(x,x) x.allclose(x) torch.is_grad_enabled() id(x) 1+2 1<2 "a"=="b"
xinys notx math.pi+1 x.tolist()[0] torch.numel(x)
""".split()


def spaced(expression: str) -> str:
    return {
        "not_x": "not x",
        "notx": "not x",
        "xisNone": "x is None",
        "xisnotNone": "x is not None",
        "xinys": "x in ys",
    }.get(expression, expression)


PARAMS = "x: Tensor, device, a, p, scale, ys"


@pytest.mark.parametrize("expression", TENSORS)
def test_expressions_that_are_tensors_on_a_device(expression: str) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert kind.is_tensor and kind.on_device, kind


@pytest.mark.parametrize("expression", HOST_TENSORS)
def test_expressions_that_are_tensors_on_the_cpu(expression: str) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert kind.is_tensor and kind.host and not kind.on_device, kind


@pytest.mark.parametrize("expression", SCALARS)
def test_expressions_that_are_host_values(expression: str) -> None:
    (kind,) = shown(body(f"show({spaced(expression)})", PARAMS))
    assert kind.what == "scalar" and kind.sure, kind
    assert kind.not_tensor and not kind.maybe_tensor


@pytest.mark.parametrize(
    "expression, what",
    [
        ("x.shape", "nested"),
        ("x.size()", "nested"),
        ("x.dtype", "other"),
        ("x.device", "other"),
        ("torch.float32", "other"),
        ("torch.device('cpu')", "other"),
        ("np.zeros(3)", "other"),
        ("x.cpu().numpy()", "other"),
        ("'a' + 'b'", "text"),
        ("f'{x}'", "text"),
        ("str(x)", "text"),
        ("None", "none"),
        ("[x, x]", "nested"),
        ("{'a': x}", "nested"),
        ("(x, 1)", "nested"),
        ("[v for v in x]", "nested"),
        ("lambda v: v", "function"),
        ("nn.Linear(2, 2)", "module"),
        ("nn.Sequential()", "modules"),
        ("x.split(2)", "nested"),
        ("torch.meshgrid(x, x)", "nested"),
        ("x.tolist()", "nested"),
        ("range(3)", "nested"),
    ],
)
def test_expressions_that_are_surely_something_else(expression: str, what: str) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert kind.what == what and kind.not_tensor, kind


@pytest.mark.parametrize(
    "expression",
    [
        "a",
        "a + 1",
        "a.b",
        "a[0]",
        "a()",
        "a == 1",
        "a.sum()",
        "ys[0]",
        "device",
        "unheard_of(x)",
        "a > p",
    ],
)
def test_what_nobody_knows_is_unknown(expression: str) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert not kind.is_tensor and not kind.not_tensor, kind


@pytest.mark.parametrize(
    "expression, dtype",
    [
        ("x > 0", "bool"),
        ("x.isnan()", "bool"),
        ("x.bool()", "bool"),
        ("(x > 0) & (x < 1)", "bool"),
        ("~(x > 0)", "bool"),
        ("(x > 0)[0]", "bool"),
        ("(x > 0).view(-1)", "bool"),
        ("torch.logical_not(x)", "bool"),
        ("x.to(torch.bool)", "bool"),
        ("torch.ones(3, dtype=torch.bool)", "bool"),
        ("x.any()", "bool"),
        ("x.argmax()", "int"),
        ("x.nonzero()", "int"),
        ("x.long()", "int"),
        ("torch.arange(4)", "int"),
        ("x.to(dtype=torch.float32)", "float"),
        ("x", ""),
        ("x + 1", ""),
    ],
)
def test_dtypes(expression: str, dtype: str) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert kind.is_tensor and kind.dtype == dtype


@pytest.mark.parametrize(
    "expression, ndim",
    [
        ("x.sum()", 0),
        ("x.max()", 0),
        ("x.argmax()", 0),
        ("torch.sum(x)", 0),
        ("x.sum() + 1", 0),
        ("x.sum() > x.mean()", 0),
        ("torch.tensor(1.0)", 0),
        ("torch.zeros(())", 0),
        ("torch.arange(4)", 1),
        ("torch.arange(4)[0]", 0),
        ("torch.arange(4)[1:]", None),
        ("x.sum(0)", None),
        ("x.sum(dim=-1)", None),
        ("x", None),
        ("x[0]", None),
        ("x > 0", None),
        ("x.sum() + x", None),
    ],
)
def test_dimensions(expression: str, ndim: int | None) -> None:
    (kind,) = shown(body(f"show({expression})", PARAMS))
    assert kind.ndim == ndim


# -- names -----------------------------------------------------------------------------------------


def test_assignments_carry_kinds() -> None:
    source = body(
        """
        y = x * 2
        n = y.shape[0]
        z = w = y
        y = n
        m: int = 3
        t: Tensor = unheard_of(x)
        show(x, y, n, z, w, m, t)
        """
    )
    assert words(source) == ["tensor", "scalar", "scalar", "tensor", "tensor", "scalar", "tensor"]


def test_an_annotation_without_a_value_counts() -> None:
    assert words(body("y: Tensor\nshow(y)")) == ["tensor"]


def test_augmented_assignments() -> None:
    source = body(
        """
        total = 0
        total += x
        n = 1
        n += 2
        show(total, n)
        x += n
        show(x)
        """
    )
    assert words(source) == ["tensor", "scalar", "tensor"]


@pytest.mark.parametrize(
    "statement, kinds",
    [
        ("a, b = x, 1", ["tensor", "scalar"]),
        ("a, b = x.shape", ["scalar", "scalar"]),
        ("(a, b) = x.chunk(2)", ["tensor", "tensor"]),
        ("[a, b] = [x, x]", ["tensor", "tensor"]),
        ("a, b = torch.max(x, dim=0)", ["tensor", "tensor"]),
        ("a, b = x.sort()", ["tensor", "tensor"]),
        ("a, *b = x.shape", ["scalar", "nested"]),
        ("a, (b, c) = 1, (x, 2)", ["scalar", "tensor"]),
        ("a = b = x", ["tensor", "tensor"]),
        ("a, b = unheard_of(x)", ["unknown", "unknown"]),
        ("a, b = x", ["tensor", "tensor"]),
        ("a, b = x.topk(2, dim=-1)", ["tensor", "tensor"]),
        ("a, b = F.max_pool2d(x, 2, return_indices=True)", ["tensor", "tensor"]),
    ],
)
def test_unpacking(statement: str, kinds: list[str]) -> None:
    assert words(body(f"{statement}\nshow(a, b)")) == kinds


def test_the_elements_of_nested_values() -> None:
    source = body(
        """
        pair = (x, 1)
        table = {"a": x, "b": x * 2}
        many = [x, x]
        show(pair[0], pair[1], pair[-1], table["a"], many[0], many[1:], many[1:][0])
        show(table.get("a"), many.pop(), *[x])
        for key in table:
            show(key)
        for key, value in table.items():
            show(key, value)
        for value in table.values():
            show(value)
        """
    )
    assert words(source) == [
        "tensor", "scalar", "scalar", "tensor", "tensor", "nested", "tensor",
        "tensor|none", "tensor", "nested",
        "unknown",
        "text", "tensor",
        "tensor",
    ]  # fmt: skip


def test_lists_and_tables_hold_what_is_put_into_them() -> None:
    source = body(
        """
        rows, counts, both, late = [], [], [], []
        groups, named = defaultdict(list), {}
        for i in range(3):
            rows.append(x[i])
            counts.append(x.shape[0])
            both.append(x[i])
            both.append(1)
            groups[i].append(x[i])
            named.setdefault("rows", []).append(x[i])
            if i:
                late.append(x[i].cpu())
        show(rows[0], counts[0], both[0], groups[0][1], named["rows"][0], late[0])
        for row in rows:
            show(row)
        """
    )
    assert words("from collections import defaultdict\n" + source) == [
        "tensor", "scalar", "tensor?", "tensor", "tensor", "tensor@cpu",
        "tensor",
    ]  # fmt: skip


def test_what_was_in_a_list_before_is_not_forgotten() -> None:
    source = body(
        """
        known = list(given)
        known.append(x)
        made = []
        made.append(given)
        made.append(x)
        show(known[0], made[0])
        """,
        "x: torch.Tensor, given",
    )
    assert words(source) == ["unknown", "unknown"]


def test_methods_of_attributes_tell_tensors() -> None:
    source = """
    class Search(nn.Module):
        def forward(self, x: torch.Tensor):
            show(self.done.view(-1), self.done.view(-1).nonzero(), self.rows.unsqueeze(0), self.view(-1))
    """
    assert words(source) == ["tensor", "tensor", "tensor", "unknown"]


def test_a_walrus_binds() -> None:
    source = body(
        """
        if (total := x.sum()) > 0:
            show(total)
        show(n := x.shape[0], n)
        """
    )
    assert words(source) == ["tensor", "scalar", "scalar"]


def test_names_of_torch_are_followed_through_imports() -> None:
    source = """
    from torch.nn import functional as func
    from torch import relu, zeros as blank
    import torch as t

    # dispatchguard: hot
    def f(x: t.Tensor):
        from torch import sigmoid as sig
        import torch.special
        show(func.gelu(x), relu(x), blank(3), t.tanh(x), sig(x), torch.special.expit(x))
    """
    assert words(source) == ["tensor", "tensor", "tensor@cpu", "tensor", "tensor", "tensor"]


def test_a_local_name_hides_an_import() -> None:
    assert words(body("relu = x.shape\ntorch = None\nshow(torch, torch.relu(x))")) == [
        "none",
        "unknown",
    ]


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, kind",
    [
        ("torch.Tensor", "tensor"),
        ("Tensor", "tensor"),
        ("'Tensor'", "tensor"),
        ('"torch.Tensor"', "tensor"),
        ("Optional[Tensor]", "tensor|none"),
        ("'Optional[torch.Tensor]'", "tensor|none"),
        ("Optional['Tensor']", "tensor|none"),
        ("Tensor | None", "tensor|none"),
        ("None | Tensor", "tensor|none"),
        ("Union[Tensor, None]", "tensor|none"),
        ("Union[Tensor, float]", "tensor?"),
        ("Tensor | int", "tensor?"),
        ("Union[Tensor, List[Tensor]]", "tensor?"),
        ("torch.LongTensor", "tensor"),
        ("nn.Parameter", "tensor"),
        ("int", "scalar"),
        ("Optional[int]", "scalar|none"),
        ("bool", "scalar"),
        ("str", "text"),
        ("List[Tensor]", "nested"),
        ("Tuple[Tensor, int]", "nested"),
        ("Dict[str, Tensor]", "nested"),
        ("list[Tensor]", "nested"),
        ("torch.Size", "nested"),
        ("torch.device", "other"),
        ("torch.dtype", "other"),
        ("np.ndarray", "other"),
        ("nn.Module", "module"),
        ("nn.ModuleList", "modules"),
        ("object", "unknown"),
        ("Unheard", "unknown"),
    ],
)
def test_annotations(annotation: str, kind: str) -> None:
    assert words(body("show(p)", f"p: {annotation}")) == [kind]


@pytest.mark.parametrize(
    "annotation, use, kind",
    [
        ("List[Tensor]", "p[0]", "tensor"),
        ("Tuple[Tensor, int]", "p[0]", "tensor"),
        ("Tuple[Tensor, int]", "p[1]", "scalar"),
        ("Tuple[Tensor, ...]", "p[3]", "tensor"),
        ("Dict[str, Tensor]", "p['a']", "tensor?"),
        ("Dict[str, List[Tensor]]", "p['a'][0]", "tensor"),
        ("Optional[List[Tensor]]", "p[0]", "tensor"),
    ],
)
def test_annotations_of_parts(annotation: str, use: str, kind: str) -> None:
    assert words(body(f"show({use})", f"p: {annotation}")) == [kind]


@pytest.mark.parametrize(
    "param, kind",
    [
        ("p: Tensor = None", "tensor|none"),
        ("p=None", "unknown|none"),
        ("p=1", "scalar"),
        ("p=1.5", "scalar"),
        ("p='sum'", "text"),
        ("p", "unknown"),
        ("*, p: Tensor", "tensor"),
        ("input_shape: Tensor", "tensor?"),
        ("image_size: Tensor", "tensor?"),
        ("sizeable: Tensor", "tensor"),
        ("p: Tensor = False", "tensor?"),
        ("use_cache: Optional[Tensor] = None", "tensor?|none"),
    ],
)
def test_parameters(param: str, kind: str) -> None:
    name = param.replace("*, ", "").split(":")[0].split("=")[0]
    assert words(body(f"show({name})", param)) == [kind]


def test_stars_are_nested() -> None:
    (args, kwargs, first) = shown(body("show(xs, kw, xs[0])", "*xs: Tensor, **kw"))
    assert args.what == kwargs.what == "nested" and kwargs.cls == "dict" and first.is_tensor


def test_the_use_of_a_parameter_tells() -> None:
    """Only a tensor has `unsqueeze`; what `isinstance` asks about is not settled by its use."""
    assert words(body("show(p)\nreturn p.unsqueeze(0)", "p")) == ["tensor"]
    source = body(
        """
        show(p)
        if isinstance(p, torch.Tensor):
            p = p.unsqueeze(0)
        return p
        """,
        "p",
    )
    assert words(source) == ["unknown"]


def test_forward_of_a_module_is_given_tensors_perhaps() -> None:
    source = """
    class Layer(nn.Module):
        def forward(self, x, y, scale=1.0, mask=None, size=None):
            show(x, y, scale, mask, size)
            return x.unsqueeze(0)
    """
    assert words(source) == ["tensor", "tensor?", "scalar", "tensor?|none", "unknown|none"]


# -- self ------------------------------------------------------------------------------------------


def test_attributes_of_modules() -> None:
    source = """
    LIMIT = 3
    TABLE = torch.arange(4)

    class Layer(nn.Module):
        def __init__(self, dim: int, bias: bool, act, given):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim))
            self.bias = nn.Parameter(torch.ones(dim)) if bias else None
            self.register_buffer("scale", torch.ones(1))
            self.register_parameter("shift", None)
            self.table = torch.arange(dim)
            self.norm = nn.LayerNorm(dim)
            self.layers = nn.ModuleList([nn.Linear(dim, dim)])
            self.seq = nn.Sequential(nn.Linear(dim, dim))
            self.rnn = nn.LSTM(dim, dim)
            self.dim = dim
            self.eps = 1e-5
            self.name = "layer"
            self.act = act
            self.given = given
            self.cache = None

        def forward(self, x: Tensor):
            show(self.weight, self.bias, self.scale, self.table)
            show(self.norm(x), self.layers, self.layers[0], self.layers[0](x), self.seq(x), self.rnn(x))
            show(self.dim, self.eps, self.name, self.act, self.cache, self.training)
            show(self.norm.weight, LIMIT, TABLE)
            for layer in self.layers:
                show(layer, layer(x))
    """
    assert words(source) == [
        "tensor", "tensor|none", "tensor", "tensor@any",
        "tensor", "modules", "module", "tensor?", "tensor?", "nested",
        "scalar", "scalar", "text", "unknown", "none", "unknown",
        "tensor", "scalar", "tensor@any",
        "module", "tensor?",
    ]  # fmt: skip


def test_attributes_that_torch_brings() -> None:
    source = """
    class Mine(nn.Linear):
        def forward(self, x: Tensor):
            show(self.weight, self.bias, self.other)
    """
    assert words(source) == ["tensor", "tensor|none", "unknown"]


def test_an_attribute_written_in_the_method_is_what_was_written() -> None:
    source = """
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x: Tensor):
            show(self.last)
            self.last = x * 2
            show(self.last)
            self.last = x.shape[0]
            show(self.last)
    """
    first, *rest = words(source)
    assert rest == ["tensor", "scalar"] and first != "tensor"


def test_what_the_projects_own_functions_return() -> None:
    source = """
    def scaled(x) -> Tensor:
        return x * 2

    def counted(x) -> int:
        return 1

    def anything(x):
        return x

    class Layer(nn.Module):
        def pooled(self, x) -> Tensor:
            return x

        def parts(self, x) -> Tuple[Tensor, int]:
            return x, 1

        def forward(self, x):
            a, b = self.parts(x)
            show(scaled(x), counted(x), anything(x), self.pooled(x), a, b)
    """
    assert words(source) == ["tensor", "scalar", "unknown", "tensor", "tensor", "scalar"]


# -- narrowing -------------------------------------------------------------------------------------


def test_none_is_ruled_out() -> None:
    source = body(
        """
        show(m)
        if m is not None:
            show(m)
        else:
            show(m)
        if m is None:
            m = x
        show(m)
        """,
        "x: Tensor, m: Optional[Tensor] = None",
    )
    assert words(source) == ["tensor|none", "tensor", "none", "tensor"]


def test_early_returns_rule_none_out() -> None:
    source = body(
        """
        if m is None:
            return x
        show(m)
        """,
        "x: Tensor, m: Optional[Tensor] = None",
    )
    assert words(source) == ["tensor"]


def test_truth_rules_none_out() -> None:
    source = body(
        """
        if n:
            show(n)
        if not n:
            return x
        show(n)
        """,
        "x: Tensor, n: Optional[int] = None",
    )
    assert words(source) == ["scalar", "scalar"]


def test_isinstance_narrows_both_ways() -> None:
    source = body(
        """
        if isinstance(p, torch.Tensor):
            show(p)
        elif isinstance(p, (int, float)):
            show(p)
        elif isinstance(p, (list, tuple)):
            show(p)
        else:
            show(p)
        show(p)
        """,
        "p",
    )
    first, second, third, fourth, last = shown(source)
    assert first.is_tensor and second.what == "scalar" and third.what == "nested"
    assert not fourth.maybe_tensor and not last.is_tensor


@pytest.mark.parametrize(
    "test", ["torch.is_tensor(p)", "isinstance(p, Tensor)", "isinstance(p, (Tensor, nn.Parameter))"]
)
def test_tests_for_tensors(test: str) -> None:
    source = body(
        f"""
        if not {test}:
            show(p)
            raise TypeError
        show(p)
        """,
        "p",
    )
    before, after = shown(source)
    assert not before.maybe_tensor and after.is_tensor


def test_a_tensor_is_made_where_there_was_none() -> None:
    source = body(
        """
        if not isinstance(p, Tensor):
            p = torch.tensor(p)
        show(p)
        """,
        "p",
    )
    (kind,) = shown(source)
    assert kind.is_tensor and not kind.host


def test_and_and_or_narrow_within_the_condition() -> None:
    source = body(
        """
        if m is not None and show(m):
            show(m)
        if m is None or show(m):
            show(m)
        y = m is not None and show(m)
        if isinstance(p, Tensor) and p.any() and show(p):
            show(p)
        z = show(m) if m is not None else 1
        w = [show(v) for v in p if isinstance(v, Tensor)]
        """,
        "m: Optional[Tensor], p",
    )
    assert words(source) == [
        "tensor",
        "tensor",
        "tensor",
        "tensor|none",
        "tensor",
        "tensor",
        "tensor",
        "tensor",
        "tensor",
    ]


def test_not_turns_narrowing_round() -> None:
    source = body(
        """
        if not (m is None or n is None):
            show(m, n)
        if not isinstance(p, Tensor):
            return
        show(p)
        """,
        "m: Optional[Tensor], n: Optional[Tensor], p",
    )
    assert words(source) == ["tensor", "tensor", "tensor"]


def test_asserts_narrow() -> None:
    source = body(
        "assert m is not None and isinstance(p, Tensor)\nshow(m, p)", "m: Optional[Tensor], p"
    )
    assert words(source) == ["tensor", "tensor"]


def test_a_device_that_is_asked_for() -> None:
    source = body(
        """
        if x.device.type == "cpu":
            show(x)
        if not x.is_cuda:
            show(x)
        else:
            show(x)
        """
    )
    assert words(source) == ["tensor@cpu", "tensor@cpu", "tensor"]


def test_narrowing_ends_with_a_new_value() -> None:
    source = body(
        """
        if isinstance(p, Tensor):
            p = p.shape
            show(p)
        """,
        "p",
    )
    assert words(source) == ["nested"]


# -- branches and loops ----------------------------------------------------------------------------


def test_branches_are_joined() -> None:
    source = body(
        """
        if flag:
            a, b, c, d = x, 1, None, x
        else:
            a, b, c, d = x + 1, 2.0, x, 3
        show(a, b, c, d)
        e = x if flag else None
        g = x if flag else 0
        show(e, g)
        """,
        "x: Tensor, flag",
    )
    assert words(source) == ["tensor", "scalar", "tensor|none", "tensor?", "tensor|none", "tensor?"]


def test_a_branch_that_leaves_does_not_count() -> None:
    source = body(
        """
        y = x
        if flag:
            y = 1
            return y
        show(y)
        if other:
            y = 2
            raise ValueError
        else:
            y = x + 1
        show(y)
        """,
        "x: Tensor, flag, other",
    )
    assert words(source) == ["tensor", "tensor"]


def test_a_loop_is_read_as_its_second_round_sees_it() -> None:
    source = body(
        """
        n = 0
        last = None
        y = x
        for i in range(3):
            show(n, last, y, i)
            n = x.sum()
            last = x
            y = y * 2
        show(n, last, y)
        """
    )
    assert words(source) == [
        "tensor?",
        "tensor|none",
        "tensor",
        "scalar",
        "tensor?",
        "tensor|none",
        "tensor",
    ]


def test_while_loops_too() -> None:
    source = body(
        """
        t = x
        while show(t):
            t = t.item()
        """
    )
    assert words(source) == ["tensor?"]


def test_events_of_a_loop_are_told_once() -> None:
    reader = read(
        body(
            "for a in x:\n    for b in a:\n        while b:\n            show(b)\n            b = b - 1\n"
        )
    )
    assert [text(e.node) for e in reader.events if e.event == "call"] == ["show(b)"]
    assert [text(e.node) for e in reader.events if e.event == "truth"] == ["b"]
    assert reader.assigned["a"] == 1 and reader.assigned["b"] == 2


def test_what_is_iterated() -> None:
    source = body(
        """
        for v in x:
            show(v)
        for i, v in enumerate(xs):
            show(i, v)
        for a, b in zip(xs, [1, 2]):
            show(a, b)
        for n in x.shape:
            show(n)
        for v in x.tolist():
            show(v)
        for k, v in table.items():
            show(k, v)
        show([v for v in xs][0], {v for v in x}, [show(w) for v in xs for w in v])
        """,
        "x: Tensor, xs: List[Tensor], table: Dict[str, Tensor]",
    )
    assert words(source) == [
        "tensor", "scalar", "tensor", "tensor", "scalar", "scalar", "scalar", "text", "tensor?",
        "tensor", "tensor", "nested", "nested",
    ]  # fmt: skip


def test_comprehension_variables_stay_inside() -> None:
    source = body("v = 1\nys = [show(v) for v in xs if show(v)]\nshow(v, ys)", "xs: List[Tensor]")
    assert words(source) == ["tensor", "tensor", "scalar", "nested"]


def test_what_try_leaves_behind() -> None:
    source = body(
        """
        try:
            y = x * 2
        except RuntimeError:
            y = None
        show(y)
        """
    )
    assert words(source) == ["tensor"]


def test_functions_inside_see_what_is_around() -> None:
    source = """
    # dispatchguard: hot
    def f(x: Tensor, n: int):
        y = x * 2
        def g(z: Tensor, n=None):
            show(x, y, z, n)
            return z
        h = lambda v: show(v, y)
        return g(y), h
    """
    assert words(source) == ["tensor", "tensor", "tensor", "unknown|none", "unknown", "tensor"]


# -- where a value is -----------------------------------------------------------------------------


def test_a_cpu_number_goes_with_any_device() -> None:
    source = body(
        """
        half = torch.tensor(0.5)
        show(half, half * x, half + a, half * 2, torch.zeros(3) * a)
        """,
        "x: Tensor, a",
    )
    assert words(source) == ["tensor@cpu", "tensor", "tensor?", "tensor@cpu", "tensor@cpu"]


@pytest.mark.parametrize(
    "expression, kind",
    [
        ("torch.as_tensor(x)", "tensor"),
        ("torch.as_tensor(a)", "tensor"),
        ("torch.as_tensor([1, 2])", "tensor@cpu"),
        ("torch.tensor(x)", "tensor"),
        ("torch.complex(x, x)", "tensor"),
        ("torch.zeros(3).to(device)", "tensor"),
        ("torch.zeros(3).cuda()", "tensor"),
        ("torch.zeros(3).to(torch.float64)", "tensor@cpu"),
        ("torch.zeros(3).to(x.dtype)", "tensor@cpu"),
        ("torch.zeros(3).to(x)", "tensor"),
        ("torch.zeros(3).to(torch.ones(2))", "tensor@cpu"),
        ("torch.zeros_like(torch.ones(2), device=device)", "tensor"),
        ("x.cpu().new_zeros(2, device=device)", "tensor"),
        ("torch.zeros(3, device=None)", "tensor@cpu"),
        ("torch.zeros(3, device=x.device)", "tensor"),
        ("torch.cat([x.cpu(), torch.ones(2)])", "tensor@cpu"),
        ("torch.cat([x, torch.ones(2)])", "tensor"),
    ],
)
def test_where_tensors_are(expression: str, kind: str) -> None:
    assert words(body(f"show({expression})", "x: Tensor, a, device")) == [kind]


# -- regions ----------------------------------------------------------------------------------------


def cold(source: str) -> list[bool]:
    return [e.scene.cold for e in read(source).events if e.event == "call" and e.name == "show"]


def test_error_paths_and_once_only_guards_are_cold() -> None:
    source = """
    class Layer(nn.Module):
        def forward(self, x: Tensor):
            show(1)
            if x.dim() != 2:
                raise ValueError(show(2))
            if self._table is None:
                self._table = show(3)
            if "a" not in self._cache:
                self._cache["a"] = show(4)
            if torch.jit.is_scripting():
                show(5)
            assert x.dim(), show(6)
            try:
                show(7)
            except RuntimeError:
                show(8)
            if x.dim():
                logger.warning("no")
                return show(9)
            if self._y is not None:
                y = show(10)
            else:
                y = self._y = show(11)
            if torch.cuda.is_current_stream_capturing():
                show(12)
            if self.built:
                return show(13)
            return show(14)
    """
    hot = [1, 7, 10, 13]
    assert cold(source) == [number not in hot for number in range(1, 15)]


def test_what_was_looked_up_and_is_put_there_is_made_rarely() -> None:
    source = body(
        """
        a = plans.get(x)
        if a is None:
            a = plans[x] = show(1)
        b = self.plans[x]
        if b is None:
            self.plans[x] = show(2)
        own = {}
        c = own.get(x)
        if c is None:
            own[x] = show(3)
        d = y.get(x)
        if d is None:
            y[x] = show(4)
        e = plans.get(x)
        if e is None:
            others[x] = show(5)
        f = plans.get(x)
        if f is not None:
            f = show(6)
            return f
        f = plans[x] = show(7)
        return f
        """,
        "self, x, y",
    )
    rare = [1, 2, 7]
    assert cold(source) == [number in rare for number in range(1, 8)]


def test_what_each_branch_fills_or_only_a_failure_goes_on_to_is_rare() -> None:
    source = body(
        """
        if x:
            g = plans.get(1)
        else:
            g = plans.get(2)
        if g is None:
            plans[1] = show(1)
        if x.legacy_mask is not None:
            warnings.warn("old")
            y = show(2)
        if x.legacy_mask is not None:
            y = show(3)
        if x not in _PLANS:
            if y:
                _PLANS[x] = show(4)
            else:
                _PLANS[x] = show(5)
        if x.deprecated:
            warnings.warn("old")
            y = show(9)
        if x:
            h = None
        else:
            h = plans.get(x)
        if h is None:
            plans[x] = show(10)
        def within(k):
            m = plans.get(k)
        if m is None:
            plans[x] = show(11)
        if y not in others:
            if y:
                others[y] = 1
            show(6)
        try:
            if y:
                return plans[x]
            else:
                return plans[y]
        except KeyError:
            show(7)
        show(8)
        """,
        "self, x, y",
    )
    hot = [3, 6, 10, 11]
    order = [1, 2, 3, 4, 5, 9, 10, 11, 6, 7, 8]
    assert cold(source) == [number not in hot for number in order]


def test_what_is_looked_up_elsewhere_or_kept_for_the_call_is_not_rare() -> None:
    source = body(
        """
        own = {}
        if x:
            g = plans.get(1)
        else:
            g = others.get(1)
        if g is None:
            plans[1] = show(1)
        h = self.get(x)
        if h is None:
            self[x] = show(2)
        m = own.get(x)
        if m is None:
            own[x] = show(3)
        if self.last is not None:
            self.last = show(4)
        else:
            show(5)
        if x:
            logger.warning_once("slow")
            return show(6)
        return f
        """,
        "self, x, y",
    )
    assert not any(cold(source))


def test_a_local_name_is_no_once_only_guard() -> None:
    source = body(
        """
        if mask is None:
            mask = show(1)
        return mask
        """,
        "x, mask=None",
    )
    assert cold(source) == [False]


def test_scenes_know_what_is_around() -> None:
    reader = read(
        body(
            """
            with torch.no_grad():
                for a in xs:
                    if a.dim() > 1:
                        show([b for b in a])
            """,
            "xs",
        )
    )
    (scene,) = [e.scene for e in reader.events if e.event == "call" and e.name == "show"]
    assert len(scene.loops) == 1 and len(scene.withs) == 1
    assert [(text(test), holds) for test, holds in scene.conditions] == [("a.dim() > 1", True)]
    assert isinstance(scene.statement, cst.SimpleStatementLine) and len(scene.block) == 1


def test_values_that_names_surely_hold() -> None:
    reader = read(
        body(
            """
            a = x + 1
            b = 2
            show(a, b)
            for _ in range(3):
                show(a, b)
                b = 3
            if x.dim():
                a = 4
            show(a)
            """
        )
    )
    calls = [e.node for e in reader.events if e.event == "call" and e.name == "show"]
    held = []
    for call in calls:
        assert isinstance(call, cst.Call)
        for argument in call.args:
            value = reader.values.get(id(argument.value))
            held.append(None if value is None else text(value))
    assert held == ["x + 1", "2", "x + 1", None, None]


# -- anything that parses -------------------------------------------------------------------------

ATOMS = st.sampled_from(
    ["x", "y", "1", "None", "'a'", "x.shape", "self", "torch.zeros(3)", "[]", "()", "{}"]
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "*", "@", "==", "<", "is", "in", "and", "or"]), inner
        ).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"(-{e})"),
        inner.map(lambda e: f"({e}).sum()"),
        inner.map(lambda e: f"({e})[0]"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"[a for a in ({t[0]}) if {t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}, {t[1]})"),
        inner.map(lambda e: f"torch.relu({e})"),
        inner.map(lambda e: f"max({e}, 1)"),
        inner.map(lambda e: f"(z := {e})"),
    )


EXPRESSIONS = st.recursive(ATOMS, _joined, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=4), st.booleans())
def test_every_expression_gets_a_kind(expressions: list[str], loop: bool) -> None:
    lines = [f"y = {e}" for e in expressions] + ["show(y)"]
    if loop:
        lines = ["for k in x:", *(f"    {line}" for line in lines)]
    source = "def f(self, x, y):\n" + "\n".join(f"    {line}" for line in lines)
    function = cst.parse_module(source).body[0]
    assert isinstance(function, cst.FunctionDef)
    brief = Brief("mod.py", "mod", names={"torch": ["torch"]})
    reader = read_function(function, brief, "f")
    again = read_function(function, brief, "f")
    assert reader.kinds == again.kinds
    for event in reader.events:
        if isinstance(event.node, cst.BaseExpression):
            kind = reader.kinds.get(id(event.node))
            assert kind is None or not (kind.is_tensor and kind.not_tensor)


@pytest.mark.parametrize(
    "lines, place",
    [
        ("a_host = p; show(a_host > 0)", "host"),
        ("points_cpu = unknown(); show(torch.isfinite(points_cpu))", "host"),
        ("show(self.table_cpu + 1)", "unknown"),
        ("a = p.cpu(); show(halved(a))", "host"),
        ("show(halved(p))", "device"),
    ],
)
def test_names_and_arguments_tell_what_is_on_the_cpu(lines: str, place: str) -> None:
    source = f"""
    def halved(x) -> Tensor:
        return x / 2

    class Layer(nn.Module):
        def forward(self, p: Tensor):
            {lines}
    """
    (kind,) = shown(source)
    assert ("host" if kind.host else "device" if kind.on_device else "unknown") == place
