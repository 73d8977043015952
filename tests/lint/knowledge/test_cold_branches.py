from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.knowledge import cold_branches as guards
from pytest_dispatchguard.lint.knowledge.cold_branches import (
    begins,
    cold_branches,
    counted,
    counts,
    looked_up,
    not_yet,
    now_and_then,
    periods_of_one,
    rest_is_cold,
    switched_off,
)


@pytest.mark.parametrize(
    "condition",
    [
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
        "torch.jit.is_scripting()",
        "torch.jit.is_tracing() or torch.onnx.is_in_onnx_export()",
        "torch.compiler.is_compiling()",
        "self.verbose",
        "verbose > 0",
        "DEBUG and x.any()",
        "logger.isEnabledFor(logging.DEBUG)",
        "_layout_debug_enabled()",
        "debug_percentile is not None",
        "self.is_debug_mode() and x.any()",
        "step % self.log_every == 0",
        "plot",
        "self.do_plot and step",
        "save_visualizations",
        "self.iteration % self.iters_per_scale == self.iters_per_scale - 1",
        "self.log_loss_info",
        "log_grad_stats",
        "should_record_summaries",
        "step == total_steps - 1",
        "i % 50 == 0 or batch_count == num_batches_per_epoch",
        "i + 1 == len(train_loader)",
        "step % 100 == 0",
        "divisible_by(step, SAVE_EVERY)",
        "should_log(step, self.cfg.log_freq)",
        "is_time_to(step, args.monitor_interval, last)",
        "self.every_n_iters(runner, self.interval)",
        "(iterations % steps_per_valid) == 0",
        "x.isnan().any() | x.isinf().any()",
        "(step % log_every == 0) & ready",
        "not _cache_hit",
        "not found_in_cache and x is not None",
        "step == 1",
        "current_step == self.cache_start_step",
        "step == start_step",
        'self.wandb and kwargs.get("step") % 1000 == 0',
        'state["step"] % 100 == 0',
        "self.global_step == 0",
        "step == 1 or step % 500 == 0",
        "step % args.log_interval == 0 or step == iters",
        "(step + 1) % config.log_interval == 0 or (step + 1) == 1",
        "vis_result",
        "(step % args.save_interval == 0 or step == iters) and is_main_process()",
        "step % viz_iters == 0",
        "every is not None and (done or step % every == 0) and step != start",
        "g_it == 0 or (g_it + 1) % 500 == 0",
        "it == 0 or it in metric_lg.log_iters",
        "step in self.save_steps",
        "last_batch or batch_idx % log_interval == 0",
        "self.onnx_trace",
        "in_onnx_export and x.any()",
        "torch.isnan(loss)",
        "math.isinf(loss_value)",
        "not self.built",
        "not self._is_initialized",
        "not (self.built)",
        "(\n    torch.jit.is_scripting()\n    # traced\n)",
    ],
)
def test_the_body_is_cold(condition: str) -> None:
    assert cold_branches(condition) == (True, False)


@pytest.mark.parametrize(
    "condition",
    [
        "not torch.jit.is_scripting()",
        "self.built",
        "not TYPE_CHECKING",
        "step % interval",
        "step not in self.save_steps",
    ],
)
def test_the_else_is_cold(condition: str) -> None:
    assert cold_branches(condition) == (False, True)


def test_a_period_of_one_skips_nothing() -> None:
    condition = "self.steps % self.interval == 0"
    assert cold_branches(condition) == (True, False)
    always = periods_of_one(condition, "self", "interval".__eq__)
    assert cold_branches(condition, body_assigns=always) == (False, False)
    assert periods_of_one(condition, "self", "steps_taken".__eq__) == set()
    for other in ("self.steps % self.log_interval == 0", "epoch % self.interval == 0"):
        assert cold_branches(other, body_assigns=always) == (True, False)


