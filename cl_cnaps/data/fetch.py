"""Downloading a set into the data root: checksummed, safely unpacked, and whole or not there at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from cl_cnaps.data.archives import unpack
from cl_cnaps.data.atomic import partial_folder, sync, sync_tree
from cl_cnaps.data.downloads import DOWNLOADS, Download
from cl_cnaps.errors import ClCnapsError, MissingDataError

_STALLED = 60.0  # seconds without a byte after which a download is given up
_ARCHIVES = (".gz", ".tgz", ".zip")


def fetch(name: str, root: Path) -> Path:
    """Download a set into the data root, in torchvision's layout and with its progress bar.

    Everything happens in a hidden folder of the data root, which is moved into place at the end and removed
    if anything fails.
    """
    if name not in DOWNLOADS:
        raise MissingDataError(
            f"{name} cannot be fetched: torchvision has no checksummed download of it. "
            f"What can be: {', '.join(DOWNLOADS)}"
        )
    downloads = DOWNLOADS[name]()
    target = root / downloads.folder
    if target.exists():
        raise ClCnapsError(f"{target} exists, so {name} was not fetched; remove or rename it first")
    try:
        with partial_folder(root, f"fetch-{name}") as partial, _timeout(_STALLED):
            base = partial / downloads.folder if downloads.within else partial
            for download in downloads.files:
                _download(name, download, base / download.folder)
            sync_tree(partial)
            (partial / downloads.folder).rename(target)
            sync(root)
    except OSError as error:
        if isinstance(error, ClCnapsError):
            raise
        raise ClCnapsError(f"{name} could not be fetched into {root}: {error}") from error
    return target


def _download(name: str, download: Download, folder: Path) -> None:
    from torchvision.datasets.utils import download_url

    file = folder / download.file_name
    failures: list[str] = []
    for url in download.urls:
        try:
            download_url(url, folder, filename=file.name, md5=download.md5)
            break
        except (URLError, OSError, RuntimeError) as error:
            # torchvision says the same of a missing and of a wrong file.
            wrong = isinstance(error, RuntimeError) and file.exists()
            failures.append(f"{url}: {'its checksum is wrong' if wrong else error}")
            file.unlink(missing_ok=True)
    else:
        raise MissingDataError(
            f"{name} could not be fetched, and nothing was kept: {'; '.join(failures)}. Try again later, or "
            f"get the set by other means and put it into the data root (docs/data.md says how)"
        )
    if file.name.endswith(_ARCHIVES):
        unpack(file, folder)
        if not download.kept:
            file.unlink()


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """torchvision's downloads take no timeout, and would wait for ever on a dead connection."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
