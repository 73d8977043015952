"""Source code that runs: whose it is, and where it stands in its file."""
