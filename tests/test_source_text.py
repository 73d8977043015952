"""What rules ask of the source text of a function before it is parsed."""

from __future__ import annotations

import pytest
from dispatchguard_rules.source_text import (
    comprehends_own_attributes,
    computes_the_last_argument,
    loses_a_name,
    repeats_a_call,
)


@pytest.mark.parametrize(
    ("body", "may"),
    [
        ("return x.exp() + y * x.exp()", True),
        ("a = torch.exp(-h)\n    return y * (1 - torch.exp(-h))", True),
        ("return torch.exp(f(a)[0]) + torch.exp(f(a)[0])", True),
        ("return torch.exp(a) + torch.exp(b)", False),
        ("return x.sum(f(a)) + x.sum(f(b))", False),
        ("return x.mean() + x.mean()", False),
        ("# torch.exp(x)\n    return torch.exp(x)", False),
        ("'torch.exp(x)'\n    return torch.exp(x)", False),
        ("return f'{torch.exp(x)}', torch.exp(x)", True),
        ("def exp(x):\n        return torch.exp(x)\n    return exp", False),
    ],
)
def test_a_call_is_repeated_where_the_same_text_stands_twice(body: str, may: bool) -> None:
    assert repeats_a_call(f"def f(x, a, b, h, y):\n    {body}\n", {"exp", "sum"}) is may


@pytest.mark.parametrize(
    ("body", "may"),
    [
        ("a = x.exp()\n    return a", False),
        ("a = x.exp()\n    return x", True),
        ("a = x.exp()\n    a = x.sum()\n    return a", True),
        ("a = x.exp()\n    a = a.sum()\n    return a", False),
        ("a = x.exp(\n        x\n    )\n    return a", False),
        ("a = x.exp(\n        a\n    )\n    return x", True),
        ("a = b = x.exp()\n    return a", True),
        ("a, b = x.exp()\n    return a", True),
        ("a: Tensor = x.exp()\n    return x", True),
        ("if x:\n        a = x.exp()\n        return x\n    return a", True),
        ("if x:\n        a = x.exp()\n        return a\n    return x", False),
        ("a = x.exp()  # what a is for\n    return x", True),
        ("a = x.exp()\n    'a'\n    return x", True),
        ("a = x.exp()\n    return f'{a}'", False),
        ("a = x.exp()\n    return f'a {x:{a}}'", False),
        ("a = x.exp()\n    return f'a {x} {{a}}'", True),
        ("(\n        a,\n        b,\n    ) = x.exp()\n    return a", True),
        ("(\n        a,\n        b,\n    ) = x.exp()\n    return a, b", False),
        ("a = x.exp() \\\r\n        + a\r\n    return x", True),
        ("a = x.exp()\n    return x.a, g(a=x)", True),
        ("a = x.exp()\n    return g(a=a)", False),
        ("a = x.exp() \\\n        + a\n    return x", True),
        ("a = g(x)\n    return x", False),
        ("x.a = x.exp()\n    return x", False),
    ],
)
def test_a_name_is_lost_where_nothing_reads_it_before_it_is_gone(body: str, may: bool) -> None:
    assert loses_a_name(f"def f(x):\n    {body}\n", {"exp"}) is may


@pytest.mark.parametrize(
    ("call", "may"),
    [
        ("d.get(k, x.exp())", True),
        ("d.get(f(k), None)", False),
        ("d.get(f(k), (1, 2))", True),
        ("d.get(\n    k,\n    x[0],\n)", True),
        ("d.get(k)", False),
        ("d.put(k, x.exp())", False),
        ("d.get(k, '(')", False),
    ],
)
def test_a_last_argument_is_computed_where_it_has_brackets(call: str, may: bool) -> None:
    assert computes_the_last_argument(f"def f(d, k, x):\n    return {call}\n", {"get"}) is may


@pytest.mark.parametrize(
    ("body", "may"),
    [
        ("return [i for i in range(self.n)]", True),
        ("return sum(\n        i\n        for i in self.sizes\n    )", True),
        ("return {k: v for k, v in self.d.items()}", True),
        ("return [x for x in xs]", False),
        ("return [self for x in xs]", False),
        ("return self.n, [x for x in xs]", False),
        ("for i in range(self.n):\n        pass", False),
        ("return '[i for i in self.n]'", False),
    ],
)
def test_a_comprehension_of_own_attributes_names_the_object(body: str, may: bool) -> None:
    assert comprehends_own_attributes(f"def f(self, xs):\n    {body}\n") is may
