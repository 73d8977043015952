"""What hot code gives to the functions it calls, and what follows of it."""

from __future__ import annotations

import pytest

from ..hotness.test_solve import MODULE, brief_of, heat_of


def given_to_helper(text: str) -> dict[str, list[str]]:
    brief = brief_of({"m.py": MODULE + text}, "m.py")
    assert "helper" in brief.hot
    return brief.given.get("helper", {})


HELPER = "def helper(x, mask=None, *, mode='fast'):\n    return x\n"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("helper(x)", {"mask": ["None"], "mode": ["'fast'"]}),
        ("helper(x, None)", {"mask": ["None"], "mode": ["'fast'"]}),
        ("helper(x, x)", {"mode": ["'fast'"]}),
        ("helper(x, x.cpu())", {"mask": ["..."], "mode": ["'fast'"]}),
        ("helper(x, x.device)", {"mask": ["..."], "mode": ["'fast'"]}),
        ("helper(x, torch.ones(3, device=x.device))", {"mask": ["..."], "mode": ["'fast'"]}),
        ("helper(x, self.mask)", {"mode": ["'fast'"]}),
        ("helper(x, x[0])", {"mode": ["'fast'"]}),
        ("helper(x, mask=x.y)", {"mode": ["'fast'"]}),
        ("helper(x, mode='slow')", {"mask": ["None"], "mode": ["'slow'"]}),
        ("helper(x, mode='slow'), helper(x)", {"mask": ["None"], "mode": ["'fast'", "'slow'"]}),
        ("helper(*x)", {}),
        ("helper(x, **self.options)", {}),
        ("helper(mask=True, x=x)", {"mask": ["True"], "mode": ["'fast'"]}),
        ("helper(y for y in x)", {"mask": ["None"], "mode": ["'fast'"]}),
        ("map(helper, x), helper(x)", {}),
        ("[f(x) for f in (helper, abs)], helper(x)", {"mask": ["None"], "mode": ["'fast'"]}),
    ],
)
def test_defaults_stand_where_hot_code_gives_nothing_else(
    call: str, expected: dict[str, list[str]]
) -> None:
    text = HELPER + f"class A(nn.Module):\n    def forward(self, x, flag=False):\n        {call}\n"
    assert given_to_helper(text) == expected


def test_a_parameter_handed_on_holds_what_it_was_given() -> None:
    text = HELPER + (
        "def between(x, mask=None, mode='fast'):\n    return helper(x, mask, mode=mode)\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return between(x, mode='slow')\n"
    )
    assert given_to_helper(text) == {"mask": ["None"], "mode": ["'slow'"]}


@pytest.mark.parametrize(
    ("body", "calls", "expected"),
    [
        ("if kind == 'log':\n        pass", "helper('even', x)", ["'even'"]),
        ("if kind in ('log', 'even'):\n        pass", "helper(kind='log', x=x)", ["'log'"]),
        (
            "if kind != 'log':\n        return x",
            "helper('log', x), helper('even', x)",
            ["'even'", "'log'"],
        ),
        (
            "if x:\n        pass\n    elif kind == 'log':\n        pass",
            "helper('even', x)",
            ["'even'"],
        ),
        ("if kind == 'log':\n        pass", "helper(self.kind, x)", []),
        ("if kind == 'log':\n        pass", "helper(x=x)", []),
        ("if kind == 'log':\n        pass", "helper('even', x), map(helper, x)", []),
        ("if kind == x:\n        pass", "helper('even', x)", []),
        ("kind = x\n    if kind == 'log':\n        pass", "helper('even', x)", []),
    ],
)
def test_a_parameter_that_is_compared_with_text_holds_what_it_is_given(
    body: str, calls: str, expected: list[str]
) -> None:
    text = (
        f"def helper(kind, x):\n    {body}\n    return x\n"
        f"class A(nn.Module):\n    def forward(self, x):\n        {calls}\n"
    )
    assert given_to_helper(text).get("kind", []) == expected


