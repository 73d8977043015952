"""More cases for the tests of the ghost and for bench_waits.py: what functions of torch do on a GPU.

Which of them wait was asked on an H200, torch 2.11.0."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

F = torch.nn.functional
Normal, Categorical = torch.distributions.Normal, torch.distributions.Categorical


class Given:
    """What cases work on."""

    def __init__(self) -> None:
        self.x = torch.arange(4.0, device="cuda")
        self.y = torch.arange(4.0, device="cuda")
        self.i = torch.arange(2, device="cuda")
        self.mask = self.x > 1
        self.n = torch.ones((), device="cuda")
        self.k = torch.ones((), device="cuda", dtype=torch.long)
        self.m = torch.eye(3, device="cuda") * 2 + 0.1
        self.w = torch.rand(8, 8, device="cuda", requires_grad=True)
        self.b = torch.rand(2, 3, 8, 8, device="cuda")
        self.host = torch.ones(4)
        self.number = torch.tensor(2.0)
        self.pinned = torch.ones(4).pin_memory()


Case = Callable[[Given], Any]


def index_with(x: Any, index: Any, value: Any) -> None:
    x[index] = value


def added_to(x: Any, index: Any, value: Any) -> None:
    x[index] += value


def some(count: int, device: str = "cpu") -> torch.Tensor:
    """So many bytes."""
    return torch.empty(count, dtype=torch.uint8, device=device)


def back(forward: Case) -> Case:
    """A case with its backward."""

    def whole(g: Given) -> None:
        forward(g).sum().backward()

    return whole


def stepped(optimizer: type[torch.optim.Optimizer], **options: Any) -> Case:
    """A step of an optimizer."""

    def step(g: Given) -> None:
        parameter = with_gradient(g)
        made: Any = optimizer([parameter], lr=0.1, **options)
        made.step()
        made.zero_grad()

    return step


def with_gradient(g: Given) -> nn.Parameter:
    parameter = nn.Parameter(g.w.detach().clone())
    parameter.grad = torch.ones_like(parameter)
    return parameter


def scaled_step(g: Given) -> None:
    scaler = torch.amp.GradScaler("cuda")
    parameter = with_gradient(g)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale((parameter * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def drawn_together(g: Given) -> torch.Tensor:
    several = torch.distributions.MultivariateNormal
    return several(g.x[:3], g.m @ g.m.T, validate_args=False).sample()


def ctc_loss(g: Given, device: str) -> torch.Tensor:
    said = torch.rand(5, 1, 4, device="cuda").log_softmax(2)
    lengths = torch.tensor([5], device=device), torch.tensor([1], device=device)
    return F.ctc_loss(said, g.k.view(1, 1), *lengths)


WAITS: dict[str, Case] = {
    "much to the device, not blocking, not pinned": lambda g: some(1 << 26).to(
        "cuda", non_blocking=True
    ),
    "into the host, not pinned, not blocking": lambda g: g.host.copy_(g.x, non_blocking=True),
    "mask write of a number of the device": lambda g: index_with(g.x, g.mask, g.n),
    "mask write of one element of the device": lambda g: index_with(g.x, g.mask, g.n[None]),
    "mask write +=": lambda g: added_to(g.x, g.mask, 1.0),
    "two masks write": lambda g: index_with(g.m, (g.mask[:3], g.i[0]), 1.0),
    "mask and slice": lambda g: g.m[g.mask[:3], 1:],
    "where number of the host other": lambda g: torch.where(g.mask, g.x, g.number),
    "where number of the host self": lambda g: torch.where(g.mask, g.number, g.x),
    "where number of the host condition": lambda g: torch.where(g.number > 1, g.x, g.y),
    "masked_fill number of the device": lambda g: g.x.masked_fill(g.mask, g.n),
    "addcmul_ value device": lambda g: g.x.addcmul(g.y, g.y, value=g.n),
    "full_like device": lambda g: torch.full_like(g.x, g.n),
    "masked_fill_ number of the device": lambda g: g.x.masked_fill_(g.mask, g.n),
    "index_fill_ device": lambda g: g.x.index_fill_(0, g.i, g.n),
    "logspace device": lambda g: torch.logspace(0, g.n, 3, device="cuda"),
    "linspace device": lambda g: torch.linspace(0, g.n, 3, device="cuda"),
    "index_fill device": lambda g: g.x.index_fill(0, g.i, g.n),
    "expand size device": lambda g: g.n.expand(g.k),
    "narrow device": lambda g: g.x.narrow(0, g.k, 1),
    "select device": lambda g: g.x.select(0, g.k),
    "roll device": lambda g: g.x.roll(g.k),
    "repeat device": lambda g: g.x.repeat(g.k),
    "split device size": lambda g: g.x.split(g.k),
    "device index in tuple": lambda g: g.m[g.k, 0],
    "write of a number at an index of the device": lambda g: index_with(g.x, g.k, 1.0),
    "write of a tensor at an index of the device": lambda g: index_with(g.x, g.k, g.n),
    "type_as": lambda g: g.host.type_as(g.x),
    "type_as back": lambda g: g.x.type_as(g.host),
    "type text": lambda g: g.host.type("torch.cuda.FloatTensor"),
    "type back": lambda g: g.x.type("torch.FloatTensor"),
    "to a device by name": lambda g: g.host.to(device=g.x.device, dtype=torch.float64),
    "asarray": lambda g: torch.asarray([1.0], device="cuda"),
    "unique inverse": lambda g: g.x.unique(return_inverse=True),
    "combinations": lambda g: torch.combinations(g.x),
    "bincount weights": lambda g: g.i.bincount(g.x[:2]),
    "repeat_interleave alone": lambda g: torch.repeat_interleave(g.i),
    "ctc_loss": lambda g: ctc_loss(g, "cpu"),
    "ctc_loss with lengths of the device": lambda g: ctc_loss(g, "cuda"),
    "gaussian_nll": lambda g: F.gaussian_nll_loss(g.x, g.y, g.y + 1),
    "solve": lambda g: torch.linalg.solve(g.m, g.m),
    "cholesky": lambda g: torch.linalg.cholesky(g.m @ g.m.T),
    "svd": lambda g: torch.linalg.svd(g.m),
    "svdvals": lambda g: torch.linalg.svdvals(g.m),
    "eigh": lambda g: torch.linalg.eigh(g.m),
    "eigvalsh": lambda g: torch.linalg.eigvalsh(g.m),
    "eig": lambda g: torch.linalg.eig(g.m),
    "lstsq": lambda g: torch.linalg.lstsq(g.m, g.m),
    "pinv": lambda g: torch.linalg.pinv(g.m),
    "matrix_rank": lambda g: torch.linalg.matrix_rank(g.m),
    "matrix_exp": lambda g: torch.linalg.matrix_exp(g.m),
    "lu_factor": lambda g: torch.linalg.lu_factor(g.m),
    "norm nuclear": lambda g: torch.linalg.norm(g.m, "nuc"),
    "condition number": lambda g: torch.linalg.cond(g.m),
    "categorical": lambda g: Categorical(probs=g.x, validate_args=True).sample(),
    "normal": lambda g: Normal(g.x, g.y + 1, validate_args=True).sample(),
    "multivariate normal": drawn_together,
    "clip checked": lambda g: nn.utils.clip_grad_norm_(
        [with_gradient(g)], 1.0, error_if_nonfinite=True
    ),
    "scaler": scaled_step,
    "mask back": back(lambda g: g.w[g.w > 2]),
    "list membership": lambda g: g.n in [g.n + 1, g.n],
    "math": lambda g: math.sqrt(g.n),
    "sorted": lambda g: sorted([g.n, g.n + 1]),
    "assert_close": lambda g: torch.testing.assert_close(g.x, g.y),
    "load state": lambda g: nn.Linear(2, 2, device="cuda").load_state_dict(
        nn.Linear(2, 2).state_dict()
    ),
    "to_sparse": lambda g: g.m.to_sparse(),
    "a mask that may be nested": lambda g: torch._nested_tensor_from_mask_left_aligned(
        g.b[0], g.w[:3] > -1
    ),
    "nested to padded": lambda g: torch.nested.nested_tensor([g.x, g.y]).to_padded_tensor(0.0),
    "write sequence": lambda g: index_with(g.x, [0, 1], g.n),
    "tensor made of numbers then moved": lambda g: torch.tensor([1.0, 2.0]).to("cuda"),
    "tensor of device list to device": lambda g: torch.tensor([g.n, g.n], device="cuda"),
    "nested tolist": lambda g: g.m.tolist(),
    "is_nonzero": lambda g: g.n.is_nonzero(),
    "any python": lambda g: any(g.mask),
}
GOES_ON: dict[str, Case] = {
    "little to the device, not blocking, not pinned": lambda g: some(1 << 20).to(
        "cuda", non_blocking=True
    ),
    "little copied to the device, not blocking, not pinned": lambda g: g.x.copy_(
        g.host, non_blocking=True
    ),
    "to the host, not blocking": lambda g: g.x.to("cpu", non_blocking=True),
    "mask write of one element of the host": lambda g: index_with(g.x, g.mask, g.host[:1]),
    "mask write row": lambda g: index_with(g.m, g.mask[:3], 0.0),
    "where two numbers": lambda g: torch.where(g.mask, 1.0, 0.0),
    "masked_fill number of the host": lambda g: g.x.masked_fill(g.mask, g.number),
    "fill_ number of the host": lambda g: g.x.fill_(g.number),
    "fill_ number of the device": lambda g: g.x.fill_(g.n),
    "lerp host weight": lambda g: g.x.lerp(g.y, g.number),
    "lerp device weight": lambda g: g.x.lerp(g.y, g.n),
    "pow of a number of the host": lambda g: g.number**g.x,
    "pow of a number": lambda g: (2.0**g.x, g.x**2),
    "addcmul": lambda g: g.x.addcmul(g.y, g.y, value=0.5),
    "index_fill number": lambda g: g.x.index_fill(0, g.i, 1.0),
    "index_fill number of the host": lambda g: g.x.index_fill(0, g.i, g.number),
    "equal to itself": lambda g: torch.equal(g.x, g.x),
    "equal integers to itself": lambda g: torch.equal(g.i, g.i),
    "equal other sizes": lambda g: torch.equal(g.x, g.i),
    "equal view": lambda g: torch.equal(g.x, g.x[:]),
    "new_full": lambda g: g.x.new_full((2,), 3.0),
    "scalar_tensor": lambda g: torch.scalar_tensor(1.0, device="cuda"),
    "deepcopy": lambda g: copy.deepcopy(g.x),
    "pin": lambda g: g.host.pin_memory(),
    "nonzero_static": lambda g: torch.nonzero_static(g.x, size=2),
    "count_nonzero": lambda g: g.x.count_nonzero(),
    "kthvalue": lambda g: g.x.kthvalue(2),
    "median": lambda g: g.x.median(),
    "median dim": lambda g: g.m.median(0),
    "nanmedian": lambda g: g.x.nanmedian(),
    "mode": lambda g: g.x.mode(),
    "quantile number": lambda g: g.x.quantile(0.5),
    "multinomial one": lambda g: torch.multinomial(g.x, 1),
    "bernoulli": lambda g: torch.bernoulli(g.x / 4),
    "poisson": lambda g: torch.poisson(g.x),
    "exponential_": lambda g: g.x.exponential_(),
    "bucketize": lambda g: torch.bucketize(g.x, g.y),
    "isin": lambda g: torch.isin(g.x, g.y),
    "isin number": lambda g: torch.isin(g.x, 1.0),
    "isclose": lambda g: torch.isclose(g.x, g.y),
    "cartesian_prod": lambda g: torch.cartesian_prod(g.x, g.y),
    "tril_indices": lambda g: torch.tril_indices(3, 3, device="cuda"),
    "block_diag": lambda g: torch.block_diag(g.m, g.m),
    "tril": lambda g: (g.m.tril(), g.m.triu()),
    "cdist": lambda g: torch.cdist(g.m, g.m),
    "nan_to_num": lambda g: g.x.nan_to_num(),
    "scatter_reduce": lambda g: g.x.scatter_reduce(0, g.i, g.n.expand(2), "sum"),
    "index_put accumulate": lambda g: g.x.index_put((g.i,), g.n, accumulate=True),
    "tensor_split": lambda g: g.x.tensor_split(2),
    "bincount empty": lambda g: g.i[:0].bincount(),
    "embedding max_norm": lambda g: F.embedding(g.i, g.m, max_norm=1.0),
    "embedding padding back": back(lambda g: F.embedding(g.i, g.w, padding_idx=0)),
    "embedding sparse back": back(lambda g: F.embedding(g.i, g.w, sparse=True)),
    "embedding_bag": lambda g: F.embedding_bag(g.i, g.m, g.i[:1]),
    "cross_entropy weight": lambda g: F.cross_entropy(g.x[None], g.i[:1], weight=g.x),
    "cross_entropy back": back(lambda g: F.cross_entropy(g.w[:2], g.i)),
    "triplet": lambda g: F.triplet_margin_loss(g.m, g.m, g.m),
    "multi_margin": lambda g: F.multi_margin_loss(g.m[:2], g.i),
    "pad": lambda g: F.pad(g.m, (1, 1)),
    "interpolate": lambda g: F.interpolate(g.b, scale_factor=2.0),
    "grid_sample": lambda g: F.grid_sample(g.b, torch.rand(2, 4, 4, 2, device="cuda")),
    "conv back": back(
        lambda g: F.conv2d(g.b, torch.rand(3, 3, 3, 3, device="cuda", requires_grad=True))
    ),
    "layer_norm": lambda g: F.layer_norm(g.b, (8,)),
    "sdpa": lambda g: F.scaled_dot_product_attention(g.b, g.b, g.b),
    "mha": lambda g: nn.MultiheadAttention(8, 2, device="cuda")(g.b[0], g.b[0], g.b[0]),
    "lstm": lambda g: nn.LSTM(8, 4, device="cuda")(g.b[0]),
    "gru": lambda g: nn.GRU(8, 4, device="cuda")(g.b[0]),
    "pad_sequence": lambda g: nn.utils.rnn.pad_sequence([g.x, g.y]),
    "solve_ex": lambda g: torch.linalg.solve_ex(g.m, g.m),
    "cholesky_ex": lambda g: torch.linalg.cholesky_ex(g.m @ g.m.T),
    "qr": lambda g: torch.linalg.qr(g.m),
    "det": lambda g: torch.linalg.det(g.m),
    "slogdet": lambda g: torch.linalg.slogdet(g.m),
    "matrix_power": lambda g: torch.linalg.matrix_power(g.m, 3),
    "lu": lambda g: torch.linalg.lu(g.m),
    "solve_triangular": lambda g: torch.linalg.solve_triangular(g.m, g.m, upper=True),
    "categorical not validated": lambda g: Categorical(logits=g.x, validate_args=False).sample(),
    "normal not validated": lambda g: Normal(g.x, g.y + 1, validate_args=False).log_prob(g.x),
    "normal numbers": lambda g: Normal(0.0, 1.0, validate_args=True).sample((2,)),
    "dirichlet": lambda g: torch.distributions.Dirichlet(g.x + 1, validate_args=False).rsample(),
    "sgd": stepped(torch.optim.SGD, momentum=0.9),
    "adam": stepped(torch.optim.Adam),
    "adamw fused": stepped(torch.optim.AdamW, fused=True),
    "adamw capturable": stepped(torch.optim.AdamW, capturable=True),
    "adagrad": stepped(torch.optim.Adagrad),
    "rmsprop": stepped(torch.optim.RMSprop),
    "clip": lambda g: nn.utils.clip_grad_norm_([with_gradient(g)], 1.0),
    "clip value": lambda g: nn.utils.clip_grad_value_([with_gradient(g)], 1.0),
    "index back": back(lambda g: g.w[g.i]),
    "grad": lambda g: torch.autograd.grad((g.w**2).sum(), g.w),
    "memory_allocated": lambda g: torch.cuda.memory_allocated(),
    "mem_get_info": lambda g: torch.cuda.mem_get_info(),
    "event timing made": lambda g: torch.cuda.Event(enable_timing=True).record(),
    "stream made": lambda g: torch.cuda.Stream().wait_stream(torch.cuda.current_stream()),
    "record_stream": lambda g: g.x.record_stream(torch.cuda.current_stream()),
    "empty_cache": lambda g: torch.cuda.empty_cache(),
    "peak reset": lambda g: torch.cuda.reset_peak_memory_stats(),
    "rng state": lambda g: torch.cuda.get_rng_state(),
    "manual_seed": lambda g: torch.cuda.manual_seed(1),
    "sum of a list": lambda g: sum([g.n, g.n]),
    "round tensor": lambda g: g.x.round(),
    "enumerate": lambda g: [t for _, t in enumerate(g.x)],
    "_assert_async": lambda g: torch._assert_async(g.n),
    "module init": lambda g: nn.Linear(2, 2, device="cuda"),
    "meshgrid": lambda g: torch.meshgrid(g.x, g.y, indexing="ij"),
    "stft": lambda g: torch.stft(torch.rand(64, device="cuda"), 16, return_complex=True),
    "fft": lambda g: torch.fft.fft(g.x),
    "einsum": lambda g: torch.einsum("ij,jk->ik", g.m, g.m),
    "nested": lambda g: torch.nested.nested_tensor([g.x, g.y]),
    "take_along": lambda g: torch.take_along_dim(g.x, g.i),
    "masked_scatter": lambda g: g.x.masked_scatter(g.mask, g.y),
    "cummax": lambda g: g.x.cummax(0),
    "logsumexp": lambda g: g.x.logsumexp(0),
    "std_mean": lambda g: torch.std_mean(g.x),
    "aminmax": lambda g: torch.aminmax(g.x),
    "vmap": lambda g: torch.vmap(lambda t: t.sum())(g.m),
    "as_tensor of tensor": lambda g: torch.as_tensor(g.x, device="cuda"),
    "tensor of tensor": lambda g: torch.tensor(g.n),
    "complex abs": lambda g: torch.view_as_complex(g.m[:2, :2].contiguous()).abs(),
}
SEVERAL = {
    "a list of booleans as an index": 2,
    "a list of booleans among indices": 2,
    "mask write +=": 2,
    "write of a number at an index of the device": 2,
    "combinations": 2,
    "ctc_loss with lengths of the device": 3,
    "normal": 3,
    "mask back": 2,
    "load state": 2,
    "tensor of device list to device": 3,
    "any python": 3,
}
"""How many operations of a case wait, where it is more than one."""
UNTOLD = frozenset(
    {
        "much to the device, not blocking, not pinned",
        "into the host, not pinned, not blocking",
    }
)
"""What waits though torch's debug mode for waits says nothing of it."""
