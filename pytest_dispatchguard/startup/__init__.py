"""How the command starts, and what makes it start sooner."""
