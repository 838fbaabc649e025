"""The authors' outputs, through the real import path: state dict to .pt, import, run."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from cl_cnaps.gaussian import refine
from cl_cnaps.models.adaptation import GaussianHead, LinearHead
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import Film, modulated_forward
from cl_cnaps.models.released import import_checkpoint

LABELS = torch.arange(5).repeat_interleave(torch.tensor([1, 2, 3, 5, 9]))


GOLDEN = Path(__file__).parents[1] / "golden"


def made_up_state(keys: Path) -> dict[str, torch.Tensor]:
    """The weights that the golden vectors were made with, as their README defines them."""
    state = {}
    for key, shape in json.loads(keys.read_text()):
        values = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape)
        values = np.asarray(
            values * (0.05 if len(shape) < 2 else 1 / np.sqrt(np.prod(shape[1:]))), np.float32
        )
        tensor = torch.from_numpy(values)
        if key.endswith("running_var"):
            tensor = tensor.abs() + 0.5
        elif key.endswith(".weight") and len(shape) == 1:
            tensor = 1 + tensor
        elif key.endswith("num_batches_tracked"):
            tensor = torch.zeros((), dtype=torch.int64)
        state[key] = tensor
    return state


class Case:
    """One imported model run on the golden input."""

    def __init__(self, folder: Path, name: str, work: Path) -> None:
        checkpoint = work / f"{name}.pt"
        torch.save(made_up_state(folder / f"{name}_keys.json"), checkpoint)
        self.model: CnapsModel = import_checkpoint(checkpoint)
        self.expected = np.load(folder / f"{name}.npz")
        rng = np.random.default_rng(7)
        support = torch.from_numpy(rng.standard_normal((20, 3, 84, 84)).astype(np.float32))
        query = torch.from_numpy(rng.standard_normal((15, 3, 84, 84)).astype(np.float32))
        with torch.no_grad():
            encoder = self.model.task_encoder
            self.encoding = encoder.pool(encoder.set_encoder(support), LABELS, encoder.set_encoder(query))
            self.film: Film = self.model.adapt(self.encoding)
            self.support = modulated_forward(self.model.backbone, self.film, support)
            self.query = self.model.fold(self.film)(query.to(memory_format=torch.channels_last))
            self.head = self.model.fit(self.support, LABELS, 5)
            self.logits = self.model.logits(self.head, self.query)

    def assert_close(self, actual: torch.Tensor, name: str, tolerance: float) -> None:
        expected = torch.from_numpy(self.expected[name]).double()
        difference = (actual.double() - expected).abs().max() / expected.abs().max()
        assert float(difference) < tolerance, f"{name}: {float(difference):.1e}"


@pytest.fixture(scope="module", params=["simple_film", "transductive_film", "cnaps_film"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(GOLDEN, request.param, tmp_path_factory.mktemp("golden"))


def test_encoding_film_and_features(case: Case) -> None:
    case.assert_close(case.encoding, "task_encoding", 1e-5)
    for name, first in (("film_layer1_block0", 0), ("film_layer4_block1", -2)):
        gammas, betas = case.film.gammas, case.film.betas
        last = len(gammas) + first + 1 if first < 0 else first + 1
        joined = torch.cat([gammas[first], betas[first], gammas[last], betas[last]])
        case.assert_close(joined, name, 1e-5)
    case.assert_close(case.support, "support_features", 1e-5)
    case.assert_close(case.query, "query_features", 1e-5)


def test_logits(case: Case) -> None:
    if case.model.name == "transductive":
        case.assert_close(case.logits, "logits_min2_max4", 1e-5)
        case.assert_close(case.logits, "logits_min2_max4_float64", 1e-5)
    else:
        case.assert_close(case.logits, "logits", 5e-5)
        case.assert_close(case.logits, "logits_float64", 1e-5)


def test_heads(case: Case) -> None:
    if case.model.name == "simple":
        assert isinstance(case.head, GaussianHead)
        case.assert_close(case.head.gaussians.means_KD, "class_means", 1e-5)
        precisions = [torch.linalg.inv(case.head.gaussians.covariance_DD(k).double()) for k in range(5)]
        case.assert_close(torch.stack([p.diagonal() for p in precisions]), "precision_diag", 5e-5)
        case.assert_close(torch.stack([p.trace() for p in precisions]), "precision_trace", 5e-5)
    elif case.model.name == "cnaps":
        assert isinstance(case.head, LinearHead)
        case.assert_close(case.head.weight_KD, "classifier_weight", 1e-5)
        case.assert_close(case.head.bias_K, "classifier_bias", 1e-5)


def test_refinement_steps(case: Case) -> None:
    if case.model.name != "transductive":
        pytest.skip("only the transductive model refines")
    assert isinstance(case.head, GaussianHead)
    for steps in range(5):
        refined = refine(
            case.head.statistics,
            case.query,
            min_steps=steps,
            max_steps=steps,
            normaliser="released-transductive",
        )
        # The golden steps are float32 all through, and the loop amplifies: 5e-5 where float64 exists agrees to 1e-5.
        case.assert_close(refined.logits_QK, f"logits_steps{steps}", 5e-5)
        if steps == 0:
            case.assert_close(refined.logits_QK, "logits_steps0_float64", 1e-5)
