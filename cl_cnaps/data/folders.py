"""Images in the files of a directory or zip: in a folder per class, in lists, or as QuickDraw's bitmaps."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from cl_cnaps.data.cache import digest_of, remembered
from cl_cnaps.data.catalog import KnownSet
from cl_cnaps.data.source import CountedSource, decode, encode_png, passes_as_is
from cl_cnaps.data.trees import DirectoryTree, Tree
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.paths import MAX_TEXT_BYTES, below, read_file

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
    "images_background": "background",
    "images_evaluation": "evaluation",
}
"""Names of top-level folders that are splits, and what the split is called; also their order."""

_TEXT = 2**31  # longer than any number in a name
_DIGITS_OR_NOT = re.compile(r"[0-9]+|[^0-9]+")

Table = dict[str, dict[str, tuple[str, ...]]]
"""Split -> class -> the names of its files."""


def natural(name: str) -> tuple[tuple[int, str, str], ...]:
    """Sort key under which 2 comes before 10; numbers are compared as digits, of which there may be thousands."""
    parts = _DIGITS_OR_NOT.findall(name)
    numbers = (part.lstrip("0") if part[0] in "0123456789" else None for part in parts)
    # A number is its length, then its digits; text comes after every number.
    return tuple(
        (_TEXT, "", part) if digits is None else (len(digits), digits, part)
        for digits, part in zip(numbers, parts, strict=True)
    )


def by_folder(names: Iterable[str], where: Callable[[str], str], official_order: Sequence[str] = ()) -> Table:
    """Sort image files into splits and classes.

    Folders that hold nothing but one other folder are passed over. Top-level folders that are all called like
    splits (`SPLIT_FOLDERS`) are splits; without them there is one split, "all". The folders below that make the
    class name, so Omniglot's classes are called Alphabet/character01. Hidden files and files that are not
    images are ignored; an image outside any class folder is an error.
    """
    paths = [name.split("/") for name in sorted(filter(is_image, names), key=natural)]
    if not paths:
        return {}
    skipped = _shared_folders(paths)
    top = {path[skipped] for path in paths if len(path) > skipped + 1}
    has_splits = all(folder.lower() in SPLIT_FOLDERS for folder in top)
    table: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        folders = path[skipped:-1]
        split = SPLIT_FOLDERS[folders[0].lower()] if has_splits and folders else "all"
        class_name = "/".join(folders[1:] if has_splits else folders)
        if not class_name:
            raise BadInputError(
                f"{where('/'.join(path))} lies outside any class folder; expected <class>/<image> or "
                f"train/<class>/<image> and test/<class>/<image>"
            )
        if class_name.encode(errors="replace").decode() != class_name:  # records and tables could not hold it
            raise BadInputError(
                f"the name of the folder {where('/'.join(path[:-1]))} is not UTF-8; rename it"
            )
        table[split][class_name].append("/".join(path))
    order = class_order(official_order)
    return {
        split: {name: tuple(table[split][name]) for name in sorted(table[split], key=order)}
        for split in (*dict.fromkeys(SPLIT_FOLDERS.values()), "all")
        if split in table
    }


def class_order(official: Sequence[str]) -> Callable[[str], tuple[int, tuple[tuple[int, str, str], ...]]]:
    """Sort key for class names: the official label order where the name is an official one, else natural."""
    positions = {plain(name): position for position, name in enumerate(official)}
    return lambda name: (positions.get(plain(name), len(positions)), natural(name))


def plain(name: str) -> str:
    """A class name without what differs between spellings of it: case, spaces, punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower()) or name


def is_hidden(name: str) -> bool:
    """Whether a file is one that an operating system left behind."""
    return name.startswith(".") or "/." in name or "__MACOSX" in name


