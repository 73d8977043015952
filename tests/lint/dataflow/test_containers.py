"""The elements of lists, tuples, dicts and comprehensions."""

from __future__ import annotations

from .reading import body, shown, words


def test_the_elements_of_nested_values() -> None:
    source = body(
        """
        pair = (x, 1)
        table = {"a": x, "b": x * 2}
        many = [x, x]
        show(pair[0], pair[1], pair[-1], table["a"], many[0], many[1:], many[1:][0])
        show(table.get("a"), many.pop(), *[x])
        for key in table:
            show(key)
        for key, value in table.items():
            show(key, value)
        for value in table.values():
            show(value)
        """
    )
    assert words(source) == [
        "tensor", "scalar", "scalar", "tensor", "tensor", "nested", "tensor",
        "tensor|none", "tensor", "nested",
        "unknown",
        "text", "tensor",
        "tensor",
    ]  # fmt: skip


def test_lists_and_tables_hold_what_is_put_into_them() -> None:
    source = body(
        """
        rows, counts, both, late = [], [], [], []
        groups, named = defaultdict(list), {}
        for i in range(3):
            rows.append(x[i])
            counts.append(x.shape[0])
            both.append(x[i])
            both.append(1)
            groups[i].append(x[i])
            named.setdefault("rows", []).append(x[i])
            if i:
                late.append(x[i].cpu())
        show(rows[0], counts[0], both[0], groups[0][1], named["rows"][0], late[0])
        for row in rows:
            show(row)
        """
    )
    assert words("from collections import defaultdict\n" + source) == [
        "tensor", "scalar", "tensor?", "tensor", "tensor", "tensor@cpu",
        "tensor",
    ]  # fmt: skip


def test_entries_of_a_dict_are_told_apart_by_no_key() -> None:
    source = body(
        """
        losses, mixed, deep = {}, {"n": 3}, {}
        losses["box"] = x.sum()
        losses["class"] = x.mean()
        mixed["loss"] = x.sum()
        deep["of"] = deep
        show(losses["box"], mixed["n"], deep["of"])
        """
    )
    assert words(source) == ["tensor", "unknown", "unknown"]


def test_what_was_in_a_list_before_is_not_forgotten() -> None:
    source = body(
        """
        known = list(given)
        known.append(x)
        made = []
        made.append(given)
        made.append(x)
        show(known[0], made[0])
        """,
        "x: torch.Tensor, given",
    )
    assert words(source) == ["unknown", "unknown"]


def test_comprehension_variables_stay_inside() -> None:
    source = body("v = 1\nys = [show(v) for v in xs if show(v)]\nshow(v, ys)", "xs: List[Tensor]")
    assert words(source) == ["tensor", "tensor", "scalar", "nested"]


def test_one_of_a_class_or_a_table_of_such_is_gone_through_as_a_table() -> None:
    source = """
    from dataclasses import dataclass

    @dataclass
    class Format:
        indices: torch.Tensor
        count: int

    # dispatchguard: hot
    def forward(formats: Union[Format, Dict[str, Format]], single: bool):
        if single:
            formats = {"all": formats}
        for name, one in formats.items():
            show(name, one.indices)
        show(formats)
    """
    kinds = shown(source)
    assert [kind.what for kind in kinds[:2]] == ["text", "tensor"]
