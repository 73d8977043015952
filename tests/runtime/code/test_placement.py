"""Code placed anew: the same functions, with the same results, elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from pytest_dispatchguard.runtime.code.placement import at_some_depth, place_anew

MODULE = """
def outer(x):
    def inner(y):
        return [z + y for z in x]
    return inner(1)

class Layer:
    scale = 2
    def call(self, x, *, mask=None):
        return x * self.scale
    @staticmethod
    def plain(x):
        return -x
    @classmethod
    def made(cls):
        return cls()
    @property
    def doubled(self):
        return self.scale * 2

def closing(n):
    def add(x):
        return x + n
    return add

add_three = closing(3)
"""


@pytest.fixture
def placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [name for name in sys.modules if name.startswith("torch._dynamo")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "placed_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("placed_module", None)


def test_functions_do_the_same_elsewhere(placed: Path) -> None:
    module = import_module("placed_module")
    functions = [module.outer, module.Layer.call, module.Layer.plain, module.add_three]
    functions.append(vars(module.Layer)["doubled"].fget)
    before = [function.__code__ for function in functions]
    kept = place_anew(placed, "seed")
    assert kept
    for function, code in zip(functions, before, strict=True):
        assert function.__code__ is not code
        assert function.__code__ == code
    layer = module.Layer.made()
    assert module.outer([1, 2]) == [2, 3]
    assert (layer.call(4), layer.plain(1), layer.doubled, module.add_three(1)) == (8, -1, 4, 4)


def test_a_seed_leaves_the_same_gaps(placed: Path) -> None:
    import_module("placed_module")
    one, same, other = (
        [len(gap) for gap in place_anew(placed, seed)] for seed in ("one", "one", "other")
    )
    assert one == same != other


def test_what_is_elsewhere_or_installed_stays(placed: Path, tmp_path: Path) -> None:
    module = import_module("placed_module")
    code = module.outer.__code__
    place_anew(tmp_path / "other", "seed")
    assert module.outer.__code__ is code
    module.__file__ = str(tmp_path / ".venv" / "lib" / "site-packages" / "placed_module.py")
    place_anew(tmp_path, "seed")
    assert module.outer.__code__ is code


def test_compiled_code_is_not_compiled_again(placed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("placed_module")
    code = module.outer.__code__
    monkeypatch.setitem(sys.modules, "torch._dynamo", module)
    place_anew(placed, "seed")
    assert module.outer.__code__ is code


def test_something_runs_at_another_depth_of_the_stack_each_time() -> None:
    def depth() -> int:
        frame, found = sys._getframe(), 0
        while (caller := frame.f_back) is not None:
            frame, found = caller, found + 1
        return found

    assert len({at_some_depth(depth) for _ in range(200)}) > 10


def test_what_it_gives_and_raises_comes_through() -> None:
    assert at_some_depth(lambda: 3) == 3
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            at_some_depth(lambda: 1 // 0)
