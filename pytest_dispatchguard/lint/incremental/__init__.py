"""Makes a second run faster: the last solution, and what a change affects."""
