"""Small pictures and folders of them, different for every seed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Image.Image:
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def file_bytes(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def class_folders(root: Path, classes: Mapping[str, int], suffix: str = "png") -> Path:
    """`classes`: folder (may be train/cat) -> number of pictures."""
    kind = {"png": "PNG", "jpg": "JPEG", "bmp": "BMP"}[suffix]
    for place, (folder, count) in enumerate(classes.items()):
        (root / folder).mkdir(parents=True)
        for number in range(count):
            (root / folder / f"{number}.{suffix}").write_bytes(
                file_bytes(picture(1000 * place + number), kind)
            )
    return root


def zipped(folder: Path, file: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, prefix + path.relative_to(folder).as_posix())
    return file


def pixels(image: Image.Image) -> list[object]:
    return np.asarray(image.convert("RGB")).tolist()
