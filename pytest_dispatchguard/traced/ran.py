"""Which functions of a project ran in traces, as the recorded profile has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.model.traces import Line, Trace
from pytest_dispatchguard.profile import Name, Profile, Seen, digest
from pytest_dispatchguard.traces.joining import Scope, Scopes, TextOf


def profile_of(traces: Iterable[Trace], text_of: TextOf) -> Profile:
    """The functions that ran, as they are now."""
    profile = Profile()
    names = _Names(text_of, profile)
    for trace in traces:
        alone = Profile()
        for name, seen in _seen(trace, names):
            known = alone.functions.setdefault(name, Seen(seen.digest))
            # Generators are entered at several lines: their calls add up.
            per_step = known.per_step + seen.per_step
            known.add(seen)
            known.per_step = per_step
        for name, seen in alone.functions.items():
            seen.loops = seen.loops and seen.per_step < 1
            profile.functions.setdefault(name, Seen(seen.digest)).add(seen)
    return profile


def _seen(trace: Trace, names: _Names) -> Iterator[tuple[Name, Seen]]:
    steps = len(trace.steps) if trace.has_steps else 0
    for line, ran in (trace.functions or {}).items():
        scope = names.scope(line)
        if scope is None:
            continue
        seen = Seen(names.digest(line.file, scope))
        # One step has no loop around it that could be told from a single call.
        always = steps > 1 and ran.steps >= steps
        # Lambdas and comprehensions count as part of the function around them.
        if scope.is_named:
            seen.calls = ran.calls
            seen.per_step = round(ran.in_steps / steps, 3) if steps else 0.0
        if always and line.exact and not names.in_loop(line, scope):
            seen.per_step = 1.0  # calls are not in such a trace
        seen.loops = always
        for callee, times in ran.callees.items():
            called = names.scope(callee)
            if called is not None and called.is_named:
                seen.callees[callee.file, called.qualified] += times
        yield (line.file, scope.qualified), seen


class _Names:
    """The functions that lines of traces are in. Adds those of each file to a profile's texts."""

    def __init__(self, text_of: TextOf, profile: Profile) -> None:
        self._scopes = Scopes(text_of)
        self._text_of = text_of
        self._texts = profile.texts
        self._lines: dict[str, list[str]] = {}

    def scope(self, line: Line) -> Scope | None:
        """The code that a line runs in; None where that is not known, or is outside of functions."""
        if not line.ours:
            return None
        meant = self._scopes.meant(line)
        return meant[0] if len(meant) == 1 and meant[0].qualified else None

    def digest(self, file: str, scope: Scope) -> str:
        """Of the function that the code is in."""
        functions = [one for one in self._scopes.of(file) if one.is_named]
        if file not in self._lines:
            self._lines[file] = split_lines(self._text_of(file) or "")
            self._texts[file] = {one.qualified: self._of(file, one) for one in functions}
        if scope.is_named:
            return self._of(file, scope)
        return self._texts[file].get(scope.qualified, "")

    def _of(self, file: str, scope: Scope) -> str:
        return digest(self._lines[file][scope.first - 1 : scope.last])

    def in_loop(self, line: Line, scope: Scope) -> bool:
        """Whether a line stands in a loop of its function."""
        return any(
            scope.first <= first < line.line <= last <= scope.last
            for first, last in self._scopes.loops(line.file)
        )
