"""From the bytes of an image file to a square RGB tensor: the one place where images are resized."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from cl_cnaps.errors import BadInputError

MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded: they are mistakes or attacks."""

VERSION = 1
"""Part of every cache key: raise it when decoding or resizing changes what comes out."""


def decode(data: bytes, where: str) -> Image.Image:
    """Decode an image file to mode "L" (if it is grey) or "RGB", upright; `where` names it in errors."""
    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > MAX_PIXELS:
            raise BadInputError(
                f"{where}: {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read"
            )
        image.load()
        return upright(image)
    except UnidentifiedImageError:
        raise BadInputError(f"{where}: not an image file ({len(data):,} bytes)") from None
    # Pillow's decoders raise all of these on damaged files.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{where}: damaged image file ({error})") from error


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
    if image.format in {"JPEG", "TIFF", "WEBP"}:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip it to white
        return Image.fromarray((np.asarray(image, dtype=np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in {"1", "L"}:
        return image.convert("L")
    return image.convert("RGB")
