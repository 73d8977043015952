"""Watches a program for work that costs more than it needs to."""
