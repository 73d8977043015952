"""Figures of budgets from run to run: kept in a database, read back by test."""
