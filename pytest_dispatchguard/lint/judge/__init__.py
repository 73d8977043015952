"""Shows hot functions to the rules and collects their findings."""
