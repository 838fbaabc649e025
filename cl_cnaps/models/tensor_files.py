"""Named tensors in and out of files, to the last bit and without ever running code from a file."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a PyTorch checkpoint, in the file's order.

    A checkpoint may be a plain state dict or hold one under `model_state_dict` or `state_dict`. It is read with
    weights_only=True: a file that holds anything but tensors and plain containers is refused. So is a file of this
    program whose content is not what was written.
    """
    if not path.is_file():
        raise MissingDataError(f"there is no weight file {path}")
    if path.suffix == ".safetensors":
        with (
            foreign(path.name, "not a safetensors file"),
            safe_open(path, framework="pt", device="cpu") as file,
        ):
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            check_digest(path.name, tensors, file.metadata() or {})
            return tensors
    with foreign(path.name, "not a checkpoint of plain tensors, and nothing else is loaded"):
        _check_zip(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("model_state_dict", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(v, Tensor) for v in content.values())
    ):
        raise ClCnapsError(f"{path.name} holds no state dict: expected names with tensors")
    for name, tensor in content.items():
        if (
            tensor.layout != torch.strided
            or tensor.device.type != "cpu"
            or tensor.is_quantized
            or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size()
        ):
            raise ClCnapsError(
                f"{path.name}: {name} is no plain tensor of numbers ({tensor.layout}, {tensor.device})"
            )
    return {str(name): tensor for name, tensor in content.items()}


def _check_zip(path: Path) -> None:
    """Refuse a checkpoint that unpacks to more than it has: PyTorch packs none, and reads any size."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > path.stat().st_size:
            raise BadInputError(f"{path.name} unpacks to {unpacked:,} bytes: refused as a zip bomb")


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a .safetensors file."""
    if not path.is_file():
        raise MissingDataError(f"there is no weight file {path}")
    with foreign(path.name, "not a safetensors file"), safe_open(path, framework="pt", device="cpu") as file:
        return dict(file.metadata() or {})


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a .safetensors file with its digest; it replaces what was there when it is whole and on the disk."""
    make_folder(path.parent)
    content = save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
        {**metadata, "digest": content_digest(tensors, metadata)},
    )
    with partial_file(path) as partial:
        partial.write_bytes(content)


def state_digest(state: Mapping[str, Tensor]) -> str:
    """A short content digest of named tensors, the same on every platform."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()[:16]


def content_digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the digest of a file's numbers and of its metadata but this digest."""
    described = sorted((key, value) for key, value in metadata.items() if key != "digest")
    return hashlib.sha256(f"{state_digest(tensors)} {described}".encode()).hexdigest()[:16]


def check_digest(where: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Refuse a file of this program whose content is not what was written."""
    written_here = metadata.get("format", "").startswith("cl-cnaps ")
    if written_here and metadata.get("digest") != content_digest(tensors, metadata):
        raise BadInputError(f"{where} is damaged: its content does not match the digest in its metadata")


def load_exactly(
    module: nn.Module, tensors: Mapping[str, Tensor], what: str, file_names: Mapping[str, str] | None = None
) -> None:
    """Load tensors into a module; missing or unknown names, wrong shapes and NaN are refused by name.

    `file_names` maps names here to names in the file, where they differ.
    """
    own = module.state_dict()
    called = {name: name for name in tensors} | dict(file_names or {})
    problems = [f"missing {name}" for name in own if name not in tensors]
    problems += [f"unknown {called[name]}" for name in tensors if name not in own]
    problems += [
        f"{called[name]} has shape {tuple(tensors[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    problems += [
        f"{called[name]} contains NaN or Inf"
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    ]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise ClCnapsError(f"{what} does not fit this model: {shown}")
    module.load_state_dict({name: tensor.to(own[name].dtype) for name, tensor in tensors.items()})
