"""FiT's heads: their weights are learned, alone if a recipe wants it, and their maths is the dense form's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models.small import small_model
from training.small import Silence, one_process, small_data, small_recipe

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import support_statistics
from cl_cnaps.models.encoders import SetEncoderConfig, TaskNorm
from cl_cnaps.training.metatrain import MetaTraining


@pytest.mark.parametrize("metric", ["fit-qda", "fit-lda"])
def test_logits_are_gaussian_log_densities(metric: str) -> None:
    """Against matrices formed in full, up to a constant of each query."""
    model = small_model("simple", metric=metric).double()
    with torch.no_grad():
        model.fit_log_weights.copy_(torch.tensor([0.3, 0.8, 2.5]).log())
    generator = torch.Generator().manual_seed(0)
    features = 3 * torch.randn(12, 10, generator=generator, dtype=torch.float64)
    query = 3 * torch.randn(5, 10, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
    with torch.no_grad():
        found = model.logits(model.fit(features, labels, 3), query)
    task = features.T.cov(correction=0)
    expected = torch.empty(5, 3, dtype=torch.float64)
    for k in range(3):
        own = features[labels == k]
        q = 0.8 * task + 2.5 * torch.eye(10) + (0.3 * own.T.cov(correction=0) if metric == "fit-qda" else 0)
        normal = torch.distributions.MultivariateNormal(own.mean(dim=0), q)
        expected[:, k] = normal.log_prob(query)
    torch.testing.assert_close(found - found[:, :1], expected - expected[:, :1], rtol=1e-3, atol=1e-6)


def test_statistics_of_more_classes_can_make_the_shared_part() -> None:
    model = small_model("simple", metric="fit-lda").double()
    features = torch.randn(12, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    statistics = support_statistics(features, torch.arange(3).repeat_interleave(4), 3)
    some = statistics.select(torch.tensor([0, 2]))
    query = features[:3]
    with torch.no_grad():
        everything = model.class_logits(model.estimate(statistics), query)
        part = model.class_logits(model.estimate(some, statistics.scatter), query)
    torch.testing.assert_close(part, everything[:, [0, 2]])


@pytest.mark.parametrize("standardise", [False, True])
def test_learning_the_metric_leaves_the_features_alone(tmp_path: Path, standardise: bool) -> None:
    recipe = small_recipe(model={"metric": "fit-qda"}, training={"learn": "head", "film_regulariser": 0.0})
    encoder = SetEncoderConfig(standardise=standardise)
    model = small_model("simple", metric="fit-qda", encoder=encoder)
    if isinstance(
        norm := model.task_encoder.norm, TaskNorm
    ):  # as weights that a training starts from have it
        norm.update(torch.randn(3, 64, generator=torch.Generator().manual_seed(0)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    MetaTraining(recipe, model, small_data(recipe), tmp_path, one_process(), Silence(), about={}).run()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"fit_log_weights", "log_temperature"}


def test_there_must_be_a_metric_to_learn() -> None:
    with pytest.raises(BadInputError, match="nothing to learn"):
        small_recipe(training={"learn": "head"})
