"""What torch.compile made of code: graphs, guards, recompiles."""
