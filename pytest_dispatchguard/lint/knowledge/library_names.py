"""The one spelling of library names that go by several, and the entry point that a library's class belongs
to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from pytest_dispatchguard.lint.knowledge.entry_points import LIBRARY_ROOTS
from pytest_dispatchguard.lint.knowledge.torch_classes import CLASSES

_SAME_NAME: Mapping[str, str] = {
    "torch._tensor.Tensor": "torch.Tensor",
    "torch.optim.lr_scheduler._LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torch.distributions.transforms.Transform": "torch.distributions.Transform",
    "torchmetrics.metric.Metric": "torchmetrics.Metric",
    "torchmetrics.collections.MetricCollection": "torchmetrics.MetricCollection",
    "torch_geometric.nn.conv.message_passing.MessagePassing": "torch_geometric.nn.MessagePassing",
    "transformers.cache_utils.Cache": "transformers.Cache",
    "transformers.modeling_utils.PreTrainedModel": "transformers.PreTrainedModel",
    "transformers.generation.logits_process.LogitsProcessor": "transformers.LogitsProcessor",
    "transformers.generation.LogitsProcessor": "transformers.LogitsProcessor",
    "transformers.generation.stopping_criteria.StoppingCriteria": "transformers.StoppingCriteria",
    "transformers.generation.StoppingCriteria": "transformers.StoppingCriteria",
    "transformers.generation.utils.GenerationMixin": "transformers.GenerationMixin",
    "transformers.generation.GenerationMixin": "transformers.GenerationMixin",
    "transformers.trainer.Trainer": "transformers.Trainer",
    "accelerate.accelerator.Accelerator": "accelerate.Accelerator",
    "accelerate.scheduler.AcceleratedScheduler": "accelerate.AcceleratedScheduler",
    "transformers.trainer_callback.TrainerCallback": "transformers.TrainerCallback",
    "transformers.Seq2SeqTrainer": "transformers.Trainer",
    "diffusers.schedulers.scheduling_utils.SchedulerMixin": "diffusers.SchedulerMixin",
    "diffusers.pipelines.pipeline_utils.DiffusionPipeline": "diffusers.DiffusionPipeline",
    "diffusers.hooks.hooks.ModelHook": "diffusers.hooks.ModelHook",
    "diffusers.models.modeling_utils.ModelMixin": "torch.nn.Module",
    "diffusers.ModelMixin": "torch.nn.Module",
    "tensordict.nn.common.TensorDictModule": "tensordict.nn.TensorDictModule",
    "tensordict.nn.common.TensorDictModuleBase": "tensordict.nn.TensorDictModule",
    "tensordict.nn.TensorDictModuleBase": "tensordict.nn.TensorDictModule",
    "flax.linen.Module": "flax.linen.Module",
}
_BY_LAST_NAME = {
    "mmcv": "mmengine",
    "pytorch_lightning": "lightning",
    **{
        n: n
        for n in (
            "ase composer detectron2 fairseq ignite lightning mmengine pyro skorch stable_baselines3 "
            "torcheval torchrl torchtnt vllm"
        ).split()
    },
}
"""Packages of which `LIBRARY_ROOTS` has classes by their last names, wherever they stand in it."""
_PREFIXES = (
    (re.compile(r"torch\.nn\.modules\.(?:\w+\.)?(?=[A-Z])"), "torch.nn."),
    (re.compile(r"torch\.nn\.parameter\.(?=[A-Z])"), "torch.nn."),
    (re.compile(r"torch\.optim\.(?!lr_scheduler\.|swa_utils\.)\w+\.(?=[A-Z])"), "torch.optim."),
    (re.compile(r"torch\.distributions\.(?!transforms\.)\w+\.(?=[A-Z])"), "torch.distributions."),
    (re.compile(r"torch\.autograd\.function\.(?=[A-Z])"), "torch.autograd."),
    (re.compile(r"torch\._C\._nn\."), "torch.nn.functional."),
    (
        re.compile(r"(?:tensorflow\.|tf_)?keras\.(?:[\w.]+\.)?(?=(?:Layer|Operation|Model|Loss|Metric|Optimizer|Callback)$)"),
        "keras.",
    ),
    (re.compile(r"(?:tensorflow\.|tf_)?keras\.(?:src\.)?(?:[\w.]+\.)?BaseOptimizer$"), "keras.Optimizer"),
)  # fmt: skip
_FAMILIES = (
    (re.compile(r"torch\.optim\.lr_scheduler\.\w+"), "torch.optim.lr_scheduler.LRScheduler"),
    (re.compile(r"torch\.optim\.(?:swa_utils\.)?[A-Z]\w+"), "torch.optim.Optimizer"),
    (re.compile(r"torch\.distributions\.\w+Transform"), "torch.distributions.Transform"),
    (re.compile(r"torch\.distributions\.[A-Z]\w+"), "torch.distributions.Distribution"),
    (re.compile(r"torch\.nn\.(?!Parameter|Buffer|Uninitialized)[A-Z]\w+"), "torch.nn.Module"),
    (re.compile(r"torch\.nn\.(?:qat|quantized|intrinsic|utils)[\w.]*\.[A-Z]\w+"), "torch.nn.Module"),
    (re.compile(r"torch\.(?:ao|jit)\.[\w.]*(?:Module|Linear|Conv\d?d?)"), "torch.nn.Module"),
    (re.compile(r"torchvision\.(?:models|ops)\.[\w.]*[A-Z]\w+"), "torch.nn.Module"),
    (re.compile(r"keras\.layers\.[\w.]*[A-Z]\w+"), "keras.Layer"),
    (re.compile(r"keras\.losses\.[A-Z]\w+"), "keras.Loss"),
    (re.compile(r"keras\.metrics\.[A-Z]\w+"), "keras.Metric"),
    (re.compile(r"keras\.optimizers\.[A-Z]\w+"), "keras.Optimizer"),
    (re.compile(r"torchmetrics\.(?!MetricCollection)[\w.]*[A-Z]\w+"), "torchmetrics.Metric"),
    (re.compile(r"transformers\.(?:[\w.]+\.)?\w*PreTrainedModel"), "transformers.PreTrainedModel"),
    (
        re.compile(r"transformers\.(?:[\w.]+\.)?\w*(?:Model|ForCausalLM|ForSequenceClassification)"),
        "transformers.PreTrainedModel",
    ),
    (re.compile(r"transformers\.(?:[\w.]+\.)?\w+Cache"), "transformers.Cache"),
    (re.compile(r"transformers\.(?:[\w.]+\.)?\w+LogitsProcessor"), "transformers.LogitsProcessor"),
    (
        re.compile(r"torch_geometric\.nn\.(?:[\w.]+\.)?(?:MessagePassing|\w+Conv)"),
        "torch_geometric.nn.MessagePassing",
    ),
    (re.compile(r"diffusers\.(?:[\w.]+\.)?\w+Pipeline"), "diffusers.DiffusionPipeline"),
    (re.compile(r"diffusers\.(?:[\w.]+\.)?\w+Scheduler"), "diffusers.SchedulerMixin"),
    (re.compile(r"tensordict\.nn\.(?:[\w.]+\.)?\w*TensorDictModule\w*"), "tensordict.nn.TensorDictModule"),
)  # fmt: skip
_WITHIN = (
    ("lightning.", "Strategy", "lightning.Strategy"),
    ("lightning.pytorch.plugins.", "Precision", "lightning.Precision"),
    ("lightning.fabric.plugins.", "Precision", "lightning.Precision"),
    ("lightning.pytorch.callbacks.", "", "lightning.Callback"),
    ("pytorch_lightning.callbacks.", "", "lightning.Callback"),
    ("pytorch_lightning.strategies.", "Strategy", "lightning.Strategy"),
    ("pytorch_lightning.plugins.", "Precision", "lightning.Precision"),
    ("keras.callbacks.", "", "keras.Callback"),
    ("transformers.", "Callback", "transformers.TrainerCallback"),
    ("mmengine.model.", "BaseModule", "torch.nn.Module"),
    ("mmengine.model.", "Sequential", "torch.nn.Module"),
    ("mmengine.model.", "ModuleList", "torch.nn.Module"),
    ("mmengine.optim.", "OptimWrapper", "mmengine.OptimWrapper"),
    ("skorch.", "NeuralNetClassifier", "skorch.NeuralNet"),
    ("skorch.", "NeuralNetBinaryClassifier", "skorch.NeuralNet"),
    ("skorch.", "NeuralNetRegressor", "skorch.NeuralNet"),
    ("skorch.callbacks.", "", "skorch.Callback"),
    ("stable_baselines3.", "Buffer", "stable_baselines3.BaseBuffer"),
    ("torchrl.envs.", "Transform", "torchrl.Transform"),
    ("torchrl.envs.", "Env", "torchrl.EnvBase"),
    ("ignite.metrics.", "", "ignite.Metric"),
    ("torch_geometric.nn.", "", "torch.nn.Module"),
    ("gpytorch.Module", "", "torch.nn.Module"),
    ("gpytorch.kernels.", "", "torch.nn.Module"),
    ("gpytorch.means.", "", "torch.nn.Module"),
    ("gpytorch.mlls.", "", "torch.nn.Module"),
    ("gpytorch.models.", "", "torch.nn.Module"),
    ("gpytorch.likelihoods.", "", "torch.nn.Module"),
    ("monai.networks.nets.", "", "torch.nn.Module"),
    ("monai.networks.blocks.", "", "torch.nn.Module"),
    ("monai.losses.", "", "torch.nn.Module"),
    ("pyro.infer.", "ELBO", "pyro.ELBO"),
    ("pyro.poutine.", "Messenger", "pyro.Messenger"),
    ("pyro.nn.", "Module", "torch.nn.Module"),
)
"""Where the names of classes begin and how they end, and their entry of `LIBRARY_ROOTS`."""


@cache
def canonical(name: str) -> str:
    """The usual spelling of a library's dotted name."""
    known = _SAME_NAME.get(name)
    if known is not None:
        return known
    package = _BY_LAST_NAME.get(name.partition(".")[0])
    if package is not None:
        short = f"{package}.{name.rpartition('.')[2]}"
        return short if short in LIBRARY_ROOTS else name
    for pattern, replacement in _PREFIXES:
        found = pattern.match(name)
        if found:
            return replacement + name[found.end() :]
    return name


@cache
def family(name: str) -> str:
    """The entry of `LIBRARY_ROOTS` that a library class, by its canonical name, belongs to; else
    empty."""
    if name in LIBRARY_ROOTS:
        return name
    package, _, rest = name.partition(".")
    if package in CLASSES:
        known = CLASSES[package].get(rest.rpartition(".")[2])
        if known is not None and known != name:
            return known
    for pattern, base in _FAMILIES:
        if pattern.fullmatch(name):
            return base
    if name.rpartition(".")[2][:1].isupper():
        for begin, end, base in _WITHIN:
            if name.startswith(begin) and name.endswith(end):
                return base
    return ""
