"""A few-shot classifier for a person's own images: a scikit-learn estimator that goes on learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from cl_cnaps.calibration import Calibration, calibrate, temperature_unit
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig, Covariance
from cl_cnaps.continual.memory import ClassKey, ClassMemory
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.mahalanobis import squared_distances
from cl_cnaps.image_inputs import ImageInput, pictures, pixels
from cl_cnaps.labelled_folders import labelled_folder
from cl_cnaps.models.given_features import features_model
from cl_cnaps.models.loading import LoadedModel, load_model

load = load_model

UNKNOWN = "unknown"
"""The answer for an image that is unlike every class."""

_AT_ONCE = 256  # images read and embedded together


@dataclass(frozen=True)
class Prediction:
    """The answer for one image."""

    name: str
    """The image's file, below the folder that was given, or its number."""
    label: Any
    """A class, or "unknown"."""
    probability: float
    """Of the most probable class."""
    probabilities: dict[Any, float]


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns classes from a few images of each, and more classes or more images later, without the old images.

    >>> classifier = FewShotClassifier.learn("photos/labelled")  # one folder per class, or a zip  # doctest: +SKIP
    >>> classifier.predict("photos/new")  # doctest: +SKIP
    array(['cat', 'dog', 'cat'], dtype='<U3')

    Parameters
    ----------
    model : name, simple (the default), transductive, cnaps or protonet, or what `cl_cnaps.load` returned
    input : images, in all forms of `image_inputs.ImageInput`, or features, N x D
    encoding : which task encoding adapts the features along several fits: first, moving or averaging
    temperature : calibrated on the support images, learned in meta-training, or a number
    memory_rank : most directions that are kept of a class's scatter; all if not given
    shortlist : for very many classes: score only so many exactly, those with the nearest means, under the covariance of
        all classes seen; others have probability 0
    weights, backbone, backbone_weights, adaptation, image_size, metric, variant, beta, seed, device :
        as of `cl_cnaps.load`

    Attributes
    ----------
    classes_ : the classes, sorted
    counts_ : images learned of each
    """

    continual_: ContinualCnaps
    loaded_: LoadedModel | None
    calibration_: Calibration
    label_ids_: dict[Any, int]
    declared_: set[Any]
    classes_: np.ndarray

    def __init__(
        self,
        model: str | LoadedModel = "simple",
        *,
        input: Literal["images", "features"] = "images",
        encoding: str = "first",
        temperature: Literal["calibrated", "learned"] | float = "calibrated",
        memory_rank: int | None = None,
        shortlist: int | None = None,
        weights: str | Path | None = None,
        backbone: str | None = None,
        backbone_weights: str = "auto",
        adaptation: Literal["film", "none"] | None = None,
        image_size: int | None = None,
        metric: str | None = None,
        variant: str | None = None,
        beta: float | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.input = input
        self.encoding = encoding
        self.temperature = temperature
        self.memory_rank = memory_rank
        self.shortlist = shortlist
        self.weights = weights
        self.backbone = backbone
        self.backbone_weights = backbone_weights
        self.adaptation = adaptation
        self.image_size = image_size
        self.metric = metric
        self.variant = variant
        self.beta = beta
        self.seed = seed
        self.device = device

    @classmethod
    def learn(
        cls, folder: str | Path, *, unlabelled: ImageInput | None = None, **parameters: Any
    ) -> FewShotClassifier:
        """Learn the classes of a folder (or zip) that has one folder of images per class."""
        return cls(**parameters).fit(folder, unlabelled=unlabelled)

    # Learning.

    def fit(self, X: Any, y: Any = None, *, unlabelled: ImageInput | None = None) -> FewShotClassifier:
        """Learn from labelled images, and nothing else.

        Args:
            X: the images, in any form; features if `input="features"`.
            y: their labels; may be left out where X is a folder or zip with one folder per class.
            unlabelled: images of the kind to be predicted, which the encoding of the transductive model reads too; the
                labelled ones if not given.
        """
        return self._learn(X, y, None, unlabelled, first=True)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, unlabelled: ImageInput | None = None
    ) -> FewShotClassifier:
        """Learn more: new classes are added, new images of known classes merged with the old by count.

        Args:
            X: as for `fit`.
            y: as for `fit`.
            classes: labels that will come; those without images have probability 0 until then.
            unlabelled: as for `fit`.
        """
        return self._learn(X, y, classes, unlabelled, first=not hasattr(self, "continual_"))

    @torch.no_grad()
    def _learn(
        self, X: Any, y: Any, classes: Any, unlabelled: ImageInput | None, *, first: bool
    ) -> FewShotClassifier:
        if self.temperature not in ("calibrated", "learned") and not _positive(self.temperature):
            raise BadInputError(
                f"temperature is calibrated, learned or a positive number, not {self.temperature!r}"
            )
        inputs, labels = self._labelled(X, y, first)
        if first:
            loaded, continual = self._new_model(inputs)
            label_ids: dict[Any, int] = {}
            declared: set[Any] = set()
        else:
            loaded, continual = self.loaded_, self.continual_
            label_ids, declared = dict(self.label_ids_), set(self.declared_)
        declared |= set(labels.tolist()) | (set() if classes is None else set(np.asarray(classes).tolist()))
        if classes is not None and not set(labels.tolist()) <= set(np.asarray(classes).tolist()):
            absent = sorted(set(labels.tolist()) - set(np.asarray(classes).tolist()), key=str)
            raise BadInputError(f"y has labels that are not in classes: {absent[0]!r}")
        classes_ = _sorted_classes(declared, labels.dtype)
        for label in labels.tolist():
            label_ids.setdefault(label, len(label_ids))
        ids = torch.tensor([label_ids[label] for label in labels.tolist()])
        images = self._pixels(inputs, continual)
        query = None if unlabelled is None else self._pixels(pictures(unlabelled), continual)
        if query is None and continual.model.uses_queries_to_encode:
            query = images
        features = continual.learn(images, ids, len(continual.classes_of_task), query)
        _, position = torch.unique(ids, return_inverse=True)
        new = calibrate(
            continual.model,
            features,
            position.to(features.device),
            int(position.max()) + 1,
            known_features=self.input == "images",
        )
        self.calibration_ = new if first else self.calibration_.merged(new)
        self.loaded_, self.continual_ = loaded, continual
        self.label_ids_, self.declared_ = label_ids, declared
        self.classes_ = classes_
        return self

    def forget(self, label: Any) -> FewShotClassifier:
        """Take one class out; the covariance that it shares with the classes of its task stays."""
        check_is_fitted(self)
        label = label.item() if isinstance(label, np.generic) else label
        if label not in self.declared_:
            raise BadInputError(
                f"there is no class {label!r} to forget; there are {_listed(self.classes_.tolist())}"
            )
        if len(self.label_ids_) == 1 and label in self.label_ids_:
            raise BadInputError(f"{label!r} is the only class: make a new classifier instead")
        if label in self.label_ids_:
            key = ClassKey(-1, self.label_ids_.pop(label))
            continual = self.continual_
            continual.memory = _without(continual.memory, key)
            continual.classes_of_task = {
                task: tuple(k for k in keys if k != key) for task, keys in continual.classes_of_task.items()
            }
        self.declared_.remove(label)
        self.classes_ = self.classes_[self.classes_ != label]
        return self

    # Answering.

    def predict(self, X: Any, *, unknown: float | None = None) -> np.ndarray:
        """Return the most probable class of every image.

        Args:
            X: images in any form; features if `input="features"`.
            unknown: answer "unknown" where an image is further from all classes than this part of the training images
                was when left out, such as 0.95.
        """
        probabilities, is_unknown = self._answers(X, unknown)
        labels = self.classes_[probabilities.argmax(axis=1)]
        if unknown is None:
            return np.asarray(labels)
        if labels.dtype.kind != "U":
            labels = labels.astype(object)
        return np.where(
            is_unknown, np.array(UNKNOWN, dtype=labels.dtype if labels.dtype == object else None), labels
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities, images x classes, in the order of `classes_`."""
        return self._answers(X, None)[0]

    def predictions(self, X: Any, *, unknown: float | None = None) -> list[Prediction]:
        """Return the answer for every image, with its name and probabilities; the arguments are those of `predict`."""
        names = [str(i) for i in range(len(X))] if self.input == "features" else [p.name for p in pictures(X)]
        probabilities, is_unknown = self._answers(X, unknown)
        classes = self.classes_.tolist()
        return [
            Prediction(
                name,
                UNKNOWN if outside else classes[int(row.argmax())],
                float(row.max()),
                dict(zip(classes, row.tolist(), strict=True)),
            )
            for name, row, outside in zip(names, probabilities, is_unknown, strict=True)
        ]

    @torch.no_grad()
    def _answers(self, X: Any, unknown: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities images x classes_, and which images are unlike every class."""
        check_is_fitted(self)
        limit = None if unknown is None else self._limit(unknown)
        features = self._features(X)
        known = [label for label in self.classes_.tolist() if label in self.label_ids_]
        keys = [ClassKey(-1, self.label_ids_[label]) for label in known]
        probabilities = np.zeros((len(features), len(self.classes_)))
        is_unknown = np.zeros(len(features), dtype=bool)
        if not len(features):
            return probabilities, is_unknown
        logits = self.continual_.logits(features, keys, covered=False).double()
        columns = np.searchsorted(self.classes_, np.array(known, dtype=self.classes_.dtype))
        probabilities[:, columns] = (
            torch.softmax(logits / self.temperature_for(len(features)), dim=1).cpu().numpy()
        )
        if limit is not None:
            if self.shortlist is not None:  # logits are negative distances
                nearest = -logits[None].amax(dim=2)
            else:
                nearest = torch.stack(
                    [
                        squared_distances(g.gaussians, features).amin(dim=1)
                        for g in self.continual_.memory.groups
                    ]
                )
            is_unknown = (nearest.amin(dim=0) > limit).cpu().numpy()
        return probabilities, is_unknown

    def temperature_for(self, queries: int) -> float:
        """Return what logits are divided by; where classes are refined, the number of images to predict counts."""
        check_is_fitted(self)
        model = self.continual_.model
        if self.temperature == "learned":
            return float(model.temperature.detach())
        if self.temperature != "calibrated":
            return float(self.temperature)
        counts = self.counts_
        return self.calibration_.scale * temperature_unit(model, len(counts), sum(counts.values()), queries)

    @property
    def counts_(self) -> dict[Any, int]:
        """Images learned of each class."""
        counts = {
            key.label: round(count)
            for group in self.continual_.memory.groups
            for key, count in zip(group.keys, group.gaussians.counts_K.tolist(), strict=True)
        }
        return {label: counts[i] for label, i in self.label_ids_.items()}

    def _limit(self, unknown: float) -> float:
        if not 0 < unknown < 1:
            raise BadInputError(f"unknown is a part of the training images between 0 and 1, not {unknown}")
        if not self.calibration_.nearest:
            raise BadInputError(
                "unknown needs classes with two or more images, and Mahalanobis distances (the models simple and "
                "transductive): there is nothing to compare a distance with"
            )
        return self.calibration_.threshold(unknown)

    # Inputs.

    def _labelled(self, X: Any, y: Any, first: bool) -> tuple[Any, np.ndarray]:
        if self.input == "features":
            features, labels = validate_data(self, X, y, reset=first, dtype=np.float64)
            check_classification_targets(labels)
            return features, np.asarray(labels)
        if self.input != "images":
            raise BadInputError(f"input is images or features, not {self.input!r}")
        if y is None:
            return labelled_folder(X)
        found = pictures(X)
        labels = np.asarray(y)
        if labels.shape != (len(found),):
            raise BadInputError(
                f"{len(found)} images and labels of shape {labels.shape}: one label an image is needed"
            )
        if not len(found):
            raise BadInputError("there are no images to learn from")
        check_classification_targets(labels)
        return found, labels

    def _new_model(self, inputs: Any) -> tuple[LoadedModel | None, ContinualCnaps]:
        config = self.continual_config
        chosen = {
            name: getattr(self, name)
            for name in ("metric", "variant", "beta")
            if getattr(self, name) is not None
        }
        if self.input == "features":
            if not isinstance(self.model, str):
                raise BadInputError("features come without a network: give the name of a model")
            return None, ContinualCnaps(features_model(self.model, inputs.shape[1], **chosen), config)
        loading = {
            name: getattr(self, name)
            for name in ("weights", "backbone", "adaptation", "image_size")
            if getattr(self, name) is not None
        }
        if not isinstance(self.model, str):
            if loading or chosen:
                raise BadInputError(
                    f"a loaded model was given, so {', '.join((*loading, *chosen))} cannot be chosen any more"
                )
            return self.model, ContinualCnaps(self.model.model, config)
        loaded = load_model(
            self.model,  # type: ignore[arg-type]
            backbone_weights=self.backbone_weights,
            seed=self.seed,
            device=self.device,
            **loading,
            **chosen,
        )
        return loaded, ContinualCnaps(loaded.model, config)

    @property
    def continual_config(self) -> ContinualConfig:
        """How classes are kept: with the covariance of their calibration, unless a shortlist needs one for all."""
        covariance: Covariance = "task" if self.shortlist is None else "seen"
        return ContinualConfig(
            self.encoding, covariance=covariance, memory_rank=self.memory_rank, shortlist=self.shortlist
        )

    def _pixels(self, inputs: Any, continual: ContinualCnaps) -> Tensor:
        if self.input == "features":
            return torch.tensor(inputs)
        return pixels(inputs, continual.model.backbone.info.image_size)

    def _features(self, X: Any) -> Tensor:
        if self.input == "features":
            rows = validate_data(self, X, reset=False, dtype=np.float64)
            return self.continual_.embed(torch.tensor(rows))
        found = pictures(X)
        parts = [
            self.continual_.embed(self._pixels(found[i : i + _AT_ONCE], self.continual_))
            for i in range(0, len(found), _AT_ONCE)
        ]
        return torch.cat(parts) if parts else torch.empty(0, self.continual_.model.backbone.info.width)

    # Keeping.

    def save(self, path: str | Path) -> Path:
        """Write everything that was learned to one .safetensors file, without the network; see `load`."""
        from cl_cnaps.classifier_files import save_classifier

        return save_classifier(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, weights: str | Path | None = None, device: str = "auto"
    ) -> FewShotClassifier:
        """Read a file that `save` wrote; `weights` is the weight file it needs, if that is not in the usual folder."""
        from cl_cnaps.classifier_files import load_classifier

        return load_classifier(cls, Path(path), weights, device)

    def export(self, path: str | Path) -> Path:
        """Write network and classes as one ONNX graph, from uint8 images to probabilities; needs the extra `onnx`."""
        from cl_cnaps.onnx_export import export_onnx

        check_is_fitted(self)
        return export_onnx(self, Path(path))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        kind = self.model if isinstance(self.model, str) else self.model.model.name
        if not hasattr(self, "continual_"):
            return f"FewShotClassifier(model={kind!r}, input={self.input!r}): nothing learned yet"
        counts = self.counts_
        return (
            f"FewShotClassifier(model={kind!r}, input={self.input!r}): {len(counts)} classes "
            f"({_listed(sorted(counts))}) of {sum(counts.values())} {self.input}"
        )


def _without(memory: ClassMemory, key: ClassKey) -> ClassMemory:
    groups = []
    for group in memory.groups:
        rest = [i for i, own in enumerate(group.keys) if own != key]
        if rest:
            groups.append(group if len(rest) == len(group.keys) else group.select(rest))
    return ClassMemory(tuple(groups), memory.within_RD, memory.rank)


def _sorted_classes(labels: set[Any], dtype: np.dtype) -> np.ndarray:
    try:
        return np.array(sorted(labels), dtype=None if dtype.kind == "U" else dtype)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"labels of several kinds cannot be classes together: {_listed(list(labels))}"
        ) from error


def _positive(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and 0 < float(value) < float("inf")


def _listed(names: Sequence[Any], shown: int = 5) -> str:
    return ", ".join(map(str, names[:shown])) + (", ..." if len(names) > shown else "")
