"""Which files a run reads, and how: discovery, encodings, notebooks, git."""
