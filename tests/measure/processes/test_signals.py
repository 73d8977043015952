"""Signals wait for the end of a block, and then do what they would have done."""

from __future__ import annotations

import signal
import threading

import pytest

from pytest_dispatchguard.measure.processes.signals import uninterrupted


def test_an_interrupt_waits_for_the_end() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_is_called_once_for_several() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_have_nothing_to_put_off() -> None:
    before, during = signal.getsignal(signal.SIGINT), list[object]()

    def run() -> None:
        with uninterrupted():
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert during == [before]
