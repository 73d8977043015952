"""What is cold by its name: functions, files and decorators of one-time work."""

from __future__ import annotations

import re
from collections.abc import Callable

COLD_METHODS = re.compile(
    r"build|_?build_(?:from_\w+|\w*(?:model|layer|module|network|optimizer|scheduler|dataset|"
    r"dataloader|loader|config|vocab|tokenizer|parser)s?)|extra_repr|__repr__|__str__|__format__|__del__|__init_subclass__|__set_name__|"
    r"\w*get_config|\w*from_config|get_build_config|build_from_config|get_compile_config|compile_from_config|compile|"
    r"_?(?:get_|set_|load_|save_)?(?:extra_)?state_dict\w*|_?(?:load(?!_balanc|_(?:\w+_)?(?:batch|loss)$)|save(?!_(?:\w+_)?(?:activations?|logits|loss)$))(?:_\w+)?|_load_from_state_dict|_?deseriali[sz]e(?:_\w+)?|_save_to_state_dict|"
    r"from_pretrained|_from_pretrained\w*|push_to_hub\w*|from_(?:file|json|yaml|checkpoint|single_file|url)|"
    r"to_(?:json|yaml|file|json_string|json_file|diff_dict)|"
    r"__getstate__|__setstate__|__reduce__|__reduce_ex__|__getnewargs__|__deepcopy__|__copy__|__dir__|"
    r"compute_output_spec|symbolic_call|compute_output_shape|_?reset_parameters|_?init_weights|_?initialize_weights|"
    r"_?(?:reset|init)_(?:parameters|weights|params)\w*|weight_init|_?export\w*|onnx\w*|\w*_to_onnx|"
    r"_?plot\w*|_?draw_\w*debug\w*|\w*debug_(?:draw|vi[sz])\w*|_?print_\w+|_?show\w*|_?display_\w+|_?log_(?:metrics|summary|images?)|_?summary\w*|_?download\w*|"
    r"_?convert_(?:checkpoint|state_dict|weights|config)\w*|add_\w*arguments?|main|cli|launch_(?:eval|train|server|job|distributed|workers?|process)\w*|_?parse_args|"
    r"_?visuali[sz]e\w*|tokenize\w*|_?prepare_(?:model|dataset|dataloader)(?!\w*(?:arg|batch|input|output))\w*|__class_getitem__|"
    r"test[A-Z]\w*|validate_config|_?create_optimizer\w*|get_train_dataloader|resize_token_embeddings|"
    r"configure_optimizers|configure_callbacks|setup|teardown|prepare_data|\w+_dataloader|\w*save_checkpoint|"
    r"_?handle_\w*(?:recovery|oom|errors?|failures?|exceptions?)|"
    r"enable_\w+|disable_\w+|gradient_checkpointing_enable|gradient_checkpointing_disable|fuse_(?:qkv|lora|model|conv|bn|modules?|weights?)\w*|unfuse_\w+|"
    r"_?capture(?:_one\w*|_(?:cuda_?)?graphs?|_model|_forward|_scope)?|\w*graph\w*_capture\w*|"
    r"(?:set|retrieve)_timesteps|\w+_for_export|\w*_exportable|trace_and_export\w*|_?sweep\w*|_?autotune\w*|"
    r"_?tune_\w+|\w*_?(?:repack|prepack|pack_weights?|process_weights|prepare_weights?)\w*|"
    r"_?(?:switch_to_|convert_to_)?deploy|_?pack_(?:gpu|cpu|block|linear|module)|\w*_to_disk\w*|zero_module|"
    r"_?(?:dump|peek)_\w+|_?quantize_model|fasterquant|unmerge\w*|merge_adapter\w*|quantize|add_adapter|delete_adapter|merge_and_unload|"
    r"(?!_*(?:create|get|make|build|prepare|generate)_)(?:\w+_)?(?:mask|score)_mod|_?(?:un)?install_\w+|"
    r"_?(?:\w+_)?compile_(?:\w+_)?(?:module|submodule|model|graph|engine|program)s?(?:_\w+)?|"
    r"_?register_(?:model|module|buffer|parameter|forward|backward|\w*hook)s?(?:_\w+)?|"
    r"_?(?:debug|interactive|python)_(?:shell|console)|_?debug_(?:dump|images?|log|plot|print|save|show)\w*|_?\w*exc(?:ept)?_?hook"
)
"""Functions that run at set-up, for people, or at saving and loading, whatever calls them, and those that
flex attention compiles into its kernel."""

COLD_UNLESS_ROOTS = re.compile(
    r"_*reset_?|_?initiali[sz]e(?:_(?!hidden|state|cache|buffer|carry|memory|mask|momentum|noise|token|input|latent|decod|beam|derivativ|flow|velocit)\w+)?|"
    r"_?setup_(?!(?:batch|generation|input|kernel|neighbor|prefill)(?!\w*_(?:config|loader|norm|pipeline)))\w+|on_(?!\w*batch)\w+_start|on_(?!\w*batch)\w+_begin|_?calibrate\w*|"
    r"_?benchmark\w*|_?profile\w*|fit|_?(?:clear|empty|free)_\w*(?:cache|memory)|_?release_memory|_?offload"
)
"""Functions that are cold wherever another function calls them, and hot where a library does."""

ONE_TIME_LOOPS = re.compile(
    r"_?initiali[sz]e_(?!and_|\w*train)\w+|_?(?:visuali[sz]e|plot|show)(?:_\w+)?"
)
"""Functions whose loops run at set-up, where they fit what a module begins with, or for people who look."""

