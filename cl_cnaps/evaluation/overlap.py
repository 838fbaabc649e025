"""What a backbone, or an adaptation, may have seen of a data set's test classes before it was asked about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cl_cnaps.evaluation.evaluation_sets import EvaluationSet
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
    "fashion-mnist": "some garments are ImageNet-1k classes",
}


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
        data_set: its name, as training knows it.
        tasks_of: its test classes.
        trained_on: which data sets the adaptation was trained on; None if that is not known.
    """
    if trained_on is None:
        return Overlap(False, "not known")
    if data_set not in trained_on:
        return Overlap(False, "none" if trained_on else "none, as no adaptation was trained")
    trained = trained_on[data_set]
    classes = f"{trained.classes:,} of its classes"
    if trained.split in tasks_of.images.source.splits:
        theirs = sum(
            any(piece.split == trained.split for piece in pieces)
            for pieces in tasks_of.images.pieces.values()
        )
        if theirs:
            return Overlap(True, f"{theirs:,} of the test classes, among {classes} that were trained on")
    elif not tasks_of.held_out:
        return Overlap(True, f"{classes} were trained on, and none are kept apart for testing")
    return Overlap(False, f"none of the test classes; {classes} that are not for testing were trained on")
