"""DG621: files that are read on every call."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

from ..syntax import changed_names, parameter_names

_READS = frozenset(
    "joblib.load json.load numpy.genfromtxt numpy.load numpy.loadtxt pandas.read_csv pandas.read_json "
    "pandas.read_parquet pandas.read_pickle pickle.load safetensors.torch.load_file scipy.io.loadmat "
    "torch.load yaml.full_load yaml.load yaml.safe_load".split()
)
_ITEMS = frozenset({"__getitem__", "__iter__", "__next__", "collate_fn"})
"""Methods that are there to read one item after the other."""


class FileReadPerCall(Rule):
    """The same file is read on every call.

    ## What it does

    Finds `torch.load`, `numpy.load`, `scipy.io.loadmat`, `json.load`, `pandas.read_csv` and the like in what
    runs per call, where the path is written down, a constant or a setting of the instance. It is a note where
    the path is a parameter, and under a condition. Left alone are datasets, and what keeps the result.

    ## Why it costs

    Opening, reading and decoding even a small file takes tens to hundreds of microseconds, and tensors and
    arrays that are read have to be copied to the device.

    ## Example

    ```python
    def forward(self, x):
        table = np.load(self.path)
        return x * torch.from_numpy(table).to(x.device)
    ```

    ## Instead

    ```python
    def __init__(self, path):
        super().__init__()
        self.register_buffer("table", torch.from_numpy(np.load(path)), persistent=False)

    def forward(self, x):
        return x * self.table
    ```

    ## Fix safety

    No fix: the author knows what may change the file.
    """

    code = "DG621"
    name = "file-read-per-call"
    origin = "IQA-PyTorch#niqe"
    looks_for = Call(*sorted({name.rpartition(".")[2] for name in _READS}), place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A read of a file by a path that stays."""
        if place.name(node) not in _READS or not place.per_call or place.loops or not node.args:
            return None
        if (
            place.defines(*_ITEMS)
            or place.function.name.value in _ITEMS
            or self._is_kept(node, place)
        ):
            return None
        path = _path(node, place)
        if path is None or not _is_plain(path, place) or _is_cached(place):
            return None
        names = {name.value for name in nodes.names_in(path)} - {place.self_name}
        local = {name for name in names if place.assignments(name)}
        if not local <= parameter_names(place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` opens and decodes a file on every call; read it once, and keep what it "
            "gave",
            certainty="note" if local or place.conditions or not place.self_name else "sure",
        )

    @staticmethod
    def _is_kept(node: cst.Call, place: Place) -> bool:
        """Whether what is read is kept for the next call."""
        parent: cst.CSTNode | None = place.parent(node)
        while parent is not None and not isinstance(parent, cst.Assign | cst.AnnAssign):
            if isinstance(parent, cst.Call) and place.last_name(parent) in _KEEPING:
                return True
            parent = place.parent(parent)
        if isinstance(parent, cst.Assign):
            return any(not isinstance(t.target, cst.Name | cst.Tuple) for t in parent.targets)
        return isinstance(parent, cst.AnnAssign) and not isinstance(parent.target, cst.Name)


_KEEPING = frozenset("append register_buffer register_parameter setattr setdefault update".split())
"""Calls that keep what they are given."""
_OF_STREAMS = frozenset({"json", "pickle", "yaml"})
"""Packages that read what was opened."""


def _path(node: cst.Call, place: Place) -> cst.BaseExpression | None:
    """The path of what is read: of `f`, in ``with open(path) as f``, what is opened. None for a stream that
    was opened elsewhere."""
    given = node.args[0].value
    if isinstance(given, cst.Name):
        for block in place.withs:
            for item in block.items:
                alias = item.asname.name if item.asname is not None else None
                if isinstance(alias, cst.Name) and alias.value == given.value:
                    return _opened(item.item, place)
    if place.name(node).partition(".")[0] in _OF_STREAMS:
        return _opened(given, place)
    held = place.value_of(given) if isinstance(given, cst.Name) else None
    return held if held is not None else given


_OPENING = frozenset({"bz2", "codecs", "gzip", "io", "lzma"})
"""Modules with a function that opens a path."""


def _opened(node: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """The path that is opened, by the function or by the method of that name."""
    if not isinstance(node, cst.Call) or place.last_name(node) != "open":
        return None
    owner = place.receiver(node)
    if owner is not None and place.dotted(owner) not in _OPENING:
        return owner
    return node.args[0].value if node.args else None


_JOINING = frozenset({"Path", "join", "str"})


def _is_plain(path: cst.BaseExpression, place: Place) -> bool:
    """Whether a path is written down, or put together of names and attributes that the function leaves as
    they are."""
    changed = changed_names(place)
    for part in nodes.walk(path):
        if isinstance(part, cst.Subscript | cst.NamedExpr | cst.Await | cst.Lambda):
            return False
        if isinstance(part, cst.Call) and place.last_name(part) not in _JOINING:
            return False
        if isinstance(part, cst.Attribute) and place.dotted(part) in changed:
            return False
    return True


def _is_cached(place: Place) -> bool:
    """Whether a decorator keeps what the function gives."""
    return any("cache" in place.text(one.decorator) for one in place.function.decorators)


def _parameters(place: Place) -> set[str]:
    given = place.function.params
    return {p.name.value for p in (*given.posonly_params, *given.params, *given.kwonly_params)}
