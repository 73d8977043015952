"""What the recorder sees of calls: on every Python, with tracers of others, in threads and generators."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.profile import Profile, Seen
from pytest_dispatchguard.runtime.recorder import Recorder

MODULE = """
import functools

def decorate(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper

class Layer:
    def __call__(self, x):
        return self.forward(x)

    def forward(self, x, scale=2, *, mask=None):
        return [self.step(v) for v in (x, x, x)]

    def step(self, v):
        return outer(v)

    @property
    def width(self):
        return 3

    @decorate
    def dressed(self):
        return self.width

def outer(v):
    def inner(w):
        return w
    return inner(v)

def numbers(n):
    for i in range(n):
        yield helper(i)

def helper(i):
    return i

async def waited():
    return helper(1)

def by_another(call, value):
    return sorted([value], key=call)
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "lib.py"
    path.write_text(MODULE)
    made = ModuleType("recorded_lib")
    exec(compile(MODULE, str(path), "exec"), made.__dict__)
    yield made


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    home = f"{tmp_path}/"
    return Recorder(lambda path: path.removeprefix(home) if path.startswith(home) else None)


def seen(recorder: Recorder, run: Callable[[], object]) -> dict[str, Seen]:
    with recorder.recording():
        run()
    return {name: found for (_, name), found in recorder.profile().functions.items()}


def test_calls_callees_and_kinds(module: Any, recorder: Recorder) -> None:
    layer = module.Layer()
    found = seen(recorder, lambda: [layer(1.5), layer("a")])
    assert {name: one.calls for name, one in found.items()} == {
        "Layer.__call__": 2,
        "Layer.forward": 2,
        "Layer.step": 6,
        "outer": 6,
        "outer.<locals>.inner": 6,
    }
    # What stands in a comprehension is the function's own.
    assert found["Layer.forward"].callees == {("lib.py", "Layer.step"): 6}
    kinds = found["Layer.forward"].kinds
    assert kinds["x"] == {"float": 1, "str": 1}
    assert kinds["scale"] == {"int": 2} and kinds["mask"] == {"NoneType": 2}
    assert found["Layer.step"].digest != found["Layer.forward"].digest


def test_tensors_and_modules_are_told_by_what_they_are(
    module: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tensor:
        pass

    class Parameter(Tensor):
        pass

    class Module:
        pass

    class Unwilling:
        @property
        def __class__(self) -> type:
            raise RuntimeError("ask somebody else")

    stub = SimpleNamespace(Tensor=Tensor, nn=SimpleNamespace(Module=Module))
    monkeypatch.setitem(sys.modules, "torch", stub)
    values = [Tensor(), Parameter(), Module(), Unwilling(), Path()]
    found = seen(recorder, lambda: [module.helper(value) for value in values])
    kinds = found["helper"].kinds["i"]
    assert (kinds["tensor"], kinds["module"], kinds["?"]) == (2, 1, 1)


def test_a_generator_and_a_coroutine_begin_once(module: Any, recorder: Recorder) -> None:
    def run() -> None:
        assert list(module.numbers(4)) == [0, 1, 2, 3]
        with pytest.raises(StopIteration):
            module.waited().send(None)

    found = seen(recorder, run)
    assert found["numbers"].calls == 1 and found["waited"].calls == 1
    assert found["numbers"].callees == {("lib.py", "helper"): 4}
    assert found["waited"].callees == {("lib.py", "helper"): 1}


def test_calls_through_code_of_others_count(module: Any, recorder: Recorder) -> None:
    found = seen(recorder, lambda: module.by_another(lru_cache(partial(module.helper)), 1))
    assert found["by_another"].callees == {("lib.py", "helper"): 1}


def test_wrappers_and_properties_have_their_names(module: Any, recorder: Recorder) -> None:
    found = seen(recorder, module.Layer().dressed)
    assert found["decorate.<locals>.wrapper"].callees == {("lib.py", "Layer.dressed"): 1}
    assert found["Layer.dressed"].callees == {("lib.py", "Layer.width"): 1}


def test_threads_are_recorded(module: Any, recorder: Recorder) -> None:
    def run() -> None:
        thread = threading.Thread(target=module.helper, args=(1,))
        thread.start()
        thread.join()

    assert seen(recorder, run)["helper"].calls == 1


def test_arguments_are_looked_at_now_and_then(module: Any, recorder: Recorder) -> None:
    found = seen(recorder, lambda: [module.helper(i) for i in range(1000)])
    assert found["helper"].calls == 1000
    assert 24 < found["helper"].kinds["i"]["int"] < 40


def test_nothing_is_left_behind(module: Any, recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError), recorder.recording():
        module.helper(1 / 0)
    assert sys.gettrace() is None and sys.getprofile() is None and threading.gettrace() is None
    module.helper(1)
    assert recorder.profile() == Profile()
    with recorder.recording():
        module.helper(1)
    assert recorder.profile().functions["lib.py", "helper"].calls == 1


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="monitoring shares with everybody")
def test_a_tracer_of_somebody_else_goes_on(module: Any, recorder: Recorder) -> None:
    lines: list[str] = []

    def theirs(frame: Any, event: str, arg: Any) -> Any:
        lines.append(event)
        return theirs

    sys.settrace(theirs)
    try:
        found = seen(recorder, lambda: list(module.numbers(2)))
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(None)
    assert found["numbers"].calls == 1 and found["helper"].calls == 2
    assert "line" in lines


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="monitoring shares with everybody")
def test_where_all_places_are_taken_it_says_so(recorder: Recorder) -> None:
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(UserError, match="a tracer and a profiler"), recorder.recording():
            pass
    finally:
        sys.settrace(None)
        sys.setprofile(None)


def test_files_that_are_gone_or_changed_are_left_out(
    module: Any, recorder: Recorder, tmp_path: Path
) -> None:
    with recorder.recording():
        module.helper(1)
    for text in ("def other(): pass\n", "def broken(:\n", "\0"):
        (tmp_path / "lib.py").write_text(text)
        assert recorder.profile() == Profile()
    (tmp_path / "lib.py").unlink()
    assert recorder.profile() == Profile()
