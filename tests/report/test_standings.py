"""Models against the paper: encodings folded where they agree, the short table, what learns best, and the findings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from report.site.made_up import ablation
from report.stream_examples import stream_record

from cl_cnaps.names import ENCODINGS, PAPER_BENCHMARKS
from cl_cnaps.records.record import read_record, records_under
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.findings import Evidence, Finding, ablation_sentence, findings
from cl_cnaps.report.generated import findings_part, front_table
from cl_cnaps.report.plots.streams import models_figure
from cl_cnaps.report.standings import folded, short_standings, standings, standings_table, verdicts
from cl_cnaps.report.stream import StreamView

RESULTS = Path(__file__).parents[2] / "results"


def stream(
    out: Path, single: float, multi: float | None = None, half: float = 0.01, **changes: Any
) -> StreamView:
    """A stream with these final accuracies; adapted to the first task unless another is given."""
    usual = {"adaptation": "film", "encoding": "first", "n_tasks": 2}
    path = stream_record(out, **(usual | changes)).path / "summary.json"
    summary = json.loads(path.read_text())
    finals = {"single": single, "multi": single if multi is None else multi}
    for row in summary["rows"]:
        row["final_accuracy"] |= {"mean": finals[row["head"]], "ci95": half}
    path.write_text(json.dumps(summary))
    return StreamView(read_record(path.parent))


def rival(out: Path, model: str, single: float, **changes: Any) -> StreamView:
    return stream(out, single, model=model, encoding=None, adaptation="none", **changes)


def found(out: Path) -> dict[str, Finding]:
    return {one.name: one for one in findings(Evidence.of(list(records_under(out))))}


def test_encodings_that_agree_are_one_row(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.80 + i / 2000, encoding=one) for i, one in enumerate(ENCODINGS)]
    table = standings_table("", "", folded(standings(views)))
    kinds = [(row.cells[0].text, row.kind) for row in table.rows]
    assert kinds == [
        ("Simple CNAPS, any encoding", "here"),
        *((f"Simple CNAPS, {one}", "each") for one in ENCODINGS),
    ]
    assert table.rows[0].cells[2].text == "80.0 ± 1.0"  # that of the first encoding: 80.05, half to even
    views[0] = stream(tmp_path / "other", 0.70, encoding="moving")
    table = standings_table("", "", folded(standings(views)))
    assert [row.kind for row in table.rows] == ["here"] * 3


def test_encodings_that_agree_on_one_benchmark_alone_are_rows_of_their_own(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.8, encoding=one) for one in ("first", "moving")]
    assert set(folded(standings(views))["kind"]) == {"here", "each"}
    views += [
        stream(tmp_path, mean, encoding=one, benchmark="mixed-domains")
        for one, mean in (("first", 0.5), ("moving", 0.6))
    ]
    assert set(folded(standings(views))["kind"]) == {"here"}


def test_encodings_that_were_not_all_measured_on_a_benchmark_are_rows_of_their_own(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.8, encoding=one) for one in ENCODINGS]
    views.append(stream(tmp_path, 0.6, encoding="first", benchmark="mixed-domains"))
    assert set(folded(standings(views))["kind"]) == {"here"}


def test_the_short_table_has_our_models_the_best_rivals_and_the_papers(tmp_path: Path) -> None:
    views = []
    for benchmark in PAPER_BENCHMARKS:
        views += [
            stream(tmp_path, 0.8, benchmark=benchmark),
            stream(tmp_path, 0.9, encoding="moving", benchmark=benchmark),
        ]
        views += [
            rival(tmp_path, model, 0.5 + i / 100, benchmark=benchmark)
            for i, model in enumerate(("naive", "ncm", "lda", "slda", "ranpac", "joint"))
        ]
    frame = short_standings(views)
    labels = list(dict.fromkeys(zip(frame["label"], frame["kind"], strict=True)))
    assert len(labels) <= 10
    assert labels[:4] == [
        ("Simple CNAPS, moving", "here"),  # better than first
        ("RanPAC, backbone features", "here"),
        ("SLDA, backbone features", "here"),
        ("LDA, backbone features", "here"),
    ]
    assert ("Simple CNAPS, first", "paper") in labels
    assert not any("Joint" in label for label, _ in labels), "an upper bound is no rival"


def test_what_learns_best_and_by_how_much(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.9), rival(tmp_path, "slda", 0.85), rival(tmp_path, "joint", 0.99)]
    (one,) = verdicts(views)
    assert (one.title, one.label, one.number) == ("MNIST", "Simple CNAPS, first", "90.0 ± 1.0")
    assert one.rival == ("SLDA, backbone features", 0.85)
    assert one.paper == ("RWalk", 0.825)
    text = found(tmp_path)["best"].text
    assert "on MNIST Simple CNAPS, first, 90.0 ± 1.0 % (+5.0 points over the best rival" in text
    assert text.endswith("Backbone tiny: not pre-trained."), "the caveat stands with the numbers"


def test_a_rival_that_wins_is_named_first(tmp_path: Path) -> None:
    (one,) = verdicts([stream(tmp_path, 0.8), rival(tmp_path, "ranpac", 0.85)])
    assert one.label == "RanPAC, backbone features"
    assert one.rival is None


def test_without_records_nothing_is_found(tmp_path: Path) -> None:
    assert findings(Evidence()) == []
    assert "Not measured yet" in front_table(tmp_path)
    ablation(tmp_path, "metric")
    assert found(tmp_path) == {}


def test_the_transductive_single_head_beside_the_papers_chance(tmp_path: Path) -> None:
    stream(tmp_path, 0.942, model="transductive")
    text = found(tmp_path)["transductive-single-head"].text
    assert "at chance (MNIST 9.3 %)" in text
    assert "it gives MNIST 94.2 %." in text


def test_adapted_against_frozen_features(tmp_path: Path) -> None:
    stream(tmp_path, 0.95)
    assert "adapted-and-frozen" not in found(tmp_path)
    stream(tmp_path, 0.90, adaptation="none")
    assert found(tmp_path)["adapted-and-frozen"].numbers["gaps"]["MNIST"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("moving", "says"), [(0.70, "the moving encoding is best"), (0.61, "no encoding is clear")]
)
def test_which_encoding_wins_on_mixed_domains(tmp_path: Path, moving: float, says: str) -> None:
    stream(tmp_path, 0.60, benchmark="mixed-domains")
    assert "mixed-domains" not in found(tmp_path)
    stream(tmp_path, moving, benchmark="mixed-domains", encoding="moving")
    text = found(tmp_path)["mixed-domains"].text
    assert says in text
    assert f"moving {100 * moving:.1f} ± 1.0 % and first 60.0 ± 1.0 %" in text


def test_mixed_domains_are_compared_at_the_same_shots(tmp_path: Path) -> None:
    for encoding, shots, mean in (("first", 20, 0.6), ("moving", 20, 0.7), ("moving", 5, 0.9)):
        stream(tmp_path, mean, benchmark="mixed-domains", encoding=encoding, shots=shots)
    assert found(tmp_path)["mixed-domains"].numbers["mixed-domains"] == {"moving": 0.7, "first": 0.6}


def test_a_stream_in_another_setting_is_in_no_short_table(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.8, covariance="seen"), stream(tmp_path, 0.9, covariance="task")]
    assert set(short_standings([views[1]])["kind"]) == {"paper"}
    (one,) = verdicts(views)
    assert one.mean == 0.8


def test_where_rivals_beat_simple_cnaps_and_where_not(tmp_path: Path) -> None:
    stream(tmp_path, 0.80, 0.95)
    assert "rivals" not in found(tmp_path)
    rival(tmp_path, "ranpac", 0.82, multi=0.93)
    rival(tmp_path, "lda", 0.77, multi=0.945)
    text = found(tmp_path)["rivals"].text
    assert "RanPAC beats it on MNIST single +2.0, loses on MNIST multi -2.0;" in text
    assert "LDA loses on MNIST single -3.0, is level on MNIST multi (" in text


def test_whether_the_adaptation_pays_and_where(tmp_path: Path) -> None:
    assert "adaptation" not in found(tmp_path)
    record = ablation(tmp_path, "adaptation", more=["Omniglot"])  # own is worst, as made up
    one = found(tmp_path)["adaptation"]
    assert one.numbers["static"]["mean"] == pytest.approx(-0.0105)
    assert one.numbers["frozen"]["mean"] == pytest.approx(-0.0315)
    assert one.text.startswith("Adaptation does not clearly pay: on the same tasks of 2 data sets")
    assert " points over one static FiLM (clearly ahead nowhere, clearly behind on ImageNet -1.1" in one.text
    assert one.text.endswith("clearly behind on ImageNet -3.2 and Omniglot -3.2).")
    tasks = record.path / "episodes.csv"  # own is now best by 20 points, on ImageNet alone
    lines = [line.split(",") for line in tasks.read_text().splitlines()]
    row, data_set, accuracy = (lines[0].index(name) for name in ("row", "data_set", "accuracy"))
    for line in lines[1:]:
        if (line[row], line[data_set]) == ("own", "ilsvrc_2012"):
            line[accuracy] = str(float(line[accuracy]) + 0.2)
    tasks.write_text("\n".join(map(",".join, lines)) + "\n")
    text = found(tmp_path)["adaptation"].text
    assert "clearly ahead on ImageNet +18.9, clearly behind on Omniglot -1.1" in text
    assert text.startswith("Adapting to the task pays: ")


def test_what_refinement_brings_with_both_kinds_of_responsibilities(tmp_path: Path) -> None:
    record = ablation(tmp_path, "refinement")
    one = found(tmp_path)["refinement"]
    assert one.numbers["calibrated"] > one.numbers["raw"] > 0
    for kind in ("calibrated", "raw"):
        assert f"{100 * one.numbers[kind]:+.1f} ± " in one.text
    assert one.text.startswith("Refinement pays on few-shot tasks")
    path = record.path / "summary.json"
    summary = json.loads(path.read_text())
    for row in summary["rows"]:
        row["results"][0]["responsibilities"] = "raw"
    path.write_text(json.dumps(summary))
    assert "refinement" not in found(tmp_path), "all rows are raw by an option"


def test_the_numbers_of_the_committed_findings_are_those_of_the_records() -> None:
    """Each number in a sentence is looked up in the records' own summaries, not through the table."""
    records = [one for one in records_under(RESULTS) if one.verb == "stream"]
    finals: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        for row in record.summary["rows"]:
            key = row["benchmark"], row["model"], row["head"]
            finals.setdefault(key, set()).add(f"{100 * row['final_accuracy']['mean']:.1f} %")
    one = found(RESULTS).get("transductive-single-head")
    if one is not None:
        for (title, mean, _), benchmark in zip(one.numbers["pairs"], PAPER_BENCHMARKS, strict=False):
            assert f"{title} {100 * mean:.1f} %" in one.text
            assert f"{100 * mean:.1f} %" in finals[benchmark, "transductive", "single"]
    assert findings_part(RESULTS).count("\n") + 1 == len(found(RESULTS))


