"""A stand-in accelerator on the CPU."""
