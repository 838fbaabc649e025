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
IN_CI = 20
VERBS = list(tiny.VERBS)
RESULTS = (
    "config.json", "summary.json", "weights.safetensors", "backbone.safetensors", "pets.safetensors", "sources.json",
)  # fmt: skip
"""Files that do not depend on when and how fast they were made, but for the seconds in them."""
SPEC = "images/dataset_spec.json"
"""What `data convert` writes last; it does not write to a folder that holds one."""


def words_of(verb: str, out: str, *, workers: bool) -> list[str]:
    """Return the words of a verb that writes into the folder `out`; `workers` are processes of its own."""
    words = [*tiny.VERBS[verb]]
    if "--workers" in words and not workers:
        words[words.index("--workers") + 1] = "1" if verb == "sweep" else "0"
    if "--out" in words:
        words[words.index("--out") + 1] = f"{out}/pets.safetensors" if verb == "learn" else out
        return words
    return words if verb in ("data add", "data verify") else [*words, "--out", out]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if "second" not in key}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def results(folder: Path) -> dict[str, str]:
    """Return a digest of every result below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name in RESULTS or path.suffix in (".tfrecords", ".html", ".png"):
            content = path.read_bytes()
            if path.suffix == ".json":
                content = json.dumps(without_times(json.loads(content)), sort_keys=True).encode()
            if path.name in ("weights.safetensors", "backbone.safetensors"):
                content = content[8 + int.from_bytes(content[:8], "little") :]  # the head has the seconds
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def new_folder(path: Path, verb: str) -> None:
    """Make the folder of an attack; what `data add` registers there is not the first entry."""
    path.mkdir()
    if verb == "data add":
        (path / "sources.json").write_text('{"older": "/older"}')


def leftovers(folder: Path) -> list[Path]:
    """Return what was left half-written below a folder."""
    return [
        path for path in folder.rglob(".*") if path.name.endswith(".partial") or "checkpoint" in path.name
    ]


@pytest.mark.slow
@pytest.mark.timeout(150 * KILLS)
def test_kills_at_random_moments(tmp_path: Path) -> None:
    tiny.prepare(tmp_path)
    luck = random.Random(f"kills {os.environ.get('FUZZ_SEED', '0')}")
    whole: dict[str, tuple[float, dict[str, str]]] = {}
    tally = {"killed": 0, "ended before": 0, "leftovers": 0, "lost results": 0}

    def run(verb: str, out: str, resume: list[str], *, workers: bool = False, **signals: Any) -> tiny.Ended:
        def keep_to_its_folder() -> None:
            os.environ["CL_CNAPS_CACHE"] = f"{out}/cache"  # images are packed anew, and that is killed too
            if verb == "data add":
                os.environ["CL_CNAPS_DATA"] = out

        words = [*words_of(verb, out, workers=workers), *resume]
        return tiny.forked(words, tmp_path, first=keep_to_its_folder, **signals)

    assert run("stream", "records", []).code == 0  # for report and plot
    for number in range(KILLS):
        verb = VERBS[number % len(VERBS)]
        workers = number >= IN_CI and number // len(VERBS) % 2 == 1
        if verb not in whole:
            new_folder(tmp_path / f"whole-{verb}", verb)
            ended = run(verb, f"whole-{verb}", [])
            assert ended.code == 0, ended.err
            whole[verb] = ended.seconds, results(tmp_path / f"whole-{verb}")
            assert whole[verb][1] or verb == "data verify"
        out = tmp_path / f"killed-{number}"
        new_folder(out, verb)
        resume: list[str] = []
        for _ in range(luck.choice((1, 1, 2))):
            if (out / SPEC).exists():
                break
            after = luck.uniform(0.05, max(0.1, whole[verb][0] + 4 * workers))
            how = luck.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            ended = run(verb, out.name, resume, workers=workers, after=after, number=how)
            assert ended.code in (0, 130, -how), (verb, after, how, ended)
            assert "Traceback" not in ended.err and "Error" not in ended.err, (verb, after, how, ended.err)
            tally["killed" if ended.code else "ended before"] += 1
            can_resume = verb in ("stream", "evaluate", "active", "ablate") or list(
                out.rglob("checkpoint.safetensors")
            )
            resume = ["--resume"] if can_resume else []
        if not (out / SPEC).exists():
            ended = run(verb, out.name, resume, workers=workers)
            assert ended.code == 0, (verb, number, ended.err)
        left = leftovers(out)
        tally["leftovers"] += len(left)
        tally["lost results"] += results(out) != whole[verb][1]
        print(number + 1, "attacks:", tally, verb, left, flush=True)
    assert tally["lost results"] == tally["leftovers"] == 0
    assert tally["killed"] >= KILLS // 3
