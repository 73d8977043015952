"""DG6xx: slow Python whose result is the same on every call."""
