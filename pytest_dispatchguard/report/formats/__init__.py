"""Findings, one module a format."""
