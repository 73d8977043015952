"""What runs leave for later runs: the cache file, its signatures, facts as JSON."""
