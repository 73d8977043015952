"""Measurements of other revisions and earlier runs."""
