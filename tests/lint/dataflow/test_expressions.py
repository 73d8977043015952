"""The kinds of expressions: operators, calls of torch, literals."""

from __future__ import annotations

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.lint.dataflow.statements import read_function
from pytest_dispatchguard.lint.facts import Brief

from .reading import body, shown

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
        ("[0] + something(x) + [3]", "nested"),
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
