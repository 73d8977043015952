"""DG411 to DG420, DG428, DG433 to DG438: values of tensors are read on the host."""
