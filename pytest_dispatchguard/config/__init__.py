"""The configuration: `[tool.dispatchguard]` of the nearest pyproject.toml, and the command line."""
