"""The kinds of parameters: annotations, defaults, uses."""

from __future__ import annotations

import pytest

from .reading import body, shown, words


@pytest.mark.parametrize(
    "annotation, kind",
    [
        ("torch.Tensor", "tensor"),
        ("Tensor", "tensor"),
        ("'Tensor'", "tensor"),
        ('"torch.Tensor"', "tensor"),
        ("Optional[Tensor]", "tensor|none"),
        ("'Optional[torch.Tensor]'", "tensor|none"),
        ("Optional['Tensor']", "tensor|none"),
        ("Tensor | None", "tensor|none"),
        ("None | Tensor", "tensor|none"),
        ("Union[Tensor, None]", "tensor|none"),
        ("Union[Tensor, float]", "tensor?"),
        ("Tensor | int", "tensor?"),
        ("Union[Tensor, List[Tensor]]", "tensor?"),
        ("torch.LongTensor", "tensor"),
        ("nn.Parameter", "tensor"),
        ("int", "scalar"),
        ("Optional[int]", "scalar|none"),
        ("bool", "scalar"),
        ("str", "text"),
        ("List[Tensor]", "nested"),
        ("Tuple[Tensor, int]", "nested"),
        ("Dict[str, Tensor]", "nested"),
        ("list[Tensor]", "nested"),
        ("torch.Size", "nested"),
        ("torch.device", "other"),
        ("torch.dtype", "other"),
        ("np.ndarray", "other"),
        ("nn.Module", "module"),
        ("nn.ModuleList", "modules"),
        ("object", "unknown"),
        ("Unheard", "unknown"),
    ],
)
def test_annotations(annotation: str, kind: str) -> None:
    assert words(body("show(p)", f"p: {annotation}")) == [kind]


@pytest.mark.parametrize(
    "annotation, use, kind",
    [
        ("List[Tensor]", "p[0]", "tensor"),
        ("Tuple[Tensor, int]", "p[0]", "tensor"),
        ("Tuple[Tensor, int]", "p[1]", "scalar"),
        ("Tuple[Tensor, ...]", "p[3]", "tensor"),
        ("Dict[str, Tensor]", "p['a']", "tensor?"),
        ("Dict[str, List[Tensor]]", "p['a'][0]", "tensor"),
        ("Optional[List[Tensor]]", "p[0]", "tensor"),
    ],
)
def test_annotations_of_parts(annotation: str, use: str, kind: str) -> None:
    assert words(body(f"show({use})", f"p: {annotation}")) == [kind]


@pytest.mark.parametrize(
    "param, kind",
    [
        ("p: Tensor = None", "tensor|none"),
        ("p=None", "unknown|none"),
        ("p=1", "scalar"),
        ("p=1.5", "scalar"),
        ("p='sum'", "text"),
        ("p", "unknown"),
        ("*, p: Tensor", "tensor"),
        ("input_shape: Tensor", "tensor?"),
        ("image_size: Tensor", "tensor?"),
        ("sizeable: Tensor", "tensor"),
        ("p: Tensor = False", "tensor?"),
        ("use_cache: Optional[Tensor] = None", "tensor?|none"),
    ],
)
def test_parameters(param: str, kind: str) -> None:
    name = param.replace("*, ", "").split(":")[0].split("=")[0]
    assert words(body(f"show({name})", param)) == [kind]


def test_stars_are_nested() -> None:
    (args, kwargs, first) = shown(body("show(xs, kw, xs[0])", "*xs: Tensor, **kw"))
    assert args.what == kwargs.what == "nested" and kwargs.cls == "dict" and first.is_tensor


def test_the_use_of_a_parameter_tells() -> None:
    """Only a tensor has `unsqueeze`; what `isinstance` asks about is not settled by its use."""
    assert words(body("show(p)\nreturn p.unsqueeze(0)", "p")) == ["tensor"]
    source = body(
        """
        show(p)
        if isinstance(p, torch.Tensor):
            p = p.unsqueeze(0)
        return p
        """,
        "p",
    )
    assert words(source) == ["unknown"]


def test_forward_of_a_module_is_given_tensors_perhaps() -> None:
    source = """
    class Layer(nn.Module):
        def forward(self, x, y, scale=1.0, mask=None, size=None):
            show(x, y, scale, mask, size)
            return x.unsqueeze(0)
    """
    assert words(source) == ["tensor", "tensor?", "scalar", "tensor?|none", "unknown|none"]
