"""Answers for images, and a page of them with the least certain first: those are worth a look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageOps

from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.data.glyphs import font
from cl_cnaps.errors import escaped
from cl_cnaps.image_inputs import Picture

UNKNOWN = "unknown"
"""The answer for an image that is unlike every class."""

MOST = 120
"""Images on a page."""

_SIDE, _TEXT, _GAP, _COLUMNS = 120, 34, 8, 10


@dataclass(frozen=True)
class Prediction:
    """The answer for one image."""

    name: str
    """The image's file, below the folder that was given, or its number."""
    label: Any
    """A class, or "unknown"."""
    probability: float
    """Of the most probable class."""
    probabilities: dict[Any, float]

    @property
    def is_unknown(self) -> bool:
        """Whether the image is unlike every class; a class may be called unknown, too."""
        return self.label not in self.probabilities

    def __str__(self) -> str:
        """The answer with its probability; of an unknown image, the class that it is most like."""
        if self.is_unknown:
            return f"unknown, like {max(self.probabilities, key=lambda label: self.probabilities[label])}"
        return f"{self.probability:4.0%} {self.label}"


def least_certain_first(predictions: Sequence[Prediction]) -> list[int]:
    """Numbers of the predictions: unknown images, then by probability."""
    return sorted(
        range(len(predictions)), key=lambda i: (not predictions[i].is_unknown, predictions[i].probability)
    )


def contact_sheet(path: Path, pictures: Sequence[Picture], predictions: Sequence[Prediction]) -> Path:
    """Draw a PNG file of at most MOST images, each with its answer and name below."""
    shown = least_certain_first(predictions)[:MOST]
    columns = min(_COLUMNS, max(len(shown), 1))
    rows = math.ceil(len(shown) / columns)
    wide, high = _SIDE + _GAP, _SIDE + _TEXT + _GAP
    sheet = Image.new("RGB", (columns * wide + _GAP, max(rows, 1) * high + _GAP), "white")
    pen, face = ImageDraw.Draw(sheet), font("DejaVuSans", 11)
    for at, i in enumerate(shown):
        left, top = _GAP + at % columns * wide, _GAP + at // columns * high
        image = ImageOps.contain(pictures[i].read().convert("RGB"), (_SIDE, _SIDE))
        sheet.paste(image, (left + (_SIDE - image.width) // 2, top + (_SIDE - image.height) // 2))
        answer = predictions[i]
        for line, text in enumerate((str(answer), Path(answer.name).name)):
            pen.text(
                (left, top + _SIDE + 2 + 15 * line),
                _cut(text),
                fill="black" if not line else "grey",
                font=face,
            )
    make_folder(path.parent)
    with partial_file(path) as partial:
        sheet.save(partial, format="PNG")
    return path


def _cut(text: str) -> str:
    """As much of a line as fits; names of files hold anything."""
    text = escaped(text)
    face = font("DejaVuSans", 11)
    while len(text) > 1 and face.getlength(text) > _SIDE:
        text = text[:-2] + "…"
    return text
