"""All networks of timm, with what each reads and where its weights come from; they end in their pooled features."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.models.networks import BackboneInfo, load_file, random_source


def timm_network(
    name: str, weights: str, image_size: int | None, seed: int
) -> tuple[nn.Module, BackboneInfo]:
    """Make a network of timm, whose width is still open."""
    import timm
    from timm.data.config import resolve_data_config

    timm_name = name.removeprefix("timm:")
    if timm_name.split(".")[0] not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{timm_name.split('_')[0]}*")[:5])
        raise BadInputError(f"timm has no model {timm_name!r}" + (f"; near it: {near}" if near else ""))
    options: dict[str, Any] = {"pretrained": weights in ("auto", "download")}
    if weights == "auto":
        options["pretrained_cfg_overlay"] = {"file": _downloaded(name, timm_name)}
    try:
        network = _create(timm_name, options)
    except Exception as error:  # the hub client raises many kinds
        if weights != "download":
            raise
        raise MissingDataError(
            f"the weights of {name} could not be downloaded ({type(error).__name__}); give a state dict file, or "
            "`random`"
        ) from error
    data = resolve_data_config(model=network)  # type: ignore[no-untyped-call]
    heads = vars(network)["pretrained_cfg"]["classifier"] or ()
    fixed = bool(vars(network)["pretrained_cfg"].get("fixed_input_size"))
    network = _without_classifier(network)
    if weights == "random":
        source, pretraining = random_source(seed)
    elif weights in ("auto", "download"):
        source, pretraining = "timm", "as timm describes these weights"
    else:
        source, pretraining = load_file(network, weights, *([heads] if isinstance(heads, str) else heads))
    own = int(data["input_size"][-1])
    size, step = image_size or own, 1
    if getattr(network, "dynamic_img_size", False):
        step = _patch_side(network.patch_embed)
    elif fixed:
        step = 0
        if size != own:
            _set_input_size(name, network, size, own)
    mean, std = (tuple(float(v) for v in data[key]) for key in ("mean", "std"))
    info = BackboneInfo(name, size, mean, std, 0, source, pretraining, step)  # type: ignore[arg-type]
    return network, info


def _create(timm_name: str, options: Mapping[str, Any]) -> nn.Module:
    """Make a network of timm; one of a fixed input size resamples its position embedding, where it can."""
    import timm

    configuration = timm.get_pretrained_cfg(timm_name)
    if configuration is not None and configuration.fixed_input_size:
        with contextlib.suppress(TypeError):  # of networks that have no such option
            return timm.create_model(timm_name, **options, dynamic_img_size=True)
    return timm.create_model(timm_name, **options)


def _patch_side(embedding: Any) -> int:
    """Return the side of the patches that a transformer reads."""
    ratio = getattr(embedding, "feat_ratio", None)  # counts the convolutions before a hybrid's patches
    return int(ratio(as_scalar=True) if ratio else embedding.patch_size[0])


def _set_input_size(name: str, network: nn.Module, size: int, own: int) -> None:
    """Rebuild a network for images of another side, as timm does it."""
    change = getattr(network, "set_input_size", None)
    if change is None:
        raise BadInputError(f"{name} reads images of {own} pixels alone, not of {size}")
    with foreign(name, f"cannot be made to read images of {size} pixels; its own size is {own}"):
        change(img_size=(size, size))


def _downloaded(name: str, timm_name: str) -> str:
    """Return where the hub's client keeps the weights of a network that were downloaded before; it is not called."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    configuration = timm.get_pretrained_cfg(timm_name)
    found = configuration and try_to_load_from_cache(configuration.hf_hub_id or name, "model.safetensors")
    if not isinstance(found, str):
        raise MissingDataError(
            f"the weights of {name} are not here: `--backbone-weights download` fetches them, or give a state dict "
            "file, or `random`"
        )
    return found


def _without_classifier(network: nn.Module) -> nn.Module:
    """Return a timm network that ends in its pooled features."""
    reset = network.reset_classifier
    assert callable(reset)
    reset(0)
    return network