@pytest.mark.parametrize(
    "condition",
    [
        "x is None",
        "mask is not None",
        "rows == start_row",
        'sizes["width"] % 16 == 0',
        "self.training",
        "x > 0",
        "i % 2 == 0",
        "i == num_layers - 1",
        "i == 0",
        "step == 0 or x > 0",
        "step % 500 == 0 or x == iters",
        "it in active_steps",
        "name in self.log_iters",
        "num_steps == 1",
        "micro_step == 0",
        "accumulation_steps == 1",
        "x or step % 500 == 0",
        "i == len(self.layers) - 1",
        "self.depth % 4 == 0",
        "verbose or x.any()",
        "rebuilt",
        "not mask",
        "hasattr(self, 'bias')",
        "",
        "if (",
        "x = 3",
    ],
)
def test_neither_is_cold(condition: str) -> None:
    assert cold_branches(condition) == (False, False)


@pytest.mark.parametrize(
    ("condition", "assigned"),
    [
        ("self._cache is None", "self._cache"),
        ("self.mask is None or self.training", ""),
        ("getattr(self, '_cache', None) is None", "self._cache"),
        ("not hasattr(self, '_cache')", "self._cache"),
        ("key not in self._known", "self._known"),
        ("_CACHE is None", "_CACHE"),
    ],
)
def test_lazy_initialisation_is_cold_only_where_it_is_filled(condition: str, assigned: str) -> None:
    filled = {assigned} if assigned else {"self.other"}
    assert cold_branches(condition, body_assigns=filled) == (bool(assigned), False)
    assert cold_branches(condition) == (False, False)


def test_a_branch_that_switches_itself_off_runs_once() -> None:
    filled = {"self.check_input", switched_off("self.check_input")}
    assert cold_branches("self.check_input", body_assigns=filled) == (True, False)
    assert cold_branches("self.check_input and n > 1", body_assigns=filled) == (True, False)
    assert cold_branches("self.check_input", body_assigns={"self.check_input"})[0] is False
    assert cold_branches("self.other", body_assigns=filled) == (False, False)
    asked = "self._need_to_update_eval_statistics"
    assert cold_branches(asked, body_assigns={asked, switched_off(asked)}) == (True, False)


@pytest.mark.parametrize(
    ("condition", "assigned"),
    [
        ("self.first", "self.first"),
        ("self._is_first_call and x is not None", "self._is_first_call"),
        ("self.needs_init", "self.needs_init"),
        ("self.uninitialized", "self.uninitialized"),
        ("self.shapes != shapes", "self.shapes"),
        ("x.device != self._mask.device", "self._mask"),
        ("self.table is None or self.table.shape[0] != n", "self.table"),
        ("self.pe.size(1) != x.size(1)", "self.pe"),
        ("len(self.grid) != n", "self.grid"),
        ("n > self.max_len", "self.max_len"),
        ("self.max_position <= n", "self.max_position"),
    ],
)
def test_what_was_made_for_another_call_is_made_anew_rarely(condition: str, assigned: str) -> None:
    assert cold_branches(condition, body_assigns={assigned}) == (True, False)
    assert cold_branches(condition, body_assigns={"self.other"}) == (False, False)


@pytest.mark.parametrize(
    ("condition", "assigned", "cold"),
    [
        ("_loaded != wanted", {"_loaded", "global _loaded"}, (True, False)),
        ("wanted is not None and wanted != _loaded", {"_loaded", "global _loaded"}, (True, False)),
        ("_loaded is not wanted", {"_loaded", "global _loaded"}, (True, False)),
        ("_loaded is wanted", {"_loaded", "global _loaded"}, (False, False)),
        ("_loaded != wanted", {"_loaded"}, (False, False)),
        ("last_step != step", {"last_step", "global last_step"}, (False, False)),
        ("_kept.group != group", {"_kept", "global _kept"}, (True, False)),
        ("_kept is None or _kept.size < n", {"_kept", "global _kept"}, (True, False)),
        ("_kept is None or n > _kept.size", {"_kept", "global _kept"}, (True, False)),
        ("_kept.size > n", {"_kept", "global _kept"}, (False, False)),
        ("_kept.size < n", {"_kept"}, (False, False)),
        ("_kept.step != step", {"_kept", "global _kept"}, (False, False)),
        ("_kept.numel() < n", {"_kept", "global _kept"}, (False, False)),
    ],
)
def test_a_global_that_is_kept_for_another_value_is_made_anew_rarely(
    condition: str, assigned: set[str], cold: tuple[bool, bool]
) -> None:
    assert cold_branches(condition, body_assigns=assigned) == cold


