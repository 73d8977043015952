"""DG421 to DG427: the size of a result depends on values on the device, or a tensor stands for a size."""
