"""What stands on the pages: the numbers, the paper's, what is missing, and nothing that a record smuggles in."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report.site.made_up import HOSTILE, ablation, active, entry, few_shot
from report.stream_examples import stream_record

from cl_cnaps.errors import BadInputError
from cl_cnaps.report.labels import ABSENT
from cl_cnaps.report.plots.style import strategy_colours
from cl_cnaps.report.site import gather, write_site
from cl_cnaps.report.site.ablations import ablations_page
from cl_cnaps.report.site.active import active_page
from cl_cnaps.report.site.continual import continual_page
from cl_cnaps.report.site.few_shot import few_shot_page
from cl_cnaps.report.site.overview import overview_page
from cl_cnaps.report.table import Table


class Reader(HTMLParser):
    """Counts elements and collects links and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.data: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._script = tag == "script"
        self.links += [value for key, value in attrs if key in ("href", "src") and value]

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.data.append(data)


def site(tmp_path: Path, records: Path) -> dict[str, str]:
    front = write_site(gather([records]), tmp_path / "site")
    return {
        path.relative_to(front.parent).as_posix(): path.read_text() for path in front.parent.rglob("*.html")
    }


def cells(table: Table, name: str, kind: str = "here") -> list[str]:
    (row,) = (row for row in table.rows if row.cells[0].text == name and row.kind == kind)
    return [cell.text for cell in row.cells[1:]]


