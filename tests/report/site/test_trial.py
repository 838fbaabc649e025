"""A record whose values are not of the form expected is listed with the reason, and the site is made of the others."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.site.made_up import ablation, active, entry, few_shot
from report.stream_examples import stream_record

from cl_cnaps.report.site import gather, showable, write_site

MAKERS = {
    "stream": lambda out: stream_record(out).path,
    "evaluate": lambda out: few_shot(out, [entry()]).path,
    "active": lambda out: active(out).path,
    "ablate": lambda out: ablation(out).path,
}
ABSENT = object()
WRONG = (ABSENT, None, "text", 10**400, [], {"a": 1}, True)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value of a JSON document, those that hold others too."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(tree)
    place = made
    for key in path[:-1]:
        place = place[key]
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


@pytest.mark.parametrize("verb", MAKERS)
def test_no_value_of_a_record_takes_the_report_down(verb: str, tmp_path: Path) -> None:
    folder = MAKERS[verb](tmp_path / "runs")
    stream_record(tmp_path / "runs", encoding="moving")  # one that stays whole
    listed = 0
    draw = random.Random(0)
    for part in ("summary", "environment"):
        file = folder / f"{part}.json"
        whole = json.loads(file.read_text())
        every = list(places(whole))
        for path in every if len(every) < 20 else draw.sample(every, 20):
            file.write_text(json.dumps(changed(whole, path, draw.choice(WRONG))))
            found = showable(gather([tmp_path / "runs"]))
            assert len(found.records) + len(found.unreadable) == 2, path
            assert len(found.streams) >= 1, path
            listed += len(found.unreadable)
            write_site(found, tmp_path / "site")
        file.write_text(json.dumps(whole))
    assert listed > 5, "hardly anything that was broken was noticed"


def test_the_reason_is_given(tmp_path: Path) -> None:
    stream_record(tmp_path)
    bad = stream_record(tmp_path, encoding="moving")
    summary = json.loads((bad.path / "summary.json").read_text())
    summary["rows"][0]["final_accuracy"] = None
    (bad.path / "summary.json").write_text(json.dumps(summary))
    found = showable(gather([tmp_path]))
    assert [stream.path == bad.path for stream in found.streams] == [False]
    (one,) = found.unreadable
    assert one.path == bad.path
    assert "its form is not known to this version (TypeError" in one.reason
