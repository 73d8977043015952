"""Worker processes, for the parts of a run that files can share."""
