"""DG4xx: the host waits for the device."""
