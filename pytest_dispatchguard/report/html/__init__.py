"""The HTML page and the badge."""
