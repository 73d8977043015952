"""What calls of the project's own functions return."""

from __future__ import annotations

import pytest

from .reading import words


def test_what_the_projects_own_functions_return() -> None:
    source = """
    def scaled(x) -> Tensor:
        return x * 2

    def counted(x) -> int:
        return 1

    def anything(x):
        return x

    def read(x):
        return x.max().item()

    class Layer(nn.Module):
        def pooled(self, x) -> Tensor:
            return x

        def parts(self, x) -> Tuple[Tensor, int]:
            return x, 1

        def forward(self, x):
            a, b = self.parts(x)
            show(scaled(x), counted(x), anything(x), self.pooled(x), a, b, read(x))
    """
    known = ["tensor", "scalar", "unknown", "tensor", "tensor", "scalar", "scalar"]
    assert words(source) == known


NETS = """
    class Scaled(nn.Module):
        def forward(self, x):
            return x * 2

    class Pair(nn.Module):
        def forward(self, x):
            return x, 1

    class Box:
        def __call__(self, x):
            return x
"""


def test_what_modules_of_the_project_give_is_a_tensor_or_holds_some() -> None:
    source = """
    class Layer(nn.Module):
        def __init__(self):
            self.scaled = Scaled()
            self.pair = Pair()
            self.box = Box()

        def forward(self, x, other: Scaled):
            show(self.scaled, self.scaled(x), self.pair(x), self.box(x), other, other(x))
    """
    assert words(NETS + source) == [
        "module", "tensor?", "nested", "unknown", "module", "tensor?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("used", "kind"),
    [
        ("net(x)", "tensor?"),
        ("net(x).mean()", "tensor"),
        ("net(x).argmax(-1)[0]", "tensor"),
        ("net(x).tolist()", "nested"),
        ("net(x) * 2", "tensor"),
        ("2 - net(x)", "tensor"),
        ("net(x) > 0.5", "tensor"),
        ("net(x) @ x.cpu()", "tensor"),
        ("net(x)[0]", "tensor?"),
        ("net(x).values()", "tensor?"),
        ("[net(x)] + net(x)", "nested"),
        ("net(x) in x", "scalar"),
    ],
)
def test_what_a_module_gave_is_a_tensor_where_it_is_used_as_one(used: str, kind: str) -> None:
    assert words(
        NETS
        + f"""
    # dispatchguard: hot
    def f(x: Tensor, net: Scaled):
        show({used})
    """
    ) == [kind]


def test_what_a_local_holds_is_called() -> None:
    source = """
    def counted(x) -> Tensor:
        return x

    # dispatchguard: hot
    def f(a, device):
        net = Scaled().to(device)
        pair = Pair()
        box = Box()
        count = counted
        show(net, net(a), net(a).tolist(), pair(a), box(a), count(a))
        other = a.counted
        show(other(a))

        def inner(b):
            deep = Pair()
            show(deep(b), net(b))
    """
    assert words(NETS + source) == [
        "module", "tensor?", "nested", "nested", "unknown", "tensor", "unknown", "nested", "tensor?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("show(a(x))", "unknown"),
        ("a.eval(); show(a(x))", "tensor?"),
        ("a.eval('x'); show(a(x))", "unknown"),
        ("opt = torch.optim.SGD(a.part.parameters()); show(a.part(x))", "tensor?"),
        ("show(a.model(x), )", "unknown"),
        ("show(self.model(x))", "tensor?"),
        ("student_model = a; show(student_model(x).cpu())", "tensor@cpu"),
        ("show(load_model(x))", "unknown"),
        ("a.loss.backward(); show(a.loss)", "tensor"),
    ],
)
def test_what_is_asked_as_a_module_or_called_so_is_one(lines: str, kind: str) -> None:
    assert words(f"""
    class Layer(nn.Module):
        def forward(self, x, a):
            {lines}
    """) == [kind]


def test_what_all_processes_give_is_a_tensor_again() -> None:
    source = """
    class Trainer:
        def _gather(self, x):
            return x

        def training_step(self, x: Tensor, accelerator, table):
            show(accelerator.gather(x), self.accelerator.gather_for_metrics(x), self.fabric.reduce(x))
            show(self.all_gather(x), accelerator.gather([x]), table.reduce(x), self._gather(x))
    """
    tensors, others = ["tensor"] * 4, words(source)[4:]
    assert words(source)[:4] == tensors
    assert "tensor" not in others
