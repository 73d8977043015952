"""The commands of `dispatchguard`, a module each: its arguments, and what it does with them."""

CLEAN, FOUND, FAILED = 0, 1, 2
"""Exit statuses: nothing found; findings, or a diff that is not empty; usage, configuration or
internal error."""