@pytest.mark.parametrize(
    "condition",
    [
        "n > self.max_seq_len_cached",
        "self._cos_cached.device != x.device",
        "self.cached_shape != x.shape or x.dtype != self.cos_cached.dtype",
    ],
)
def test_what_is_called_cached_is_made_anew_rarely_whoever_does(condition: str) -> None:
    assert cold_branches(condition) == (True, False)


@pytest.mark.parametrize(
    ("condition", "assigned"),
    [
        ("self.batch_first", "self.batch_first"),
        ("first", "first"),
        ("self.position < n", "self.position"),
        ("self.max_len > n", "self.max_len"),
        ("self.count != 0", "self.count"),
        ("shape != last", "last"),
        ("x.shape != self.weight.shape", "x"),
        ("self.training or self.shape != shape", "self.shape"),
        ("self.step_count != self.interval", "self.step_count"),
    ],
)
def test_what_any_call_may_find_so_is_not_rare(condition: str, assigned: str) -> None:
    assert cold_branches(condition, body_assigns={assigned})[0] is False


def test_what_follows_a_return_of_what_was_kept_is_rare() -> None:
    assert rest_is_cold("self.cached_shape == x.shape", True, {"y"})
    assert not rest_is_cold("self.shape == x.shape", True, {"y"})
    for fits in ("self.shape == x.shape", "n <= self.max_len", "self.max_len >= n"):
        assert rest_is_cold(fits, True, {"self.shape", "self.max_len"})
    ready = 'self._plan_ready and getattr(self, "_deep", False) == deep'
    assert rest_is_cold(ready, True, {"self._plan_ready", "self._deep"})
    kept = "self.{0} is not None and x.shape[0] <= self.{0}.shape[0]"
    assert rest_is_cold(kept.format("cos_cached"), True, {"self.cos_cached"})
    assert not rest_is_cold(kept.format("cos"), True, {"self.other"})


def test_where_a_count_is_full_the_other_branch_is_the_ordinary_one() -> None:
    counted = cold_branches("self.count == self.interval", body_assigns={"self.count"})
    assert counted == (False, False)


@pytest.mark.parametrize(
    "name", ["self._timing_cache", "self.memo", "_CACHE", "SIZES_CACHE", "self._warned_columns"]
)
def test_what_a_cache_lacks_is_rare_whatever_fills_it(name: str) -> None:
    assert cold_branches(f"key not in {name}") == (True, False)
    assert cold_branches(f"key in {name}") == (False, True)


@pytest.mark.parametrize(
    "name", ["_GRAPHS", "_COMPILED_BY_KEY", "self.__dict__", "self._made_cache"]
)
def test_what_was_not_found_and_is_kept_is_made_rarely(name: str) -> None:
    assert cold_branches("made is None", body_assigns={"made", name}) == (True, False)
    assert cold_branches("made is not None", orelse_assigns={name}) == (False, True)
    assert cold_branches("made is not None", body_assigns={name}) == (False, False)


@pytest.mark.parametrize("name", ["_K", "plans", "self.plans"])
def test_what_was_looked_up_and_is_put_there_is_made_rarely(name: str) -> None:
    assigned = {name, looked_up("made", name)}
    assert cold_branches("made is None", body_assigns=assigned) == (True, False)
    assert cold_branches("other is None", body_assigns=assigned) == (False, False)
    assert cold_branches("made is None", body_assigns={looked_up("made", name)}) == (False, False)
    assert rest_is_cold("made is not None", True, assigned)


@pytest.mark.parametrize("name", ["A", "_B2", "made", "self.mask", "table"])
def test_what_is_kept_for_this_call_alone_is_not_rare(name: str) -> None:
    assert cold_branches("mask is None", body_assigns={"mask", name}) == (False, False)


@pytest.mark.parametrize("name", ["cache", "self.cached_values", "self.allowed"])
def test_what_is_no_lasting_cache_may_lack_anything(name: str) -> None:
    assert cold_branches(f"key not in {name}") == (False, False)


