"""DG2xx: context managers that are built, entered and left on every call."""
