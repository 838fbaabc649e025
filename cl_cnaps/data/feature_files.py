"""Features from elsewhere: a file with a feature vector per image is a source like any other.

A file is .npz or .safetensors and holds, for N images:

    features     N x D, floating point
    labels       N, whole numbers: positions in the class names
    splits       N texts such as train and test; in .safetensors positions in the split names
    class_names  K texts; in .safetensors a JSON list in the metadata, as are split_names

Metadata (in .npz a JSON object in the array `metadata`) is optional. `checksum` covers all of the file, and is compared
where it is there; `backbone`, `backbone_digest` and `pretraining` tell which network made the features.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image

from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.data.folders import SPLIT_FOLDERS
from cl_cnaps.data.registry import FEATURE_SUFFIXES
from cl_cnaps.data.source import CountedSource, Source, check_indices
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.torch_setup import check_memory

MAX_WIDTH = 16_384
"""Widest features: a covariance of this width takes a gigabyte."""
MAX_TEXT = 200
"""Most characters of a class or split name."""
_ARRAYS = ("features", "labels", "splits", "class_names")


@dataclass(frozen=True)
class FeatureTable:
    """Features N x D float32 with a label and a split each."""

    features_ND: np.ndarray
    labels_N: np.ndarray
    """Positions in `class_names`."""
    splits_N: np.ndarray
    """Positions in `split_names`."""
    class_names: tuple[str, ...]
    split_names: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        features_ND: np.ndarray,
        labels_N: np.ndarray,
        splits_N: np.ndarray,
        class_names: Sequence[str],
        metadata: Mapping[str, Any],
    ) -> FeatureTable:
        """Make a table of checked arrays; `splits_N` are names."""
        split_names, splits = np.unique(splits_N, return_inverse=True)
        labels = labels_N.astype(np.int64)
        return cls(features_ND, labels, splits, tuple(class_names), tuple(split_names.tolist()), metadata)

    def digest(self) -> str:
        """Digest of features, labels, splits and names."""
        digest = hashlib.sha256(json.dumps([self.class_names, self.split_names]).encode())
        for array, dtype in ((self.features_ND, "<f4"), (self.labels_N, "<i8"), (self.splits_N, "<i8")):
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array, dtype=dtype).data)
        return digest.hexdigest()

    def checksum(self) -> str:
        """Digest of the content and of the metadata."""
        about = {key: value for key, value in self.metadata.items() if key != "checksum"}
        return hashlib.sha256((self.digest() + json.dumps(about, sort_keys=True)).encode()).hexdigest()


class FeatureSource(CountedSource):
    """A source that gives features N x D float32 in place of images; read when first needed in each process."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        table = read_features(path)
        self._held: tuple[FeatureTable, dict[tuple[str, str], np.ndarray]] | None = _by_class(table)
        self._digest = table.digest()
        self.metadata = dict(table.metadata)
        self.feature_width: int = int(table.features_ND.shape[1])
        counts: dict[str, dict[str, int]] = {}
        for (split, class_name), rows in self._held[1].items():
            counts.setdefault(split, {})[class_name] = len(rows)
        made_by = f" by {self.backbone}" if self.backbone != "features" else ""
        classes = len({class_name for _, class_name in self._held[1]})
        origin = (
            f"{path}: features of {len(table.features_ND):,} images in {classes:,} classes, "
            f"{self.feature_width} wide{made_by}"
        )
        super().__init__(name or f"{path.stem} features", origin, counts)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_held": None}

    @property
    def backbone(self) -> str:
        """The network that made the features, where the file names one."""
        return self._text("backbone", "features")

    @property
    def backbone_digest(self) -> str | None:
        """Digest of that network's weights."""
        return self._text("backbone_digest", "") or None

    @property
    def backbone_weights(self) -> str:
        """Where that network's weights came from."""
        return self._text("backbone_weights", "elsewhere")

    @property
    def pretraining(self) -> str:
        """What that network was trained on."""
        return self._text("pretraining", "data that the file does not name")

    def images(self, split: str, class_name: str, indices: Sequence[int], size: int) -> torch.Tensor:  # noqa: ARG002
        """Return the features at these indices, N x D float32; `size` has no meaning here."""
        check_indices(self, split, class_name, indices)
        table, rows = self._loaded()
        return torch.from_numpy(table.features_ND[rows[split, class_name][np.asarray(indices, np.int64)]])

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """Refuse: there are no images."""
        raise BadInputError(
            f"{self.where(split, class_name, index)} is a feature vector; its image is not there"
        )

    def where(self, split: str, class_name: str, index: int) -> str:
        """The file and the row in it."""
        return f"{self.path} row {self._loaded()[1][split, class_name][index]}"

    def digest(self) -> str:
        """Digest of the content."""
        return self._digest

    def _loaded(self) -> tuple[FeatureTable, dict[tuple[str, str], np.ndarray]]:
        if self._held is None:
            table = read_features(self.path)
            if table.digest() != self._digest:
                raise BadInputError(f"{self.path} changed while it was in use")
            self._held = _by_class(table)
        return self._held

    def _text(self, key: str, default: str) -> str:
        value = self.metadata.get(key)
        usable = isinstance(value, str) and value.strip() and value.isprintable()
        return str(value)[:MAX_TEXT] if usable else default


