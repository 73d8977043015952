"""DG3xx: functions, wrappers, partials and classes that are built on every call."""
