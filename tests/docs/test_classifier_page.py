"""The page of the classifier shows the numbers that were measured."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from cl_cnaps import calibration

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


def test_calibration_never_hurts_and_helps_least_where_the_page_says() -> None:
    rows = pd.read_csv(ROOT / "results" / "calibration.csv")
    rows["gain"] = rows["ece_learned"] - rows["ece_calibrated"]
    assert (rows["gain"] >= 0).all()
    assert rows.groupby(["model", "shots"])["gain"].mean().idxmin() == ("transductive", 5)


def test_the_usual_scales_are_those_of_validation_classes() -> None:
    with (ROOT / "results" / "calibration_scales.csv").open(encoding="utf-8") as file:
        best = {row["model"]: float(row["scale"]) for row in csv.DictReader(file)}
    assert float(f"{best['simple']:.2g}") == calibration._USUAL_SCALE
    assert float(f"{best['transductive']:.2g}") == calibration._USUAL_REFINED_SCALE
