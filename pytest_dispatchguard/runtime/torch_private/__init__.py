"""The private names of torch that are used here, so that a torch that has renamed one is met in one place."""
