"""The exception for mistakes that users can fix, and what is no error at all but a Ctrl-C."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can correct: shown as one line on stderr, exit status 2. The message says what to
    do."""


def pass_interrupt_on(error: BaseException) -> None:
    """Raises KeyboardInterrupt if `error` is what Python made of one: before Python 3.12, a Ctrl-C that falls
    into the making of a class comes out as a RuntimeError. To be called by whoever catches all exceptions."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        cause = cause.__cause__ or cause.__context__
