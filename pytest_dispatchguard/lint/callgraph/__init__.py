"""From facts to the call graph of the project: names, classes, calls, arguments."""
