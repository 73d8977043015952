"""What values are: tensors, modules, numbers; and how they flow through a function."""
