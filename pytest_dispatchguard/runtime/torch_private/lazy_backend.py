"""Private names of torch's lazy backend."""

from __future__ import annotations


def lazy_backend_started() -> str:
    """Has torch's lazy device there from now on; why it cannot be, or nothing where it can."""
    try:
        import torch
        from torch._lazy import ts_backend
    except ImportError as error:
        return "torch is not installed" if error.name == "torch" else "torch has no lazy backend"
    try:
        torch.empty(0, device="lazy")
        return ""  # somebody has started it, and nobody may twice
    except (RuntimeError, NotImplementedError):
        pass
    try:
        ts_backend.init()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"torch's lazy backend does not start: {str(error).strip().partition(chr(10))[0]}"
    return ""


def lazy_trace_executed() -> None:
    """Until all that lazy tensors stand for is computed: nothing is left to trace on from."""
    import torch._lazy

    torch._lazy.mark_step(wait=True)


def lazy_operations() -> int:
    """How many operations lazy tensors were asked for in this process. Those that the backend cannot trace
    are among them: it computes what they need, and runs them at once."""
    from torch._lazy import metrics

    names = [n for n in metrics.counter_names() if n.startswith(("lazy::", "aten::"))]
    return sum(int(metrics.counter_value(name)) for name in names)