@pytest.mark.parametrize(
    ("condition", "cold"),
    [
        ("rows == 0", (True, False)),
        ("rows <= 0", (True, False)),
        ("rows > 0", (False, True)),
        ("rows < 1", (True, False)),
        ("rows >= 1", (False, True)),
        ("rows > 1", (False, False)),
        ("rows == 1", (False, False)),
        ("columns == 0", (False, False)),
    ],
)
def test_nothing_is_left_where_a_number_of_rows_is_zero(
    condition: str, cold: tuple[bool, bool]
) -> None:
    given = {counted("rows")}
    assert cold_branches(condition, body_assigns=given, orelse_assigns=given) == cold


@pytest.mark.parametrize("sentinel", ["_UNRESOLVED", "UNSET", "cache.MISSING", "_NOT_MADE"])
def test_what_stands_for_nothing_is_there_once(sentinel: str) -> None:
    made = {"_FOUND", "global _FOUND"}
    assert cold_branches(f"_FOUND is {sentinel}", body_assigns=made) == (True, False)
    assert cold_branches(f"found is {sentinel}", body_assigns={"other"}) == (False, False)
    assert rest_is_cold(f"_FOUND is not {sentinel}", body_returns=True, following_assigns=made)
    assert not rest_is_cold(f"_FOUND is not {sentinel}", body_returns=True, following_assigns=())


@pytest.mark.parametrize("number", ["x.shape[0]", "x.size(0)", "len(xs)", "x.numel()"])
def test_a_number_of_elements_is_told_by_its_text(number: str) -> None:
    assert counts(number)


@pytest.mark.parametrize("other", ["x.shape", "n", "x.sum()", "len", "0", "a +", "x.shape[0] // 2"])
def test_no_other_text_is_a_number_of_elements(other: str) -> None:
    assert not counts(other)


@pytest.mark.parametrize(
    "name",
    [
        "DEBUG_ASSERTS",
        "self.debug_checks",
        "_DEBUG_NANS",
        "debug_prints",
        "args.debug_log_ratio",
        "cfg.verbose_mode",
        "self.debug_viz",
    ],
)
def test_what_is_for_debugging_is_cold(name: str) -> None:
    assert cold_branches(name) == (True, False)


@pytest.mark.parametrize(
    ("condition", "cold"),
    [
        ("x.numel() == 0", (True, False)),
        ("x.numel() > 0", (False, True)),
        ("not x.numel()", (True, False)),
        ("len(xs) == 0", (True, False)),
        ("not len(xs)", (True, False)),
        ("x.shape[0] != 0", (False, True)),
        ("x.size(0) == 0 or self.debug", (True, False)),
        ("x.size(0) == 1", (False, False)),
        ("x.shape[0] > n", (False, False)),
        ("x.sum() == 0", (False, False)),
        ("not mask.any()", (False, False)),
        ("rows == 0", (False, False)),
    ],
)
def test_what_there_is_nothing_for_is_rare(condition: str, cold: tuple[bool, bool]) -> None:
    assert cold_branches(condition) == cold


@pytest.mark.parametrize(
    ("condition", "cold"),
    [
        ("torchvision._is_tracing()", (True, False)),
        ("is_torch_xla_available()", (True, False)),
        ("self.is_neuron", (True, False)),
        ("torch.isnan(x).any()", (True, False)),
        ("torch.any(x.isinf())", (True, False)),
        ("nans.any()", (True, False)),
        ("torch.isfinite(x).all()", (False, True)),
        ("not torch.isfinite(loss)", (True, False)),
        ("torch.all(torch.isfinite(x)).item()", (False, True)),
        ("not all_finite", (True, False)),
        ("not math.isfinite(norm)", (True, False)),
        ("infinite", (False, False)),
        ("not x.all()", (False, False)),
        ("mask.any()", (False, False)),
        ("info.any()", (False, False)),
        ("hasattr(torch, 'nextafter')", (False, True)),
        ("not hasattr(torch.nn.functional, 'rms_norm')", (True, False)),
        ("not on_tpu", (False, True)),
        ("x.device.type == 'mps'", (True, False)),
        ("x.device.type != 'npu'", (False, True)),
        ("x.device.type == 'cuda'", (False, False)),
        ("temps", (False, False)),
        ("self.mps_count > 1", (False, False)),
        ('dist_backend == "nccl"', (False, True)),
        ('torch.distributed.get_backend(group) != "nccl"', (True, False)),
        ('backend == "gloo"', (True, False)),
        ('kind == "gloo"', (False, False)),
        ('backend in ("nccl", "gloo")', (False, False)),
        ("snapshot_data is not None", (True, False)),
        ("self.network_snapshot is None", (False, True)),
        ("torch.isnan(x).any() or x.abs().max() > 1500", (True, False)),
        ("x.abs().max() > 1500 or step == 3", (False, False)),
    ],
)
def test_other_accelerators_and_tracing_are_not_this_one(
    condition: str, cold: tuple[bool, bool]
) -> None:
    assert cold_branches(condition) == cold


