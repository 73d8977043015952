"""Where the time of one call goes, layer by layer."""
