"""Says which Keras is measured, and refuses another than was asked for."""

from __future__ import annotations

import os

import keras
import pytest


def pytest_sessionstart(session: pytest.Session) -> None:
    wanted = os.environ.get("KERAS_EXPECTED", keras.__version__)
    if (keras.__version__, keras.backend.backend()) != (wanted, "torch"):
        pytest.exit(
            f"keras {keras.__version__} on {keras.backend.backend()} is not {wanted} on torch", 4
        )
