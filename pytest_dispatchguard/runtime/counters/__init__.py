"""Exact counts of what one call does."""
