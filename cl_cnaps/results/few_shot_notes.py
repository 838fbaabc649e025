"""What a reader must know before comparing a few-shot number with another: said under every table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cl_cnaps.results.few_shot import Entry
from cl_cnaps.results.few_shot_averages import Averages


def notes(entries: Sequence[Mapping[str, Any]], averages: Averages) -> list[str]:
    """Sentences, most important first."""
    weights = f"Adaptation weights: {entries[0]['weights_source']}."
    said = [_backbone(entries[0]), weights, *data_set_notes(entries)[1:]]
    if any(entry["accuracy"]["ci95"] is not None for entry in entries):
        said.append("±: 95 % interval over tasks, 1.96 std / sqrt(tasks).")
    return [*said, *_paper(entries), *_ranks(averages)]


def data_set_notes(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the backbone was trained, which test classes it has seen, and of each data set what was used."""
    said = [_backbone(entries[0])]
    seen = _once(entry["title"] for entry in entries if entry["classes_seen_in_pretraining"])
    if seen:
        said.append(
            f"* The backbone was trained on classes that are test classes here ({', '.join(seen)}): "
            "these are not new classes to it, and the numbers are no measure of learning new ones."
        )
    trained = _once(entry["title"] for entry in entries if entry.get("classes_seen_in_training"))
    if trained:
        said.append(
            f"* The adaptation was trained on some of the classes that are tested ({', '.join(trained)})."
        )
    return said + [_data_set(entry) for entry in _first_of_each(entries)]


def telling(entries: Iterable[Entry]) -> list[Entry]:
    """Of several models' entries one for each data set and shape: that which has most to say of what was seen."""
    chosen: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        place = tuple(entry[key] for key in ("data_set", "shape", "queries"))
        if place not in chosen or _told(entry) > _told(chosen[place]):
            chosen[place] = entry
    return list(chosen.values())


def _told(entry: Entry) -> tuple[bool, bool]:
    return bool(entry.get("classes_seen_in_training")), entry["adaptation"] != "none"


def _backbone(first: Mapping[str, Any]) -> str:
    pretraining = first["backbone_pretraining"]
    how = "not pre-trained" if pretraining == "none" else f"pre-trained: {pretraining}"
    return f"Backbone {first['backbone']}, {how}."


def _paper(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for key, trained in (
        ("paper", "its backbone and adaptation trained on the benchmark's training classes"),
        ("paper_imagenet", "trained on ImageNet without the test classes"),
    ):
        labels = _once(entry[key]["label"] for entry in entries if entry[key])
        if labels:
            said.append(f"Paper: {', '.join(labels)}; {trained}, and tested on complete data sets.")
    return said


def _ranks(averages: Averages) -> list[str]:
    if not averages:
        return []
    methods = max(group["methods_ranked"] for group in averages.values())
    return [
        f"Rank: average over the data sets that are there, among this model and the paper's {methods - 1} rows; "
        "paper's: that of the paper's row of this model, on the same data sets. In-domain is what the paper's models "
        "were meta-trained on; a model that was not, like one without trained adaptation, has no such domain."
    ]


def _data_set(entry: Mapping[str, Any]) -> str:
    """Which classes, which images, and what of them the backbone has seen."""
    stand_in = f"{entry['stand_in']} stands in for it; " if entry["stand_in"] else ""
    return (
        f"{entry['title']}: {stand_in}{entry['test_classes']}. Images: {entry['data_source']}. "
        f"Seen in pre-training: {entry['seen_in_pretraining']}."
        + (f" Seen in training: {entry['seen_in_training']}." if "seen_in_training" in entry else "")
    )


def _first_of_each(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first entry of each data set."""
    return list({entry["data_set"]: entry for entry in reversed(entries)}.values())[::-1]


def _once(values: Any) -> list[str]:
    return list(dict.fromkeys(values))
