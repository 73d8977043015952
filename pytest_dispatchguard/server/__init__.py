"""The language server for editors."""
