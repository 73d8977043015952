"""The parts of a pytest run that the plugin switches on.

PYTEST_DONT_REWRITE: as in `plugin`.
"""
