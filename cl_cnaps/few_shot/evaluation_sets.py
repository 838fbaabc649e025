"""Which classes of a source its tasks are drawn from, and how they are related.

By the first of these that applies:

1. Records: the test classes of their dataset_spec.json.
2. Folders and zips of a data set whose official specification is given: its test classes that have images.
3. The split that is for testing: `test` where there is one, of Omniglot the alphabets of `evaluation`, of traffic
   signs the training images, as in Meta-Dataset. Without such a split: all classes.

Where fewer than five test classes of a specification have images, all classes that have images are taken; what
was taken is in every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_cnaps.data.catalog import KnownSet, known_set
from cl_cnaps.data.conversion import images_by_class, record_splits
from cl_cnaps.data.records import RecordSource, class_labels
from cl_cnaps.data.registry import SPEC_FILE
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.spec import DatasetSpec, find_spec, matched, read_spec, subset
from cl_cnaps.episodes import ClassTable, SplitSpec
from cl_cnaps.episodes.episode_images import EpisodeImages, Piece
from cl_cnaps.episodes.spec import sampling_split
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.models.loading import TrainedOn

FEWEST_CLASSES = 5
"""The least ways of a Meta-Dataset task."""
_FEWEST_IMAGES = 2
"""One for support, one for query."""

Pieces = dict[str, list[Piece]]


@dataclass(frozen=True)
class EvaluationSet:
    """Classes, their relations and their images: all that tasks of one data set are made of."""

    images: EpisodeImages
    classes: SplitSpec
    chosen: str
    """Which classes these are, and by which rule, in words."""
    held_out: bool
    """Whether no class that is not for testing is among these."""
    by_specification: bool = False
    """Whether a specification decides which these are, and not the data set's own splits."""

    @property
    def name(self) -> str:
        """Name of the source."""
        return self.images.name


def evaluation_set(
    source: CountedSource, *, specs: Path | None = None, spec_name: str | None = None
) -> EvaluationSet:
    """The classes of `source` that tasks are drawn from.

    `specs` is a folder of official specifications (NAME_dataset_spec.json, or NAME/dataset_spec.json). `spec_name`
    is for one of another name than the source's own, as for a stand-in.
    """
    known = known_set(source.name)
    if isinstance(source, RecordSource):
        pieces = _pieces(source, source.splits)
        return _by_specification(source, source.spec, source.spec, pieces, invert=False)
    wanted = spec_name or (known.spec if known else source.name)
    spec = find_specification(wanted, specs) if wanted and specs else None
    if spec is not None:
        found = _pieces(source, record_splits(source))
        found_as = matched(class_labels(spec), list(found))
        if not found_as:
            raise BadInputError(
                f"no class of {source.name} is one of the {len(spec.class_names):,} classes of the "
                f"specification {spec.name}"
            )
        there = subset(spec, {i: sum(part.count for part in found[name]) for i, name in found_as.items()})
        labels = dict(zip(class_labels(there), (found_as[i] for i in sorted(found_as)), strict=True))
        pieces = {label: found[name] for label, name in labels.items()}
        return _by_specification(source, spec, there, pieces, invert=_inverted(known))
    return _by_rule(source, known)


def find_specification(name: str, specs: Path) -> DatasetSpec | None:
    """The specification of a data set in a folder of them."""
    if not specs.is_dir():
        raise MissingDataError(f"{specs} is not a folder of Meta-Dataset specifications")
    if not any(specs.glob(f"*{SPEC_FILE}")) and not any(specs.glob(f"*/{SPEC_FILE}")):
        raise MissingDataError(
            f"{specs} has no Meta-Dataset specifications: no NAME_{SPEC_FILE}, and no NAME/{SPEC_FILE}"
        )
    file = find_spec(name, specs)
    return None if file is None else read_spec(file)


def _by_specification(
    source: CountedSource, official: DatasetSpec, there: DatasetSpec, pieces: Pieces, *, invert: bool
) -> EvaluationSet:
    """The test classes of a specification that has been restricted to what is there."""
    split, left_out = _usable(sampling_split(there, "TEST", tuple(class_labels(there))))
    held_out = len(split.classes) >= FEWEST_CLASSES
    names, test, all_test = official.name, len(there.classes["TEST"]), len(official.classes["TEST"])
    if not held_out:
        everything = ClassTable.of({label: sum(p.count for p in parts) for label, parts in pieces.items()})
        split, left_out = _usable(SplitSpec(everything))
        chosen = (
            f"all {len(split.classes):,} classes there, since only {test} of the {all_test} test classes of the "
            f"specification {names} are there and a task needs {FEWEST_CLASSES}"
        )
    elif test < all_test:
        chosen = f"{len(split.classes):,} of the {all_test:,} test classes of the specification {names}"
    else:
        chosen = f"the {len(split.classes):,} test classes of the specification {names}"
    return _made(
        source, pieces, split, chosen + left_out, invert=invert, held_out=held_out, by_specification=True
    )


