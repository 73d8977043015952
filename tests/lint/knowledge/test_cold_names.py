"""What is cold by its name alone."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.knowledge.cold_names import (
    COLD_METHODS,
    COLD_PATHS,
    COLD_UNLESS_ROOTS,
    COPIED_PATHS,
    TEST_PATHS,
    cold_by_name,
)
from pytest_dispatchguard.lint.knowledge.entry_points import REWORKS_A_MODEL
from pytest_dispatchguard.lint.sources.packages import APART


@pytest.mark.parametrize(
    "name",
    "install_layer_state uninstall_hooks compile_module _compile_submodules_with_trt register_models "
    "register_buffers register_forward_hooks causal_mask_mod quantize testKernel launch_eval _draw_debug_vis "
    "set_timesteps retrieve_timesteps openvino_compile_cached_model fasterquant debug_image debug_dump_all "
    "_draw_text_debug debug_viz_frames debug_shell better_exchook excepthook".split(),
)
def test_set_up_is_cold(name: str) -> None:
    assert COLD_METHODS.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    "compiled_step register_tokens add_register_tokens installed_forward compile_time_mask forward "
    "find_params get_summary timesteps compile_cached_call "
    "test_step testing launch_kernel _draw_boxes create_mask_mod _get_score_mod".split(),
)
def test_what_only_looks_like_it_is_not(name: str) -> None:
    assert COLD_METHODS.fullmatch(name) is None


@pytest.mark.parametrize(
    ("path", "cold"),
    [
        ("pkg/runners/loading/shards.py", True),
        ("pkg/runners/meta_load.py", True),
        ("pkg/fx/tracer/dispatch.py", True),
        ("pkg/acc_tracer.py", True),
        ("pkg/nan_detector.py", True),
        ("pkg/utils/onnx.py", True),
        ("pkg/deployment/onnx/decoder.py", True),
        ("pkg/export_decoder.py", True),
        ("pkg/models/decoder_onnx_model.py", True),
        ("pkg/onnxruntime/model.py", False),
        ("pkg/exported.py", False),
        ("pkg/data/loader.py", False),
        ("pkg/workload.py", False),
        ("pkg/datasets/coco.py", True),
        ("pkg/datasets/evaluation/coco.py", True),
        ("datasets/coco_eval.py", False),
        ("pkg/datasets/metrics.py", False),
        ("pkg/raytracer_ops.py", False),
        ("pkg/debug_inf_nan.py", True),
        ("pkg/debugger_free.py", False),
        ("tools/visualize_maps.py", True),
        ("pkg/visualizers.py", True),
    ],
)
def test_files_that_load_or_trace_are_cold_unless_they_train(path: str, *, cold: bool) -> None:
    assert bool(COLD_PATHS.search(path)) is cold
    assert cold_by_name(path, "")("forward") is cold
    assert not cold_by_name(path, "loss.backward()")("forward")


@pytest.mark.parametrize(
    ("described", "reworks"),
    [
        ("_compiler.py:convert_all", True),
        ("main.py:compile_parts", True),
        ("meta_load.py:Loader.fill", True),
        ("weights.py:Loader.broadcast_load", True),
        ("train_util.py:load_target_model", True),
        ("stores.py:Pipeline.predownload_stores", True),
        ("loop.py:load_batch", False),
        ("loop.py:evaluate", False),
        ("data_loader.py:evaluate", False),
        ("overload.py:evaluate", False),
    ],
)
def test_loops_that_make_another_model_of_one(described: str, *, reworks: bool) -> None:
    assert bool(REWORKS_A_MODEL.search(described)) is reworks


@pytest.mark.parametrize(
    ("path", "cold"),
    [
        ("pkg/trainer copy.py", True),
        ("pkg/trainer copy 2.py", True),
        ("pkg/trainer (1).py", True),
        ("pkg/with a space.py", False),
        ("pkg/copy.py", False),
        ("pkg/deep_copy.py", False),
        ("pkg copy/trainer.py", False),
    ],
)
def test_copies_left_behind_are_cold(path: str, *, cold: bool) -> None:
    assert bool(TEST_PATHS.search(path)) is cold


@pytest.mark.parametrize(
    ("path", "copied"),
    [
        ("pkg/third_party/net.py", True),
        ("pkg/thirdparty/hloc/net.py", True),
        ("3rdparty/net.py", True),
        ("pkg/_vendor/net.py", True),
        ("pkg/vendored/net.py", True),
        ("pkg/vendors.py", False),
        ("pkg/third_party.py", False),
        ("pkg/vendoring/net.py", False),
        ("third_party/ops.py", True),
        ("archive/models/llama.py", True),
        ("pkg/archived/attention.py", True),
        ("finetune/lora_legacy.py", True),
        ("pkg/legacy/ops.py", False),
        ("pkg/archives.py", False),
        ("pkg/threshold.py", False),
    ],
)
def test_folders_of_copied_code(path: str, *, copied: bool) -> None:
    assert bool(COPIED_PATHS.search(path)) is copied
    assert bool(APART.search(path)) is copied  # nor does the library offer it


def test_what_recomputes_is_not_what_is_kept_beside_a_training() -> None:
    assert COPIED_PATHS.search("out/checkpoints/model.py")
    assert not COPIED_PATHS.search("pkg/nn/checkpoint/activations.py")


def test_what_a_call_begins_with_is_made_in_every_call() -> None:
    assert COLD_UNLESS_ROOTS.fullmatch("_initialize_workers")
    assert COLD_UNLESS_ROOTS.fullmatch("_initialize_momentum") is None
    assert COLD_UNLESS_ROOTS.fullmatch("initialize_noise") is None
