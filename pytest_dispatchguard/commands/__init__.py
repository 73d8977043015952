"""The commands of `dispatchguard`, one module each: its arguments, and what it does."""

CLEAN, FOUND, FAILED = 0, 1, 2
"""Exit statuses: nothing found; findings, or a non-empty diff; usage, configuration or internal error."""

COMMANDS = {
    "check": "lint files and directories",
    "fix": "apply selected fixes, or (--verify) only those that pass the tests and measurably save time",
    "run": "run a program and report device syncs and repeated work in its hot code",
    "guards": "show which guards compiled code checks on every call, and what they cost",
    "rule": "explain a rule, or list the rules under a prefix such as DG4",
    "rules": "list all rules",
    "hot": "list hot functions, each with its call path from an entry point",
    "layers": "break down the time of one call: Python, bindings, autograd, dispatcher, kernels",
    "price": "measure what each rule's pattern costs on this machine",
    "review": "report the findings and budget changes that a branch introduces",
    "report": "write an HTML page of findings, device syncs and budgets",
    "trace": "show where a profiled program waited for the device, and what kept it idle",
    "history": "show how measurements changed over time, and find the commit that changed a counter",
    "merge": "merge --overhead-json files, for example from the shards of a CI job",
    "init": "set up a project: configuration, pre-commit hook, CI job and a first budget test",
    "config": "list the settings of [tool.dispatchguard], or describe one",
    "completion": "print the completion script for a shell",
    "server": "run the language server",
    "mcp": "run a server with tools for coding agents, by the Model Context Protocol",
    "daemon": "show or stop the background process of `check --daemon`",
    "clean": "delete the cache",
}
"""By name, in the order of `--help`."""

_GROUPS = {
    "linting": ("check", "fix", "rule", "rules", "hot", "review", "clean"),
    "measuring": ("run", "guards", "layers", "price", "report", "history", "merge"),
    "tracing": ("trace",),
    "setup": ("init", "config", "completion", "server", "mcp", "daemon"),
}
_FOLDERS = {name: folder for folder, names in _GROUPS.items() for name in names}


def module_of(name: str) -> str:
    """The module of a command."""
    return f"{__name__}.{_FOLDERS[name]}.{name}"