def given_features(sources: Sequence[Source]) -> FeatureSource | None:
    """Return the first source if all hold features of one network; None if all hold images."""
    found = [source for source in sources if isinstance(source, FeatureSource)]
    if not found:
        return None
    if len(found) < len(sources):
        images = next(source.name for source in sources if not isinstance(source, FeatureSource))
        raise BadInputError(f"{found[0].path} holds features and {images} holds images: they cannot be mixed")
    first = found[0]
    for other in found[1:]:
        if other.feature_width != first.feature_width:
            raise BadInputError(
                f"the features in {other.path} are {other.feature_width} wide, those in {first.path} "
                f"{first.feature_width}"
            )
        if (other.backbone, other.backbone_digest) != (first.backbone, first.backbone_digest):
            raise BadInputError(
                f"{other.path} has features of {other.backbone}, {first.path} of {first.backbone} or of other weights"
            )
    return first


def read_features(path: Path) -> FeatureTable:
    """Read a feature file, refusing what is damaged, out of bounds or does not go together."""
    _check_file(path)
    read = _read_npz if path.suffix == ".npz" else _read_safetensors
    table = read(path)
    if "checksum" in table.metadata and table.metadata["checksum"] != table.checksum():
        _fail(path, "its checksum is wrong: the file is damaged")
    return table


def write_features(path: Path, table: FeatureTable) -> None:
    """Write a feature file with its checksum; it appears when it is whole."""
    check_suffix(path)
    metadata = {**table.metadata, "checksum": table.checksum()}
    make_folder(path.parent)
    with partial_file(path) as partial:
        if path.suffix == ".npz":
            with partial.open("wb") as file:
                np.savez(
                    file,
                    features=table.features_ND,
                    labels=table.labels_N,
                    splits=np.array(table.split_names)[table.splits_N],
                    class_names=np.array(table.class_names),
                    metadata=np.array(json.dumps(metadata)),
                )
        else:
            from safetensors.numpy import save

            arrays = {"features": table.features_ND, "labels": table.labels_N, "splits": table.splits_N}
            texts = {"class_names": table.class_names, "split_names": table.split_names, "metadata": metadata}
            # `save_file` of safetensors makes a file that nobody else may read
            partial.write_bytes(save(arrays, {key: json.dumps(value) for key, value in texts.items()}))


def check_suffix(path: Path) -> None:
    """Refuse a name that is not that of a feature file."""
    if path.suffix not in FEATURE_SUFFIXES:
        raise BadInputError(f"{path}: a feature file ends in {' or '.join(FEATURE_SUFFIXES)}")


def _check_file(path: Path) -> None:
    check_suffix(path)
    try:
        status = path.stat()
    except OSError as error:
        raise MissingDataError(f"{path} cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        _fail(path, "a folder, pipe or device, not a feature file")
    check_memory(2 * status.st_size, f"reading the features in {path}")


def _read_npz(path: Path) -> FeatureTable:
    with foreign(str(path), "not a .npz file of plain arrays"), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        _check_names(path, names, _ARRAYS)
        needed = 0
        for name in {*_ARRAYS, "metadata"} & set(names):
            needed += _stored_bytes(archive, name)
        check_memory(2 * needed, f"reading the features in {path}")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in _ARRAYS}
            metadata = json.loads(str(arrays["metadata"])) if "metadata" in names else {}
    for name in ("splits", "class_names"):
        if found[name].ndim != 1 or found[name].dtype.kind != "U":
            _fail(
                path, f"{name} is {found[name].dtype} of shape {found[name].shape}; expected a row of texts"
            )
    split_names, splits = np.unique(found["splits"], return_inverse=True)
    names_of_splits, names_of_classes = split_names.tolist(), found["class_names"].tolist()
    return _table(
        path, found["features"], found["labels"], splits, names_of_classes, names_of_splits, metadata
    )


