"""Private names of torch's lazy backend."""

from __future__ import annotations


def lazy_backend_started() -> str:
    """Starts torch's lazy backend; returns why it does not start, or an empty string."""
    try:
        import torch
        from torch._lazy import ts_backend
    except ImportError as error:
        return "torch is not installed" if error.name == "torch" else "torch has no lazy backend"
    try:
        torch.empty(0, device="lazy")
        return ""  # already started: a second start would fail
    except (RuntimeError, NotImplementedError):
        pass
    try:
        ts_backend.init()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"torch's lazy backend does not start: {str(error).strip().partition(chr(10))[0]}"
    return ""


def lazy_trace_executed() -> None:
    """Computes all pending lazy tensors, and waits for that."""
    import torch._lazy

    torch._lazy.mark_step(wait=True)


def lazy_operations() -> int:
    """The number of operations on lazy tensors so far. It includes those that the backend cannot trace and
    runs at once."""
    from torch._lazy import metrics

    names = [n for n in metrics.counter_names() if n.startswith(("lazy::", "aten::"))]
    return sum(int(metrics.counter_value(name)) for name in names)