EXPORT_PLACEHOLDERS = re.compile(r"(?:^|_)(?:ORT|TRT|ONNX|Onnx|TensorRT)(?:_|[A-Z]|$)")
"""Functions of autograd that stand for an operation of another runtime while a model is exported."""

_TEST_FOLDERS = re.compile(r"(?:^|/)(?:tests?|testing|benchmarks?|bench|docs?|\.[^/]+)/")
TEST_PATHS = re.compile(
    rf"{_TEST_FOLDERS.pattern}|"
    r"(?:^|/)(?:test_[^/]*|[^/]*_test|conftest|[^/]*testing[^/]*|test_utils|"
    r"[^/]* (?:copy(?: \d+)?|\(\d+\)))\.py$"
)
"""Files of tests, benchmarks and documentation, and copies left behind (`model copy.py`, `model (1).py`),
which nothing imports by such a name."""
COPIED_PATHS = re.compile(
    r"(?:^|/)_?(?:vendor(?:ed)?|third_?party|3rd_?party|archived?(?:_\w+)?|attic|obsolete|unused|backups?|"
    r"logs?|wandb|mlruns|checkpoints|ckpts?)/|"
    r"(?:^|/)[^/]*_(?:legacy|old|backup|deprecated)\.py$",
    re.IGNORECASE,
)
"""Code that was copied from other projects, whole as a rule, or that is kept and not run any more, such as
what a training keeps beside its log: this project runs what it calls of it."""

COPIED_PACKAGES = frozenset(
    "accelerate apex detectron2 einops lpips maskrcnn_benchmark mmcls mmcv mmdet mmengine mmpose mmseg "
    "pytorch_fid pytorch_lightning pytorch_msssim timm torch_fidelity torchaudio torchrec torchvision".split()
)
"""Packages of others that applications copy, to call a part of them; in a library, what is called so is for
them as a rule."""

SCRIPT_PATHS = re.compile(r"(?:^|/)(?:scripts?|cli|commands)/")
"""Folders of what is started by hand: some of it trains or evaluates, most of it runs once."""

COLD_PATHS = re.compile(
    r"(?:^|/)(?:conversion|saving|export|\w*onnx|datasets?(?!/[^/]*(?:eval|metric|post_?process)[^/]*\.py$)|visuali[sz]ation|plotting|"
    r"loggers?|demos?|debug(?:_utils|ging)?|debuggers?|deprecated|loading|tracers?)/|"
    r"(?:^|/)(?:setup|__main__|convert_[^/]*|[^/]*_convert(?:er)?|convert|plot[^/]*|[^/]*_plots?|cli|visuali[sz]ations?|visuali[sz]e[^/]*|"
    r"versioneer|hubconf|checkpoint_converter|[^/]*_to_hf|[^/]*_dataset|datasets?|setup_helpers|"
    r"tokenization_[^/]*|[^/]*tokenizer|processing_[^/]*|feature_extraction_[^/]*|"
    r"(?:image|video)_processing_[^/]*|configuration_[^/]*|dummy_[^/]*objects|docs?_utils|"
    r"[^/]*debug(?:ging)?_utils|debug_[^/]*|[^/]*progress(?:_bar)?|hub|[^/]*_hub|"
    r"nan_?detect\w*|exporters?|export|[^/]*_export(?:er)?|export_[^/]*|onnx|[^/]*_onnx(?:_model)?|_pretrained|_builder|_registry|[^/]*_(?:load|loading|tracer))\.py$"
)
"""Files whose code runs at set-up, for people, or on the command line."""


_FEEDS = ("no_grad", "inference_mode", ".cuda(", ".to(")
"""What a file says that feeds a model: its `main` may do that in a loop."""
_EVAL = re.compile(r"\beval\(\)")
"""The same."""


TESTING = frozenset({"pytest", "unittest"})
_TESTS = re.compile(
    r"^\s*(?:(?:async )?def test|class Test|(?:from|import) (?:pytest|unittest)\b)", re.M
)
"""What files of tests have."""
_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$")


def looks_like_tests(path: str) -> bool:
    """Whether a file is called as those of tests are, and stands among others: it may be a program that
    evaluates a model, as `test_net.py` is."""
    return _TEST_FILE.search(path) is not None and _TEST_FOLDERS.search(path) is None


def cold_by_name(path: str, text: str) -> Callable[[str], bool]:
    """Whether functions of a file are cold for their names or the file's, whatever they hold and whatever
    calls them."""
    if TEST_PATHS.search(path) and not (
        looks_like_tests(path) and any(word in text for word in _FEEDS) and not _TESTS.search(text)
    ):
        return lambda name: True
    if "backward" in text:
        return lambda name: False  # training loops are hot wherever they stand
    if COLD_PATHS.search(path):
        return lambda name: True
    if any(word in text for word in _FEEDS) or ("eval()" in text and _EVAL.search(text)):
        return lambda name: name != "main" and COLD_METHODS.fullmatch(name) is not None
    if SCRIPT_PATHS.search(path):
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

REMEMBERING_DECORATORS = re.compile(
    r"(?:\w+\.)*_?(?:\w+_)?(?:memoi[sz]e|memoi[sz]ed|(?:disk|lru|ttl|weak|file|dir|per_(?:device|process|rank|dtype|shape))_?cached?|(?:run|call|do|execute)_once|cached|singleton|cached?_(?:dir|disk|result|results|on_disk))"
)
"""The same of whoever keeps what a function gave, by the name."""
KERNEL_DECORATORS = re.compile(
    r"(?:\w+\.)*(?:cute|tl|tilelang|helion|wp|warp|ti|taichi|gluon|cuda|T)\.(?:jit|kernel|func|struct|prim_func|autotune)"
)
"""The same of languages for kernels: Python there is compiled, and runs on the device."""