def test_what_was_looked_up_in_a_cache_is_mostly_there() -> None:
    filled = {"m", "self._pinv_cache_map"}
    assert cold_branches("m is None", body_assigns=filled) == (True, False)
    assert rest_is_cold("m is not None", True, filled)
    assert cold_branches("m is None", body_assigns={"m", "self.other"}) == (False, False)
    assert not rest_is_cold("m is not None", True, {"m", "self.memory"})


def test_an_object_kept_with_what_was_made_of_it_is_seldom_another() -> None:
    condition = "points is not self.points or other is not self.other"
    assert cold_branches(condition, body_assigns={"self.points", "self.other"}) == (True, False)
    assert cold_branches("points is self.points", orelse_assigns={"self.points"}) == (False, True)
    assert cold_branches(condition) == (False, False)


def test_a_local_that_is_filled_is_filled_on_every_call() -> None:
    assert cold_branches("mask is None", body_assigns={"mask"}) == (False, False)


def test_blocks_that_raise_are_cold() -> None:
    assert cold_branches("x > 0", body_raises=True) == (True, False)
    assert cold_branches("x > 0", orelse_raises=True) == (False, True)


def test_what_follows_an_early_return() -> None:
    condition = "self._cache is not None"
    assert rest_is_cold(condition, True, {"self._cache"})
    assert not rest_is_cold(condition, True, {"self.other"})
    assert not rest_is_cold(condition, False, {"self._cache"})
    assert rest_is_cold("not torch.jit.is_tracing()", True, ())
    assert not rest_is_cold("x is None", True, {"x"})


@given(st.text(alphabet="selfx._ ()%=0notandrisNone[]'\"\n\\", max_size=60))
def test_any_text_is_answered(condition: str) -> None:
    body, orelse = cold_branches(condition, body_assigns={"self.x"})
    assert isinstance(body, bool)
    assert isinstance(orelse, bool)


@given(st.sampled_from(["self.built", "TYPE_CHECKING", "x > 0", "self.verbose and x", "a is None"]))
def test_not_swaps_the_branches(condition: str) -> None:
    assert cold_branches(f"not ({condition})") == cold_branches(condition)[::-1]


@pytest.mark.parametrize(
    ("condition", "foreign"),
    [
        ('backend() == "jax"', (True, False)),
        ('backend.backend() == "torch"', (False, True)),
        ('backend.backend() != "tensorflow"', (False, True)),
        ('keras.config.backend() in ("jax", "tensorflow")', (True, False)),
        ('backend() in ("jax", "torch")', (False, False)),
        ('self.framework == "tf"', (True, False)),
        ('backend() == "flash"', (False, False)),
        ("backend() == name", (False, False)),
        ('name == "jax"', (False, False)),
    ],
)
def test_code_for_another_framework_is_cold(condition: str, foreign: tuple[bool, bool]) -> None:
    assert guards.foreign_branches(condition) == foreign
    assert guards.cold_branches(condition) == foreign


