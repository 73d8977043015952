"""What ways lead to after some functions run something else is what they would lead to from the beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.calls import Edge
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.hotness.cold import Coldness
from pytest_dispatchguard.lint.hotness.patterns import patterns
from pytest_dispatchguard.lint.hotness.reachability import (
    Before,
    ReachContext,
    Reached,
    reachable,
    update_reachable,
)
from pytest_dispatchguard.lint.hotness.roots import Root
from pytest_dispatchguard.lint.scout import scan

CLASSES = ["Base", "Left(Base)", "Right(Base)", "Other"]
METHODS = ["one", "two", "three", "four"]


def project_of() -> Project:
    """Four classes, three of one family, with the same methods, two of which are cold by their names."""
    methods = "".join(
        f"    def {name}(self):\n        return 1\n" for name in [*METHODS, "close", "__repr__"]
    )
    text = "".join(f"class {class_}:\n{methods}" for class_ in CLASSES)
    plain = "".join(f"def {name}():\n    return 1\n" for name in METHODS)
    return build({"m.py": scan.scan(text + plain, "m", False)})


PROJECT = project_of()
NAMES = sorted(PROJECT.functions)

edges = st.builds(
    Edge,
    st.sampled_from(NAMES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.just(False),
)
graphs = st.dictionaries(
    st.sampled_from(NAMES),
    st.lists(edges, max_size=5, unique_by=lambda edge: edge.target).map(tuple),
    max_size=len(NAMES),
)
roots = st.lists(
    st.builds(
        Root,
        st.sampled_from(NAMES),
        st.just("a test says so"),
        st.sampled_from(["call", "step"]),
        st.sampled_from([False, False, True]),
        st.just(False),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda root: root.target,
).map(lambda found: sorted(found, key=lambda root: root.target))

Graph = dict[str, tuple[Edge, ...]]


def grounds_for(found: list[Root]) -> ReachContext:
    loops = frozenset(root.target for root in found if root.only_loops)
    return ReachContext(PROJECT, Coldness(PROJECT, patterns(()), frozenset()), loops)


def reached(found: list[Root], graph: Graph) -> dict[str, Reached]:
    return reachable(grounds_for(found), found, lambda name: graph.get(name, ()))


@given(roots, graphs, graphs)
def test_what_changed_leads_where_it_would_from_the_beginning(
    found: list[Root], graph: Graph, changes: Graph
) -> None:
    before, after = reached(found, graph), {**graph, **changes}
    callers: dict[str, set[str]] = {}
    for source, ways in (*graph.items(), *after.items()):
        for edge in ways:
            callers.setdefault(edge.target, set()).add(source)
    now = update_reachable(
        grounds_for(found),
        Before(before.get, lambda name: graph.get(name, ())),
        lambda name: after.get(name, ()),
        lambda name: callers.get(name, ()),
        changes,
    )
    told = {name: one for name, one in {**before, **now}.items() if one is not None}
    assert told == reached(found, after)


def test_nothing_is_looked_at_that_a_change_does_not_reach() -> None:
    found = [Root("m:Base.one", "a test says so")]
    graph: Graph = {"m:Base.one": (Edge("m:two", False, True),), "m:two": ()}
    before = reached(found, graph)
    asked: list[str] = []

    def callers(name: str) -> list[str]:
        asked.append(name)
        return ["m:Base.one", "m:two"]

    now = update_reachable(
        grounds_for(found),
        Before(before.get, lambda name: graph.get(name, ())),
        lambda name: (Edge("m:three", False, True),) if name == "m:two" else graph.get(name, ()),
        callers,
        ["m:two"],
    )
    assert set(now) == {"m:three"}
    assert now["m:three"] is not None
    assert now["m:three"].fact.path == ["m.Base.one", "m.two", "m.three"]
    assert set(asked) == {"m:three"}
