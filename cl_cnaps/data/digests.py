"""Digests of what a source holds, remembered where working one out means reading every file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from cl_cnaps.data.atomic import write_text
from cl_cnaps.paths import cache_root

_log = logging.getLogger(__name__)


def digest_of(rows: Iterable[object]) -> str:
    """Digest of a sequence of rows, each anything that prints the same everywhere."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row!r}\n".encode())
    return digest.hexdigest()


def remembered(path: Path, signature: str | None, work_out: Callable[[], str]) -> str:
    """The digest of what is at `path`, worked out only if `signature` changed since the last time.

    Without a signature the digest is cheap and always worked out.
    """
    if signature is None:
        return work_out()
    note = digests_folder() / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"
    try:
        known = json.loads(note.read_text())
        if known["checksum"] != digest_of([known["signature"], known["digest"]]):
            raise ValueError("its checksum is wrong")
        if known["signature"] == signature:
            return str(known["digest"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        _log.warning("%s does not fit (%s): it is made again", note, error)
    digest = work_out()
    known = {"signature": signature, "digest": digest, "checksum": digest_of([signature, digest])}
    with suppress(OSError):  # only time is lost where the cache cannot be written
        note.parent.mkdir(parents=True, exist_ok=True)
        write_text(note, json.dumps({"path": str(path), **known}))
    return digest


def version_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return what changes with a file's content: even a tool that sets back the time of a change cannot hide it."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def digests_folder() -> Path:
    """Where digests of folders are remembered."""
    return cache_root() / "digests"
