"""Gives a process other luck: what its calls take by chance, as things lie in memory, is drawn again."""

from __future__ import annotations

import ctypes
import random

_SIZES = range(0, 480, 16)
"""Of bytes that take from 48 to 512 bytes, each another size of Python's allocator."""
_MOST_PADS, _BYTES = 200, range(8, 4000)
_OF_HEAP = 1 << 9
"""The flag of classes that are not part of the interpreter or of a C extension (`Py_TPFLAGS_HEAPTYPE`)."""
_MOST_VERSIONS = 800
"""Python 3.13 gives a class a thousand versions, and looks attributes up without a cache from then on."""


class Luck:
    """What moves all calls of a process in the same way, so that one process is no sample."""

    def __init__(self) -> None:
        """Two processes draw the same."""
        self._random = random.Random(0)
        self._small: list[object] = []
        self._pads: list[bytearray] = []

    def move_memory(self) -> None:
        """Gives free memory another layout: an allocation takes more where the block that is found has to be
        split, or a pool is about to be full. Together some tenths of a percent."""
        number = len(self._small)
        self._small.append([object(), float(number), *map(bytes, _SIZES)])
        drawn = self._random
        pads = [bytearray(drawn.choice(_BYTES)) for _ in range(drawn.randrange(_MOST_PADS))]
        self._pads = [pad for pad in pads if drawn.random() < 0.5]

    def renew_classes(self) -> None:
        """Gives all classes new versions. Two attributes that meet in one slot of the interpreter's cache, by
        their classes' versions and their names' addresses, push each other out at every call, some 500
        instructions each time. Code that is specialized for a class is so again after some 100 calls."""
        global _versions
        if _versions < _MOST_VERSIONS:
            _versions += 1
            for one in _classes():
                _modified(one)


_versions = 0
_modified = ctypes.pythonapi.PyType_Modified
_modified.argtypes, _modified.restype = [ctypes.py_object], None


def _classes() -> list[type]:
    """The classes from which all others inherit that are not static."""
    found: dict[type, None] = {}
    left: list[type] = [object]
    seen: set[type] = set()
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        for one in below:
            if one.__flags__ & _OF_HEAP:
                found[one] = None
            elif one not in seen:
                seen.add(one)
                left.append(one)
    return list(found)
