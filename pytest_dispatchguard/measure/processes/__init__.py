"""How processes of a source tree are started, and what they import."""
