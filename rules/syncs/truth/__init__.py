"""DG401 to DG406, DG429: Python asks a tensor for its truth, and the host waits for the answer."""
