"""What a file comes to import, assign and return means the same to others, or it does not."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.incremental.changes import change_of
from pytest_dispatchguard.lint.incremental.name_meanings import files_using_returns, means_the_same
from pytest_dispatchguard.lint.incremental.name_mentions import Mentions
from pytest_dispatchguard.lint.store.packing import pack_facts

from .test_lazy_project import scanned

TEXTS = {
    "one.py": """
        import torch
        class Kept:
            def __init__(self, x):
                self.x = x
            def made(self):
                return 1
        def f(x):
            x.some_rare_method()
            return x
    """,
    "two.py": "class Thing:\n    def some_rare_method(self):\n        return 1\n",
    "three.py": "import one\ndef g(x):\n    one.f(x)\n    x.other_rare_method()\n",
    "four.py": "class Other:\n    def other_rare_method(self):\n        return 1\n",
    "five.py": "import one\nfrom one import made_up as mine\ndef k(x):\n    one.Kept.made(x)\n",
}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("import torch\n", "import torch\n        import math\n", True),
        ("import torch\n", "import torch\n        import two\n", True),
        ("import torch\n", "import torch\n        import four\n", True),
        ("import torch\n", "import torch\n        import five\n", True),
        ("self.x = x", "self.x = x\n                self.y = 1", True),
        ("self.x = x", "self.x = x\n                self.y = Kept(x)", False),
        ("self.x = x", "self.x = x\n                self.y = torch.zeros(x)", False),
        ("return x\n", "return torch.relu(x)\n", True),
        ("return x\n", "return Kept(x)\n", False),
    ],
)
def test_means_the_same(old: str, new: str, same: bool) -> None:
    assert old in TEXTS["one.py"]
    before = scanned(TEXTS)
    after = scanned({**TEXTS, "one.py": TEXTS["one.py"].replace(old, new)})
    change = change_of(before["one.py"], after["one.py"], frozenset())
    assert change is not None
    assert means_the_same(build(before), build(after), "one.py", change) is same


def test_torch_counts_for_whoever_did_not_import_it() -> None:
    before = scanned(TEXTS)
    after = scanned({**TEXTS, "two.py": f"import torch\n{TEXTS['two.py']}"})
    change = change_of(before["two.py"], after["two.py"], frozenset())
    assert change is not None
    assert not means_the_same(build(before), build(after), "two.py", change)


def test_who_is_told_of_what_a_function_returns() -> None:
    before = scanned(TEXTS)
    rows = {rel: pack_facts(facts) for rel, facts in before.items()}
    mentions = Mentions(lambda: rows, build(before).modules.keys())

    def told(text: str) -> set[str] | None:
        change = change_of(before["one.py"], scanned({"one.py": text})["one.py"], frozenset())
        assert change is not None
        return files_using_returns({"one.py": change}, mentions)

    text = TEXTS["one.py"]
    assert told(text.replace("return x\n", "return torch.relu(x)\n")) == {"one.py", "three.py"}
    assert told(text.replace("return 1", "return torch.relu(1)")) == {"one.py", "five.py"}
    rows["six.py"] = pack_facts(scanned({"six.py": "from one import f as other\n"})["six.py"])
    assert told(text.replace("return x\n", "return torch.relu(x)\n")) is None
