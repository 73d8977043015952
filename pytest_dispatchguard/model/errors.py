"""The one exception for mistakes that users can fix."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend: shown as one line on stderr, exit status 2. The message says what to
    do."""
