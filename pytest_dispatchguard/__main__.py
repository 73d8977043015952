"""Lets `python -m pytest_dispatchguard` be the command."""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False) and sys.path:
        # `python -m` puts the current folder first: what lies there is to be read, never imported.
        del sys.path[0]

    from pytest_dispatchguard.start import command

    command()
