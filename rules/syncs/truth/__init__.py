"""DG401 to DG406, DG429: Python converts a tensor to bool, and the host waits for the answer."""
