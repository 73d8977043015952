"""Timing calls: blocks, turns, devices, and how sure the figures are."""
