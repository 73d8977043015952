"""DG701: ctypes in hot code."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule

_CTYPES = (
    "CDLL PyDLL WinDLL LoadLibrary byref pointer POINTER addressof memmove memset string_at "
    "create_string_buffer CFUNCTYPE PYFUNCTYPE c_void_p c_char_p c_int c_uint c_int8 c_uint8 c_int16 "
    "c_uint16 c_int32 c_uint32 c_int64 c_uint64 c_long c_ulong c_longlong c_ulonglong c_size_t c_ssize_t "
    "c_float c_double c_bool c_char c_byte"
).split()


class CtypesInHotCode(Rule):
    """ctypes converts arguments, or looks up a library, on every call.

    ## What it does

    Finds calls of `ctypes` in hot code: `c_void_p(x.data_ptr())`, `byref`, `cast`, `CDLL` and the like. One
    finding for each statement.

    ## Why it costs

    Every ctypes object is built in Python, and a foreign call converts its arguments one by one and
    releases the GIL around them: the host pays more than most kernel launches take. A loaded library and
    unchanging arguments can be kept; the call itself is cheaper from a compiled extension.

    ## Example

    ```python
    def forward(self, x):
        return lib.scale(ctypes.c_double(self.factor))
    ```

    ## Instead

    ```python
    def __init__(self):
        self.c_factor = ctypes.c_double(self.factor)

    def forward(self, x):
        return lib.scale(self.c_factor)
    ```

    ## Fix safety

    No fix: the author has to choose between a compiled binding and what can be kept.
    """

    code = "DG701"
    name = "ctypes-in-hot-code"
    origin = "pytorch#167"
    looks_for = Call(*_CTYPES)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first ctypes call of a statement."""
        if not place.name(node).startswith("ctypes."):
            return None
        for other, scene in place.calls(*_CTYPES):
            if scene.statement is place.statement and place.name(other).startswith("ctypes."):
                if other is not node:
                    return None
                break
        return place.finding(
            node,
            f"`{place.short(node)}` goes through ctypes, in Python, on every call; cache what does "
            "not change, and call hot functions through a compiled extension (a torch custom op, or "
            "a C++ binding)",
        )
