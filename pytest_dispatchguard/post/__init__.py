"""Reviews to where they are read: the code hosts' web APIs, asked from their CI."""
