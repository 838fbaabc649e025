from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from few_shot.coloured import coloured_folders

from cl_cnaps.commands.experiments import COMMANDS
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import read_record
from cl_cnaps.report.few_shot import FewShotView, comparison_table, few_shot_table
from cl_cnaps.report.labels import ABSENT
from cl_cnaps.report.table import markdown_table
from cl_cnaps.report.view import draw

RANDOM = (
    "--backbone",
    "timm:test_resnet",
    "--backbone-weights",
    "random",
    "--image-size",
    "32",
    "--workers",
    "0",
)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with mini-ImageNet and textures, and a cache, that are nobody's."""
    root = tmp_path / "root"
    coloured_folders(root / "mini_imagenet" / "test", 6, 12)
    coloured_folders(root / "dtd", 5, 6)
    monkeypatch.setenv("CL_CNAPS_DATA", str(root))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    return root


def invoke(tmp_path: Path, *arguments: object) -> Result:
    words = [str(argument) for argument in (*arguments, "--out", tmp_path / "runs")]
    return CliRunner().invoke(COMMANDS["evaluate"], words, catch_exceptions=False)


def lines(tmp_path: Path, *arguments: object) -> list[dict[str, object]]:
    result = invoke(tmp_path, *arguments, "--json", "--no-plots", *RANDOM)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_says_everything_a_machine_needs(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "mini-imagenet", "--ways", 5, "--shots", 1, "--queries", 3, "--tasks", 2)
    assert line["target"] == line["data_set"] == "mini-imagenet"
    assert (line["model"], line["backbone"], line["adaptation"]) == ("simple", "timm:test_resnet", "none")
    assert (line["ways"], line["shots"], line["queries"], line["tasks"]) == (5, 1, 3, 2)
    accuracy = line["accuracy"]
    assert isinstance(accuracy, dict)
    assert 0 <= accuracy["mean"] <= 1
    assert 0 <= accuracy["ci95"] <= 1
    assert len(str(line["episodes_digest"])) == 64
    assert "72 of 12,000 test images" in str(line["data_source"]) or "in 6" in str(line["data_source"])
    assert "frozen" in str(line["weights_source"])
    assert line["seen_in_pretraining"] == "none, as the backbone was not pre-trained"
    assert float(str(line["seconds"])) > 0
    (record,) = FewShotView.under([tmp_path / "runs"])
    assert record.rows == [{key: value for key, value in line.items() if key != "record"}]
    episodes = record.record.table("episodes")
    assert [row["episode"] for row in episodes] == ["0", "1"]
    assert sum(float(row["accuracy"]) for row in episodes) / 2 == pytest.approx(accuracy["mean"])
    assert [(row["shots"], row["classes"]) for row in record.record.table("recall")] == [("1", "10")]
    assert float(record.record.table("recall")[0]["recall"]) == pytest.approx(accuracy["mean"])


def test_shapes_together_are_as_alone(tmp_path: Path) -> None:
    both = lines(tmp_path, "mini-imagenet", "--ways", "5", "--shots", "1,2", "--queries", 3, "--tasks", 2)
    assert [(line["ways"], line["shots"]) for line in both] == [(5, 1), (5, 2)]
    (alone,) = lines(tmp_path, "mini-imagenet", "--ways", 5, "--shots", 2, "--queries", 3, "--tasks", 2)
    for key in ("accuracy", "episodes_digest", "data_digest"):
        assert alone[key] == both[1][key]


def test_meta_dataset_groups_averages_and_missing(tmp_path: Path) -> None:
    result = invoke(tmp_path, "meta-dataset", "--tasks", 2, "--model", "transductive", *RANDOM)
    assert result.exit_code == 0, result.output
    for words in ("average, in-domain", "average, all", "missing", "mini-imagenet stands in", "pre-training"):
        assert words in " ".join(result.stdout.split()), words
    record = FewShotView(read_record(Path(re.findall(r"^record: +(.*)$", result.stdout, re.MULTILINE)[0])))
    assert [entry["data_set"] for entry in record.rows] == ["ilsvrc_2012", "dtd", "mnist"]
    assert set(record.averages) == {"in", "all"}, "one data set out of domain is no average"
    assert result.stdout.startswith(
        "3 of 13 data sets of Meta-Dataset: ImageNet (mini-imagenet), DTD, MNIST. Missing:"
    )
    assert len(record.missing) == 10
    assert record.record.config["model_config"]["refine_max"] == 4
    markdown = markdown_table(few_shot_table(record))
    assert "| Omniglot | missing |" in markdown
    assert "| DTD | " in markdown
    drawn = {path.name for path in (record.path / "figures").iterdir()}
    assert drawn == {"recall.png", "recall.svg", "tasks.png", "tasks.svg"}


