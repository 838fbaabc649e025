"""Characters drawn with the fonts that matplotlib ships: an Omniglot that every installation can make.

Alphabets are Unicode blocks, and no script is in two splits. Which characters are classes is listed in glyphs.json,
which `benchmarks/glyph_choice.py` makes: digits and look-alikes are not among them. Image i of a class is a pure
function of (VERSION, class, i): a face of the class's, and its size, shift, turn and thickness.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import struct
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps, features

from cl_cnaps.data.cache import digest_of
from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import MissingDataError

VERSION = 1
"""Raise it when images change: it is part of every image and of the digest."""

SIDE = 96
"""Pixels along an image's side."""

PER_CLASS = 32
"""Images of a class: two or more of every face."""

FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
"""Font files, without their suffix."""

_SMALLEST, _LARGEST = 0.5, 0.8  # longer side of a character, in sides of the image
_TURN = 10.0  # degrees, either way
_THICKEST = 2  # pixels added around the strokes, except of bold faces
_STEP = 1.06  # ratio of neighbouring font sizes, so that few fonts are open at once


class GlyphSource(CountedSource):
    """Dark characters on white, SIDE x SIDE, PER_CLASS of each; classes are called Alphabet/U+0041."""

    grey = True

    def __init__(self) -> None:
        _font_folder()
        counts = {
            split: {class_name(alphabet, c): PER_CLASS for alphabet in alphabets for c in alphabets[alphabet]}
            for split, alphabets in chosen_characters().items()
        }
        super().__init__("glyphs", "drawn with matplotlib's fonts", counts)

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """Draw one image."""
        self.count(split, class_name)
        character = chr(int(class_name.rpartition("U+")[2], 16))
        faces = faces_of(character)
        rounds, turn_of_face = divmod(index, len(faces))
        # Each round over the faces begins elsewhere, so that the first images of all classes are of different faces.
        face = faces[(turn_of_face + int(_fractions(class_name, -1 - rounds)[0] * len(faces))) % len(faces)]
        size, across, down, turn, thickness, *_ = _fractions(class_name, index)
        return _drawn(
            character,
            face,
            side=SIDE * (_SMALLEST + size * (_LARGEST - _SMALLEST)),
            shift=(2 * across - 1, 2 * down - 1),
            degrees=_TURN * (2 * turn - 1),
            thickness=0 if "Bol" in face else int(thickness * (_THICKEST + 1)),
        )

    def where(self, split: str, class_name: str, index: int) -> str:
        """The class and number of an image: it is in no file."""
        self._of_split(split)
        return f"glyph {class_name} number {index}"

    def digest(self) -> str:
        """Digest over all that decides a pixel: version, fonts, the library that draws them, and classes."""
        fonts = [hashlib.sha256(_font_file(face).read_bytes()).hexdigest() for face in FACES]
        drawing = [VERSION, SIDE, PER_CLASS, features.version("freetype2")]
        return digest_of([drawing, fonts, *chosen_characters().items()])


def class_name(alphabet: str, character: str) -> str:
    """Name of a character's class."""
    return f"{alphabet}/U+{ord(character):04X}"


@cache
def chosen_characters() -> dict[str, dict[str, str]]:
    """Split -> alphabet -> its characters."""
    table: dict[str, dict[str, str]] = json.loads(
        resources.files("cl_cnaps.data").joinpath("glyphs.json").read_text(encoding="utf-8")
    )
    return table


def faces_of(character: str) -> tuple[str, ...]:
    """The faces that have this character."""
    return tuple(face for face in FACES if ord(character) in _characters_of(face))


def fitted(character: str, face: str, side: float, thickness: int = 0) -> Image.Image:
    """Draw a character, cut out at its edges, its longer side about `side` pixels: mode "L", white on black."""
    left, top, right, bottom = font(face, SIDE).getbbox(character)
    # The font of a dot must be ten times as large as the font of a letter.
    wanted = SIDE * max(side - 2 * thickness, 1) / max(right - left, bottom - top, 1)
    scaled = font(face, round(_STEP ** round(math.log(max(wanted, 8), _STEP))))
    left, top, right, bottom = scaled.getbbox(character, stroke_width=thickness)
    image = Image.new("L", (max(int(right - left), 1), max(int(bottom - top), 1)))
    ImageDraw.Draw(image).text(
        (-left, -top), character, fill=255, font=scaled, stroke_width=thickness, stroke_fill=255
    )
    return image.crop(image.getbbox())


def _drawn(
    character: str, face: str, side: float, shift: tuple[float, float], degrees: float, thickness: int
) -> Image.Image:
    """Draw a character on white; a shift of 1 brings it to the edge."""
    ink = fitted(character, face, side, thickness)
    ink = ink.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
    across, down = (round((SIDE - size) / 2 * (1 + s)) for size, s in zip(ink.size, shift, strict=True))
    image = Image.new("L", (SIDE, SIDE))
    image.paste(ink, (across, down))
    return ImageOps.invert(image)


def _fractions(class_name: str, index: int) -> tuple[float, ...]:
    """Eight numbers in [0, 1) of an image, the same on every machine."""
    key = hashlib.blake2b(f"{VERSION}/{class_name}/{index}".encode(), digest_size=32).digest()
    return tuple(number / 2**32 for number in struct.unpack("<8I", key))


@lru_cache(maxsize=512)
def font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """Open one of the faces, at a size in pixels."""
    return ImageFont.truetype(str(_font_file(face)), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def _characters_of(face: str) -> frozenset[int]:
    from fontTools.ttLib import TTFont  # only now: it takes longer than the rest of a short command

    with TTFont(_font_file(face), lazy=True) as font:
        return frozenset(font.getBestCmap())


def _font_file(face: str) -> Path:
    return _font_folder() / f"{face}.ttf"


@cache
def _font_folder() -> Path:
    """Find matplotlib's fonts, without importing it."""
    found = importlib.util.find_spec("matplotlib")
    for package in (found.submodule_search_locations if found is not None else None) or ():
        folder = Path(package) / "mpl-data" / "fonts" / "ttf"
        if all((folder / f"{face}.ttf").is_file() for face in FACES):
            return folder
    raise MissingDataError(
        "glyphs are drawn with matplotlib's fonts, which are not there: pip install matplotlib"
    )
