"""Timing calls: blocks of calls, interleaving, devices, confidence intervals."""
