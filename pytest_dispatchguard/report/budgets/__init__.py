"""Verdicts, layers, guards and the history of budgets, for people and programs."""
