"""Styled lines for a terminal: in color through rich, otherwise plain and stable."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard.visible import one_line, without_commands

Line = list[tuple[str, str]]
"""Pieces of a line: text, and its rich style."""


def written(lines: Sequence[Line], *, color: bool) -> str:
    """Lines as text; each ends in a newline. Text from elsewhere stays on its line and cannot control the
    terminal."""
    lines = [[(one_line(text), style) for text, style in line] for line in lines]
    if color:
        return without_commands(_colored(lines))
    plain = ("".join(text for text, _ in line).rstrip() for line in lines)
    return without_commands("".join(f"{line}\n" for line in plain))


def _colored(lines: Sequence[Line]) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    console = Console(
        file=out,
        force_terminal=True,
        color_system="standard",
        no_color=False,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
    return out.getvalue()
