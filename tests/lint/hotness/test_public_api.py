"""What users of a library call, and what they do not."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.public_api import REASON
from pytest_dispatchguard.lint.hotness.solve import solve
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.sources.module_names import module_name


def heat_of(files: Mapping[str, str], *packaged: str) -> dict[str, HotFact]:
    """Dotted name to fact of all that is hot in a library of these packages."""
    facts = {
        path: scan(textwrap.dedent(text), module_name(path), path.endswith("__init__.py"))
        for path, text in files.items()
    }
    solved = solve(build(facts, packaged=frozenset(packaged)))
    return {function.replace(":", "."): fact for function, fact in solved.hot.items()}


def one(body: str, path: str = "lib/ops.py") -> set[str]:
    text = "import torch\nfrom torch import Tensor\n" + textwrap.dedent(body)
    return {name.removeprefix("lib.ops.") for name in heat_of({path: text}, "lib")}


@pytest.mark.parametrize(
    "body",
    [
        "def clip(x: Tensor): return x",
        "def clip(x: 'torch.Tensor | None' = None): return x",
        "def clip(xs: list[Tensor]): return xs",
        "def clip(x): return x.unsqueeze(0)",
        "def clip(x): return torch.relu(x)",
        '''
        def clip(x):
            """Clips.

            Args:
                x (torch.Tensor): what to clip
            """
            return x
        ''',
        "def clip(model, rate):\n    for p in model.parameters():\n        p.mul_(rate)\n",
    ],
    ids=["annotated", "optional", "list", "method", "operation", "documented", "of a model"],
)
def test_functions_that_take_tensors_are_called_by_users(body: str) -> None:
    assert one(body) == {"clip"}


@pytest.mark.parametrize(
    "body",
    [
        "def clip(x: int): return x",
        "def _clip(x: Tensor): return x",
        "def load_weights(x: Tensor): return x",
        "def build_table(x: Tensor): return x",
        "def plot(x: Tensor): return x",
        "class _Hidden:\n    def clip(self, x: Tensor): return x\n",
        "class Shown:\n    def __init__(self, x: Tensor): self.x = x\n",
        "def outer():\n    def clip(x: Tensor): return x\n    return clip\n",
        '''
        def clip(x: Tensor):
            """Loads what was clipped."""
            return x
        ''',
        "@deprecated\ndef clip(x: Tensor): return x",
        "def finish_init(x: Tensor): return x",
        "def score(x: Tensor, val_loader): return [x.dot(y) for y in val_loader]",
    ],
    ids=[
        "no tensor", "private", "loads", "builds", "plots", "of a private class", "set up", "nested",
        "documented as loading", "deprecated", "sets up at last", "once an epoch",
    ],
)  # fmt: skip
def test_other_functions_are_not(body: str) -> None:
    assert one(body) == set()


@pytest.mark.parametrize(
    "path",
    [
        "tests/ops.py",
        "lib/scripts/ops.py",
        "lib/examples/ops.py",
        "lib/mlx_examples/ops.py",
        "lib/plotting.py",
        "ops.py",
    ],
)
def test_places_that_no_step_comes_to(path: str) -> None:
    assert one("def clip(x: Tensor): return x", path) == set()


def test_a_program_that_trains_offers_nothing() -> None:
    body = "import torch\ndef note(x: torch.Tensor): return x.item()\n"
    loop = "def {}(batches):\n    for b in batches:\n        b.backward()\n        opt.step()\n"
    assert "note" in one(body)
    assert "note" in one(body + loop.format("fit"))
    assert "note" not in one(body + loop.format("main"))


def test_a_function_without_gradients_that_loops_over_a_model_is_hot_in_the_loop() -> None:
    body = (
        "import torch\n"
        "@torch.no_grad()\n"
        "def generate(model, x: torch.Tensor):\n"
        "    before(x)\n"
        "    for t in range({}):\n"
        "        x = {}(x)\n"
        "    return x\n"
        "def before(x): return x.item()\n"
    )
    assert "run.before" in heat_of({"run.py": body.format(2, "x.exp")})
    assert "run.before" not in heat_of({"run.py": body.format(20, "model")})


def test_what_an_application_copied_is_hot_where_it_is_called() -> None:
    body = "import torch\nclass Head(torch.nn.Module):\n    def forward(self, x): return x.item()\n"
    files = {"app/lpips/__init__.py": "", "app/lpips/nets.py": body}
    assert not heat_of(files)
    assert heat_of(files, "app")  # a library has such a package of its own
    assert heat_of({"app/lpips/nets.py": body})  # a folder for something, perhaps
    assert heat_of({"app/mine/__init__.py": "", "app/mine/nets.py": body})
    caller = """
    from app.lpips.nets import Head
    head = Head()
    # dispatchguard: hot
    def step(x): return head(x)
    """
    assert "app.lpips.nets.Head.forward" in heat_of({**files, "app/train.py": caller})


def test_an_application_has_none() -> None:
    text = "import torch\ndef clip(x: torch.Tensor): return x\n"
    assert heat_of({"app/ops.py": text}) == {}


def test_what_they_call_is_hot_by_them() -> None:
    text = (
        "import torch\ndef clip(x: torch.Tensor): return _bound(x)\n"
        "def _bound(x): return x.item()\ndef _load(x): return x\n"
    )
    found = heat_of({"lib/ops.py": text}, "lib")
    assert found["lib.ops._bound"].users
    assert found["lib.ops._bound"].path == ["lib.ops.clip", "lib.ops._bound"]
    assert found["lib.ops.clip"].reason == REASON
    assert "lib.ops._load" not in found


def test_what_the_project_calls_from_a_hot_place_is_hot_by_that() -> None:
    text = (
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x): return clip(x)\n"
        "def clip(x: torch.Tensor): return bound(x)\ndef bound(x: torch.Tensor): return x\n"
    )
    found = heat_of({"lib/ops.py": text}, "lib")
    assert not any(fact.users for fact in found.values())
    assert found["lib.ops.bound"].path == ["lib.ops.M.forward", "lib.ops.clip", "lib.ops.bound"]


def test_what_hot_code_gives_is_not_what_users_may_give() -> None:
    text = (
        "import torch\nclass M(torch.nn.Module):\n"
        "    def forward(self, x): return clip(x)\n"
        "def clip(x: torch.Tensor, check=False):\n"
        "    if check:\n        _look(x)\n    return x\n"
        "def checked(x: torch.Tensor): return clip(x, True)\n"
        "def _look(x): return x.item()\n"
    )
    found = heat_of({"lib/ops.py": text}, "lib")
    assert not found["lib.ops.clip"].users
    assert "lib.ops._look" not in found


# -- other roots -------------------------------------------------------------------------------------


def hot(body: str) -> dict[str, HotFact]:
    found = heat_of({"m.py": "import torch\n" + textwrap.dedent(body)})
    return {name.removeprefix("m."): fact for name, fact in found.items()}


def test_a_class_with_backward_and_step_is_called_in_every_step() -> None:
    found = hot(
        "class Engine:\n    def backward(self, loss): loss.backward()\n    def step(self): pass\n"
    )
    assert {name: fact.per for name, fact in found.items()} == {
        "Engine.backward": "step",
        "Engine.step": "step",
    }
    assert hot("class Walk:\n    def step(self): pass\n") == {}
    assert hot("class Undo:\n    def backward(self): pass\n") == {}


def test_steps_are_known_by_their_names_where_torch_is() -> None:
    body = "def train_step(batch): return batch\n"
    assert hot(body)["train_step"].per == "step"
    assert heat_of({"m.py": body}) == {}
    assert hot("def training_steps(n): return n\n") == {}
    assert heat_of({"tests/m.py": f"import torch\n{body}"}) == {}


@pytest.mark.parametrize(
    "body",
    [
        "def evaluate(model, loader):\n    model.eval()\n    for b in loader:\n        note(model(b))\n",
        "def sample(net: torch.nn.Module, steps):\n    for t in steps:\n        note(net(t))\n",
        (
            "class T:\n    def run_all(self, loader):\n        self.net.train()\n"
            "        while True:\n            note(self.net(loader))\n"
        ),
        (
            "def roll_out(agent, env, steps):\n    while steps:\n        action = agent.choose()\n"
            "        state, reward, done, info = env.step(action)\n        note(state)\n"
        ),
        (
            "class T:\n    def go(self):\n        for _ in range(9):\n"
            "            self.state, r, over, cut, info = self.envs[0].step(note(self.state))\n"
            "            x, r, over, cut, info = self.env.step(note(x))\n"
        ),
        "def refine(head, xs):\n    for x in xs:\n        note(head.forward(x))\n",
        (
            "def denoise(parts, xs):\n    def one(x):\n        return parts.net.forward(x)\n"
            "    for x in xs:\n        note(one(x))\n"
        ),
        "def explain(net, xs):\n    net.eval()\n    for x in xs:\n        note(net.forward_masks(x))\n",
    ],
    ids=[
        "evaluates",
        "annotated",
        "attribute",
        "environment",
        "gymnasium",
        "forward",
        "inside",
        "masks",
    ],
)
def test_loops_that_feed_a_model(body: str) -> None:
    found = hot(f"{body}def note(x): return x.item()\n")
    (root,) = (fact for fact in found.values() if len(fact.path) == 1)
    assert (root.reason, root.only_loops) == ("a loop that feeds a model", True)
    assert found["note"].per == "step"


def test_of_a_pipeline_that_is_a_module_only_the_loops_are_hot() -> None:
    body = (
        "class {}(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        x = before(x)\n"
        "        for t in range(20):\n"
        "            x = note(self.unet(x))\n"
        "        return x\n"
        "def before(x): return x.item()\n"
        "def note(x): return x.item()\n"
    )
    assert {"before", "note"} <= hot(body.format("Head")).keys()
    found = hot(body.format("ImagePipeline"))
    assert "note" in found and "before" not in found


def test_a_loop_whose_result_is_kept_is_not_run_again() -> None:
    body = "def scores(model, xs):\n    for x in xs: note(model(x))\n"
    rest = "def note(x): return x.item()\n"
    assert "note" in hot(body + rest)
    assert "note" not in hot("@cached(CACHE, key=str)\n" + body + rest)


def test_a_loop_that_shows_what_a_model_makes_is_for_people() -> None:
    body = "def {}(model, loader):\n    for batch in loader:\n        note(model(batch))\n"
    rest = "def note(x): return x.item()\n"
    assert "note" in hot(body.format("predict") + rest)
    assert not hot(body.format("visualize") + rest)
    assert not hot(body.format("plot_results") + rest)


@pytest.mark.parametrize(
    "body",
    [
        "def evaluate(model, loader):\n    model.eval()\n    return model(loader)\n",
        "def runs(f, loader):\n    for b in loader:\n        f(b)\n",
        "def outside(model, loader):\n    model.eval()\n    for b in loader:\n        note(b)\n",
        "def once(env, a):\n    x, r, done, info = env.step(a)\n    return note(x)\n",
        "def pairs(it, a):\n    for _ in a:\n        x, y = it.step(a)\n        note(x)\n",
        "def one(x):\n    def inner(y): return net(y)\n    for y in x: note(y)\n",
        "class F(B):\n    def run(self, x):\n        for y in x: note(super().forward(y))\n",
        "def optimizes(o, a):\n    for x in a:\n        o.step()\n        a, b, c, d = note(x)\n",
    ],
    ids="no loop,no model,not in the loop,one step,two values,a function,a base,an optimizer".split(
        ","
    ),
)
def test_loops_that_feed_none(body: str) -> None:
    assert hot(f"{body}def note(x): return x.item()\n") == {}


@pytest.mark.parametrize(
    "base",
    ["torch.nn.modules.loss._Loss", "torch.nn.modules.batchnorm._BatchNorm", "torchvision.ops.MLP"],
)
def test_private_classes_of_torch_are_known(base: str) -> None:
    module = base.rpartition(".")[0]
    found = heat_of(
        {"m.py": f"import {module}\nclass L({base}):\n    def forward(self, x): return x\n"}
    )
    assert found["m.L.forward"].reason == "forward of a torch.nn.Module"


# -- ways that are not calls by name -----------------------------------------------------------------


LAYER = "class L(torch.nn.Module):\n"


@pytest.mark.parametrize(
    "body",
    [
        LAYER
        + "    def __init__(self):\n        self.ways = {'a': self.one, 'b': two}\n"
        + "    def forward(self, x): return self.ways[x](x)\n    def one(self, x): return x\n",
        LAYER
        + "    def forward(self, x): return WAYS[x](x)\ndef one(x): return x\n"
        "WAYS = {'a': one, 'b': two}\n",
        LAYER + "    def forward(self, x, kind): return getattr(self, f'run_{kind}')(x)\n"
        "    def run_one(self, x): return two(x)\n    def other(self, x): return x\n",
        "import functools\n" + LAYER + "    def forward(self, x): return f(x)\n"
        "@functools.singledispatch\ndef f(x): return x\n@f.register\ndef _(x: int): return two(x)\n",
    ],
    ids=["a table of the object", "a table of the module", "a made name", "by type"],
)  # fmt: skip
def test_functions_are_reached(body: str) -> None:
    found = hot(f"{body}def two(x): return x\n")
    assert "two" in found
    assert not any(name.endswith("other") for name in found)


CONTAINER = """
class Boxes:
    def __init__(self, boxes: Tensor):
        self.boxes = boxes
    def area(self): return self.boxes.sum()
    def _inner(self): return self.boxes
    def load_from(self, path): return path
    @property
    def wide(self): return self.boxes.sum() > 3
class Shape:
    def __init__(self, width: int):
        self.width = width
    def area(self): return self.width
class BoxDataset:
    boxes: Tensor
    def area(self): return self.boxes.sum()
class Net(torch.nn.Module):
    def __init__(self, boxes: Tensor):
        self.boxes = boxes
    def area(self): return self.boxes.sum()
class Options:
    boxes: list[int]
    def area(self): return self.boxes
class Solve:
    function: Callable[[Tensor], Tensor]
    def area(self): return self.function
class Appearances:
    boxes: Tensor
    def area(self): return self.boxes.sum()
"""


def test_the_methods_of_a_class_that_holds_tensors_work_on_them() -> None:
    assert one(CONTAINER) == {"Appearances.area", "Boxes.area", "Boxes.wide"}
