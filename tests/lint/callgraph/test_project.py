from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.class_hierarchy import method_owner, mro
from pytest_dispatchguard.lint.callgraph.name_resolution import absolute, lookup, resolve
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.sources.module_names import module_name


def project_of(files: dict[str, str], roots: tuple[str, ...] = ()) -> Project:
    return build(
        {
            path: scan(
                textwrap.dedent(text), module_name(path, roots), path.endswith("__init__.py")
            )
            for path, text in files.items()
        },
        roots,
    )


def names(project: Project, module: str, name: str) -> list[str]:
    return [dotted_id(thing.id) for thing in resolve(project, module, name)]


@pytest.mark.parametrize(
    ("path", "roots", "name"),
    [
        ("pkg/a.py", (), "pkg.a"),
        ("pkg/__init__.py", (), "pkg"),
        ("src/pkg/a.py", ("src",), "pkg.a"),
        ("src/pkg/a.py", ("./src/", "."), "pkg.a"),
        ("src/pkg/a.py", ("src", "src/pkg"), "a"),
        ("srcs/a.py", ("src",), "srcs.a"),
        ("a.py", ("src",), "a"),
        ("pkg/a:b.py", (), "pkg.a/b"),
    ],
)
def test_module_names(path: str, roots: tuple[str, ...], name: str) -> None:
    assert module_name(path, roots) == name


def test_names_are_followed_through_reexports_stars_and_aliases() -> None:
    project = project_of(
        {
            "pkg/__init__.py": "from pkg.core import *\nfrom .core import helper as aid\n",
            "pkg/core.py": "def helper(): ...\nclass Base: ...\nalso = helper\n",
            "pkg/use.py": """
                import pkg
                import pkg.core as c
                from pkg import aid, Base as B
                from torch import nn
                import torch.nn.modules.module as m
            """,
        }
    )
    assert names(project, "pkg.use", "pkg.helper") == ["pkg.core.helper"]
    assert names(project, "pkg.use", "c.also") == ["pkg.core.helper"]
    assert names(project, "pkg.use", "aid") == ["pkg.core.helper"]
    assert names(project, "pkg.use", "B") == ["pkg.core.Base"]
    assert names(project, "pkg.use", "nn.Linear") == ["torch.nn.Linear"]
    assert names(project, "pkg.use", "m.Module") == ["torch.nn.Module"]
    assert names(project, "pkg.use", "nothing") == []


def test_a_conditional_import_stands_for_all_it_may_be() -> None:
    project = project_of(
        {
            "pkg/__init__.py": """
                if fast():
                    from pkg.fast_impl import *
                else:
                    from pkg.slow_impl import *
            """,
            "pkg/fast_impl.py": "def add(): ...\n",
            "pkg/slow_impl.py": "def add(): ...\n",
            "pkg/use.py": "from pkg import add\n",
        }
    )
    assert sorted(names(project, "pkg.use", "add")) == ["pkg.fast_impl.add", "pkg.slow_impl.add"]


def test_what_another_framework_imports_is_not_meant() -> None:
    project = project_of(
        {
            "pkg/__init__.py": """
                if backend() == "torch":
                    from pkg.torch_impl import *
                elif backend() == "jax":
                    from pkg.jax_impl import *
                elif backend() == "numpy":
                    from pkg.numpy_impl import *
                else:
                    raise ValueError
            """,
            "pkg/torch_impl.py": "def add(): ...\n",
            "pkg/jax_impl.py": "def add(): ...\n",
            "pkg/numpy_impl.py": "def add(): ...\n",
            "pkg/use.py": "from pkg import add\n",
        }
    )
    assert names(project, "pkg.use", "add") == ["pkg.torch_impl.add"]


def test_a_package_is_not_mistaken_for_a_name_that_its_parent_imports() -> None:
    project = project_of(
        {
            "pkg/__init__.py": "from pkg.other import *\n",
            "pkg/other.py": "import torch\n",
            "pkg/torch/__init__.py": "",
            "pkg/torch/trainer.py": "class Trainer: ...\n",
            "pkg/use.py": "from pkg.torch.trainer import Trainer\n",
        }
    )
    assert names(project, "pkg.use", "Trainer") == ["pkg.torch.trainer.Trainer"]


def test_import_cycles_end() -> None:
    project = project_of({"a.py": "from b import x\n", "b.py": "from a import x\n"})
    assert names(project, "a", "x") == []
    assert absolute(project, "a.x.y") == ()


_module = st.sampled_from(["m0", "m1", "m2"])
_STATEMENTS = st.one_of(
    st.sampled_from(["def x(): ...", "class x: ...", "def y(): ...", "y = x", "class y(x): ..."]),
    st.builds("from {} import x".format, _module),
    st.builds("from {} import *".format, _module),
    st.builds("from {} import x as y".format, _module),
    st.builds("from {} import y as x".format, _module),
)


