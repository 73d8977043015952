"""DG621: files that are read on every call."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

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
    runs per call, where the path is written down, a constant, a setting of the instance, or (as a note) a
    parameter. Left alone are datasets, and what keeps the result.

    ## Why it costs

    Opening, reading and decoding a file takes from a tenth of a millisecond on, and what comes of it is on
    the CPU.

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
        path = _path(node.args[0].value, place)
        names = {name.value for name in nodes.names_in(path)} - {place.self_name}
        local = {name for name in names if place.assignments(name)}
        taken = any(isinstance(part, cst.Subscript) for part in nodes.walk(path))
        if local and (taken or not local <= _parameters(place)):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` opens and decodes a file on every call; read it once, and keep what it "
            "gave",
            certainty="note" if local or not place.self_name else "sure",
        )

    @staticmethod
    def _is_kept(node: cst.Call, place: Place) -> bool:
        """Whether what is read is kept for the next call."""
        parent: cst.CSTNode | None = place.parent(node)
        while parent is not None and not isinstance(parent, cst.Assign | cst.AnnAssign):
            parent = place.parent(parent)
        if isinstance(parent, cst.Assign):
            return any(not isinstance(t.target, cst.Name | cst.Tuple) for t in parent.targets)
        return isinstance(parent, cst.AnnAssign) and not isinstance(parent.target, cst.Name)


def _path(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """The path of what is read: of `f`, in ``with open(path) as f``, what is opened."""
    if not isinstance(node, cst.Name):
        return node
    for block in place.withs:
        for item in block.items:
            alias = item.asname.name if item.asname is not None else None
            opened = item.item
            if (
                isinstance(alias, cst.Name)
                and alias.value == node.value
                and isinstance(opened, cst.Call)
            ):
                return opened.args[0].value if opened.args else opened.func
    held = place.value_of(node)
    return held if held is not None else node


def _parameters(place: Place) -> set[str]:
    given = place.function.params
    return {p.name.value for p in (*given.posonly_params, *given.params, *given.kwonly_params)}
