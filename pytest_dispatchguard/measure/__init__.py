"""Callables to measurements to verdicts."""
