"""DG5xx: tensors that are made from Python data, moved or grown on every call."""
