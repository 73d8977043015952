"""Code that works on the CPU, where nothing waits for a device: data loading, measuring, drivers."""

from __future__ import annotations

import re

from pytest_dispatchguard import Place

_WORKING_ON_HOST = (
    "collat", "dataset", "dataloader", "batchsampler", "batch_sampler", "tokeniz", "processor",
    "feature_extract", "featureextract", "augment", "benchmark", "profil", "_worker",
)  # fmt: skip
_FETCHES = re.compile(
    r"_?(?:get|next|fetch|load|read|prepare)_(?:data|batch|next_batch|example|sample)s?"
)
"""Functions that give what comes from a loader, before it is moved."""
_OF_DATA = re.compile(
    r"(?:^|[._])(?:data[._](?:transforms?|augmentations?)|data_?(?:transforms?|pipelines?|process\w*|loading|loaders?|sets?)|collat\w+|preprocess\w*|"
    r"feature_pipeline|tokeniz\w+)(?:$|\.(?!\w*(?:eval|metric|post_?process)))"
)
"""Modules that prepare data."""
_ON_LOGITS = re.compile(r"(?:logits?|attn|attention|post)_?process(?:or|ing)?")
"""They are called so, and work on what the model gives."""
_LOADING = ("collat", "dataset", "dataloader", "tokeniz", "_worker")
_DRIVER = re.compile(r"(?:^|[a-z_])Ray(?:[A-Z]\w*)?(?:Trainer|Controller|Driver|Pipeline)")
"""Classes that have workers in other processes do the work on devices, by the names of Ray's users."""
_OF_A_DATASET = re.compile(
    r"(?:Dataset|DataModule|DataPipe|Collator)\.(?!on_after_batch_transfer|transfer_batch_to_device)\w+$"
)
"""Methods that give data, whatever they call to make it, before it is moved."""
_HOST_FUNCTION = re.compile(r"_(?:cpu|host)(?:_(?!offload)|$)")


_CPU_FOR_ALL = re.compile(
    r"^\s*device\s*=\s*(?:torch\.device\()?[\"']cpu[\"']\)?\s*$", re.MULTILINE
)


def _is_for_the_cpu(place: Place) -> bool:
    """Whether a function says once that its device is the CPU."""
    function = place.function
    key = ("for the cpu", id(function))
    return place.once(key, lambda: _CPU_FOR_ALL.search(place.text(function)) is not None)


_CPU_CODE = re.compile(r"(?:^|\.)cpu(?:\.|$)")
"""Modules, and folders of them, for what runs on the CPU: `ops.cpu.attention`."""


def gives_data(place: Place) -> bool:
    """Whether a place is part of what a dataset does to give data: it is on the CPU there."""
    return any(_OF_A_DATASET.search(one) for one in place.hot.path)


def works_on_host(place: Place) -> bool:
    """Whether the place belongs to data loading or measuring, to a driver of workers, or to a function whose
    `device` is the CPU, or that gathers objects of Python: tensors there live on the CPU, or waiting for the
    device is the point. Modules called
    so (augmentations, attention processors) work where their inputs are."""
    return place.once(("works on the host", place.qualname), lambda: _works_on_host(place))


_PICKLED = frozenset(
    "_pad_to_largest_tensor _serialize_to_tensor all_gather all_gather_unaligned gather".split()
)
"""Functions that gather objects of Python from all processes, as detectron2 has them."""


def gathers_objects(place: Place) -> bool:
    """Whether a function gathers objects of Python over a group that is the CPU's own."""
    return place.qualname in _PICKLED and place.is_taken("_get_global_gloo_group")


def _works_on_host(place: Place) -> bool:
    if place.assignments("device") == 1 and _is_for_the_cpu(place):
        return True
    if _CPU_CODE.search(place.module):
        return True
    if gathers_objects(place):
        return True
    words = place.qualname.lower()
    name = words.rpartition(".")[2]
    trades = _LOADING if place.in_module else _WORKING_ON_HOST
    words = _ON_LOGITS.sub("", words)
    bases = place.cls.ancestors if place.cls is not None else ()
    if any(base.startswith("torch.utils.data.") for base in bases):
        return True
    if gives_data(place):
        return True
    owner = place.qualname.rpartition(".")[0]
    if any(_DRIVER.search(one.rpartition(".")[2]) for one in (owner, *bases)):
        return True
    if not place.in_module and (_FETCHES.fullmatch(name) or _OF_DATA.search(place.module)):
        return True
    return any(w in words for w in trades) or _HOST_FUNCTION.search(name) is not None
