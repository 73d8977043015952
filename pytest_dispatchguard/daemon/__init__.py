"""A process in the background that has everything imported: `check --daemon` asks it, and it runs the same
command in a copy of itself, in the caller's folder, with the caller's environment, files and terminal."""
