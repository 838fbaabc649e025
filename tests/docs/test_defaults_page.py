"""The defaults are what validation classes prefer."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from cl_cnaps.continual.continual_cnaps import ContinualConfig
from cl_cnaps.models.networks import PACKAGED_IMAGE_SIZE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def means() -> pd.Series:
    rows = pd.read_csv(ROOT / "results" / "validation.csv")
    return rows.groupby(["choice", "use", "setting"])["accuracy"].mean() * 100


def test_the_image_size_is_the_best_and_adapting_pays_at_each(means: pd.Series) -> None:
    sizes = means["image size", "few-shot"]
    adapted = {int(name.split()[0]): value for name, value in sizes.items() if name.endswith("adapted")}
    assert max(adapted, key=lambda size: adapted[size]) == PACKAGED_IMAGE_SIZE
    assert all(value > sizes[f"{size} frozen"] for size, value in adapted.items())


def test_the_covariance_of_all_classes_seen_is_never_clearly_worse(means: pd.Series) -> None:
    assert ContinualConfig().covariance == "seen"
    differences = means["covariance"].unstack().eval("seen - task")
    assert (differences > -0.5).all()
    assert differences.mean() > 2


def test_responsibilities_are_calibrated_where_queries_cover_the_classes(means: pd.Series) -> None:
    kinds = means["responsibilities"].unstack()
    few_shot = kinds[kinds.index.str.match("5-way")]
    assert (few_shot["calibrated"] > few_shot[["none", "raw"]].max(axis=1)).all()
    plus = kinds[kinds.index.str.startswith("Transductive+")].mean()
    assert plus["raw"] > plus[["none", "calibrated"]].max()
    alone = kinds.loc["stream, single head, query scope task"]
    assert alone["raw"] > alone["calibrated"]
    covered = kinds.loc[["stream, single head, query scope stream", "stream, multi head"]]
    assert ((covered["calibrated"] - covered["raw"]).abs() < 0.2).all()
