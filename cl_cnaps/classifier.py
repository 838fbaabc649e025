"""A few-shot classifier for your own images: a scikit-learn estimator that goes on learning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from cl_cnaps.calibration import Calibration, calibrate, temperature_unit
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.mahalanobis import squared_distances
from cl_cnaps.image_inputs import ImageInput, labelled_pictures, pictures, pixels
from cl_cnaps.models.loading import LoadedModel, features_model, load_model
from cl_cnaps.predictions import UNKNOWN, Prediction

load = load_model

_AT_ONCE = 256  # images read and embedded together


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
    covariance : the shared part of a class's covariance is of all classes learned (seen: the order of learning makes no
        difference), or of those that were learned with it (task)
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
    """Numbers of the classes that have images, which the memory knows them by."""
    classes_: np.ndarray

    def __init__(
        self,
        model: str | LoadedModel = "simple",
        *,
        input: Literal["images", "features"] = "images",
        encoding: str = "first",
        covariance: Literal["seen", "task"] = "seen",
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
        self.covariance = covariance
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
        names, declared = labels.tolist(), set() if classes is None else set(np.asarray(classes).tolist())
        if classes is not None and (absent := sorted(set(names) - declared, key=str)):
            raise BadInputError(f"y has labels that are not in classes: {absent[0]!r}")
        loaded, continual = self._new_model(inputs) if first else (self.loaded_, self.continual_)
        known = set() if first else set(self.classes_.tolist())
        classes_ = _sorted_classes(known | declared | set(names), labels.dtype)
        label_ids = {} if first else dict(self.label_ids_)
        following = max(label_ids.values(), default=-1) + 1
        for label in (label for label in dict.fromkeys(names) if label not in label_ids):
            label_ids[label], following = following, following + 1
        ids = torch.tensor([label_ids[label] for label in names])
        images = self._pixels(inputs, continual)
        query = None if unlabelled is None else self._pixels(pictures(unlabelled), continual)
        if query is None and continual.model.uses_queries_to_encode:
            query = images
        features = continual.learn(images, ids, len(continual.classes_of_task), query)
        calibration = calibrate(continual, features, ids, known_features=self.input == "images")
        self.calibration_ = calibration if first else self.calibration_.merged(calibration)
        self.loaded_, self.continual_ = loaded, continual
        self.label_ids_, self.classes_ = label_ids, classes_
        return self

    def forget(self, label: Any) -> FewShotClassifier:
        """Take one class out; with `covariance="task"`, what it gave to the classes learned with it stays."""
        check_is_fitted(self)
        label = label.item() if isinstance(label, np.generic) else label
        if label not in self.classes_.tolist():
            raise BadInputError(
                f"there is no class {label!r} to forget; there are {_listed(self.classes_.tolist())}"
            )
        if [label] == list(self.label_ids_):
            raise BadInputError(f"{label!r} is the only class: make a new classifier instead")
        if label in self.label_ids_:
            key, continual = ClassKey(-1, self.label_ids_.pop(label)), self.continual_
            continual.memory = continual.memory.without(key)
            continual.classes_of_task = {
                task: tuple(k for k in keys if k != key) for task, keys in continual.classes_of_task.items()
            }
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
        labels = np.asarray(self.classes_[probabilities.argmax(axis=1)])
        if unknown is None:
            return labels
        if labels.dtype.kind != "U":
            labels = labels.astype(object)
        return np.where(
            is_unknown, np.array(UNKNOWN, dtype=None if labels.dtype.kind == "U" else object), labels
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities, images x classes, in the order of `classes_`."""
        return self._answers(X, None)[0]

    def predictions(self, X: Any, *, unknown: float | None = None) -> list[Prediction]:
        """Return the answer for every image, with its name and probabilities; the arguments are those of `predict`."""
        if self.input == "images":
            X = pictures(X)
        names = [picture.name for picture in X] if self.input == "images" else map(str, range(len(X)))
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
        probabilities = np.zeros((len(features), len(self.classes_)))
        is_unknown = np.zeros(len(features), dtype=bool)
        if not len(features):
            return probabilities, is_unknown
        logits = self.continual_.logits(features, self.known_keys, covered=False).double()
        columns = np.isin(self.classes_, np.array(self.known_classes, dtype=self.classes_.dtype))
        probabilities[:, columns] = (
            torch.softmax(logits / self.temperature_for(len(features)), dim=1).cpu().numpy()
        )
        if limit is not None:
            distances = (
                -logits  # which they are, where others are not computed
                if self.shortlist is not None
                else squared_distances(self.continual_.gaussians(self.known_keys), features)
            )
            is_unknown = (distances.amin(dim=1) > limit).cpu().numpy()
        return probabilities, is_unknown

    @property
    def known_classes(self) -> list[Any]:
        """The classes that have images, in the order of `classes_`."""
        return [label for label in self.classes_.tolist() if label in self.label_ids_]

    @property
    def known_keys(self) -> list[ClassKey]:
        """How the memory calls them."""
        return [ClassKey(-1, self.label_ids_[label]) for label in self.known_classes]

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
            found, labels = validate_data(self, X, y, reset=first, dtype=np.float64)
        elif self.input == "images":
            found, labels = labelled_pictures(X, y)
        else:
            raise BadInputError(f"input is images or features, not {self.input!r}")
        check_classification_targets(labels)
        return found, np.asarray(labels)

    def _new_model(self, inputs: Any) -> tuple[LoadedModel | None, ContinualCnaps]:
        config = self.continual_config
        chosen = self._given("metric", "variant", "beta")
        if self.input == "features":
            if not isinstance(self.model, str):
                raise BadInputError("features come without a network: give the name of a model")
            return None, ContinualCnaps(features_model(self.model, inputs.shape[1], **chosen), config)
        loading = self._given("weights", "backbone", "adaptation", "image_size")
        loaded = self.model
        if isinstance(loaded, str):
            where = {"backbone_weights": self.backbone_weights, "seed": self.seed, "device": self.device}
            loaded = load_model(loaded, **where, **loading, **chosen)  # type: ignore[arg-type]
        elif loading or chosen:
            raise BadInputError(
                f"a loaded model was given, so {', '.join((*loading, *chosen))} cannot be chosen any more"
            )
        return loaded, ContinualCnaps(loaded.model, config)

    @property
    def continual_config(self) -> ContinualConfig:
        """How classes are kept and compared."""
        return ContinualConfig(
            self.encoding, covariance=self.covariance, memory_rank=self.memory_rank, shortlist=self.shortlist
        )

    def _given(self, *names: str) -> dict[str, Any]:
        """Those of some parameters that are not left open."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _pixels(self, inputs: Any, continual: ContinualCnaps) -> Tensor:
        if self.input == "features":
            return torch.tensor(inputs)
        return pixels(inputs, continual.model.backbone.info.image_size)

    def _features(self, X: Any) -> Tensor:
        continual = self.continual_
        if self.input == "features":
            return continual.embed(torch.tensor(validate_data(self, X, reset=False, dtype=np.float64)))
        found = pictures(X)
        parts = [
            continual.embed(self._pixels(found[i : i + _AT_ONCE], continual))
            for i in range(0, len(found), _AT_ONCE)
        ]
        return torch.cat(parts) if parts else torch.empty(0, continual.model.backbone.info.width)

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


def _sorted_classes(labels: set[Any], dtype: np.dtype) -> np.ndarray:
    try:
        return np.array(sorted(labels), dtype=None if dtype.kind == "U" else dtype)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"labels of several kinds cannot be classes together: {_listed(list(labels))}"
        ) from error


def _positive(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and 0 < float(value) < float("inf")


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
