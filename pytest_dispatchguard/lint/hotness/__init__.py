"""From the call graph to the functions that are hot: entry points, cold code, reachability."""
