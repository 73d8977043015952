"""Budgets and verdicts: what a test may cost, and whether it does."""
