"""From the call graph to the hot functions: entry points, cold code, reachability."""
