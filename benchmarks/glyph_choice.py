"""Choose the characters that are classes of `glyphs`: `python -m benchmarks.glyph_choice` writes glyphs.json anew."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped, unused-ignore]

from cl_cnaps.data import glyphs
from cl_cnaps.data.glyphs import FACES, faces_of, fitted

# Alphabet, split, and the ends of its Unicode blocks. Of look-alikes the first listed is kept.
_ALPHABETS = (
    ("Latin", "train", ((0x41, 0xFF),)),
    ("Latin_Extended_A", "train", ((0x100, 0x17F),)),
    ("Latin_Extended_B", "train", ((0x180, 0x24F),)),
    ("Latin_Phonetic", "train", ((0x250, 0x2AF), (0x1D00, 0x1DBF))),
    ("Latin_Extended_Additional", "train", ((0x1E00, 0x1EFF), (0x2C60, 0x2C7F), (0xA720, 0xA7FF))),
    ("Greek", "train", ((0x370, 0x3FF),)),
    ("Greek_Extended", "train", ((0x1F00, 0x1FFF),)),
    ("Cyrillic", "test", ((0x400, 0x52F),)),
    ("Armenian", "val", ((0x530, 0x58F),)),
    ("Georgian", "test", ((0x10A0, 0x10FF), (0x2D00, 0x2D2F))),
    ("Signs", "train", ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0xBF), (0x2010, 0x205E), (0x20A0, 0x214F))),
    ("Mathematical", "train", ((0x2200, 0x23FF), (0x27C0, 0x27EF), (0x2980, 0x2AFF))),
    ("Box_Drawing", "train", ((0x2500, 0x259F),)),
    ("Shapes", "train", ((0x25A0, 0x25FF), (0x2B12, 0x2B1F))),
    ("Arrows", "val", ((0x2190, 0x21FF), (0x2B00, 0x2B11))),
    ("Pictures", "val", ((0x2600, 0x27BF),)),
)  # fmt: skip
_NO_LETTERS = {"Signs", "Mathematical", "Box_Drawing", "Shapes", "Arrows", "Pictures"}

_LEAST_FACES = 12
_SIDE = 32  # pixels of the bitmaps that are compared
_FURTHEST = 2.0  # pixels from ink of one to ink of the other, up to which two bitmaps look alike
_COMPARED = [face for face in FACES if face in {"DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral"}]


class _Bitmaps:
    """Characters of one face, fitted into a square: their ink, and every pixel's distance from it."""

    def __init__(self, face: str) -> None:
        self._face = face
        self._ink = np.zeros((0, _SIDE**2), dtype=bool)
        self._distance = np.zeros((0, _SIDE**2), dtype=np.float16)

    def add(self, character: str) -> None:
        ink, distance = self._drawn(character)
        self._ink = np.concatenate([self._ink, ink[None]])
        self._distance = np.concatenate([self._distance, distance[None]])

    def has_like(self, character: str) -> bool:
        """Whether the Hausdorff distance to one of them is small: thicker or larger strokes make no difference."""
        ink, distance = self._drawn(character)
        near = (self._distance[:, ink] <= _FURTHEST).all(axis=1)
        return any((distance[other] <= _FURTHEST).all() for other in self._ink[near])

    def _drawn(self, character: str) -> tuple[np.ndarray, np.ndarray]:
        ink = fitted(character, self._face, 4 * _SIDE)
        square = Image.new("L", (max(ink.size), max(ink.size)))
        square.paste(ink, ((square.width - ink.width) // 2, (square.height - ink.height) // 2))
        pixels = np.asarray(square.resize((_SIDE, _SIDE), Image.Resampling.BOX)) > 85
        return pixels.ravel(), distance_transform_edt(~pixels).astype(np.float16).ravel()


def choose() -> dict[str, dict[str, str]]:
    """Split -> alphabet -> characters, in twelve faces or more, none of which looks like another or like a digit.

    Two characters look alike if they do in one of the upright regular faces, at whatever size: images are of all sizes.
    """
    chosen: dict[str, dict[str, str]] = {"train": {}, "val": {}, "test": {}}
    kept = {face: _Bitmaps(face) for face in _COMPARED}
    for digit in "0123456789":
        for bitmaps in kept.values():
            bitmaps.add(digit)
    for alphabet, split, blocks in _ALPHABETS:
        characters = ""
        for character in _candidates(blocks, letters=alphabet not in _NO_LETTERS):
            here = [kept[face] for face in _COMPARED if face in faces_of(character)]
            if not any(bitmaps.has_like(character) for bitmaps in here):
                characters += character
                for bitmaps in here:
                    bitmaps.add(character)
        chosen[split][alphabet] = characters
    return chosen


def _candidates(blocks: tuple[tuple[int, int], ...], letters: bool) -> Iterator[str]:
    for first, last in blocks:
        for character in map(chr, range(first, last + 1)):
            kind = unicodedata.category(character)
            wanted = kind in {"Lu", "Ll", "Lt", "Lo"} if letters else kind[0] in "SP"
            # Raised, encircled and joined characters are forms of others.
            own = unicodedata.normalize("NFKD", character) == unicodedata.normalize("NFD", character)
            if wanted and own and len(faces_of(character)) >= _LEAST_FACES:
                yield character


if __name__ == "__main__":
    text = json.dumps(choose(), ensure_ascii=False, indent=1)
    Path(glyphs.__file__).with_name("glyphs.json").write_text(text + "\n", encoding="utf-8")
