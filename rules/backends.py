"""Tells code of other array libraries from code that runs on torch."""

from __future__ import annotations

import re

from pytest_dispatchguard import Place

_OTHER = re.compile(
    r"\.(?:jax|flax|tensorflow|openvino|mlx)(?:_\w+)?\.|\.backends?\.(?:tf|numpy)\.|\.numpy_backend\."
)


def runs_elsewhere(place: Place) -> bool:
    """Whether the function belongs to a backend that is not torch, by the name of its module."""
    return _OTHER.search(place.hot.path[-1]) is not None
