"""The page of the classifier shows the numbers that were measured."""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETS = {"vgg_flower": "flowers", "cu_birds": "birds", "cifar10": "CIFAR-10"}


def table() -> str:
    with (ROOT / "results" / "calibration.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = [
        f"| {row['model']} | {SETS[row['set']]} | {row['shots']} | {row['tasks']} | {float(row['accuracy']):.1%} | "
        f"{row['ece_learned']} | {row['ece_calibrated']} | {row['auroc_unknown']} |"
        for row in rows
    ]
    head = f"| model | images | shots | tasks | accuracy | learned | calibrated | AUROC |\n|{'---|' * 8}"
    return "\n".join([head, *lines])


def test_its_table_is_the_committed_one() -> None:
    page = (ROOT / "docs" / "classifier.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- calibration -->\n")[2].partition("\n<!-- /calibration -->")[0]
    assert shown == table()


def test_calibration_helps_on_every_data_set() -> None:
    with (ROOT / "results" / "calibration.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name in SETS:
        before, after = (
            sum(float(row[column]) for row in rows if row["set"] == name)
            for column in ("ece_learned", "ece_calibrated")
        )
        assert after < before
