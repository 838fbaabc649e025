"""Images in a folder per class: a directory, or a zip of one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from PIL import Image

from cl_cnaps.data.decoding import decode, encode_png, passes_as_is
from cl_cnaps.data.digests import digest_of, remembered
from cl_cnaps.data.layout import Table
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.trees import Tree


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
