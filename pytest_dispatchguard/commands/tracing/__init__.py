"""Commands that read traces of profilers."""