def test_the_chart_has_a_line_for_each_model_with_the_papers_mark_on_it(tmp_path: Path) -> None:
    views = [stream(tmp_path, 0.8, 0.9), rival(tmp_path, "slda", 0.7)]
    first, *_ = models_figure(views).axes
    assert isinstance(first, Axes)
    labels = [label.get_text() for label in first.get_yticklabels()]
    assert labels == ["Simple CNAPS, first", "SLDA, backbone features"]
    marks = {(line.get_marker(), round(float(line.get_xdata()[0]), 1)) for line in first.lines}  # type: ignore[index]
    assert {("o", 80.0), ("o", 90.0), ("D", 69.5), ("D", 96.7), ("o", 70.0)} == marks


def test_each_ablation_has_a_sentence_of_its_rows(tmp_path: Path) -> None:
    text = ablation_sentence(
        AblationView(ablation(tmp_path, "metric", rows=("dot", "cosine", "mahalanobis")))
    )
    assert text.startswith("Against Squared Mahalanobis on the same tasks of 1 data set, in points, behind: ")
    assert "Cosine Similarity -1.1 ± " in text
    text = ablation_sentence(AblationView(ablation(tmp_path, "queries")))
    assert text.startswith(
        "Transductive over Simple, in points: mini-ImageNet 5-way 1-shot +1.0 with 10 queries"
    )


def test_prose_about_ablations_and_active_learning_ranks_nothing() -> None:
    """Their records change: what was found is generated, in tables and in sentences above them."""
    for name in ("ablations.md", "active.md"):
        page = (RESULTS.parent / "docs" / name).read_text().split("## Measured here", 1)[1]
        prose = re.sub(r"<!-- generated.*?<!-- end generated -->", "", page, flags=re.DOTALL)
        assert not re.search(r"\b(best|worst|better|worse|beats?)\b", prose), name
