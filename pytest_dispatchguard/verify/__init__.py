"""Tries changes in copies of the work tree, and keeps those that tests and measurements prove."""
