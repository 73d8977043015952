"""What makes a second run quicker: the last solution, and what a change affects."""