def is_image(name: str) -> bool:
    """Whether a file is called like an image and was not left behind by an operating system."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not is_hidden(name)


def folders_without_images(tree: Tree) -> list[str]:
    """Return the folders without an image in them, below them or around them: classes that have gone missing."""
    names = [PurePosixPath(name) for name in tree.names() if not is_hidden(name)]
    with_images = {name.parent for name in names if is_image(name.name)}
    folders = {name.parent for name in names}
    if tree.path.is_dir():  # where a folder may be empty
        below = (path.relative_to(tree.path) for path in tree.path.rglob("*") if path.is_dir())
        folders |= {PurePosixPath(path) for path in below if not is_hidden(path.as_posix())}
    around = {parent for folder in with_images for parent in (folder, *folder.parents)}
    return sorted(str(f) for f in folders if f not in around and not with_images.intersection(f.parents))


def _shared_folders(paths: Sequence[Sequence[str]]) -> int:
    """How many outer folders all files share without their being a split or a class."""
    shared = 0
    while True:
        heads = {path[shared] for path in paths if len(path) > shared + 1}
        deep = all(len(path) > shared + 2 for path in paths)
        if len(heads) != 1 or not deep or next(iter(heads)).lower() in SPLIT_FOLDERS:
            return shared
        shared += 1


class FolderSource(CountedSource):
    """Image files of a tree, sorted into splits and classes by a table of names."""

    def __init__(
        self,
        name: str,
        origin: str,
        tree: Tree,
        table: Table,
        *,
        grey: bool = False,
    ) -> None:
        counts = {s: {c: len(files) for c, files in classes.items()} for s, classes in table.items()}
        super().__init__(name, origin, counts)
        self.grey = grey
        self._tree = tree
        self._table = table

    @property
    def path(self) -> Path:
        """The folder or zip that holds the images."""
        return self._tree.path

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One image, decoded."""
        file = self._table[split][class_name][index]
        return decode(self._tree.read(file), self._tree.where(file))

    def encoded(self, split: str, class_name: str, index: int) -> bytes:
        """The file itself if it is a JPEG or PNG, else a lossless PNG of it."""
        file = self._table[split][class_name][index]
        data = self._tree.read(file)
        image = decode(data, self._tree.where(file))  # a damaged file is never passed on
        return data if passes_as_is(data) else encode_png(image)

    def where(self, split: str, class_name: str, index: int) -> str:
        """The image's file."""
        return self._tree.where(self._table[split][class_name][index])

    def digest(self) -> str:
        """Digest over split, class, file name, size and CRC-32 of every image, wherever the tree lies."""
        # Sorted, so that the order in which classes are listed does not matter.
        rows = sorted(
            (s, c, file)
            for s, classes in self._table.items()
            for c, files in classes.items()
            for file in files
        )
        signature = self._tree.signature()
        if signature is not None:  # the same tree can be sorted into classes in different ways
            signature += digest_of(rows)[:16]
        return remembered(self._tree.path, signature, lambda: self._work_out_digest(rows))

    def _work_out_digest(self, rows: list[tuple[str, str, str]]) -> str:
        sums = self._tree.checksums(file for _, _, file in rows)
        return digest_of(
            (split, class_name, PurePosixPath(file).name, *checksum)
            for (split, class_name, file), checksum in zip(rows, sums, strict=True)
        )


def listed_source(known: KnownSet, root: Path) -> FolderSource:
    """A set that torchvision keeps as images with a list of labels."""
    folder = root / known.torchvision_folder
    table = traffic_signs if known.name == "traffic_sign" else flowers
    return FolderSource(known.name, known.torchvision_folder, DirectoryTree(folder), table(folder))


def traffic_signs(folder: Path) -> Table:
    """GTSRB below torchvision's `gtsrb` folder: class folders for training, a list of labels for testing."""
    names = DirectoryTree(folder / "GTSRB" / "Training").names()  # a folder that cannot be read is an error
    signs = [name for name in names if name.endswith(".ppm") and name.count("/") == 1]
    train = [(name.partition("/")[0], f"GTSRB/Training/{name}") for name in signs]
    labels = folder / "GT-final_test.csv"
    if not labels.is_file():
        raise MissingDataError(f"{labels} does not exist, so the test signs in {folder} have no classes")
    with foreign(str(labels), "damaged; fetch the set again"):
        lines = read_file(labels, MAX_TEXT_BYTES).decode().splitlines()
        rows = csv.DictReader(lines, delimiter=";", skipinitialspace=True)
        images = Path("GTSRB/Final_Test/Images")
        test = [(f"{int(row['ClassId']):05d}", below(images, row["Filename"]).as_posix()) for row in rows]
    return {"train": _sorted(train), "test": _sorted(test)}


