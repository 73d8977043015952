"""DG71x: what torch.compile does with code, found while the code runs."""

from __future__ import annotations

from pytest_dispatchguard import Rule


class GraphBreak(Rule):
    """Compiled code is left for Python in the middle, and entered again.

    ## What it does

    Tells the lines at which `torch.compile` could not go on, as it met them in a run: a value of a tensor
    that decides a branch, a call that it cannot follow, printing. Breaks on purpose, by
    `torch._dynamo.graph_break` and `torch.compiler.disable`, are not reported.

    ## Why it costs

    Each side of a break is a graph of its own: with its own guards, its own wrappers around the generated
    code, and Python between them. That is tens of microseconds at every call, and nothing is fused across.

    ## Example

    ```python
    @torch.compile
    def step(x):
        y = x * 2
        print("step", y.shape)
        return y + 1
    ```

    ## Instead

    ```python
    @torch.compile
    def step(x):
        return x * 2 + 1
    ```

    Take out what Python has to do, or do it around the compiled function; `torch.where` in place of a branch
    on values. `fullgraph=True` makes every break an error, a budget of `graph_breaks=0` a failing test.

    ## Fix safety

    No fix: only the author knows what the line is there for.
    """

    code = "DG711"
    name = "graph-break"
    origin = "kornia#3842"
    running = True


class CompiledAgain(Rule):
    """A function is compiled again and again, because something that it depends on keeps changing.

    ## What it does

    Tells functions that `torch.compile` compiled at least four times again in a run, and why the last time.
    Other sizes, strides and backends do not count: where they compile again and again, somebody wants it so.

    ## Why it costs

    Compiling takes seconds. What was compiled before stays, and is asked first at every call: its guards are
    checked until one fails. Beyond the recompile limit the function runs uncompiled.

    ## Example

    ```python
    @torch.compile
    def scaled(x, factor):
        return x * factor

    for step in range(10):
        scaled(x, 1.5**step)
    ```

    ## Instead

    ```python
    @torch.compile
    def scaled(x, factor):
        return x * factor

    for step in range(10):
        scaled(x, torch.tensor(1.5**step))
    ```

    Numbers that change are better tensors; sizes that change are marked with `torch._dynamo.mark_dynamic`,
    or compiled with `dynamic=True`.

    ## Fix safety

    No fix: only the author knows which of these is meant.
    """

    code = "DG712"
    name = "compiled-again"
    origin = "pytorch#171598"
    running = True


class GuardPerInstance(Rule):
    """Compiled code checks a constant of each of many submodules before every call.

    ## What it does

    Tells lines that read an attribute of submodules in a list, where `torch.compile` made a guard for at
    least fifty of them. Releases before 2.13 do not say which line made them check.

    ## Why it costs

    The guards are checked at every call, each with the way to what it checks: a hundredth of a microsecond
    in a loop of nothing else, ten times that in a program that does more. They grow with the number of
    submodules.

    ## Example

    ```python
    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(Scale(i / 64) for i in range(64))

        def forward(self, x):
            for part in self.parts:
                x = part(x)
            return x
    ```

    ## Instead

    ```python
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = tuple(i / 64 for i in range(64))

        def forward(self, x):
            for factor in self.factors:
                x = x * factor
            return x
    ```

    One tuple in the module that is compiled is one comparison; a value that is the same in all is better a
    constant of the file. `dispatchguard guards` shows what each group of guards takes, and which filters
    leave it out.

    ## Fix safety

    No fix: only the author knows where the values should live.
    """

    code = "DG713"
    name = "guard-per-instance"
    torch = ">=2.13"
    origin = "torch's documentation, Reducing Guard Overhead"
    running = True
