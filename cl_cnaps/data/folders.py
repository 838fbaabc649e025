"""Images in a folder per class, in a directory or a zip: which split and class a file belongs to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from cl_cnaps.data.cache import digest_of, remembered
from cl_cnaps.data.decoding import decode, encode_png, passes_as_is
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.trees import Tree
from cl_cnaps.errors import BadInputError

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
        complete: bool | None = None,
        grey: bool = False,
    ) -> None:
        counts = {s: {c: len(files) for c, files in classes.items()} for s, classes in table.items()}
        super().__init__(name, origin, counts, complete)
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
