"""Running code to findings and counters."""
