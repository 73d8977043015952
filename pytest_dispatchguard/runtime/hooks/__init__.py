"""Hooks into Python and torch: functions entered, instructions run, operations dispatched."""
