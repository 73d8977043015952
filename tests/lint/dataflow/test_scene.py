"""What is around a node: loops, `with` statements, conditions."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard.lint.syntax.spelling import text

from .reading import body, read


def test_scenes_know_what_is_around() -> None:
    reader = read(
        body(
            """
            with torch.no_grad():
                for a in xs:
                    if a.dim() > 1:
                        show([b for b in a])
            """,
            "xs",
        )
    )
    (scene,) = [e.scene for e in reader.events if e.event == "call" and e.name == "show"]
    assert len(scene.loops) == 1 and len(scene.withs) == 1
    assert [(text(test), holds) for test, holds in scene.conditions] == [("a.dim() > 1", True)]
    assert isinstance(scene.statement, cst.SimpleStatementLine) and len(scene.block) == 1
