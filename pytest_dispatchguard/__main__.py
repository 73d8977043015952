"""Lets `python -m pytest_dispatchguard` be the command."""

import sys

from pytest_dispatchguard.cli import main

sys.exit(main())