def test_models_are_compared_on_the_same_tasks(tmp_path: Path) -> None:
    arguments = ("mini-imagenet", "--ways", 5, "--shots", "1,2", "--tasks", 2, "--queries", 10)
    for model in ("simple", "transductive"):
        lines(tmp_path, *arguments, "--model", model)
    records = FewShotView.under([tmp_path / "runs"])
    table = markdown_table(comparison_table(records))
    header, _, one, two, *_ = table.splitlines()
    assert header.startswith("| data set | Simple CNAPS, frozen features | Transductive CNAPS, frozen")
    assert "| Simple CNAPS, paper |" in header
    assert one.startswith("| mini-ImageNet, 5-way 1-shot | ")
    assert "53.2 ± 0.9" in one
    assert two.endswith(f"| {ABSENT} | {ABSENT} | {ABSENT} | {ABSENT} |")
    assert "Seen in pre-training: none" in table
    lines(tmp_path, *arguments, "--tasks", 1, "--model", "protonet")
    header = markdown_table(comparison_table(FewShotView.under([tmp_path / "runs"]))).splitlines()[0]
    assert "| ProtoNet, frozen features, 1 task |" in header
    assert "| Simple CNAPS, frozen features, 2 tasks |" in header
    lines(tmp_path, *arguments, "--model", "protonet", "--seed", 1)
    with pytest.raises(BadInputError, match="not of the same tasks"):
        markdown_table(comparison_table(FewShotView.under([tmp_path / "runs"])))


def test_queries_are_varied_and_drawn(tmp_path: Path) -> None:
    arguments = ("mini-imagenet", "--ways", 5, "--shots", 1, "--vary-queries", "2,5,9", "--tasks", 2)
    found = lines(tmp_path, *arguments, "--model", "transductive")
    assert [line["queries"] for line in found] == [2, 5, 9]
    (record,) = FewShotView.under([tmp_path / "runs"])
    assert record.record.config["model_config"]["refine_max"] == 10
    lines(tmp_path, *arguments)
    files = draw(FewShotView.under([tmp_path / "runs"]), tmp_path / "both", ("svg",))
    assert [file.name for file in files] == ["recall.svg", "tasks.svg", "queries.svg"]
    assert "Transductive CNAPS" in files[2].read_text()


def test_a_folder_of_ones_own(tmp_path: Path, own_places: Path) -> None:
    (line,) = lines(
        tmp_path,
        f"folder:{(own_places / 'dtd').rename(own_places / 'photos')}",
        "--variable",
        "--tasks",
        2,
        "--model",
        "protonet",
    )
    assert (line["ways"], line["shots"], line["shape"]) == (None, None, "variable")
    assert line["test_classes"] == "all 5 classes"
    assert line["paper"] is None


def test_mistakes_are_named(tmp_path: Path, own_places: Path) -> None:
    with pytest.raises(BadInputError, match="has 5 classes; tasks have 9 ways"):
        invoke(tmp_path, "dtd", "--ways", 9, *RANDOM)
    with pytest.raises(BadInputError, match="has 6 images; 15 are needed"):
        invoke(tmp_path, "dtd", *RANDOM)
    with pytest.raises(MissingDataError, match="tiered-ImageNet is not in"):
        invoke(tmp_path, "tiered-imagenet", *RANDOM)
    with pytest.raises(MissingDataError, match="no record of `cl-cnaps evaluate`"):
        FewShotView.under([own_places])
    with pytest.raises(BadInputError, match="for models that refine, not for simple"):
        invoke(tmp_path, "dtd", "--refine-max", 3)
    for target in ("mini-imagenet", "tiered-imagenet"):
        with pytest.raises(
            BadInputError, match=f"--specs decides .*, but {target} has a test split of its own"
        ):
            invoke(tmp_path, target, "--specs", own_places, *RANDOM)
    for wrong in (("--ways", "five"), ("--shots", "0"), ("--tasks", "0")):
        assert invoke(tmp_path, "dtd", *wrong).exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_settings_without_effect_are_refused(tmp_path: Path) -> None:
    for options, says in (
        (("--responsibilities", "raw"), "--responsibilities is for models that refine, not for simple"),
        (("--adaptation", "none", "--modulation", "static"), "modulation static is of adapted features"),
    ):
        with pytest.raises(BadInputError, match=says):
            invoke(tmp_path, "mini-imagenet", *options, *RANDOM)