def test_what_a_root_hands_on_can_be_anything() -> None:
    text = HELPER + (
        "class A(nn.Module):\n"
        "    def forward(self, x, mask=None):\n        return helper(x, mask)\n"
    )
    assert given_to_helper(text) == {"mode": ["'fast'"]}


@pytest.mark.parametrize(
    ("parameter", "mask"),
    [
        ("mask: torch.Tensor", ["..."]),
        ("mask: 'torch.Tensor'", ["..."]),
        ("mask: torch.Tensor | None", []),
        ("mask: torch.Tensor = None", []),
        ("mask", []),
    ],
)
def test_a_tensor_that_has_to_be_given_is_there(parameter: str, mask: list[str]) -> None:
    text = HELPER + (
        f"class A(nn.Module):\n    def forward(self, x, {parameter}):\n        return helper(x, mask)\n"
    )
    assert given_to_helper(text).get("mask", []) == mask


def test_a_parameter_bound_anew_is_not_handed_on() -> None:
    text = HELPER + (
        "def between(x, mask=None):\n    mask = x if mask is None else mask\n    return helper(x, mask)\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return between(x)\n"
    )
    assert "mask" not in given_to_helper(text)


def test_a_function_that_hands_to_itself_is_no_riddle() -> None:
    text = (
        "def helper(x, mask=None):\n    return helper(x[0], mask) if x else x\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return helper(x)\n"
    )
    assert given_to_helper(text) == {"mask": ["None"]}


def test_positions_of_methods_leave_self_out() -> None:
    text = MODULE + (
        "class A(nn.Module):\n"
        "    def forward(self, x):\n        return self.step1(x, None), self.step2(x, None)\n"
        "    def step1(self, x, mask=True):\n        return x\n"
        "    @staticmethod\n    def step2(x, mask=True):\n        return x\n"
    )
    brief = brief_of({"m.py": text}, "m.py")
    assert brief.given == {"A.step1": {"mask": ["None"]}, "A.step2": {"mask": ["None"]}}


@pytest.mark.parametrize(
    ("body", "hot"),
    [
        ("if mask is not None:\n        rare(x)", False),
        ("if mask is None:\n        return x\n    rare(x)", False),
        ("if mask is None:\n        pass\n    else:\n        rare(x)", False),
        ("if mask is not None and x:\n        rare(x)", False),
        ("if mask is None:\n        rare(x)", True),
        ("if mask is not None:\n        rare(x)\n    rare(x)", True),
        ("if x is not None:\n        rare(x)", True),
        ("mask = x\n    if mask is not None:\n        rare(x)", True),
        (
            "for y in x:\n        if mask is None:\n            mask = y\n        else:\n            rare(x)",
            True,
        ),
    ],
)
def test_what_the_given_arguments_rule_out_is_not_hot(body: str, hot: bool) -> None:
    text = MODULE + (
        "def rare(x):\n    return x\n"
        f"def helper(x, mask=None):\n    {body}\n"
        "class A(nn.Module):\n    def forward(self, x):\n        helper(x)\n"
    )
    assert ("m.rare" in heat_of(text)) is hot


@pytest.mark.parametrize(
    ("argument", "on_cpu"),
    [
        ("x.cpu()", True),
        ("x.detach().cpu().double()[0]", True),
        ("x.to('cpu')", True),
        ("x.to(torch.device('cpu')).to(torch.float64)", True),
        ("x.to(host)", True),
        ("x.to(device='cpu')", True),
        ("torch.randperm(4)", True),
        ("torch.zeros(3, device='cpu') + x", True),
        ("torch.sort(y)", True),
        ("y", True),
        ("(y > 0)", True),
        ("x", False),
        ("x.to(other)", False),
        ("y.to(x.device)", False),
        ("y.cuda()", False),
        ("y.type_as(x)", False),
        ("torch.zeros(3, device=x.device)", False),
        ("torch.tensor(0.5) * x", False),
        ("z", True),
        ("w", False),
        ("[y]", False),
        ("move_to_device(x, torch.device('cpu'))", True),
        ("utils.send_to_device(x, device='cpu')['points']", True),
        ("move_data_to_device(x, 'cuda')", False),
        ("moved(x, 'cpu')", False),
        ("torch.gather(y, -1, x)", True),
        ("x - y", True),
    ],
)
def test_tensors_on_the_cpu_are_known_where_they_are_given(argument: str, on_cpu: bool) -> None:
    brief = brief_of(
        {
            "m.py": MODULE
            + "def helper(points, mask=None):\n    return inner(points[mask], mask)\n"
            + "def inner(points, mask):\n    return points\n"
            + "class A(nn.Module):\n    def forward(self, x, other):\n"
            + "        host = torch.device('cpu')\n        y = x.cpu()\n"
            + "        z = x\n        z = x.cpu()\n"
            + "        w = x.cpu()\n        if other:\n            w = x\n"
            + f"        return helper({argument})\n"
        },
        "m.py",
    )
    wanted = {"helper": ["points"], "inner": ["points"]} if on_cpu else {}
    assert brief.on_cpu == wanted


