"""Guards are told by the user's sources and lines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.runtime.compiled.guards import (
    Guard,
    alike,
    grouped,
    guards_of,
    readable,
)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("L['self']._modules['layers']._modules['3'].scale", "L['self'].layers[3].scale"),
        ("L['self']._modules['head']._parameters['weight']", "L['self'].head.weight"),
        ("L['self']._buffers['mean']", "L['self'].mean"),
        ("L['self']._modules['a b'].x", "L['self']._modules['a b'].x"),
        ("G['SCALE']", "G['SCALE']"),
        ("L['options']['_modules']", "L['options']['_modules']"),
    ],
)
def test_sources_are_told_as_the_user_writes_them(source: str, shown: str) -> None:
    assert readable(source) == shown


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("L['self'].layers[3].scale", "L['self'].layers[11].scale", True),
        ("L['self'].layers[3].scale", "L['self'].layers[3].shift", False),
        ("G['__builtins_dict___0']['len']", "G['__builtins_dict___17']['len']", True),
        ("list(dict.keys(L['d']))[0]", "list(dict.keys(L['d']))[1]", True),
        ("L['x1']", "L['x2']", False),
    ],
)
def test_sources_that_differ_in_an_index_are_alike(one: str, other: str, same: bool) -> None:
    assert (alike(one) == alike(other)) is same


def guard(kind: str, source: str) -> Guard:
    return Guard(kind, source, "net.py:3 in forward", "y = x", "", None)


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 5), st.sampled_from("xy"))))
def test_groups_lose_no_guard(drawn: list[tuple[str, int, str]]) -> None:
    guards = [guard(kind, f"L['self'].layers[{i}].{name}") for kind, i, name in drawn]
    groups = grouped(guards)
    assert sum(group.number for group in groups) == len(guards)
    assert [g.number for g in groups] == sorted((g.number for g in groups), reverse=True)
    assert len({(g.kind, g.pattern) for g in groups}) == len(groups)
    for group in groups:
        assert group.source in {g.source for g in guards}
        assert not group.last or group.last != group.source


def test_sizes_that_hang_together_are_told_by_an_argument() -> None:
    torch = pytest.importorskip("torch", reason="code on torch runs")
    from pytest_dispatchguard.runtime.torch_private import compiler

    torch.compiler.reset()
    with compiler.compiled_codes() as codes:
        compiled = torch.compile(
            lambda a: a * 2 if a.shape[0] < 100 else a, backend="eager", dynamic=True
        )
        compiled(torch.ones(7))
    sizes = [g for g in guards_of(dict.fromkeys(codes)) if "size()" in g.expression]
    assert sizes and all(g.source.startswith("L['a']") for g in sizes)


def test_a_constant_of_an_instance_is_named_with_its_line() -> None:
    torch = pytest.importorskip("torch", reason="code on torch runs")
    from pytest_dispatchguard.runtime.torch_private import compiler

    class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is not there when types are checked
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x: Any) -> Any:
            return x * self.scale

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is not there when types are checked
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Scaled(1.0 + i) for i in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    net = Net()
    torch.compiler.reset()
    with compiler.no_caches(), compiler.compiled_codes() as codes:
        torch.compile(net, backend="eager")(torch.ones(2))
    found = guards_of(dict.fromkeys(codes))
    about = [g for g in grouped(found) if g.pattern == "L['self'].layers[*].scale"]
    assert [(g.kind, g.number, g.source, g.last, g.text) for g in about] == [
        (
            *("EQUALS_MATCH", 4, "L['self'].layers[0].scale", "L['self'].layers[3].scale"),
            "return x * self.scale",
        )
    ]
    assert about[0].place.startswith("compiled/test_guards.py:")
    assert about[0].place.endswith("in forward")
    ambient = [g for g in found if not g.source]
    assert {"GLOBAL_STATE", "DEFAULT_DEVICE"} <= {g.kind for g in ambient}
    assert not any(g.place for g in ambient), "no line of the user's made those"
