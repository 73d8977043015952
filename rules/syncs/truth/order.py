"""DG405: a boolean chain asks a tensor before a host value."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Finding, Fix, Place, Rule, Truth

from .conditions import host_first, plain_host, tensor_question


class DeviceBeforeHost(Rule):
    """A boolean chain asks a tensor first, though a host value could make the wait unnecessary.

    ## What it does

    Finds `and`/`or` chains that test a tensor before a plain host value.

    ## Why it costs

    `and` and `or` stop at the first operand that decides. Asking the tensor first makes the host wait for the
    device even where the host test alone decides.

    ## Example

    ```python
    if (diff >= 0).all() and q_len != 1:
        ...
    ```

    ## Instead

    ```python
    if q_len != 1 and (diff >= 0).all():
        ...
    ```

    ## Fix safety

    Unsafe: the operands are evaluated in another order. That shows only where one of them raises or has
    side effects and the other decides.
    """

    code = "DG405"
    name = "device-test-before-host-test"
    origin = "transformers#33570"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a chain, where a host test comes later."""
        question = tensor_question(node, place)
        if question is None:
            return None
        found = host_first(node, question[1], place)
        if found is None:
            return None
        chain, operands, host = found
        word = "and" if isinstance(chain.operator, cst.And) else "or"
        return place.finding(
            node,
            f"`{place.short(node)}` makes the host wait for the device, although "
            f"`{place.short(host)}` could decide without waiting. Put `{place.short(host)}` first: "
            f"if it decides the `{word}`, the tensor is never read.",
            certainty=question[0],
            fix=self._fix(operands, place),
        )

    def _fix(self, operands: list[cst.BaseExpression], place: Place) -> Fix | None:
        """The operands in their new order, each in the place of another: what is between them stays."""
        ordered = [o for o in operands if plain_host(o, place)]
        ordered += [o for o in operands if not plain_host(o, place)]
        pairs = []
        for old, new in zip(operands, ordered, strict=True):
            if old is not new:
                # A place keeps the brackets around it.
                bare = new.with_changes(lpar=(), rpar=()) if getattr(old, "lpar", ()) else new
                pairs.append((old, place.text(bare)))
        if any("\n" in text for _, text in pairs):
            return None
        message = "Put the host's test first; this changes the order of evaluation"
        return place.edits(pairs, safety="unsafe", message=message)