@pytest.mark.parametrize(
    ("body", "on_cpu"),
    [
        ("if not x.is_cuda:\n            return helper(x, order, scale)", ["order", "x"]),
        (
            "if x.is_cuda:\n            return x\n        return helper(x, order, scale)",
            ["order", "x"],
        ),
        (
            "if x.device.type == 'cuda':\n            x\n        else:\n            helper(x, order, scale)",
            ["order", "x"],
        ),
        (
            "if x.is_cpu:\n            y = helper(x, order, scale)",
            ["order", "x"],
        ),
        ("if x.device.type == 'cpu':\n            return helper(x, order, scale)", ["order", "x"]),
        ("if x.is_cuda:\n            return helper(x, order, scale)", []),
        ("if not x.is_cuda:\n            y = x\n        return helper(x, order, scale)", []),
        ("if not x.is_cuda and scale:\n            return helper(x, order, scale)", []),
        ("if x.is_cuda:\n            print(x)\n        return helper(x, order, scale)", []),
    ],
)
def test_a_branch_says_that_tensors_are_on_the_cpu(body: str, on_cpu: list[str]) -> None:
    text = MODULE + (
        "def helper(x, order, scale):\n    return x\n"
        "class A(nn.Module):\n    def forward(self, x, order: torch.Tensor, scale):\n"
        f"        {body}\n"
    )
    assert brief_of({"m.py": text}, "m.py").on_cpu.get("helper", []) == on_cpu


def test_one_caller_on_a_device_is_enough() -> None:
    brief = brief_of(
        {
            "m.py": MODULE
            + "def helper(points):\n    return points\n"
            + "class A(nn.Module):\n    def forward(self, x):\n"
            + "        return helper(x.cpu()), helper(x)\n"
        },
        "m.py",
    )
    assert brief.on_cpu == {}


def test_tensors_on_the_cpu_are_followed_from_function_to_function() -> None:
    hands_on = "".join(
        f"def h{i}(other, points):\n    return h{i + 1}(other, points=points)\n" for i in range(4)
    )
    brief = brief_of(
        {
            "m.py": MODULE
            + hands_on
            + "def h4(other, points):\n    return points\n"
            + "class A(nn.Module):\n    def forward(self, x):\n"
            + "        return h0(x, x.cpu())\n"
        },
        "m.py",
    )
    assert brief.on_cpu == {f"h{i}": ["points"] for i in range(5)}


@pytest.mark.parametrize(
    ("body", "on_cpu"),
    [
        ("return x.cpu()", True),
        ("return torch.randperm(4), torch.rand(3)", True),
        ("if x is None:\n        return torch.rand(1)\n    return x.cpu()", True),
        ("if x is None:\n        return x\n    return x.cpu()", False),
        ("return torch.randperm(4), x", False),
        ("pass", False),
    ],
)
def test_what_returns_tensors_on_the_cpu(body: str, on_cpu: bool) -> None:
    brief = brief_of(
        {
            "m.py": MODULE
            + f"def helper(x):\n    {body}\n"
            + "class A(nn.Module):\n    def forward(self, x):\n        return helper(x)\n"
        },
        "m.py",
    )
    assert brief.callees["helper"].on_cpu is on_cpu
