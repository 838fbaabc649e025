"""What a backbone, or an adaptation, may have seen of a data set's test classes before it was asked about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.records import RecordSource
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet
from cl_cnaps.models.loading import TrainedOn


@dataclass(frozen=True)
class Overlap:
    """Whether test classes were among those that were trained on (of a backbone: most or all); and in words."""

    seen: bool
    words: str


_IMAGENET = {
    "ilsvrc_2012": "all test classes are ImageNet-1k classes, and their images its training images",
    "mini-imagenet": "all test classes are ImageNet-1k classes, and their images its training images",
    "tiered-imagenet": "all test classes are ImageNet-1k classes, and their images its training images",
    "cifar10": "all classes but deer have ImageNet-1k classes of their kind",
    "cifar100": "most classes have ImageNet-1k classes of their kind",
    "cu_birds": "ImageNet-1k has 59 classes of birds, some of the same species, and shares some photos",
    "mscoco": "most classes have ImageNet-1k classes of their kind",
    "aircraft": "ImageNet-1k tells airliners from warplanes, not models of them",
    "vgg_flower": "ImageNet-1k has two classes of flowers, daisy and yellow lady's slipper",
    "fungi": "ImageNet-1k has seven classes of fungi",
    "traffic_sign": "ImageNet-1k has one class of street signs",
    "quickdraw": "many classes are things of ImageNet-1k, which has photos of them, not drawings",
    "dtd": "no class is an ImageNet-1k class, though some of its things have such textures",
    "omniglot": "none, as ImageNet-1k has no characters",
    "mnist": "none, as ImageNet-1k has no digits",
    "glyphs": "none, as ImageNet-1k has no characters",
    "fashion-mnist": "some garments are ImageNet-1k classes",
}


_IMAGENETS = frozenset({"ilsvrc_2012", "mini-imagenet", "tiered-imagenet"})
"""Different choices of the same classes."""

_SPECIFIED_BY_SPLIT = frozenset({"omniglot"})
"""Sets whose specification tests on the classes of their own split for testing."""

_SEEN = frozenset({"ilsvrc_2012", "mini-imagenet", "tiered-imagenet", "cifar10", "cifar100", "mscoco"})


def seen_in_pretraining(data_set: str, pretraining: str) -> Overlap:
    """What a backbone with this pre-training may have seen of a data set's test classes."""
    if pretraining == "none":
        return Overlap(False, "none, as the backbone was not pre-trained")
    if "imagenet" in pretraining.lower():
        unknown = "not known; compare the classes with those of ImageNet-1k"
        return Overlap(data_set in _SEEN, _IMAGENET.get(data_set, unknown))
    return Overlap(False, "not known")


def seen_in_training(
    data_set: str, tasks_of: EvaluationSet, trained_on: Mapping[str, TrainedOn] | None
) -> Overlap:
    """What an adaptation may have seen of a data set's test classes.

    Args:
        data_set: its name.
        tasks_of: its test classes.
        trained_on: which data sets the adaptation was trained on, by the names that its recipe has; None if that is
            not known.
    """
    if trained_on is None:
        return Overlap(False, "not known")
    if not trained_on:
        return Overlap(False, "none, as no adaptation was trained")
    by_name = {_source_name(name): trained for name, trained in trained_on.items()}
    if (trained := by_name.get(_source_name(data_set))) is not None:
        return _of_the_same_set(tasks_of, trained)
    related = sorted(_IMAGENETS & set(by_name)) if _source_name(data_set) in _IMAGENETS else []
    if related:
        return Overlap(False, f"not known; {' and '.join(related)}, of the same classes, was trained on")
    return Overlap(False, "none")


def _of_the_same_set(tasks_of: EvaluationSet, trained: TrainedOn) -> Overlap:
    classes = f"{trained.classes:,} of its classes"
    apart = Overlap(False, f"none of the test classes; {classes} that are not for testing were trained on")
    source = tasks_of.images.source
    if trained.split.isupper():  # of a specification
        if tasks_of.held_out and (tasks_of.by_specification or source.name in _SPECIFIED_BY_SPLIT):
            return apart
        if tasks_of.held_out:
            return Overlap(False, f"not known; {classes} were trained on, chosen by a specification")
        return Overlap(True, f"{classes} were trained on, and none are kept apart for testing")
    if isinstance(source, RecordSource) or trained.split not in source.splits:
        return Overlap(False, f"not known; {classes} were trained on, of a split {trained.split}")
    seen = set(source.classes(trained.split))
    tested = sum(
        any(piece.class_name in seen for piece in pieces) for pieces in tasks_of.images.pieces.values()
    )
    if tested:
        return Overlap(True, f"{tested:,} of the test classes, among {classes} that were trained on")
    return apart


def _source_name(name: str) -> str:
    """How a data set is called, whichever way it was asked for."""
    kind, colon, path = name.partition(":")
    if colon and kind in ("folder", "records"):
        return Path(path).stem
    known = known_set(name)
    return known.name if known else name
