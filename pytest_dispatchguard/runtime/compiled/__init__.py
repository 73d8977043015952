"""What torch.compile does with code: graphs, guards, recompiles."""
