"""What calls of the project's own functions return."""

from __future__ import annotations

from .reading import words


def test_what_the_projects_own_functions_return() -> None:
    source = """
    def scaled(x) -> Tensor:
        return x * 2

    def counted(x) -> int:
        return 1

    def anything(x):
        return x

    class Layer(nn.Module):
        def pooled(self, x) -> Tensor:
            return x

        def parts(self, x) -> Tuple[Tensor, int]:
            return x, 1

        def forward(self, x):
            a, b = self.parts(x)
            show(scaled(x), counted(x), anything(x), self.pooled(x), a, b)
    """
    assert words(source) == ["tensor", "scalar", "unknown", "tensor", "tensor", "scalar"]
