"""Labelled images as people keep them: a folder, or zip, with one folder of images per class."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cl_cnaps.data import open_source
from cl_cnaps.data.folders import IMAGE_SUFFIXES, is_hidden
from cl_cnaps.data.trees import Tree, open_tree
from cl_cnaps.errors import BadInputError
from cl_cnaps.image_inputs import Picture


def labelled_folder(folder: Any) -> tuple[list[Picture], np.ndarray]:
    """List the images of a folder of class folders, and the class of each."""
    if not isinstance(folder, str | Path):
        raise BadInputError(
            "there are no labels: give y, or a folder or zip with one folder of images per class"
        )
    source = open_source(f"folder:{folder}")
    _check_every_folder_has_images(open_tree(Path(folder).expanduser()))
    if len(source.splits) > 1:
        raise BadInputError(
            f"{folder} holds several splits ({', '.join(source.splits)}): give the folder of one of them"
        )
    (split,) = source.splits
    found, labels = [], []
    for name in source.classes(split):
        for i in range(source.count(split, name)):
            found.append(Picture(source.where(split, name, i), lambda n=name, i=i: source.image(split, n, i)))  # type: ignore[misc]
            labels.append(name)
    return found, np.array(labels)


def _check_every_folder_has_images(tree: Tree) -> None:
    """Refuse a folder without a readable image: a class would go missing without a word."""
    names = [PurePosixPath(name) for name in tree.names() if not is_hidden(name)]
    with_images = {name.parent for name in names if name.name.lower().endswith(IMAGE_SUFFIXES)}
    folders = {name.parent for name in names}
    if tree.path.is_dir():  # where a folder may be empty
        below = (path.relative_to(tree.path) for path in tree.path.rglob("*") if path.is_dir())
        folders |= {PurePosixPath(path) for path in below if not is_hidden(path.as_posix())}
    around = {parent for folder in with_images for parent in (folder, *folder.parents)}
    bare = sorted(f for f in folders if f not in around and not with_images.intersection(f.parents))
    if bare:
        raise BadInputError(
            f"{tree.where(str(bare[0]))} holds no images ({', '.join(IMAGE_SUFFIXES)}): put some there or take the "
            "folder away"
        )