def change(file: Path, **values: Any) -> None:
    """Other values in a file of a record."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_all_links_lead_somewhere_in_the_site(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs")
    few_shot(tmp_path / "runs", [entry()])
    active(tmp_path / "runs")
    ablation(tmp_path / "runs")
    pages = site(tmp_path, tmp_path / "runs")
    assert len(pages) == 6 + 4
    for path, text in pages.items():
        for link in Reader(text).links:
            if not link.startswith(("#", "data:")):
                assert (tmp_path / "site" / path).parent.joinpath(link).resolve().is_file(), f"{path}: {link}"


def test_nothing_in_a_record_becomes_markup(tmp_path: Path) -> None:
    record = stream_record(tmp_path / "runs", 2, benchmark=f"folder:{HOSTILE}", model=HOSTILE)
    change(record.path / "summary.json", tasks=[HOSTILE, "plain"])
    change(record.path / "environment.json", command=HOSTILE, **{HOSTILE: HOSTILE})
    rows = json.loads((record.path / "summary.json").read_text())["rows"]
    change(record.path / "summary.json", rows=[row | {"data_source": HOSTILE} for row in rows])
    few_shot(tmp_path / "runs", [entry(title=HOSTILE, test_classes=HOSTILE, shape=HOSTILE)])
    for path, text in site(tmp_path, tmp_path / "runs").items():
        reader = Reader(text)
        assert "b" not in reader.tags, path
        assert "<script>" not in text, path
        for data in reader.data:
            json.loads(data)  # a script element that holds anything holds data


def test_the_data_of_the_charts_comes_back_as_it_was(tmp_path: Path) -> None:
    record = stream_record(tmp_path / "runs", 2)
    change(record.path / "summary.json", tasks=[HOSTILE, "plain"])
    (data,) = Reader(site(tmp_path, tmp_path / "runs")["continual.html"]).data
    panels = json.loads(data)
    assert {panel["head"] for panel in panels} == {"multi", "single"}
    assert panels[0]["tasks"] == [HOSTILE, "plain"]
    assert [step["learned"] for step in panels[0]["steps"]] == [1, 2]
    assert "</script" not in data


def test_the_continual_table_has_ours_and_the_papers(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    table = continual_page(gather([tmp_path])).content["table"]
    by_head = {s["head"]: f"{100 * s['final_accuracy']['mean']:.1f}" for s in record.rows}
    here = cells(table, "Simple CNAPS, frozen features")
    assert here[0].startswith(by_head["multi"])
    assert here[1].startswith(by_head["single"])
    assert here[2:] == [ABSENT] * 4
    assert cells(table, "Simple CNAPS, first", "paper")[:2] == ["96.7 ± 0.3", "69.5 ± 1.0"]
    assert cells(table, "EWC", "paper")[2] == ABSENT


def test_rows_of_one_model_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    stream_record(tmp_path)
    stream_record(tmp_path, seed=1)
    stream_record(tmp_path, shots=5)
    stream_record(tmp_path, benchmark="split-cifar10")
    table = continual_page(gather([tmp_path])).content["table"]
    names = [row.cells[0].text for row in table.rows if row.kind == "here"]
    assert sorted(names) == [
        "Simple CNAPS, frozen features, 5 shots",
        "Simple CNAPS, frozen features, seed 0",
        "Simple CNAPS, frozen features, seed 1",
    ]
    assert cells(table, "Simple CNAPS, frozen features, seed 0")[2] != ABSENT  # CIFAR-10 in the same row


def test_few_shot_rows_have_averages_and_ranks_beside_the_papers(tmp_path: Path) -> None:
    shape = {"target": "meta-dataset", "shape": "variable"}
    entries = [
        entry(data_set="omniglot", title="Omniglot", domain="in", **shape),
        entry(data_set="mnist", title="MNIST", domain="out", **shape),
    ]
    few_shot(tmp_path, entries, missing=[{"title": "Fungi", "reason": "no images", "domain": "in"}])
    page = few_shot_page(gather([tmp_path]))
    benchmark = page.content["benchmarks"][0]
    titles = [column.title for column in benchmark.table.columns]
    row = cells(benchmark.table, "Simple CNAPS, frozen features")
    assert row[titles.index("Omniglot") - 1] == "61.2 ± 0.9"
    assert row[titles.index("Fungi") - 1] == ABSENT
    assert row[-6:-3] == [ABSENT, ABSENT, "61.2"]  # one data set has no average
    assert row[-3:] == [ABSENT, ABSENT, "10.0"]
    assert cells(benchmark.table, "Simple CNAPS", "paper")[-6:-3] == ["91.7", "93.9", "92.8"]
    assert "Missing: Fungi: no images" in benchmark.notes
    (experiment,) = (one for one in page.content["experiments"] if one.title == "Meta-Dataset")
    assert dict(experiment.missing)["Transductive CNAPS"] == (
        "cl-cnaps evaluate meta-dataset --model transductive --adaptation film --specs FOLDER"
    )


def test_the_front_page_marks_classes_that_are_not_new(tmp_path: Path) -> None:
    best = {"mean": 0.7, "ci95": 0.01}
    few_shot(tmp_path, [entry(stand_in="photos", classes_seen_in_pretraining=True, accuracy=best)])
    for model in ("transductive", "cnaps", "protonet", "simpler"):
        few_shot(tmp_path, [entry(model=model)])
    content = overview_page(gather([tmp_path])).content
    (tile,) = content["tiles"]
    assert tile.title == "mini-ImageNet (photos)*, 5-way 1-shot"
    assert "not to be compared" in content["seen"][0]
    assert "not the same experiment" in content["seen"][1]
    assert tile.beside[-1] == "best of 5 records, 600 tasks each"


def test_streams_say_which_images_they_are_of(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    notes = continual_page(gather([tmp_path])).content["notes"]
    assert f"Images of MNIST: {record.rows[0]['data_source']}." in notes


def test_every_strategy_has_the_colour_that_figures_give_it(tmp_path: Path) -> None:
    strategies = ("random", "entropy", "variation-ratio", "margin", "badge")
    active(tmp_path, strategies=strategies)
    drawn = active_page(gather([tmp_path])).content["curves"]
    assert [curve["colour"] for curve in drawn] == list(strategy_colours(strategies).values())
    assert len({curve["colour"] for curve in drawn}) == len(strategies)


def test_ablations_of_the_same_data_sets_say_once_what_these_are(tmp_path: Path) -> None:
    for which in ("metric", "gmm"):
        ablation(tmp_path / "runs", which)
    page = site(tmp_path, tmp_path / "runs")["ablations.html"]
    assert page.count("<h2") == 4  # two ablations, what they share, what is missing
    assert page.count("Seen in pre-training:") == 1


def test_ablations_of_the_same_part_are_told_apart_by_their_data_sets(tmp_path: Path) -> None:
    ablation(tmp_path)
    ablation(tmp_path, "gmm")
    ablation(tmp_path, rows=("cosine", "l1"), title="Birds")
    changed = ablations_page(gather([tmp_path])).content["changed"]
    assert [one.title for one in changed] == ["Metric", "Gaussian mixtures"]
    assert sorted(one.on for one in changed[0].shown) == ["Birds", "ImageNet"]
    assert [one.on for one in changed[1].shown] == [""]


def test_a_page_without_records_says_what_is_missing(tmp_path: Path) -> None:
    few_shot(tmp_path / "runs", [entry()])
    pages = site(tmp_path, tmp_path / "runs")
    assert "There is no record of a stream yet" in pages["continual.html"]
    assert "cl-cnaps active --source cifar10 --model simple" in pages["active.html"]
    assert "cl-cnaps ablate metric" in pages["ablations.html"]
    for page in ("continual", "active", "ablations"):
        assert pages[f"{page}.html"].index("What is missing") > pages[f"{page}.html"].index("<h1")


def test_a_record_page_has_all_of_the_record(tmp_path: Path) -> None:
    record = few_shot(tmp_path / "runs", [entry()])
    (path, text) = next(
        (path, text) for path, text in site(tmp_path, tmp_path / "runs").items() if "records/" in path
    )
    assert "cl-cnaps made-up --name &#39;a &amp; b&#39;" in text
    assert "With the code of commit <code>0123456789abcdef</code>" in text
    assert "code.commit" in text
    assert "61.2 ± 0.9" in text
    assert "the first 200 rows are shown" in text
    raw = (tmp_path / "site" / path).with_suffix("") / "episodes.csv"
    assert raw.read_bytes() == (record.path / "episodes.csv").read_bytes()


def test_no_page_shows_a_number_that_is_none(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs", n_tasks=1, runs=1)  # no forgetting, no interval
    active(tmp_path / "runs")
    for path, text in site(tmp_path, tmp_path / "runs").items():
        assert not re.search(r"\b(nan|NaN|None|inf)\b", re.sub(r"<[^>]*>", " ", text)), path


def test_the_same_records_make_the_same_site(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs")
    assert site(tmp_path / "a", tmp_path / "runs") == site(tmp_path / "b", tmp_path / "runs")


def test_a_report_is_replaced_whole_and_nothing_else_is(tmp_path: Path) -> None:
    stream_record(tmp_path / "runs")
    site(tmp_path, tmp_path / "runs")
    (tmp_path / "site" / "old.html").write_text("left over")
    site(tmp_path, tmp_path / "runs")
    assert not (tmp_path / "site" / "old.html").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "site"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInputError, match="was not made by"):
        write_site(gather([tmp_path / "runs"]), mine)
    assert (mine / "thesis.tex").read_text() == "years of work"
