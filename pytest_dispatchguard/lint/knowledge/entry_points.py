"""Entry points by name: which methods of which library classes are hot, and what is hot by a decorator or a
name that all libraries use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


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
    "lightning.LightningDataModule": _known(
        "", steps="transfer_batch_to_device on_before_batch_transfer on_after_batch_transfer"
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
        "forward __call__", module=True, offers="prepare_inputs_for_generation"
    ),
    "transformers.Cache": _known("crop update"),
    "transformers.LogitsProcessor": _known("", steps="__call__"),
    "transformers.StoppingCriteria": _known("", steps="__call__"),
    "transformers.GenerationMixin": _known(
        "",
        offers="prepare_inputs_for_generation",
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
    "mmengine.Hook": _known(
        "",
        steps="before_iter after_iter before_train_iter after_train_iter before_val_iter after_val_iter "
        "before_test_iter after_test_iter",
    ),
    "mmengine.BaseMetric": _known("", steps="process"),
    "mmengine.OptimWrapper": _known(
        "", steps="update_params backward step zero_grad optim_context"
    ),
    "composer.ComposerModel": _known(
        "forward", steps="loss eval_forward update_metric", module=True
    ),
    "composer.Callback": _known(
        "",
        steps="batch_start batch_end before_train_batch after_train_batch before_forward after_forward "
        "before_loss after_loss before_backward after_backward eval_batch_start eval_batch_end "
        "eval_before_forward eval_after_forward",
    ),
    "detectron2.HookBase": _known("", steps="before_step after_backward after_step"),
    "detectron2.TrainerBase": _known("", steps="run_step"),
    "detectron2.DatasetEvaluator": _known("", steps="process"),
    "ase.Calculator": _known("", steps="calculate", article="an"),
    "skorch.NeuralNet": _known(
        "", steps="train_step train_step_single validation_step evaluation_step infer get_loss"
    ),
    "skorch.Callback": _known("", steps="on_batch_begin on_batch_end on_grad_computed"),
    "fairseq.FairseqTask": _known("", steps="train_step valid_step"),
    "ignite.Metric": _known("", steps="update iteration_completed compute", article="an"),
    "stable_baselines3.BaseBuffer": _known("", steps="add sample _get_samples"),
    "stable_baselines3.BaseCallback": _known("", steps="_on_step"),
    "torch_geometric.nn.MessagePassing": _known(
        "forward message aggregate message_and_aggregate update edge_update", module=True
    ),
    "torchrl.EnvBase": _known("", steps="_step", module=True),
    "torchrl.Transform": _known("forward _call _apply_transform _inv_call", module=True),
    "pyro.Messenger": _known(
        "_process_message _postprocess_message _pyro_sample _pyro_post_sample _pyro_param _pyro_post_param",
        lasting=False,
    ),
    "pyro.ELBO": _known("", steps="loss loss_and_grads differentiable_loss"),
    "pyro.SVI": _known("", steps="step"),
}
OFFERED = frozenset(name for known in LIBRARY_ROOTS.values() for name in known.offered)
"""All names of methods that users of one of these classes call."""

HOT_DECORATORS: Mapping[str, str] = {"torch.compile": "compiled by torch.compile"}
"""Decorators that make a function a root, and the reason given."""

HOT_ANYWHERE: Mapping[str, str] = {
    "__torch_function__": "torch calls it for every function of torch",
    "__torch_dispatch__": "torch calls it for every op",
}
"""Methods that are roots in whatever class they stand."""

KERNELS = re.compile(
    r"register_kernel|custom_op|triton_op|register_(?:cuda|cpu|custom|default|autograd)?_?(?:op|impl)|impl|"
    r"implements(?:_\w+)?"
)
"""Decorators, by their last names, of what runs wherever an operation is called."""
REWORKS_A_MODEL = re.compile(
    r"quanti[sz]|calibrat|prun(?:e|ing)|sparsif|gptq|(?<![a-z])awq|loftq|smooth_?quant|"
    r"(?:^|[_.:])(?:convert|compile|compiler|export|replace|init|initiali[sz]e|merge|compress|tune|"
    r"autotune|benchmark|speed|profile|warm_?up|sanity|lr_find|find_lr|find_batch_size|dry_run|summari[sz]e)"
    r"(?:_|$|\.py)"
    r"|_load(?:$|\.py)|(?:^|[_.:])load_(?:\w+_)?models?(?:_|$)|(?:^|[_.:])(?:pre)?download_",
    re.IGNORECASE,
)
"""Names of functions, classes and files that load a model, or run it a few times, to make another one of it
or to learn something about it."""
FORWARDS = re.compile(
    r"(?!_*(?:get|make|set|setup|build|create|init|register|patch|replace|wrap|override|restore|swap|test|check|"
    r"verify|compile|precompile|bench|benchmark|profile|export|trace|has|is|can|should|needs|supports|use|skip|"
    r"enable|disable|log|print|dump|save|load|convert|add|remove|insert|inject|find|parse|tune|autotune|warmup|"
    r"fake|meta|mock|dummy|infer|plan|change|capture|prepare_for|fast|look|port|carry|step|move|count|estimate|"
    r"apply|attach|enhance|extend|hook|install|modify|reference|ref|naive|reset|unpatch|monkey|\w*flops?)_)_*(?:(?!\w+__)\w+_)?(?:forward|backward|fwd|bwd)"
)
"""Names of functions that replace the `forward` of a module or a Function, or launch its kernels. Two
underscores mark those that mmdeploy runs only while it exports a model."""
OPERATIONS = re.compile(
    r"(?:^|_)(?:attn|attention|sdpa|rope|rotary|(?:rms|layer|batch|group)_?norm|softmax|cross_entropy|entropy|"
    r"mlp|moe|experts?|gelu|silu|swiglu|geglu|relu|matmul|gemm|mm|linear|conv\dd?|embed|embedding|dropout|"
    r"einsum|logits|scan|loss)(?:_|\d|$)"
)
"""Names, or parts of them, of functions that compute something in a `forward`."""
NO_OPERATIONS = re.compile(
    r"(?:^|_)(?:build|class|cls|config|create|files?|format|init|load|log|make|names?|parse|path|plot|print|"
    r"register|save|set|show|summary|type|validate)(?:_|$)"
)
"""Parts of names that say that it is about them, and computes nothing."""
STEPS = re.compile(
    r"_?(?:training|train|validation|valid|val|eval|evaluation|test|predict|prediction|inference|infer|"
    r"decode|decoding|generation|sampling|denoise|denoising|rollout|draft|verify)_"
    r"(?:step|batch|one_batch|one_step)|"
    r"_?(?:generate|decode|sample|predict)_(?:token|next_tokens?)|"
    r"_?(?:run|process|do)_(?:training_|train_|validation_|eval_|test_|evaluation_)?(?:batch|step|iter|iteration)|"
    r"_?(?:train|eval|valid|test)_(?:one_)?(?:iter|iteration|minibatch|micro_?batch)|"
    r"_?(?:choose|get|predict|sample|select)_actions?|act|_?forward_pass|"
    r"_?forward_(?:backward_)?step|_?forward_backward(?:_\w+)?|_?run_iter|_?optimizer_step|"
    r"_?(?:compute|calc|calculate|get)_loss(?:es)?|"
    r"_?get_batch_loss(?:_metrics)?|_?clip_grad(?:ient)?s?(?:_norm)?_?|_?update_(?:policy|actor|critic|ema)|"
    r"_?ema_update|_?(?:compute|get)_(?:\w+_)?log_?probs?(?:_\w+)?|_?generate_(?:sequences|batch)|"
    r"_?compute_(?:values|rewards?|advantages?)|_?on_after_backward|"
    r"(?:_?hook)?_?on_(?:\w+_)?batch_(?:backward|begin|end|forward\w*|start)|_?on_(?:\w+_)?step(?:_(?:begin|end|start))?"
)
"""Names that trainers of all libraries give to what they do in every step."""
NO_MODEL = (
    r"_?(?:add|ask|average|broadcast|build|can|check|clean|clear|clone|compile|configure|construct|"
    r"convert|copy|counts?|create|define|delete|deserialize|disable|download|dump|enable|ensure|exec|"
    r"export|extract|fetch|finalize|find|fit|fix|freeze|fuse|get|has|import|init|initialize|inspect|"
    r"install|instantiate|is|launch|list|load|log|make|mock|move|name|new|offload|open|override|"
    r"parse|patch|pickle|plot|prepare|print|profile|publish|push|quantize|read|register|reload|remove|"
    r"rename|replace|report|reset|resolve|restore|retrieve|save|scan|serialize|set|setup|shard|share|show|"
    r"start|stop|store|summarize|swap|switch|sync|synchronize|test|tie|transfer|unfreeze|unload|"
    r"unwrap|upgrade|upload|validate|verify|visualize|watch|wrap|write)_"
)
"""How the name of a function begins that does something to a model, and is none."""
CALLED_MODEL = re.compile(
    rf"(?:self\.)?(?!{NO_MODEL})_?(?:\w+_)?(?:model|net|network|unet|transformer|policy|actor|critic|encoder|decoder|generator|"
    r"discriminator|module|backbone|denoiser|llm|vae)"
)
"""What is called so, and called, is a model in a file that works with torch."""
_BATCHES = re.compile(r"loader|data_?(?:set|source|iter)|batches|_dl\b", re.IGNORECASE)
"""What holds all batches, by its name: a loop around one over them goes through epochs."""
_HOLDS_BATCHES = re.compile(
    r"(?:\w+_)?(?:data_?)?(?:loader|iterator|dl)|(?:\w+_)?data_?(?:set|source|iter)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")


def over_batches(target: str, iterated: str) -> bool:
    """Whether a loop goes through batches, by the names in it: not through what holds some of them each."""
    return _BATCHES.search(iterated) is not None and not any(
        map(_HOLDS_BATCHES.fullmatch, _WORD.findall(target))
    )


LOADERS = re.compile(r"(?:\w+_)?(?:data_?)?loaders?|(?:\w+_)?data_?sets?")
"""Parameters that hold all batches of an epoch, by their names."""
TRAINS = re.compile(
    r"_?(?:\w+_)?train(?:ing)?_(?:step|batch|minibatch|micro_?batch|one_batch|one_step)|"
    r"_?(?:eval|valid|validation)_(?:step|batch)|forward_(?:backward(?:_(?:func|step))?|step)"
)
"""Names of what a loop does that trains or evaluates: calls of them in a loop say that it runs once per
step."""
