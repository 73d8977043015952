"""Completion scripts for shells, made from the argument parsers of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

PROGRAM = "dispatchguard"


class Option(NamedTuple):
    """One option: its spellings and values."""

    flags: tuple[str, ...]
    help: str
    value: str
    """The name of its value; empty if it takes none."""
    choices: tuple[str, ...]
    needed: bool
    """Whether its value is required."""


class Command(NamedTuple):
    """One command, its options, and its positional arguments."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    """All possible arguments; empty if it takes any, such as paths."""


def command(name: str, help: str, parser: argparse.ArgumentParser) -> Command:
    """The completions of a command."""
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS]
    words = [str(word) for a in actions if not a.option_strings for word in a.choices or ()]
    return Command(name, help, tuple(_option(a) for a in actions if a.option_strings), tuple(words))


def _option(action: argparse.Action) -> Option:
    takes = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    return Option(
        tuple(action.option_strings),
        " ".join((action.help or "").replace("%%", "%").split()),
        metavar if takes else "",
        tuple(str(word) for word in action.choices or ()) if takes else (),
        action.nargs is None,
    )


def script(shell: str, commands: Sequence[Command]) -> str:
    """The completion script for a shell, one of `SHELLS`."""
    return "".join(f"{line}\n" for line in SHELLS[shell](commands))


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield "_dispatchguard() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield "    # --format=json comes as three words."
    yield '    if [[ $cur == "=" ]]; then'
    yield '        cur=""'
    yield '    elif [[ $prev == "=" ]]; then'
    yield '        prev="${COMP_WORDS[COMP_CWORD-2]}"'
    yield "    fi"
    yield "    COMPREPLY=()"
    yield "    if [[ $COMP_CWORD -eq 1 ]]; then"
    names = " ".join([*(c.name for c in commands), "--help", "--version"])
    yield f'        COMPREPLY=($(compgen -W "{names}" -- "$cur"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $prev" in'
    for one in commands:
        for option in one.options:
            if option.value and option.needed:
                cases = "|".join(f'"{one.name} {flag}"' for flag in option.flags)
                found = f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur")); '
                yield f"        {cases}) {found if option.choices else ''}return ;;"
    yield "    esac"
    yield '    case "${COMP_WORDS[1]}" in'
    for one in commands:
        flags = " ".join(flag for option in one.options for flag in option.flags)
        yield f'        {one.name}) words="{flags}"'
        if one.words:
            yield f'            [[ $cur == -* ]] || words="{" ".join(one.words)}" ;;'
        else:
            yield "            [[ $cur == -* ]] || return ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "# Where nothing of ours fits, a file does."
    yield f"complete -o bashdefault -o default -F _dispatchguard {PROGRAM}"


def _zsh(commands: Sequence[Command]) -> Iterator[str]:
    yield f"#compdef {PROGRAM}"
    yield "_dispatchguard() {"
    yield "    local -a commands"
    yield "    commands=("
    for one in commands:
        yield f"        {_quoted(one.name + ':' + one.help.replace(':', _COLON))}"
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $command in"
    for one in commands:
        yield f"        {one.name})"
        yield "            _arguments \\"
        for option in one.options:
            for flag in option.flags:
                yield f"                {_quoted(_argument(flag, option))} \\"
        rest = f"({' '.join(one.words)})" if one.words else "_files"
        yield f"                {_quoted(f'*:argument:{rest}')}"
        yield "            ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _dispatchguard ]]; then _dispatchguard "$@"; else'
    yield f"    compdef _dispatchguard {PROGRAM}"
    yield "fi"


_COLON = r"\:"


def _argument(flag: str, option: Option) -> str:
    help = option.help
    for sign in "\\[]:":
        help = help.replace(sign, f"\\{sign}")
    if not option.value:
        return f"{flag}[{help}]"
    value = f"({' '.join(option.choices)})" if option.choices else "_files"
    colon = ":" if option.needed else "::"
    return f"{flag}[{help}]{colon}{option.value.replace(':', _COLON)}:{value}"


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    first = "complete -c dispatchguard -n __fish_use_subcommand"
    yield f"{first} -l help -d {_quoted('show this help message and exit')}"
    yield f"{first} -l version -d {_quoted('show the version and exit')}"
    for one in commands:
        yield f"{first} -f -a {one.name} -d {_quoted(one.help)}"
    for one in commands:
        after = f"complete -c dispatchguard -n {_quoted(f'__fish_seen_subcommand_from {one.name}')}"
        if one.words:
            yield f"{after} -f -a {_quoted(' '.join(one.words))}"
        for option in one.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            )
            value = ""
            if option.choices:
                value = f" -x -a {_quoted(' '.join(option.choices))}"
            elif option.value and option.needed:
                value = " -r -F"
            yield f"{after} {flags}{value} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    """A word for zsh and fish, which both accept a quote escaped outside of quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: Mapping[str, Callable[[Sequence[Command]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