def _by_rule(source: CountedSource, known: KnownSet | None) -> EvaluationSet:
    """The split that is for testing, or everything."""
    candidates = (known.record_split if known else None, "test", "evaluation")
    split = next((s for s in candidates if s is not None and s in source.splits), None)
    pieces = _pieces(source, source.splits if split is None else (split,))
    table = ClassTable.of({label: sum(p.count for p in parts) for label, parts in pieces.items()})
    groups: dict[str, tuple[str, ...]] | None = None
    if known is not None and known.name in ("omniglot", "glyphs"):
        alphabets: dict[str, list[str]] = {}
        for label in table.names:
            alphabets.setdefault(label.rpartition("/")[0], []).append(label)
        groups = {alphabet: tuple(labels) for alphabet, labels in alphabets.items()}
    usable, left_out = _usable(SplitSpec(table, groups=groups))
    others = {name for other in source.splits if other != split for name in source.classes(other)}
    held_out = split is not None and others.isdisjoint(source.classes(split))
    chosen = f"all {len(usable.classes):,} classes"
    if split is not None:
        chosen += f" of the split {split}"
    elif known is not None and known.spec is not None:
        chosen += ", without a specification that says which are for testing"
    return _made(source, pieces, usable, chosen + left_out, invert=_inverted(known), held_out=held_out)


def _made(
    source: CountedSource,
    pieces: Pieces,
    split: SplitSpec,
    chosen: str,
    *,
    invert: bool,
    held_out: bool,
    by_specification: bool = False,
) -> EvaluationSet:
    taken = {label: pieces[label] for label in split.classes.names}
    images = EpisodeImages(source, taken, invert=invert)
    return EvaluationSet(images, split, chosen, held_out, by_specification)


def _pieces(source: CountedSource, splits: tuple[str, ...]) -> Pieces:
    return {
        name: [Piece(split, name, count) for split, count in parts]
        for name, parts in images_by_class(source, splits).items()
    }


def _inverted(known: KnownSet | None) -> bool:
    """Whether Meta-Dataset shows a set's images with black and white exchanged, so that tasks do so too."""
    return known is not None and known.inverted_in_records


def _usable(split: SplitSpec) -> tuple[SplitSpec, str]:
    """Without classes too small for a task and groups with too few classes; and what that left out, in words."""
    sizes = dict(zip(split.classes.names, split.classes.sizes, strict=True))
    enough = {name: size for name, size in sizes.items() if size >= _FEWEST_IMAGES}
    small_groups = [
        group
        for group, names in (split.groups or {}).items()
        if sum(name in enough for name in names) < FEWEST_CLASSES
    ]
    for group in small_groups:
        for name in (split.groups or {})[group]:
            enough.pop(name, None)
    kept = split.restricted(enough)
    words = []
    if small := sum(size < _FEWEST_IMAGES for size in sizes.values()):
        words.append(f"{small:,} with fewer than {_FEWEST_IMAGES} images left out")
    if small_groups:
        words.append(f"{len(small_groups):,} groups with fewer than {FEWEST_CLASSES} classes left out")
    if kept.graph is not None and not kept.graph.eligible(FEWEST_CLASSES, len(kept.classes)):
        kept = SplitSpec(kept.classes)
        words.append("the class graph left out, which joins too few of them")
    return kept, "".join(f"; {word}" for word in words)


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
    """Return what a backbone with this pre-training may have seen of a data set's test classes."""
    if pretraining == "none":
        return Overlap(False, "none, as the backbone was not pre-trained")
    if "imagenet" in pretraining.lower():
        unknown = "not known; compare the classes with those of ImageNet-1k"
        return Overlap(data_set in _SEEN, _IMAGENET.get(data_set, unknown))
    return Overlap(False, "not known")


def seen_in_training(
    data_set: str, tasks_of: EvaluationSet, trained_on: Mapping[str, TrainedOn] | None
) -> Overlap:
    """Return what an adaptation may have seen of a data set's test classes.

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
    seen = set(source.classes(trained.split)) - trained.left_out
    tested = sum(
        any(piece.class_name in seen for piece in pieces) for pieces in tasks_of.images.pieces.values()
    )
    if tested:
        return Overlap(True, f"{tested:,} of the test classes, among {classes} that were trained on")
    return apart


def _source_name(name: str) -> str:
    """Return the name of a data set, whichever way it was given."""
    kind, colon, path = name.partition(":")
    if colon and kind in ("folder", "records"):
        return Path(path).stem
    known = known_set(name)
    return known.name if known else name
