"""DG439 to DG442, DG444: calls that read a tensor without a word of it in their names."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Finding, MathCall, Place, Rule

from ..syntax import further_arguments, is_word
from .data_flow import ends
from .host_code import works_on_host
from .waits import asked, waits_inside

_SCALER = re.compile(
    r"(?:^|[._])(?:\w*_)?scaler$|(?:^|[._])(?:grad_?|amp_?|loss_?)scaler\w*$", re.I
)


class LossScaleRead(Rule):
    """`scaler.get_scale()` reads the loss scale from the device.

    ## What it does

    Finds `get_scale()` of gradient scalers (`torch.amp.GradScaler`, and what is called `scaler`) in hot code.
    It is a note: only the author knows whether every step needs the number.

    ## Why it costs

    The scale is a tensor on the device: `get_scale()` is `.item()` of it, and the host waits for all that was
    queued before.

    ## Example

    ```python
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped = scaler.get_scale() < before
    ```

    ## Instead

    ```python
    scaler.step(optimizer)
    scaler.update()
    if step % log_every == 0:
        log(scaler.get_scale())
    ```

    ## Fix safety

    No fix: only the author knows what the number is needed for.
    """

    code = "DG439"
    name = "loss-scale-read"
    origin = "accelerate#2439"
    looks_for = Call("get_scale")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A scale that is asked for."""
        owner = place.receiver(node)
        if owner is None or node.args or works_on_host(place):
            return None
        cls = place.kind(owner).cls
        named = _SCALER.search(place.dotted(owner)) is not None
        if not cls.endswith("GradScaler") and not (named and not cls):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` is `.item()` of a tensor on the device, and the host waits for it. "
            "Read it only where the number is logged, or find out from the optimizer whether it "
            "skipped its step.",
            certainty="note",
        )


_DISTRIBUTIONS = (
    "Bernoulli Beta Binomial Categorical Cauchy Chi2 Dirichlet Exponential Gamma Geometric Gumbel "
    "HalfCauchy "
    "HalfNormal Independent Kumaraswamy Laplace LogNormal LogisticNormal LowRankMultivariateNormal "
    "MixtureSameFamily Multinomial MultivariateNormal NegativeBinomial Normal OneHotCategorical Pareto "
    "Poisson RelaxedBernoulli RelaxedOneHotCategorical StudentT TransformedDistribution Uniform VonMises "
    "Weibull Wishart"
).split()
_ONLY_WRAP = frozenset({"Independent", "TransformedDistribution", "MixtureSameFamily"})
"""These take distributions, which have checked what they were given."""


class DistributionValidates(Rule):
    """A distribution of torch checks the values of its parameters, and the host waits for the answer.

    ## What it does

    Finds distributions of `torch.distributions` that are made in hot code without `validate_args=False`.
    It is a note: only the author knows that the values are right.

    ## Why it costs

    Each distribution asks of every parameter whether all its values are allowed (`(scale > 0).all()`), and
    `log_prob` asks the same of its argument: each is a wait for the device, and some ten microseconds on the
    host.

    ## Example

    ```python
    action = Normal(mean, std).sample()
    ```

    ## Instead

    ```python
    action = Normal(mean, std, validate_args=False).sample()
    ```

    `torch.distributions.Distribution.set_default_validate_args(False)` does the same for all.

    ## Fix safety

    Unsafe: wrong values no longer raise an error.
    """

    code = "DG440"
    name = "distribution-validates"
    origin = "rl#1106"
    looks_for = Call(*_DISTRIBUTIONS)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A distribution that is made of tensors."""
        name = place.name(node)
        last = place.last_name(node)
        if not name.startswith("torch.distributions.") or last in _ONLY_WRAP:
            return None
        if works_on_host(place) or any(a.star for a in node.args) or not node.args:
            return None
        if place.argument(node, None, "validate_args") is not None:
            return None
        if all(place.kind(a.value).what == "scalar" for a in node.args):
            return None
        return place.finding(
            node,
            f"`{last}(…)` checks all values of its parameters, and the host waits for each result; "
            "its `log_prob` checks again. If the values are known to be valid, pass `validate_args=False`.",
            certainty="note",
            fix=place.edits(
                [further_arguments(node, ["validate_args=False"], place)],
                safety="unsafe",
                message="skip the checks",
            )
            if not node.args[-1].value.lpar
            else None,
        )


_NORMAL = re.compile(r"torch\.distributions\.(?:normal\.)?Normal")


class DeviationsChecked(Rule):
    """A normal distribution is drawn from by a function that checks its deviations, and the host waits.

    ## What it does

    Finds `torch.normal(mean, std)` with a tensor `std`, `Normal(mean, std).sample()` of tensors, also where
    the distribution has a name, and `F.gaussian_nll_loss`, in hot code. The loss is a note: it checks its
    variances in any case.

    ## Why it costs

    They read from the device whether the smallest deviation is negative, to raise an error where it is: the
    host waits until the device has worked through everything queued before. `Normal.rsample()` draws the
    same numbers, and does not ask; nor does `torch.randn_like`, which has to be of the shape of the result.

    ## Example

    ```python
    noise = torch.normal(mean, std)
    action = Normal(mean, std, validate_args=False).sample()
    ```

    ## Instead

    ```python
    noise = mean + std * torch.randn_like(std)
    action = Normal(mean, std, validate_args=False).rsample().detach()
    ```

    ## Fix safety

    Unsafe: a negative deviation no longer is an error.
    """

    code = "DG444"
    name = "deviations-checked"
    origin = "pytorch#108968"
    looks_for = Call("sample", "normal", "gaussian_nll_loss")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A draw, or a loss, of what may be on a device."""
        if works_on_host(place):
            return None
        name = place.name(node)
        if name == "torch.normal":
            return self._drawn(node, place)
        if name == "torch.nn.functional.gaussian_nll_loss":
            return self._of_variances(node, place)
        made = self._made(node, place) if place.last_name(node) == "sample" else None
        if made is None or not any(place.on_device(a.value) for a in made.args):
            return None
        receiver = place.receiver(node)
        arguments = ", ".join(place.text(a) for a in node.args)
        return place.finding(
            node,
            f"`{place.short(node)}` reads whether a deviation is negative, and the host waits for that. "
            "`rsample().detach()` draws the same numbers without asking.",
            fix=place.replace(
                node,
                f"{place.text(receiver)}.rsample({arguments}).detach()",
                safety="unsafe",
                message="draw without the check",
            )
            if receiver is not None and "#" not in place.text(node)
            else None,
        )

    def _made(self, node: cst.Call, place: Place) -> cst.Call | None:
        """The normal distribution that is drawn from."""
        receiver = place.receiver(node)
        held = place.value_of(receiver) if isinstance(receiver, cst.Name) else receiver
        if isinstance(held, cst.Call) and _NORMAL.fullmatch(place.name(held)) is not None:
            return held
        return None

    def _drawn(self, node: cst.Call, place: Place) -> Finding | None:
        std = place.argument(node, 1, "std")
        if std is None or not place.on_device(std):
            return None
        shown = place.short(std, 32)
        return place.finding(
            node,
            f"`{place.short(node)}` reads whether a deviation is negative, and the host waits for that. "
            f"`mean + {shown} * torch.randn_like(…)`, of the shape of the result, asks nothing.",
        )

    def _of_variances(self, node: cst.Call, place: Place) -> Finding | None:
        variance = place.argument(node, 2, "var")
        if variance is None or not place.on_device(variance):
            return None
        return place.finding(
            node,
            "`gaussian_nll_loss` reads whether a variance is negative, and the host waits for that. Where "
            "the model makes them positive, the formula written out asks nothing.",
            certainty="note",
        )


_MATH = (
    "acos asin atan atan2 ceil copysign cos cosh degrees dist erf exp expm1 fabs floor fmod hypot isclose "
    "isfinite isinf isnan log log10 log1p log2 pow radians sin sinh sqrt tan tanh trunc"
).split()


class MathOfTensor(Rule):
    """A function of `math` is given a tensor, whose number it has to read.

    ## What it does

    Finds `math.sqrt(t)`, `math.isnan(t)` and the like of tensors that may live on a device, in hot code.
    Where the number goes back into tensors it is a finding, elsewhere a note.

    ## Why it costs

    `math` works on Python numbers: it asks the tensor for its own, which is `.item()` without the word,
    and the host waits for the device.

    ## Example

    ```python
    scale = 1 / math.sqrt(x.var())
    return x * scale
    ```

    ## Instead

    ```python
    return x * x.var().rsqrt()
    ```

    ## Fix safety

    No fix: only the author knows whether a Python number is needed.
    """

    code = "DG441"
    name = "math-of-tensor"
    origin = "nerfstudio#71de0716"
    looks_for = MathCall(*_MATH)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A tensor among the arguments of a function of `math`."""
        if not place.name(node).startswith("math.") or works_on_host(place):
            return None
        given = [a.value for a in node.args if place.on_device(a.value)]
        if not given or waits_inside(given[0], place):
            return None
        last = place.last_name(node)
        back = ends(node, place) == {"tensor"}
        checks = last in ("isnan", "isinf", "isfinite", "isclose")
        asks = checks and asked(node, place).asker in ("if", "while", "assert", "ternary", "bool")
        return place.finding(
            node,
            f"`{place.short(node)}` needs the value of a tensor, so the host waits for the device. "
            f"`torch.{last}` computes it on the device.",
            certainty="sure" if back and not asks else "note",
        )


_CHECKED = {
    "torch.linalg.inv": "inv_ex",
    "torch.linalg.cholesky": "cholesky_ex",
    "torch.linalg.solve": "solve_ex",
    "torch.linalg.ldl_factor": "ldl_factor_ex",
    "torch.linalg.lu_factor": "lu_factor_ex",
    "torch.inverse": "inv_ex",
    "torch.cholesky": "cholesky_ex",
}


_CHECKED_ALWAYS = frozenset(
    "svd svdvals eig eigh eigvals eigvalsh lstsq pinv pinverse matrix_exp matrix_rank cond tensorinv".split()
)
"""Of `torch` and `torch.linalg`: those that check, and have no other form that does not."""
_CLIPS = ("clip_grad_norm_", "get_total_norm")
"""Functions that check a norm if they are asked to."""


class LinalgChecked(Rule):
    """A function checks on the host whether its result is right.

    ## What it does

    Finds `torch.linalg.inv`, `cholesky`, `solve`, `lu_factor`, `ldl_factor`, `svd`, `eigh` and the like of
    device tensors, and `clip_grad_norm_(…, error_if_nonfinite=True)`, in hot code. It is a note: only the
    author knows that the values are fine.

    ## Why it costs

    The function reads from the device whether each matrix could be factored, or whether the norm is finite,
    to raise an error where not: the host waits until the device has worked through everything queued before.
    Those ending in `_ex` give that answer as a tensor, and wait for nothing.

    ## Example

    ```python
    inverse = torch.linalg.inv(gram)
    ```

    ## Instead

    ```python
    inverse, info = torch.linalg.inv_ex(gram)
    ```

    ## Fix safety

    No fix: of a singular matrix the result is no longer an error.
    """

    code = "DG442"
    name = "linalg-checked"
    origin = "physicsnemo#4b06f66e"
    looks_for = Call(
        *{name.rpartition(".")[2] for name in _CHECKED}, *_CHECKED_ALWAYS, *_CLIPS, place="torch"
    )

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A factorization of a tensor on a device, or a norm that has to be finite."""
        name = place.name(node)
        last = place.last_name(node)
        if last in _CLIPS:
            return self._of_a_norm(node, place)
        matrix = node.args[0].value if node.args and not node.args[0].star else None
        if not name and last not in ("solve", "lu_factor", "lstsq"):
            name, matrix = f"torch.{last}", place.receiver(node)
        without = _CHECKED.get(name)
        checked = name.rpartition(".")[0] in ("torch", "torch.linalg") and last in _CHECKED_ALWAYS
        if not (without or checked) or matrix is None or works_on_host(place):
            return None
        if not place.on_device(matrix):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` checks for errors on the host, which waits for the device. "
            + (
                f"`torch.linalg.{without}` returns them as a tensor and does not wait."
                if without
                else "No variant avoids the check: call it less often, or use `qr` or `inv_ex`, which do "
                "not wait, where these will do."
            ),
            certainty="note",
        )

    def _of_a_norm(self, node: cst.Call, place: Place) -> Finding | None:
        if not place.name(node).startswith("torch.nn.utils.") or works_on_host(place):
            return None
        position = 3 if place.last_name(node) == "clip_grad_norm_" else 2
        asked_for = place.argument(node, position, "error_if_nonfinite")
        if asked_for is None or not is_word(asked_for, "True"):
            return None
        return place.finding(
            node,
            f"`{place.last_name(node)}(…, error_if_nonfinite=True)` reads the norm of the gradients, and the "
            "host waits for the whole backward pass. Leave it out, and look at the norm where it is logged.",
            certainty="note",
        )
