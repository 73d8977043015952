"""DG502, DG505: constants that are built, computed or moved on every call."""
