"""The processes that measure, and communication with them."""
