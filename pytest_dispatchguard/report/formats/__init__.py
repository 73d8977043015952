"""Findings, one module per format."""
