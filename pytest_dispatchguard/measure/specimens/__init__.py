"""Prices of rules, measured on their specimens."""
