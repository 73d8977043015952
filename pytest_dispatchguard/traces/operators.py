"""Which findings of the linter can be behind a wait, by the operator that waited."""

from __future__ import annotations

import re

_TRUTH = frozenset("DG401 DG402 DG403 DG404 DG405 DG406".split())
_READS = _TRUTH | frozenset(
    """DG411 DG412 DG413 DG415 DG416 DG417 DG418 DG419 DG420 DG427 DG428 DG433 DG439 DG440 DG441
    DG508""".split()
)
"""A number, or an answer, is read back to the host."""
_ANSWERS = _TRUTH | frozenset("DG416 DG418 DG419 DG420 DG428 DG433 DG440".split())
_COPIES = frozenset(
    """DG413 DG414 DG415 DG416 DG417 DG418 DG419 DG428 DG433 DG436 DG438 DG501 DG502 DG503 DG504 DG505 DG507
    DG508 DG509 DG510 DG511 DG513 DG514""".split()
)
"""A tensor is copied to the device, or back."""
_IS_NONZERO = re.compile("(?:aten::)?(?:is_nonzero|__bool__)")
_SYNCHRONIZES = frozenset({"DG431", "DG432"})

_CODES: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(f"(?:aten::)?(?:{names})"), codes)
    for names, codes in (
        ("item|_local_scalar_dense", _READS),
        ("is_nonzero|__bool__", _READS),
        ("to|_to_copy|copy_|_copy_from|_foreach_copy_|cpu|cuda|tolist|type_as", _COPIES),
        ("lift_fresh|lift|tensor|as_tensor|full|scalar_tensor|fill_|normal_", _COPIES),
        ("nonzero|nonzero_numpy|argwhere", frozenset({"DG421", "DG422", "DG423", "DG434"})),
        ("where", frozenset({"DG421", "DG422", "DG423", "DG434", "DG503"})),
        ("_?to_sparse", frozenset({"DG421"})),
        ("index|__getitem__", frozenset({"DG421", "DG422", "DG427", "DG434", "DG438", "DG510"})),
        (
            "index_put|index_put_|_index_put_impl_|__setitem__|masked_scatter_?",
            frozenset({"DG421", "DG423", "DG427", "DG438", "DG510"}),
        ),
        ("masked_select", frozenset({"DG422", "DG434"})),
        ("_?unique2?|unique_(?:dim|consecutive|dim_consecutive)", frozenset({"DG424"})),
        ("bincount", frozenset({"DG425"})),
        ("repeat_interleave", frozenset({"DG426"})),
        ("equal|allclose", frozenset({"DG429"})),
        ("_?linalg_\\w+|cholesky\\w*|inverse|lu\\w*|svd|qr|eig\\w*", frozenset({"DG411", "DG442"})),
        (
            "histc|normal|searchsorted|_?ctc_loss|to_padded_tensor|_nested_\\w+",
            _READS | {"DG440", "DG444"},
        ),
        (
            "slice|select|narrow|arange|range|linspace|logspace|masked_fill_?|index_fill_?|split\\w*",
            frozenset({"DG427"}),
        ),
        ("unbind", frozenset({"DG428"})),
    )
)


def fits(code: str, operator: str) -> bool:
    """Whether a finding of that code can be why the host waited in an operator; outside of operators it has
    asked for the wait itself."""
    if not operator:
        return code in _SYNCHRONIZES
    return any(code in codes for pattern, codes in _CODES if pattern.fullmatch(operator))


def likely(code: str, operator: str) -> bool:
    """Whether findings of that code usually wait in that operator: a truth test does in `is_nonzero`, and in
    `item` only where an `.item()` stands in it."""
    if _IS_NONZERO.fullmatch(operator):
        return code in _ANSWERS
    return fits(code, operator) and code not in _TRUTH


def waits(code: str) -> bool:
    """Whether findings of that code can be about waits at all."""
    return code in _SYNCHRONIZES or any(code in codes for _, codes in _CODES)
