"""Data flow through one function: what every expression can be, and where rules may look."""
