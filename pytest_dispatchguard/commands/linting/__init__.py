"""The commands that read code: check, hot, review, rules."""