@given(
    st.lists(st.lists(_STATEMENTS, min_size=1, max_size=3), min_size=3, max_size=3),
    st.permutations([(f"m{number}", name) for number in range(3) for name in "xy"]),
)
def test_what_a_name_stands_for_does_not_depend_on_what_was_asked_before(
    modules: list[list[str]], asked: list[tuple[str, str]]
) -> None:
    files = {f"m{number}.py": "\n".join([*lines, ""]) for number, lines in enumerate(modules)}
    project = project_of(files)
    for module, name in asked:
        assert lookup(project, module, name) == lookup(project_of(files), module, name)
        dotted = f"{module}.{name}.x"
        assert absolute(project, dotted) == absolute(project_of(files), dotted)


def test_inheritance_is_linear_and_keeps_library_names() -> None:
    project = project_of(
        {
            "pkg/base.py": "import torch\nclass Root(torch.nn.modules.Module):\n    def f(self): ...\n",
            "pkg/all.py": """
                from pkg.base import Root
                class Left(Root):
                    pass
                class Right(Root):
                    def f(self): ...
                class Both(Left, Right):
                    pass
                class Loop(Loop):
                    pass
            """,
        }
    )
    assert mro(project, "pkg.all:Both") == (
        "pkg.all:Both",
        "pkg.all:Left",
        "pkg.all:Right",
        "pkg.base:Root",
        "torch.nn.Module",
    )
    assert method_owner(project, "pkg.all:Both", "f") == "pkg.all:Right"
    assert mro(project, "pkg.all:Loop") == ("pkg.all:Loop",)


def test_contradicting_bases_end_too() -> None:
    project = project_of(
        {
            "m.py": "class A: ...\nclass B: ...\nclass X(A, B): ...\nclass Y(B, A): ...\nclass Z(X, Y): ...\n"
        }
    )
    assert set(mro(project, "m:Z")) == {"m:Z", "m:X", "m:Y", "m:A", "m:B"}


def test_attributes_lead_to_the_methods_of_their_class() -> None:
    project = project_of(
        {
            "m.py": """
                class Helper:
                    def run(self): ...
                class User:
                    def __init__(self):
                        self.helper = Helper()
            """
        }
    )
    [helper] = resolve(project, "m", "User.helper")
    assert (helper.kind, helper.id) == ("instance", "m:Helper")
    assert names(project, "m", "User.helper.run") == ["m.Helper.run"]


@pytest.mark.parametrize("number", [60, 180, 3000])
def test_names_may_stand_for_each_other_in_long_rows(number: int) -> None:
    aliases = "".join(f"a{i} = a{i - 1}\n" for i in range(1, number))
    project = project_of({"m.py": f"def a0(): ...\n{aliases}"})
    assert names(project, "m", f"a{number - 1}") == ["m.a0"]
    # Whatever is asked first, all of them stand for the same.
    assert {n for i in range(number) for n in names(project, "m", f"a{i}")} == {"m.a0"}


def test_imports_may_lead_on_through_many_files() -> None:
    files = {f"m{i}.py": f"from m{i - 1} import f\n" for i in range(1, 400)}
    project = project_of({"m0.py": "def f(): ...\n", **files})
    assert names(project, "m399", "f") == ["m0.f"]


def test_long_rows_may_lead_round() -> None:
    aliases = "".join(f"a{i} = a{i - 1}\n" for i in range(1, 500))
    project = project_of({"m.py": f"def f(): ...\na0 = f\na0 = a499\n{aliases}"})
    assert names(project, "m", "a499") == ["m.f"]
    assert names(project, "m", "a250") == ["m.f"]
    assert names(project_of({"m.py": f"a0 = a499\n{aliases}"}), "m", "a7") == []


def test_attributes_may_stand_for_each_other_in_long_rows() -> None:
    rows = "".join(f"        self.a{i} = self.a{i - 1}\n" for i in range(1, 500))
    text = f"class C:\n    def __init__(self):\n        self.a0 = torch.relu\n{rows}"
    project = project_of({"m.py": f"import torch\n{text}"})
    assert isinstance(names(project, "m", "C.a499"), list)


def test_classes_may_inherit_in_long_rows() -> None:
    # The file of the last one comes first.
    files = {
        f"m{600 - i:03}.py": f"from m{601 - i:03} import C{i - 1}\nclass C{i}(C{i - 1}): ...\n"
        for i in range(1, 600)
    }
    project = project_of({"m600.py": "class C0: ...\n", **files})
    line = mro(project, "m001:C599")
    assert line[:2] == ("m001:C599", "m002:C598")
    assert line[-1] == "m061:C539"  # what is farther away counts no more


def test_what_all_ancestors_come_from_counts_however_far_it_is() -> None:
    rows = "".join(f"class C{i}(C{i - 1}): ...\n" for i in range(1, 400))
    project = project_of({"m.py": f"import torch\nclass C0(torch.nn.Module): ...\n{rows}"})
    assert mro(project, "m:C399")[-1] == "torch.nn.Module"
