"""Digests of what a source holds, remembered where working one out means reading every file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from cl_cnaps.data.atomic import write_text
from cl_cnaps.paths import cache_root


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
    note = digests_folder() / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]}.json"
    try:
        known = json.loads(note.read_text())
        if known["signature"] == signature:
            return str(known["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never noted, or the note is damaged
    digest = work_out()
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_text(note, json.dumps({"path": str(path), "signature": signature, "digest": digest}))
    except OSError:
        pass  # only time is lost where the cache cannot be written
    return digest


def digests_folder() -> Path:
    """Where digests of folders are remembered."""
    return cache_root() / "digests"
