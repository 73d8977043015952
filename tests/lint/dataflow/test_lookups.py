"""Names and attributes: imports of torch, attributes of modules."""

from __future__ import annotations

from .reading import body, words


def test_methods_of_attributes_tell_tensors() -> None:
    source = """
    class Search(nn.Module):
        def forward(self, x: torch.Tensor):
            show(self.done.view(-1), self.done.view(-1).nonzero(), self.rows.unsqueeze(0), self.view(-1))
    """
    assert words(source) == ["tensor", "tensor", "tensor", "unknown"]


def test_names_of_torch_are_followed_through_imports() -> None:
    source = """
    from torch.nn import functional as func
    from torch import relu, zeros as blank
    import torch as t

    # dispatchguard: hot
    def f(x: t.Tensor):
        from torch import sigmoid as sig
        import torch.special
        show(func.gelu(x), relu(x), blank(3), t.tanh(x), sig(x), torch.special.expit(x))
    """
    assert words(source) == ["tensor", "tensor", "tensor@cpu", "tensor", "tensor", "tensor"]


def test_a_local_name_hides_an_import() -> None:
    assert words(body("relu = x.shape\ntorch = None\nshow(torch, torch.relu(x))")) == [
        "none",
        "unknown",
    ]


def test_attributes_of_modules() -> None:
    source = """
    LIMIT = 3
    TABLE = torch.arange(4)

    class Layer(nn.Module):
        def __init__(self, dim: int, bias: bool, act, given):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim))
            self.bias = nn.Parameter(torch.ones(dim)) if bias else None
            self.register_buffer("scale", torch.ones(1))
            self.register_parameter("shift", None)
            self.table = torch.arange(dim)
            self.norm = nn.LayerNorm(dim)
            self.layers = nn.ModuleList([nn.Linear(dim, dim)])
            self.seq = nn.Sequential(nn.Linear(dim, dim))
            self.rnn = nn.LSTM(dim, dim)
            self.dim = dim
            self.eps = 1e-5
            self.name = "layer"
            self.act = act
            self.given = given
            self.cache = None

        def forward(self, x: Tensor):
            show(self.weight, self.bias, self.scale, self.table)
            show(self.norm(x), self.layers, self.layers[0], self.layers[0](x), self.seq(x), self.rnn(x))
            show(self.dim, self.eps, self.name, self.act, self.cache, self.training)
            show(self.norm.weight, LIMIT, TABLE)
            for layer in self.layers:
                show(layer, layer(x))
    """
    assert words(source) == [
        "tensor", "tensor|none", "tensor", "tensor@any",
        "tensor", "modules", "module", "tensor?", "tensor?", "nested",
        "scalar", "scalar", "text", "unknown", "none", "unknown",
        "tensor", "scalar", "tensor@any",
        "module", "tensor?",
    ]  # fmt: skip


def test_attributes_that_torch_brings() -> None:
    source = """
    class Mine(nn.Linear):
        def forward(self, x: Tensor):
            show(self.weight, self.bias, self.other)
    """
    assert words(source) == ["tensor", "tensor|none", "unknown"]


def test_an_attribute_written_in_the_method_is_what_was_written() -> None:
    source = """
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x: Tensor):
            show(self.last)
            self.last = x * 2
            show(self.last)
            self.last = x.shape[0]
            show(self.last)
    """
    first, *rest = words(source)
    assert rest == ["tensor", "scalar"] and first != "tensor"