def flowers(folder: Path) -> Table:
    """Oxford Flowers below torchvision's `flowers-102` folder; a class is called by its label, 1 to 102."""
    from scipy.io import loadmat  # type: ignore[import-untyped]

    file = folder / "imagelabels.mat"
    if not file.is_file():
        raise MissingDataError(f"{file} does not exist, so the flowers in {folder} have no names")
    with foreign(str(file), "damaged; fetch the set again"):
        labels = loadmat(str(file), squeeze_me=True)["labels"].tolist()
    numbered = enumerate(labels, start=1)
    return {"all": _sorted((str(label), f"jpg/image_{number:05d}.jpg") for number, label in numbered)}


def _sorted(labelled: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for class_name, file in labelled:
        classes[class_name].append(file)
    return {name: tuple(sorted(classes[name], key=natural)) for name in sorted(classes, key=natural)}


_KEPT = 4  # classes whose array stays in memory: an official one is up to 220 MB
_HEADER_BYTES = 1024  # more than any .npy header of a plain array


class BitmapSource(CountedSource):
    """Classes of a tree's .npy files, each N x side² or N x side x side, uint8."""

    grey = True

    def __init__(self, name: str, origin: str, tree: Tree) -> None:
        self._tree = tree
        self._files = bitmap_files(tree)
        self._recent: OrderedDict[str, np.ndarray] = OrderedDict()
        super().__init__(name, origin, {"all": {c: self._shape(f)[0] for c, f in self._files.items()}})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_recent": OrderedDict()}

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One bitmap."""
        self._of_split(split)
        row = np.asarray(self._array(class_name)[index])
        return Image.fromarray(row.reshape(_side(row.size), -1))

    def where(self, split: str, class_name: str, index: int) -> str:
        """The class's file and the row in it."""
        self._of_split(split)
        return f"{self._tree.where(self._files[class_name])} row {index}"

    def digest(self) -> str:
        """Digest over class, size and CRC-32 of every file."""
        return remembered(self._tree.path, self._tree.signature(), self._work_out_digest)

    def _work_out_digest(self) -> str:
        sums = self._tree.checksums(self._files.values())
        return digest_of((name, *checksum) for name, checksum in zip(self._files, sums, strict=True))

    def _array(self, class_name: str) -> np.ndarray:
        if class_name in self._recent:
            self._recent.move_to_end(class_name)
            return self._recent[class_name]
        array = self._load(self._files[class_name])
        self._recent[class_name] = array
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        return array

    def _load(self, file: str) -> np.ndarray:
        where = self._tree.where(file)
        array: np.ndarray
        with foreign(where, "not a whole .npy file"):
            if isinstance(self._tree, DirectoryTree):
                array = np.load(self._tree.path / file, mmap_mode="r", allow_pickle=False)
            else:
                array = np.load(io.BytesIO(self._tree.read(file)), allow_pickle=False)
        return array

    def _shape(self, file: str) -> tuple[int, ...]:
        """Shape of a file's array, from its header alone."""
        where = self._tree.where(file)
        start = io.BytesIO(self._tree.head(file, _HEADER_BYTES))
        with foreign(where, "not a .npy file"):
            if np.lib.format.read_magic(start) != (1, 0):
                raise ValueError("not version 1.0 of the format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(start)
            fits = dtype == np.uint8 and len(shape) in {2, 3} and _side(math.prod(shape[1:]))
        if not fits:
            raise BadInputError(f"{where}: {dtype} of shape {shape}; expected uint8, N x 784 or N x 28 x 28")
        if start.tell() + math.prod(shape) != self._tree.size(file):
            raise BadInputError(f"{where}: not a whole .npy file (its header names {shape[0]:,} images)")
        return tuple(shape)


def bitmap_files(tree: Tree) -> dict[str, str]:
    """Class name -> .npy file of a tree, in natural order."""
    names = [name for name in tree.names() if name.endswith(".npy") and not is_hidden(name)]
    found = {PurePosixPath(name).stem: name for name in names}
    return {name: found[name] for name in sorted(found, key=natural)}


def _side(pixels: int) -> int:
    """Side of a square of so many pixels, 0 if there is none."""
    side = math.isqrt(pixels)
    return side if side * side == pixels else 0
