"""A recorded profile held against the code as it is: how often, with what, and what has changed since."""

from __future__ import annotations

import textwrap
from collections import Counter

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.profile import Observed, observed
from pytest_dispatchguard.lint.hotness.solve import solve
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.profile import Profile, Seen, digest

TEXT_OF = textwrap.dedent(
    '''\
    from torch import nn

    class Block(nn.Module):
        def forward(self, x):
            for hook in self.hooks:
                hook(x)
            return self.part(x)

        def part(self, x):
            return setup_mask(x)

    def setup_mask(x):
        return x

    @staticmethod
    def hooked(x):
        """Found by nobody who reads."""
        return twice(x)

    def twice(x):
        return x
    '''
)
LINES = TEXT_OF.split("\n")


def of(first: int, last: int, calls: int, **callees: int) -> Seen:
    named = Counter({("m.py", name.replace("__", ".")): times for name, times in callees.items()})
    return Seen(digest(LINES[first - 1 : last]), calls, named)


def recorded() -> Profile:
    return Profile(
        {
            ("m.py", "Block.forward"): of(4, 7, 10, hooked=30, Block__part=10),
            ("m.py", "Block.part"): of(9, 10, 10, setup_mask=10),
            ("m.py", "setup_mask"): of(12, 13, 10),
            ("m.py", "hooked"): of(15, 18, 30, twice=60),
            ("m.py", "twice"): of(20, 21, 61),
        }
    )


def read(profile: Profile, text: str = TEXT_OF) -> tuple[Observed, dict[str, HotFact]]:
    facts = {"m.py": scan(text, "m", False)}
    project = build(facts)
    known = observed(profile, facts, project.module_of, lambda rel: text)
    return known, dict(solve(project, observed=known).hot)


def test_what_was_seen_is_hot_and_counted() -> None:
    known, hot = read(recorded())
    assert known.note == "" and not known.stale
    seen = {name.removeprefix("m:"): fact.seen for name, fact in hot.items()}
    # `hooked` no reader could have found, and `setup_mask` is cold by its name.
    assert seen == {
        "Block.forward": 1,
        "Block.part": 1,
        "setup_mask": 1,
        "hooked": 3,
        "twice": 6,
    }
    assert hot["m:twice"].loop


def test_without_a_profile_nothing_is_said() -> None:
    _, hot = read(Profile())
    assert "m:hooked" not in hot and "m:setup_mask" not in hot
    assert {fact.seen for fact in hot.values()} == {None}


def test_what_did_not_run_says_so() -> None:
    profile = recorded()
    del profile.functions["m.py", "Block.part"]
    known, _ = read(profile)
    assert known.per_call("m:Block.forward", "m:Block.part") == 0
    assert known.per_call("m:Block.part", "m:twice") is None
    assert known.per_call("m:Block.forward", "other:f") is None


def test_what_has_changed_is_not_believed() -> None:
    known, hot = read(recorded(), TEXT_OF.replace("return twice(x)", "return twice(x + 1)"))
    assert known.stale == {"m:hooked"}
    assert "1 of 5 recorded functions have changed since" in known.note
    assert "m:hooked" not in hot
    assert known.per_call("m:Block.forward", "m:hooked") is None
    assert known.per_call("m:Block.forward", "m:Block.part") == 1


def test_moved_lines_and_other_blanks_are_no_change() -> None:
    moved = "\n# a comment\n\n" + TEXT_OF.replace("\n", "  \r\n")
    known, _ = read(recorded(), moved)
    assert not known.stale


def test_a_way_out_for_once_is_no_matter_of_course() -> None:
    profile = recorded()
    profile.functions["m.py", "Block.part"].callees["m.py", "setup_mask"] = 1
    _, hot = read(profile)
    assert "m:setup_mask" not in hot  # once in ten calls: what its name says stands


def test_the_user_s_word_stands_above_what_was_seen() -> None:
    text = TEXT_OF.replace("def setup_mask(x):", "def setup_mask(x):  # dispatchguard: cold")
    profile = recorded()
    lines = text.split("\n")
    profile.functions["m.py", "setup_mask"].digest = digest(lines[11:13])
    _, hot = read(profile, text)
    assert "m:setup_mask" not in hot