def _stored_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes of an array in a .npz file, its header compared with the size that the zip states."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise ValueError(f"{name} has version {version} of the .npy form")
        shape, _, dtype = readers[version](file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or file.tell() + size != entry.file_size:
            raise ValueError(f"{name} is not a whole array of numbers or texts")
    return size


def _read_safetensors(path: Path) -> FeatureTable:
    from safetensors import safe_open

    with foreign(str(path), "not a safetensors file"), safe_open(path, framework="pt", device="cpu") as file:
        _check_names(path, list(file.keys()), ("features", "labels", "splits"))
        features = file.get_tensor("features")
        if features.is_floating_point():  # NumPy has no bfloat16
            features = features.float()
        labels, splits = (file.get_tensor(name).numpy() for name in ("labels", "splits"))
        texts = file.metadata() or {}
    _check_names(path, list(texts), ("class_names", "split_names"), "metadata")
    with foreign(str(path), "its metadata is not JSON"):
        classes, split_names, metadata = (
            json.loads(texts.get(key, "{}")) for key in ("class_names", "split_names", "metadata")
        )
    for key, names in (("class_names", classes), ("split_names", split_names)):
        if not isinstance(names, list):
            _fail(path, f"{key} is no list of names")
    return _table(path, features.numpy(), labels, splits, classes, split_names, metadata)


def _table(
    path: Path,
    features: np.ndarray,
    labels: np.ndarray,
    splits: np.ndarray,
    class_names: list[Any],
    split_names: list[Any],
    metadata: Any,
) -> FeatureTable:
    """Check what was read and bring it to one form."""
    if features.ndim != 2 or features.dtype.kind != "f":
        _fail(
            path, f"features are {features.dtype} of shape {features.shape}; expected floats, images x width"
        )
    count, width = features.shape
    if count == 0 or not 1 <= width <= MAX_WIDTH:
        _fail(
            path,
            f"{count:,} features {width:,} wide; expected 1 image or more, and a width of 1 to {MAX_WIDTH:,}",
        )
    for what, numbers, names in (("label", labels, class_names), ("split", splits, split_names)):
        if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
            found = f"{what}s of shape {numbers.shape}, {numbers.dtype}"
            _fail(path, f"{count:,} features and {found}; expected {count:,} integers")
        outside = np.flatnonzero((numbers < 0) | (numbers >= len(names)))
        if len(outside):
            row = int(outside[0])
            there = f"there are {len(names):,} {what} names"
            _fail(path, f"{what} {numbers[row]} in row {row} is out of range: {there}")
        _check_texts(path, what, names)
    if not isinstance(metadata, dict):
        _fail(path, "its metadata is no JSON object")
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(features, dtype=np.float32)
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        _fail(path, f"the features in row {int(np.flatnonzero(~finite)[0])} are not finite numbers")
    names_N = np.array([SPLIT_FOLDERS.get(name.lower(), name) for name in split_names])[splits]
    return FeatureTable.of(features, labels, names_N, class_names, metadata)


def _check_texts(path: Path, what: str, names: list[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_TEXT or not name.isprintable():
            _fail(
                path,
                f"{str(name)[:40]!r} cannot be the name of a {what}: expected 1 to {MAX_TEXT} printable characters",
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        _fail(path, f"the {what} name {twice!r} is there twice")


def _check_names(path: Path, found: Sequence[str], needed: Sequence[str], what: str = "array") -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        _fail(path, f"has no {what} {missing[0]!r}; expected {', '.join(needed)}")


def _by_class(table: FeatureTable) -> tuple[FeatureTable, dict[tuple[str, str], np.ndarray]]:
    """Split and class -> its rows, in the order of the file; splits in their usual order, classes by label."""
    usual = [*dict.fromkeys(SPLIT_FOLDERS.values()), "all"]
    known = [name for name in usual if name in table.split_names]
    rows: dict[tuple[str, str], np.ndarray] = {}
    for split in (*known, *(name for name in table.split_names if name not in usual)):
        here = np.flatnonzero(table.splits_N == table.split_names.index(split))
        by_label = here[np.argsort(table.labels_N[here], kind="stable")]
        labels, starts = np.unique(table.labels_N[by_label], return_index=True)
        for label, part in zip(labels.tolist(), np.split(by_label, starts[1:]), strict=True):
            rows[split, table.class_names[label]] = part
    return table, rows


def _fail(path: Path, problem: str) -> NoReturn:
    raise BadInputError(f"{path}: {problem}")
