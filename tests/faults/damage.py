"""Random damage to files, from fixed seeds; what once failed is kept in cases/ and tried for ever."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

CASES = Path(__file__).parent / "cases"


def hunt(
    kind: str, whole: bytes, check: Callable[[bytes], None], *, budget: int = 300, start: int = 0
) -> None:
    """Call `check` with kept cases of `kind`, then with `budget` damages of what follows byte `start` of `whole`.

    `FUZZ_TIMES=100 FUZZ_SEED=7 pytest tests/faults` looks longer and elsewhere. A content on which `check` fails is
    written to cases/.
    """
    for case in sorted(CASES.glob(f"{kind}-*")):
        check(case.read_bytes())
    luck = random.Random(f"{kind} {len(whole)} {os.environ.get('FUZZ_SEED', '0')}")
    for _ in range(budget * int(os.environ.get("FUZZ_TIMES", "1"))):
        content = whole[:start] + damaged(whole[start:], luck)
        try:
            check(content)
        except BaseException:
            CASES.mkdir(exist_ok=True)
            (CASES / f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)
            raise


def damaged(content: bytes, luck: random.Random) -> bytes:
    """Flip, set, cut, insert and repeat bytes at random, most often near the start, where headers are."""
    found = bytearray(content)
    for _ in range(luck.choice((1, 1, 2, 4, 16))):
        at = int(len(found) * luck.random() ** luck.choice((1, 4)))
        match luck.randrange(6):
            case 0 | 1 if found:
                found[at] ^= 1 << luck.randrange(8)
            case 2 if found:
                found[at] = luck.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 3:
                del found[at : at + luck.choice((1, 2, 8, len(found)))]
            case 4:
                found[at:at] = luck.randbytes(luck.choice((1, 4, 32)))
            case _:
                found[at:at] = found[at : at + 64]
    return bytes(found)