@pytest.mark.parametrize(
    ("condition", "assigned", "cold"),
    [
        ("len(state) == 0", {"state"}, True),
        ("not state", {"state"}, True),
        ('"step" not in state', {"state"}, True),
        ('"exp_avg_sq" not in group', {"group"}, True),
        ('"exp_avg_sq" not in groups', {"groups"}, False),
        ("len(self._cache) == 0", {"self._cache"}, True),
        ("len(out) == 0", {"out"}, False),
        ("len(state) == 0", set(), True),
        ("len(state) == 1", {"state"}, False),
    ],
)
def test_filling_the_state_of_a_parameter_is_cold(
    condition: str, assigned: set[str], cold: bool
) -> None:
    assert cold_branches(condition, body_assigns=assigned) == (cold, False)


@pytest.mark.parametrize(
    ("condition", "assigned", "expected"),
    [
        ("self._done is False", {"self._done"}, (True, False)),
        ("self._done == False", {"self._done"}, (True, False)),
        ("self._done is not True", {"self._done"}, (True, False)),
        ("self._done is True", {"self._done"}, (False, True)),
        ("self._done is False", set(), (False, False)),
        ("not self._keys_validated", set(), (True, False)),
        ("not self._checked", set(), (True, False)),
        ("not self._is_setup", set(), (True, False)),
        ("not self.validated", set(), (True, False)),
        ("not validated", set(), (False, False)),
        ("self.training is False", set(), (False, False)),
    ],
)
def test_flags_of_what_was_done_once(
    condition: str, assigned: set[str], expected: tuple[bool, bool]
) -> None:
    found = cold_branches(condition, body_assigns=assigned, orelse_assigns=assigned)
    assert found == expected


def test_each_branch_is_told_by_what_it_fills_itself() -> None:
    assert cold_branches("self.a is not None", body_assigns={"self.a"}) == (False, False)
    assert cold_branches("self.a is not None", orelse_assigns={"self.a"}) == (False, True)
    assert cold_branches("self.a is None", orelse_assigns={"self.a"}) == (False, False)


def test_what_is_declared_global_lasts_whatever_its_name() -> None:
    assert cold_branches("_module is None", body_assigns={"_module", "global _module"}) == (
        True,
        False,
    )
    assert cold_branches("_module is None", body_assigns={"_module"}) == (False, False)


@pytest.mark.parametrize(
    "condition",
    ["self.log_scale", "log_prob", "self.log_alpha is not None", "allows(step, freq)"],
)
def test_logarithms_are_no_logging(condition: str) -> None:
    assert cold_branches(condition) == (False, False)


@pytest.mark.parametrize(
    ("condition", "seldom"),
    [
        ("epoch % 10 == 0", True),
        ("(epoch + 1) % every == 0 or epoch == last", True),
        ("not (step % n)", True),
        ("'%d' in name", False),
        ("should_log(step, self.log_freq)", True),
        ("allows(step, self.log_freq)", False),
        ("should_use(wave, frequency=3)", False),
        ("self.verbose", False),
        ("epoch %", False),
    ],
)
def test_rounds_are_counted(condition: str, *, seldom: bool) -> None:
    assert now_and_then(condition) is seldom


@pytest.mark.parametrize(
    ("condition", "block", "is_begun"),
    [
        ("self.engine is None", "self._load_engine(x)", True),
        ("not self._initialized", "self.lazy_init(x)", True),
        ("self.mask is None", "self._apply(x)", False),
        ("self.hidden is None", "self.readout(x)", False),
        ("not self.preloaded", "self.load_batch(x)", False),
        ("not self.use_prebuilt_graph", "self.build_graph(x)", False),
        ("mask is None", "self._build_mask(x)", False),
        ("self.engine is None", "x = self._load_engine(x)", False),
    ],
)
def test_what_a_method_begins_once(condition: str, block: str, is_begun: bool) -> None:
    assert (bool(not_yet(condition)) and begins(block)) is is_begun


@pytest.mark.parametrize(
    ("condition", "cold"),
    [
        ("step % every == 0 or step + 1 == total_batch", True),
        ("batch_size == num_batch", False),
        ("x == total_batch_size", False),
        ("step % every == 0 or flag", False),
    ],
)
def test_the_last_round_is_one_of_many(condition: str, *, cold: bool) -> None:
    assert cold_branches(condition)[0] is cold
