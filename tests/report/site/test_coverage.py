"""What the front page calls complete: the paper's experiments in full, and nothing less."""

from __future__ import annotations

from pathlib import Path

from report.site.made_up import ablation, active, entry, few_shot
from report.stream_examples import stream_record

from cl_cnaps.active.plan import PAPER
from cl_cnaps.few_shot.ablations import ABLATIONS
from cl_cnaps.few_shot.targets import COLUMNS
from cl_cnaps.names import ABLATIONS as TITLES
from cl_cnaps.names import CNAPS_MODELS, ENCODINGS
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.site.active import active_page
from cl_cnaps.report.site.coverage import Experiment, coverage
from cl_cnaps.report.site.gather import gather
from cl_cnaps.report.site.overview import overview_page


def covered(folder: Path, title: str) -> Experiment:
    (one,) = (one for one in coverage(gather([folder])) if one.title == title)
    return one


def missing(folder: Path, title: str) -> list[str]:
    return [what for what, _ in covered(folder, title).missing]


def all_of_split_mnist(out: Path) -> None:
    for model in CNAPS_MODELS:
        for encoding in ENCODINGS:
            stream_record(out, model=model, encoding=encoding, adaptation="film")
    for model in {figure.model for figure in paper_figures() if figure.encoding is None}:
        stream_record(out, model=model, encoding=None, backbone="none")


def test_a_model_is_there_in_the_encodings_that_were_measured(tmp_path: Path) -> None:
    stream_record(tmp_path, encoding="first", adaptation="film")
    stream_record(tmp_path, encoding="first", model="protonet")
    one = covered(tmp_path, "Split MNIST")
    assert one.there == ["Simple CNAPS (first)", "ProtoNet (frozen features)"]
    commands = dict(one.missing)
    assert "Simple CNAPS, first" not in commands
    assert commands["Simple CNAPS, moving"].endswith("--model simple --adaptation film --encoding moving")
    assert commands["ProtoNet in every encoding"].endswith("--encoding all")
    assert commands["EWC"].endswith("--model ewc --baseline-on network")
    assert not covered(tmp_path, "Split CIFAR-10").there


def test_a_benchmark_is_complete_with_every_model_encoding_and_baseline(tmp_path: Path) -> None:
    all_of_split_mnist(tmp_path)
    assert missing(tmp_path, "Split MNIST") == []
    assert overview_page(gather([tmp_path])).content["complete"] == 1


def test_streams_that_are_not_the_papers_do_not_count(tmp_path: Path) -> None:
    stream_record(tmp_path, adaptation="film", shots=5)
    stream_record(tmp_path, adaptation="film", heads=["multi"])
    stream_record(tmp_path, model="ewc", encoding=None)  # on features of a backbone
    one = covered(tmp_path, "Split MNIST")
    assert one.there == ["1 baseline", "2 streams in other settings"]
    assert {"Simple CNAPS in every encoding", "EWC"} < {what for what, _ in one.missing}


def test_a_few_shot_benchmark_lacks_models_and_data_sets(tmp_path: Path) -> None:
    few_shot(tmp_path, [entry()], missing=[{"title": "Fungi", "reason": "no images", "domain": "in"}])
    few_shot(tmp_path, [entry(model="transductive", adaptation="film")])
    one = covered(tmp_path, "mini-ImageNet")
    assert one.there == ["Simple CNAPS (frozen features)", "Transductive CNAPS"]
    assert [what for what, _ in one.missing] == ["Simple CNAPS", "CNAPS", "ProtoNet", "data sets: Fungi"]


def test_a_short_protocol_is_not_the_papers(tmp_path: Path) -> None:
    for adaptation in ("film", "none"):
        active(tmp_path, adaptation=adaptation)
    one = covered(tmp_path, "Label acquisition")
    assert one.there == ["Simple CNAPS on CIFAR-10 (short protocol)"]
    commands = dict(one.missing)
    assert "--paper" in commands["Simple CNAPS on CIFAR-10 (short protocol only)"]
    assert "Transductive CNAPS on CIFAR-10" in commands
    table = active_page(gather([tmp_path])).content["table"]
    assert {row.cells[-1].text for row in table.rows} == {"short"}


def test_the_papers_protocol_is_complete_with_adapted_and_frozen_features(tmp_path: Path) -> None:
    active(tmp_path, adaptation="film", protocol=PAPER["cifar10"])
    what = missing(tmp_path, "Label acquisition")
    assert what[0] == "Simple CNAPS on CIFAR-10, frozen features"
    active(tmp_path, adaptation="none", protocol=PAPER["cifar10"])
    assert what[1:] == missing(tmp_path, "Label acquisition")
    assert covered(tmp_path, "Label acquisition").there == ["Simple CNAPS on CIFAR-10"]


def test_a_row_that_an_ablation_lacks_is_missing(tmp_path: Path) -> None:
    for which in ABLATIONS:
        ablation(
            tmp_path, which, rows=[one.key for one in ABLATIONS[which] if one.key not in ("plus", "0-1")]
        )
    one = covered(tmp_path, "Parts of the models")
    assert list(one.there) == list(TITLES.values())
    assert list(one.missing) == [
        ("Transductive+ in Parts of transduction", "cl-cnaps ablate transduction --specs FOLDER"),
        ("1 cell of the grid in Steps of refinement", "cl-cnaps ablate refinement --specs FOLDER"),
        (f"data sets: {', '.join(column.title for column in COLUMNS[1:])}", ""),
    ]


def test_rows_of_an_ablation_that_lack_data_sets_of_others_are_named(tmp_path: Path) -> None:
    for column in COLUMNS:
        for which in ABLATIONS:
            rows = [
                m.key for m in ABLATIONS[which] if m.key != "plus" or column.title in ("Omniglot", "Birds")
            ]
            ablation(tmp_path, which, rows, column.title)
    lacks = [column.title for column in COLUMNS if column.title not in ("Omniglot", "Birds")]
    assert list(covered(tmp_path, "Parts of the models").missing) == [
        (
            f"Transductive+ in Parts of transduction on {', '.join(lacks)}",
            "cl-cnaps ablate transduction --specs FOLDER",
        )
    ]
    for column in COLUMNS:
        for which in ABLATIONS:
            ablation(tmp_path / "whole", which, None, column.title)
    assert covered(tmp_path / "whole", "Parts of the models").complete


def test_models_trained_on_imagenet_alone_are_an_experiment_of_their_own(tmp_path: Path) -> None:
    title = "Meta-Dataset, trained on ImageNet alone"
    few_shot(tmp_path, [entry()])
    assert missing(tmp_path, title) == ["Simple CNAPS", "Transductive CNAPS"]
    common = {"target": "meta-dataset", "adaptation": "film", "shape": "variable"}
    imagenet = entry(data_set="ilsvrc_2012", title="ImageNet", seen_in_training="all", **common)
    mnist = entry(data_set="mnist", title="MNIST", **common)
    few_shot(tmp_path, [imagenet, {**mnist, "seen_in_training": "none"}])
    assert missing(tmp_path, title) == ["Transductive CNAPS"]
    assert not covered(tmp_path, "Meta-Dataset").there
    few_shot(tmp_path / "more", [imagenet, {**mnist, "seen_in_training": "3 of the test classes"}])
    assert covered(tmp_path / "more", "Meta-Dataset").there == ["Simple CNAPS"]
    assert len(missing(tmp_path / "more", title)) == 2
