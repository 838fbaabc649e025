"""From the bytes of an image file to a square RGB tensor; images are resized here and nowhere else."""

from __future__ import annotations

import io
import warnings

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from cl_cnaps.errors import BadInputError, foreign

MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded: they are mistakes or attacks."""

VERSION = 2
"""Part of every cache key: raise it when decoding or resizing changes what comes out."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, whatever a file is called: Pillow knows forty more, and hands some to other programs."""


# Pillow warns of odd metadata without naming the file; what it can still decode is used.
warnings.filterwarnings("ignore", module=r"PIL\.")


def decode(data: bytes, where: str) -> Image.Image:
    """Decode an image file to mode "L" (if it is grey) or "RGB", upright; `where` names it in errors."""
    with foreign(where, "damaged image file"):
        try:
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        except UnidentifiedImageError:
            raise BadInputError(f"{where}: not an image file ({len(data):,} bytes)") from None
        if image.width * image.height > MAX_PIXELS:
            raise BadInputError(
                f"{where}: {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read"
            )
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            raise BadInputError(f"{where}: pixels of 32 bits, whose range is not known; save it with 8 or 16")
        image.load()
        return upright(image)


def passes_as_is(data: bytes) -> bool:
    """Whether the bytes are a JPEG or PNG file, which any reader of records can decode."""
    return data[:3] == b"\xff\xd8\xff" or data[:8] == b"\x89PNG\r\n\x1a\n"


def as_tensor(image: Image.Image, size: int) -> torch.Tensor:
    """Squash to size x size, bilinear with antialiasing: uint8, 3 x size x size."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.array(image)
    if pixels.ndim == 2:
        return torch.from_numpy(pixels).expand(3, size, size)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def encode_png(image: Image.Image) -> bytes:
    """A lossless PNG file of the image."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def upright(image: Image.Image) -> Image.Image:
    """Turn an image by its camera's orientation tag and bring it to mode "L" or "RGB"."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip it to white
        return Image.fromarray((np.asarray(image, dtype=np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in {"1", "L"}:
        return image.convert("L")
    return image.convert("RGB")
