"""Whether a tensor is on the CPU or on a device."""

from __future__ import annotations

import pytest

from .reading import body, shown, words


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
        ("torch.zeros(3, device=x.device if a else 'cpu')", "tensor"),
        ("torch.zeros(3, device='cpu' if a else torch.device('cpu'))", "tensor@cpu"),
        ("torch.zeros(3).to('cuda' if a else 'cpu')", "tensor"),
        ("torch.zeros(3).to(torch.device('cuda' if a else 'cpu'))", "tensor"),
        ("torch.zeros(3).to(torch.device(a or 'cpu'))", "tensor"),
        ("torch.zeros(3).to(torch.device('cpu:0'))", "tensor@cpu"),
        ("torch.zeros(3, device=torch.device('cuda') if a else torch.device('cpu'))", "tensor"),
        ("torch.arange(3, out=x.new_empty(0))", "tensor"),
        ("torch.arange(3, out=torch.empty(0))", "tensor@cpu"),
        ("torch.cat([x.cpu(), torch.ones(2)])", "tensor@cpu"),
        ("torch.cat([x, torch.ones(2)])", "tensor"),
        ("a(x).cpu()", "tensor?@cpu"),
        ("a[0].cpu()", "tensor?@cpu"),
        ("a[0].to('cpu')", "tensor?@cpu"),
        ("a[0].to(device='cpu', dtype=torch.float)", "tensor?@cpu"),
        ("a(x).cpu().view(-1)", "tensor@cpu"),
        ("a(x).cpu().abs()", "tensor?@cpu"),
        ("torch.sum((a(x).cpu() - a[1]) ** 2, dim=0).sqrt().view(-1)", "tensor@cpu"),
        ("a(x).cpu().view(-1).to(device)", "tensor"),
        ("a(x).cpu().view(-1).cuda()", "tensor"),
        ("a.cpu()", "unknown"),
        ("a(x).cpu(b)", "unknown"),
        ("a[0].to(device)", "tensor?"),
    ],
)
def test_where_tensors_are(expression: str, kind: str) -> None:
    assert words(body(f"show({expression})", "x: Tensor, a, device")) == [kind]


@pytest.mark.parametrize(
    "device, place",
    [
        ("torch.device('cuda' if a else 'cpu')", "tensor"),
        ("torch.device(a.device or ('cuda' if a else 'cpu'))", "tensor"),
        ("torch.device('cuda') if a else torch.device('cpu')", "tensor"),
        ("'cuda' if a else 'mps' if b else 'cpu'", "tensor"),
        ("torch.device('cpu')", "tensor@cpu"),
        ("'cpu' if a else torch.device('cpu')", "tensor@cpu"),
    ],
)
def test_a_device_that_is_the_cpu_only_where_nothing_else_is_there(device: str, place: str) -> None:
    lines = f"d = {device}; show(torch.zeros(3).to(d), torch.zeros(3, device=d))"
    assert words(body(lines, "a, b")) == [place, place]


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


def test_a_field_that_is_annotated_and_made_on_the_cpu_may_stay_there() -> None:
    source = """
    from typing import NamedTuple

    class Parameters(NamedTuple):
        leak: torch.Tensor = torch.as_tensor(0.5)
        weight: torch.Tensor

    # dispatchguard: hot
    def step(p: Parameters):
        show(p.leak, p.weight)
    """
    leak, weight = shown(source)
    assert leak.is_tensor and not leak.on_device and weight.on_device


def test_private_functions_of_torch_leave_data_where_it_is() -> None:
    source = body(
        """
        show(torch._cast_Int(x.cpu()), torch._cast_Int(x), torch._C)
        """,
        "x: Tensor",
    )
    assert words(source)[:2] == ["tensor?@cpu", "tensor?"]
