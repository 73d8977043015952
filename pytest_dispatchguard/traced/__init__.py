"""Traces held against the project that was traced: its functions, and what the linter finds there."""
