"""Measures one call in two source trees, side by side."""
