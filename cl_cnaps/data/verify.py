"""Opening every image of a source, and comparing its counts with what should be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.conversion import images_by_class
from cl_cnaps.data.records import class_labels
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.spec import DatasetSpec, matched
from cl_cnaps.errors import ClCnapsError


@dataclass(frozen=True)
class Difference:
    """A class or split that has another number of images than it should have."""

    what: str
    found: int
    expected: int


@dataclass(frozen=True)
class Verification:
    """What came of opening everything."""

    good: Mapping[str, Mapping[str, int]]
    """Split -> class -> images that could be opened."""

    bad: tuple[str, ...]
    """What is wrong with each of the others; names the file."""

    differences: tuple[Difference, ...]

    @property
    def images(self) -> int:
        """Images that could be opened."""
        return sum(sum(classes.values()) for classes in self.good.values())

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "images": self.images,
            "bad": self.bad,
            "differences": [[d.what, d.found, d.expected] for d in self.differences],
            "counts": self.good,
        }


def verify(
    source: CountedSource,
    spec: DatasetSpec | None = None,
    *,
    splits: Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Decode every image. Counts are compared with `spec` if given, else with the published ones.

    With `spec`, `splits` are those of the source that its counts are of, if not all.
    `progress` is called with the number of images opened since the last call.
    """
    good: dict[str, dict[str, int]] = {}
    bad: dict[str, None] = {}  # in order, each once: a damaged record file spoils all its images the same way
    for split in source.splits:
        good[split] = {}
        for class_name in source.classes(split):
            count = source.count(split, class_name)
            good[split][class_name] = 0
            for index in range(count):
                try:
                    if source.feature_width is None:  # features were all checked when the file was opened
                        source.image(split, class_name, index)
                    good[split][class_name] += 1
                except ClCnapsError as error:
                    bad[str(error)] = None
            progress(count)
    differences = (
        _from_spec(images_by_class(source, splits), spec, good)
        if spec is not None
        else _from_published(source, good)
    )
    return Verification(good, tuple(bad), tuple(differences))


def _from_spec(
    pieces: Mapping[str, list[tuple[str, int]]], spec: DatasetSpec, good: Mapping[str, Mapping[str, int]]
) -> list[Difference]:
    labels = class_labels(spec)
    matches = matched(labels, list(pieces))
    found = {i: sum(good[split][name] for split, _ in pieces[name]) for i, name in matches.items()}
    wanted = [Difference(label, found.get(i, 0), spec.images(i)) for i, label in enumerate(labels)]
    extra = [name for name in pieces if name not in matches.values()]
    unwanted = [Difference(name, sum(count for _, count in pieces[name]), 0) for name in extra]
    return [difference for difference in (*wanted, *unwanted) if difference.found != difference.expected]


def _from_published(source: CountedSource, good: Mapping[str, Mapping[str, int]]) -> list[Difference]:
    known = known_set(source.name)
    if known is None or source.complete:
        return []
    if set(known.official) != set(good):
        found = sum(sum(classes.values()) for classes in good.values())
        expected = sum(images for _, images in known.official.values())
        rows = [Difference("images", found, expected)]
    else:
        rows = []
        for split, (classes, images) in known.official.items():
            rows.append(Difference(f"{split} classes", len(good[split]), classes))
            rows.append(Difference(f"{split} images", sum(good[split].values()), images))
    return [row for row in rows if row.found != row.expected]
