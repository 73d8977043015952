"""The commands that run code and report what it costs."""
