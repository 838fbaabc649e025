"""The classes of a source that are for one purpose, such as training, and their images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.conversion import images_by_class, record_splits
from cl_cnaps.data.records import RecordSource
from cl_cnaps.data.registry import SPEC_FILE
from cl_cnaps.data.source import CountedSource, Source
from cl_cnaps.data.spec import by_fractions, find_spec, matched, read_spec
from cl_cnaps.episodes import Episode, SplitSpec
from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.episodes.episode_images import EpisodeImages, Piece, images_of
from cl_cnaps.episodes.spec import ClassTable, sampling_split
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.paths import specs_root
from cl_cnaps.training.recipe import SourcePart

Pieces = dict[str, tuple[Piece, ...]]
"""Where the images of each class are."""


@dataclass(frozen=True)
class ClassPool:
    """Classes and their images, which may be read from the packed form of what the classes were looked up in."""

    name: str
    view: EpisodeImages
    split: SplitSpec
    """The classes, by the names that episodes have them by."""
    left_out: int
    """Classes that the recipe names to be left out, or that have fewer images than it needs."""

    @property
    def source(self) -> Source:
        """What images are read from."""
        return self.view.source

    def load(self, episode: Episode, size: int) -> EpisodeBatch:
        """The episode's images, uint8, with their labels."""
        support, query = (
            images_of(self.view, episode.class_names, rows, size) for rows in (episode.support, episode.query)
        )
        return EpisodeBatch.of(episode, support, query)


def class_pool(
    part: SourcePart, split: str, source: CountedSource, packed: Source, *, specs: Path | None, seed: int
) -> ClassPool:
    """The classes of one split, as the recipe defines it.

    Args:
        part: the recipe's part of the source.
        split: the name of the class split, as in `part.train` and `part.validate`.
        source: the source, to look up classes in.
        packed: what images are read from.
        specs: folder of official specifications, if there is one.
        seed: deals out classes where the recipe wants that.
    """
    if part.classes == "splits":
        found, pieces = _own_split(source, split, part.grouped)
    elif part.classes == "fractions":
        found, pieces = _dealt(part, source, split, seed)
    else:
        found, pieces = _official(source, split, specs)
    sizes = {name: _size(pieces[name]) for name in found.classes.names}
    own_names = {name: {piece.class_name for piece in pieces[name]} for name in sizes}
    unknown = sorted(
        set(part.leave_out) - {name for splits in source.splits for name in source.classes(splits)}
    )
    if unknown:
        raise BadInputError(f"{source.name} has no class {unknown[0]!r}, which the recipe leaves out")
    kept = {
        name: size
        for name, size in sizes.items()
        if size >= part.min_images and own_names[name].isdisjoint(part.leave_out)
    }
    if not kept:
        raise BadInputError(
            f"{source.name} has no class with at least {part.min_images} images in split {split!r}"
        )
    known = known_set(source.name)
    invert = known is not None and known.inverted_in_records and not isinstance(source, RecordSource)
    view = EpisodeImages(packed, {name: pieces[name] for name in kept}, invert=invert)
    return ClassPool(part.name, view, found.restricted(kept), len(sizes) - len(kept))


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.count for piece in pieces)


def _own_split(source: CountedSource, split: str, grouped: bool) -> tuple[SplitSpec, Pieces]:
    counts = {name: source.count(split, name) for name in source.classes(split)}
    groups: dict[str, tuple[str, ...]] = {}
    for name in counts if grouped else ():
        group = name.rpartition("/")[0]
        groups[group] = (*groups.get(group, ()), name)
    pieces: Pieces = {name: (Piece(split, name, count),) for name, count in counts.items()}
    return SplitSpec(ClassTable.of(counts), groups or None), pieces


def _dealt(part: SourcePart, source: CountedSource, split: str, seed: int) -> tuple[SplitSpec, Pieces]:
    pieces = _all_pieces(source)
    counts = {name: _size(found) for name, found in pieces.items()}
    spec = by_fractions(source.name, counts, part.fractions, seed)
    if split not in spec.classes:
        raise BadInputError(
            f"{source.name}: classes are dealt out to {', '.join(spec.classes)}; there is no {split!r}"
        )
    chosen = [spec.class_names[i] for i in spec.classes[split]]
    return SplitSpec(ClassTable.of({name: counts[name] for name in chosen})), pieces


def _official(source: CountedSource, split: str, specs: Path | None) -> tuple[SplitSpec, Pieces]:
    """The classes of the official split that the source has, in their alphabets or graph."""
    spec = read_spec(_spec_file(source, specs))
    official = sampling_split(spec, split, spec.class_names)
    own = _all_pieces(source)
    names = official.classes.names
    pieces = {names[i]: own[name] for i, name in matched(names, list(own)).items()}
    if not pieces:
        raise BadInputError(
            f"no class of {source.name} is one of the {len(names)} classes of the official split {split}"
        )
    return official.restricted({name: _size(found) for name, found in pieces.items()}), pieces


def _all_pieces(source: CountedSource) -> Pieces:
    every = images_by_class(source, record_splits(source))
    return {name: tuple(Piece(split, name, count) for split, count in found) for name, found in every.items()}


def _spec_file(source: CountedSource, specs: Path | None) -> Path:
    if isinstance(source, RecordSource):
        return source.path / SPEC_FILE
    known = known_set(source.name)
    wanted = known.spec if known is not None and known.spec is not None else source.name
    specs = specs or specs_root()
    if specs is None:
        raise MissingDataError(
            f"the recipe splits {source.name} by its official specification: give --specs FOLDER with "
            f"{wanted}_{SPEC_FILE} in it (from the repository google-research/meta-dataset)"
        )
    file = find_spec(wanted, specs)
    if file is None:
        raise MissingDataError(
            f"there is no {wanted}_{SPEC_FILE} in {specs}, by which the recipe splits {source.name}"
        )
    return file
