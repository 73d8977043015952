"""DG7xx: work that the dispatcher or the compiler has to repeat on every call."""
