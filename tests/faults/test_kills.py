"""Kills at random moments of every verb: what is done again later ends as if nothing had happened.

`KILLS=200 pytest -m slow tests/faults/test_kills.py` looks longer, `FUZZ_SEED=1` elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from faults import tiny

KILLS = int(os.environ.get("KILLS", "20"))
BY_HAND = KILLS > 20
"""Whether verbs start processes of their own, which takes seconds each time."""
VERBS = [verb for verb in tiny.VERBS if verb not in ("report", "plot") and (BY_HAND or verb != "sweep")]
RESULTS = ("config.json", "summary.json", "weights.safetensors", "backbone.safetensors", "pets.safetensors")
"""Files that do not depend on when and how fast they were made, but for the seconds in them."""


def words_of(verb: str, out: str) -> list[str]:
    """Return the words of a verb that writes into the folder `out`."""
    words = [*tiny.VERBS[verb]]
    if "--workers" in words and not (BY_HAND and verb in ("sweep", "evaluate")):
        words[words.index("--workers") + 1] = "0"
    if verb in ("learn", "data convert"):
        words[words.index("--out") + 1] = f"{out}/pets.safetensors" if verb == "learn" else out
        return words
    return words if verb == "data verify" else [*words, "--out", out]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if "second" not in key}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def results(folder: Path) -> dict[str, str]:
    """Return a digest of every result below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name in RESULTS or path.suffix == ".tfrecords":
            content = path.read_bytes()
            if path.suffix == ".json":
                content = json.dumps(without_times(json.loads(content)), sort_keys=True).encode()
            if path.name in ("weights.safetensors", "backbone.safetensors"):
                content = content[8 + int.from_bytes(content[:8], "little") :]  # the head has the seconds
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_kills_at_random_moments(tmp_path: Path) -> None:
    tiny.prepare(tmp_path)
    luck = random.Random(f"kills {os.environ.get('FUZZ_SEED', '0')}")
    whole: dict[str, tuple[float, dict[str, str]]] = {}
    tally = {"killed": 0, "ended before": 0}
    for number in range(KILLS):
        verb = VERBS[number % len(VERBS)]
        if verb not in whole:
            (tmp_path / f"whole-{verb}").mkdir()
            ended = tiny.forked(words_of(verb, f"whole-{verb}"), tmp_path)
            assert ended.code == 0, ended.err
            whole[verb] = ended.seconds, results(tmp_path / f"whole-{verb}")
        out = tmp_path / f"killed-{number}"
        out.mkdir()
        resume: list[str] = []
        for _ in range(luck.choice((1, 1, 2))):
            if verb == "data convert" and list(out.rglob("dataset_spec.json")):
                break  # it ended before; records are only written to a new folder
            after = luck.uniform(0.05, max(0.1, whole[verb][0]))
            how = luck.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            ended = tiny.forked([*words_of(verb, out.name), *resume], tmp_path, after=after, number=how)
            assert ended.code in (0, 130, -how), (verb, after, how, ended)
            assert "Traceback" not in ended.err and "Error" not in ended.err, (verb, after, how, ended.err)
            tally["killed" if ended.code else "ended before"] += 1
            can_resume = verb in ("stream", "evaluate", "active", "ablate") or list(
                out.rglob("checkpoint.safetensors")
            )
            resume = ["--resume"] if can_resume else []
        if verb == "data convert" and list(out.rglob("dataset_spec.json")):
            assert results(out) == whole[verb][1]  # what is there is whole, and is not written again
            continue
        ended = tiny.forked([*words_of(verb, out.name), *resume], tmp_path)
        assert ended.code == 0, (verb, number, ended.err)
        assert results(out) == whole[verb][1], (verb, number)
        assert not list(out.rglob("*.partial")), (verb, number)
    print(f"{KILLS} attacks: {tally}")
    assert tally["killed"] >= KILLS // 3
