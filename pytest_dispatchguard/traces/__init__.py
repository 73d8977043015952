"""Profiler traces: files in, waits, idle times and overheads out. Never runs what it reads of."""
