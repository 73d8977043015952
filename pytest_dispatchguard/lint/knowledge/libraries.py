"""What is known of libraries: which of their classes have which hot methods, what is cold by its
name, decorator or place, and the one spelling of names that go by several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from pytest_dispatchguard.lint.knowledge.torch_classes import CLASSES


@dataclass(frozen=True, slots=True)
class Known:
    """A library class whose subclasses have hot methods."""

    methods: frozenset[str]
    per_step: frozenset[str] = frozenset()
    """Those of the methods that run once a step, where the others run once a call."""
    only_loops: frozenset[str] = frozenset()
    """Those that run once, with loops inside that are hot."""
    module: bool = False
    """Whether instances are modules: called through `__call__`, set up once."""
    article: str = "a"
    lasting: bool = True
    """Whether instances are made at set-up, not in every call."""
    offered: frozenset[str] = frozenset()
    """Methods that users call, often or now and then, as they like."""


def _known(
    methods: str,
    *,
    steps: str = "",
    loops: str = "",
    module: bool = False,
    article: str = "a",
    lasting: bool = True,
    offers: str = "",
) -> Known:
    steps_, loops_ = frozenset(steps.split()), frozenset(loops.split())
    methods_ = frozenset(methods.split()) | steps_ | loops_
    offered = frozenset(offers.split())
    return Known(methods_, steps_ | loops_, loops_, module, article, lasting, offered)


_LIGHTNING_STEPS = (
    "training_step validation_step test_step predict_step on_train_batch_start on_train_batch_end "
    "on_validation_batch_start on_validation_batch_end on_test_batch_start on_test_batch_end "
    "on_predict_batch_start on_predict_batch_end optimizer_step on_before_optimizer_step on_before_zero_grad "
    "on_before_backward on_after_backward backward configure_gradient_clipping optimizer_zero_grad "
    "lr_scheduler_step transfer_batch_to_device on_before_batch_transfer on_after_batch_transfer"
)

LIBRARY_ROOTS: Mapping[str, Known] = {
    "torch.nn.Module": _known("forward __call__ _call_impl __getattr__", module=True),
    "torch.autograd.Function": _known("forward backward jvp setup_context vjp"),
    "torch.optim.Optimizer": _known("", steps="step zero_grad"),
    "torch.optim.lr_scheduler.LRScheduler": _known("", steps="step get_lr _get_closed_form_lr"),
    "torch.distributions.Distribution": _known(
        "log_prob rsample sample entropy cdf icdf", offers="mean mode variance stddev expand"
    ),
    "torch.distributions.Transform": _known("_call _inverse log_abs_det_jacobian __call__"),
    "torcheval.Metric": _known("", steps="update compute merge_state"),
    "torchtnt.TrainUnit": _known(
        "", steps="train_step compute_loss on_train_step_start on_train_step_end"
    ),
    "torchtnt.EvalUnit": _known(
        "", steps="eval_step on_eval_step_start on_eval_step_end", article="an"
    ),
    "torchtnt.PredictUnit": _known(
        "", steps="predict_step on_predict_step_start on_predict_step_end"
    ),
    "torchtnt.Callback": _known(
        "",
        steps="on_train_step_start on_train_step_end on_eval_step_start on_eval_step_end "
        "on_predict_step_start on_predict_step_end",
    ),
    "torch.Tensor": _known("__torch_function__ __torch_dispatch__"),
    "torch.overrides.TorchFunctionMode": _known("__torch_function__"),
    "torch.utils._python_dispatch.TorchDispatchMode": _known("__torch_dispatch__"),
    "keras.Operation": _known("call __call__", module=True),
    "keras.Layer": _known("call __call__", module=True),
    "keras.Model": _known(
        "call __call__", steps="train_step test_step predict_step compute_loss", module=True
    ),
    "keras.Loss": _known("call __call__"),
    "keras.Metric": _known("update_state __call__", steps="result"),
    "keras.Callback": _known(
        "",
        steps="on_batch_begin on_batch_end on_train_batch_begin on_train_batch_end on_test_batch_begin "
        "on_test_batch_end on_predict_batch_begin on_predict_batch_end",
    ),
    "keras.Optimizer": _known("", steps="apply apply_gradients update_step stateless_apply"),
    "torchmetrics.Metric": _known("update forward __call__", steps="compute", module=True),
    "torchmetrics.MetricCollection": _known("update forward", module=True),
    "lightning.LightningModule": _known("forward", steps=_LIGHTNING_STEPS, module=True),
    "lightning.Callback": _known(
        "",
        steps="on_train_batch_start on_train_batch_end on_validation_batch_start on_validation_batch_end "
        "on_test_batch_start on_test_batch_end on_before_backward on_after_backward on_before_optimizer_step "
        "on_before_zero_grad",
    ),
    "lightning.Strategy": _known(
        "",
        steps="training_step validation_step test_step predict_step backward pre_backward post_backward "
        "optimizer_step batch_to_device",
    ),
    "lightning.Precision": _known(
        "",
        steps="forward_context convert_input convert_output pre_backward backward post_backward "
        "optimizer_step clip_gradients train_step_context val_step_context test_step_context "
        "predict_step_context",
    ),
    "lightning._TrainingEpochLoop": _known("", steps="advance on_advance_end"),
    "lightning._EvaluationLoop": _known("", steps="_evaluation_step"),
    "lightning._PredictionLoop": _known("", steps="_predict_step"),
    "diffusers.SchedulerMixin": _known("", steps="step scale_model_input add_noise get_velocity"),
    "diffusers.DiffusionPipeline": _known("", loops="__call__"),
    "diffusers.hooks.ModelHook": _known("new_forward pre_forward post_forward"),
    "transformers.PreTrainedModel": _known(
        "forward __call__", steps="prepare_inputs_for_generation", module=True
    ),
    "transformers.LogitsProcessor": _known("", steps="__call__"),
    "transformers.StoppingCriteria": _known("", steps="__call__"),
    "transformers.GenerationMixin": _known(
        "",
        steps="prepare_inputs_for_generation",
        loops="generate _sample _beam_search _assisted_decoding _prefill",
    ),
    "transformers.Trainer": _known("", steps="training_step compute_loss prediction_step"),
    "transformers.TrainerCallback": _known(
        "",
        steps="on_step_begin on_step_end on_substep_end on_pre_optimizer_step on_optimizer_step "
        "on_prediction_step",
    ),
    "accelerate.Accelerator": _known(
        "",
        steps="backward accumulate clip_grad_norm_ clip_grad_value_ gather gather_for_metrics reduce",
        article="an",
    ),
    "accelerate.hooks.ModelHook": _known("pre_forward post_forward", article="an"),
    "accelerate.AcceleratedScheduler": _known("", steps="step", article="an"),
    "tensordict.nn.TensorDictModule": _known("forward __call__", module=True),
    "vllm.CustomOp": _known("forward forward_native forward_cuda", module=True),
    "vllm.AttentionImpl": _known("forward"),
    "vllm.QuantizeMethodBase": _known("apply"),
    "mmengine.BaseModel": _known(
        "forward __call__", steps="train_step val_step test_step", module=True
    ),
    "mmengine.BaseLoop": _known("", steps="run_iter"),
    "mmengine.OptimWrapper": _known(
        "", steps="update_params backward step zero_grad optim_context"
    ),
    "composer.ComposerModel": _known(
        "forward", steps="loss eval_forward update_metric", module=True
    ),
    "skorch.NeuralNet": _known(
        "", steps="train_step train_step_single validation_step evaluation_step infer get_loss"
    ),
    "skorch.Callback": _known("", steps="on_batch_begin on_batch_end on_grad_computed"),
    "fairseq.FairseqTask": _known("", steps="train_step valid_step"),
    "ignite.Metric": _known("", steps="update iteration_completed compute", article="an"),
    "pyro.Messenger": _known(
        "_process_message _postprocess_message _pyro_sample _pyro_post_sample _pyro_param _pyro_post_param",
        lasting=False,
    ),
    "pyro.ELBO": _known("", steps="loss loss_and_grads differentiable_loss"),
    "pyro.SVI": _known("", steps="step"),
}
OFFERED = frozenset(name for known in LIBRARY_ROOTS.values() for name in known.offered)
"""All names of methods that users of one of these classes call."""

_SAME_NAME: Mapping[str, str] = {
    "torch._tensor.Tensor": "torch.Tensor",
    "torch.optim.lr_scheduler._LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torch.distributions.transforms.Transform": "torch.distributions.Transform",
    "torchmetrics.metric.Metric": "torchmetrics.Metric",
    "torchmetrics.collections.MetricCollection": "torchmetrics.MetricCollection",
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
    "pytorch_lightning": "lightning",
    **{
        n: n
        for n in "composer fairseq ignite lightning mmengine pyro skorch torcheval torchtnt vllm".split()
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
    (re.compile(r"transformers\.(?:[\w.]+\.)?\w+LogitsProcessor"), "transformers.LogitsProcessor"),
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


COLD_METHODS = re.compile(
    r"build|_?build_(?:from_\w+|\w*(?:model|layer|module|network|optimizer|scheduler|dataset|"
    r"dataloader|loader|config|vocab|tokenizer|parser)s?)|extra_repr|__repr__|__str__|__format__|__del__|__init_subclass__|__set_name__|"
    r"\w*get_config|\w*from_config|get_build_config|build_from_config|get_compile_config|compile_from_config|compile|"
    r"_?(?:get_|set_|load_|save_)?(?:extra_)?state_dict\w*|_?(?:load(?!_balanc)|save)(?:_\w+)?|_load_from_state_dict|_save_to_state_dict|"
    r"from_pretrained|_from_pretrained\w*|push_to_hub\w*|from_(?:file|json|yaml|checkpoint|single_file|url)|"
    r"to_(?:json|yaml|file|json_string|json_file|diff_dict)|"
    r"__getstate__|__setstate__|__reduce__|__reduce_ex__|__getnewargs__|__deepcopy__|__copy__|__dir__|"
    r"compute_output_spec|symbolic_call|compute_output_shape|_?reset_parameters|_?init_weights|_?initialize_weights|"
    r"_?(?:reset|init)_(?:parameters|weights|params)\w*|weight_init|_?export\w*|onnx\w*|\w*_to_onnx|"
    r"_?plot\w*|_?print_\w+|_?show\w*|_?log_(?:metrics|summary|images?)|_?summary\w*|_?download\w*|"
    r"_?convert_(?:checkpoint|state_dict|weights|config)\w*|add_\w*arguments?|main|cli|_?parse_args|"
    r"_?visuali[sz]e\w*|tokenize\w*|_?prepare_(?:model|dataset|dataloader)\w*|__class_getitem__|"
    r"validate_config|_?create_optimizer\w*|get_train_dataloader|resize_token_embeddings|"
    r"configure_optimizers|configure_callbacks|setup|teardown|prepare_data|\w+_dataloader|\w*save_checkpoint|"
    r"_?handle_\w*(?:recovery|oom|errors?|failures?|exceptions?)|"
    r"enable_\w+|disable_\w+|gradient_checkpointing_enable|gradient_checkpointing_disable|fuse_(?:qkv|lora|model|conv|bn|modules?|weights?)\w*|unfuse_\w+|"
    r"_?capture(?:_one\w*|_(?:cuda_?)?graphs?|_model|_forward|_scope)?|\w*graph\w*_capture\w*|"
    r"\w+_for_export|\w*_exportable|trace_and_export\w*|_?sweep\w*|_?autotune\w*|"
    r"_?tune_\w+|\w*_?(?:repack|prepack|pack_weights?|process_weights|prepare_weights?)\w*|"
    r"_?(?:dump|peek)_\w+|_?quantize_model|unmerge\w*|merge_adapter\w*|quantize|add_adapter|delete_adapter|merge_and_unload"
)
"""Functions that run at set-up, for people, or at saving and loading, whatever calls them."""

COLD_UNLESS_ROOTS = re.compile(
    r"_*reset|_?setup_\w+|on_(?!\w*batch)\w+_start|on_(?!\w*batch)\w+_begin|_?calibrate\w*|"
    r"_?benchmark\w*|_?profile\w*|fit|_?(?:clear|empty|free)_\w*(?:cache|memory)|_?release_memory|_?offload"
)
"""Functions that are cold wherever another function calls them, and hot where a library does."""

TEST_PATHS = re.compile(
    r"(?:^|/)(?:tests?|testing|benchmarks?|bench|docs?|\.[^/]+)/|"
    r"(?:^|/)(?:test_[^/]*|[^/]*_test|conftest|[^/]*testing[^/]*|test_utils)\.py$"
)
"""Files of tests, benchmarks and documentation."""

COLD_PATHS = re.compile(
    r"(?:^|/)(?:scripts?|cli|commands|conversion|saving|export|datasets?|visuali[sz]ation|plotting|"
    r"loggers?|demos?|debug(?:_utils|ging)?|debuggers?|deprecated)/|"
    r"(?:^|/)(?:setup|__main__|convert_[^/]*|[^/]*_convert(?:er)?|convert|plot[^/]*|[^/]*_plots?|cli|visuali[sz]ations?|"
    r"versioneer|hubconf|checkpoint_converter|[^/]*_to_hf|[^/]*_dataset|datasets?|setup_helpers|"
    r"tokenization_[^/]*|[^/]*tokenizer|processing_[^/]*|feature_extraction_[^/]*|"
    r"(?:image|video)_processing_[^/]*|configuration_[^/]*|dummy_[^/]*objects|docs?_utils|"
    r"model_debugging_utils|[^/]*progress(?:_bar)?|hub|[^/]*_hub|"
    r"exporters?|export|[^/]*_export(?:er)?|_pretrained|_builder|_registry)\.py$"
)
"""Files whose code runs at set-up, for people, or on the command line."""


def cold_by_name(path: str, text: str) -> Callable[[str], bool]:
    """Whether functions of a file are cold for their names or the file's, whatever they hold and whatever
    calls them."""
    if TEST_PATHS.search(path):
        return lambda name: True
    if "backward" in text:
        return lambda name: False  # training loops are hot wherever they stand
    if COLD_PATHS.search(path):
        return lambda name: True
    return lambda name: COLD_METHODS.fullmatch(name) is not None


COLD_DECORATORS = frozenset(
    {
        "functools.lru_cache",
        "functools.cache",
        "functools.cached_property",
        "torch._dynamo.assume_constant_result",
        "torch.jit.unused",
        "torch.jit.ignore",
        "typing.overload",
        "typing_extensions.overload",
        "torch.library.register_fake",
        "torch.library.impl_abstract",
        "triton.jit",
        "triton.autotune",
        "triton.heuristics",
        "numba.jit",
        "numba.njit",
        "pytest.fixture",
        "click.command",
    }
)
"""Decorators of functions that run once, or only where code is analysed."""

KERNEL_DECORATORS = re.compile(
    r"(?:\w+\.)*(?:cute|tl|tilelang|wp|warp|ti|taichi|gluon|cuda|T)\.(?:jit|kernel|func|struct|prim_func|autotune)"
)
"""The same of languages for kernels: Python there is compiled, and runs on the device."""

HOT_DECORATORS: Mapping[str, str] = {"torch.compile": "compiled by torch.compile"}
"""Decorators that make a function a root, and the reason given."""

HOT_ANYWHERE: Mapping[str, str] = {
    "__torch_function__": "torch calls it for every function of torch",
    "__torch_dispatch__": "torch calls it for every op",
}
"""Methods that are roots in whatever class they stand."""

KERNELS = re.compile(
    r"register_kernel|custom_op|triton_op|register_(?:cuda|cpu|default|autograd)?_?(?:op|impl)|impl|"
    r"implements(?:_\w+)?"
)
"""Decorators, by their last names, of what runs wherever an operation is called."""
STEPS = re.compile(
    r"_?(?:training|train|validation|valid|val|eval|evaluation|test|predict|prediction|inference|infer|"
    r"decode|decoding|generation|sampling|denoise|denoising|rollout|draft|verify)_"
    r"(?:step|batch|one_batch|one_step)|"
    r"_?(?:run|process|do)_(?:training_|train_|validation_|eval_|test_|evaluation_)?(?:batch|step|iter|iteration)|"
    r"_?(?:train|eval|valid|test)_(?:one_)?(?:iter|iteration|minibatch|micro_?batch)|"
    r"_?forward_(?:backward_)?step|_?forward_backward(?:_\w+)?|_?run_iter|_?optimizer_step|"
    r"_?(?:compute|calc|calculate|get)_loss(?:es)?|"
    r"_?get_batch_loss(?:_metrics)?|_?clip_grad(?:ient)?s?(?:_norm)?_?|_?update_(?:policy|actor|critic|ema)|"
    r"_?ema_update|_?(?:compute|get)_(?:\w+_)?log_?probs?(?:_\w+)?|_?generate_(?:sequences|batch)|"
    r"_?compute_(?:values|rewards?|advantages?)|_?on_(?:train_)?batch_end|_?on_after_backward"
)
"""Names that trainers of all libraries give to what they do in every step."""
