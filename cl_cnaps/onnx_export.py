"""A learned classifier as one ONNX graph: images in, class probabilities out, for programs without PyTorch."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.gaussian import Gaussians
from cl_cnaps.models.cnaps import Cnaps

if TYPE_CHECKING:
    from cl_cnaps.classifier import FewShotClassifier


class MahalanobisHead(nn.Module):
    """Negative squared distances to factored Gaussians, written out with matrices that are known beforehand.

    In the span of all rows and means, of R dimensions, a class is a mean and the inverse factor of its covariance;
    outside it every Q_k is a multiple of the identity.
    """

    def __init__(self, gaussians: Gaussians) -> None:
        super().__init__()
        means_KD = gaussians.means_KD.double()
        centre_D = means_KD.mean(dim=0)
        rows = torch.cat([gaussians.rows_RD, *gaussians.shared]).double()
        span = torch.cat([rows, means_KD - centre_D])
        few = len(span) < gaussians.width and gaussians.sum_DD is None
        basis_DR = torch.linalg.qr(span.T).Q if few else torch.eye(gaussians.width).to(span)
        wholes = [gaussians.covariance_DD(k).double() for k in range(gaussians.n_classes)]
        factors = torch.linalg.cholesky(torch.stack([basis_DR.T @ q @ basis_DR for q in wholes]))
        identity = torch.eye(basis_DR.shape[1]).to(factors).expand_as(factors)
        inverse_KRR = torch.linalg.solve_triangular(factors, identity, upper=False)
        self.register_buffer("centre_D", centre_D.float())
        self.register_buffer("basis_DR", basis_DR.float())
        self.register_buffer("means_K1R", ((means_KD - centre_D) @ basis_DR)[:, None].float())
        self.register_buffer("inverse_KRR", inverse_KRR.mT.float().contiguous())
        self.identity = gaussians.identity

    def forward(self, features_ND: Tensor) -> Tensor:
        """Logits N x K."""
        basis_DR = self.get_buffer("basis_DR")
        centred_ND = features_ND - self.get_buffer("centre_D")
        inside_NR = centred_ND @ basis_DR
        outside_N1 = (centred_ND - inside_NR @ basis_DR.T).square().sum(dim=1, keepdim=True)
        y_KNR = (inside_NR - self.get_buffer("means_K1R")) @ self.get_buffer("inverse_KRR")
        return -(y_KNR.square().sum(dim=2).T + outside_N1 / self.identity)


class EuclideanHead(nn.Module):
    """Negative squared distances to class means."""

    def __init__(self, gaussians: Gaussians) -> None:
        super().__init__()
        self.register_buffer("means_1KD", gaussians.means_KD[None].float())

    def forward(self, features_ND: Tensor) -> Tensor:
        """Logits N x K."""
        return -(features_ND[:, None] - self.get_buffer("means_1KD")).square().sum(dim=2)


class _Program(nn.Module):
    """From pixels to probabilities."""

    def __init__(self, classifier: FewShotClassifier) -> None:
        super().__init__()
        backbone = classifier.continual_.model.backbone
        self.register_buffer("mean", backbone.get_buffer("_mean"))
        self.register_buffer("scale", backbone.get_buffer("_scale"))
        self.network = copy.deepcopy(
            classifier.continual_.network.network
        )  # the classifier's stays on its device
        self.head = _head(classifier)
        self.temperature = classifier.temperature_for(1)

    def forward(self, images: Tensor) -> Tensor:
        pixels = (images.to(torch.float32) - self.get_buffer("mean")) * self.get_buffer("scale")
        return torch.softmax(self.head(self.network(pixels)) / self.temperature, dim=1)


@torch.no_grad()
def export_onnx(classifier: FewShotClassifier, path: Path) -> Path:
    """Write the graph; its metadata has the classes, in the order of the outputs, and the images' size."""
    try:
        import onnx
        import onnxscript  # noqa: F401  (the exporter's own need, named before it fails)
    except ImportError as error:
        raise ClCnapsError(
            f"{error.name} is not installed, which writes ONNX files: pip install 'cl-cnaps[onnx]'"
        ) from error
    model = classifier.continual_.model
    if classifier.input == "features":
        raise BadInputError("a classifier of features has no network to export")
    if model.config.refines:
        raise BadInputError(
            "the transductive model answers for all images together, which no graph for one batch does: export simple"
        )
    size = model.backbone.info.image_size
    program = _Program(classifier).cpu().eval()
    example = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            program,
            (example,),
            input_names=["images"],
            output_names=["probabilities"],
            dynamic_shapes={"images": {0: torch.export.Dim("images", min=1)}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    graph = exported.model_proto
    facts = {
        "classes": json.dumps(classifier.known_classes),
        "image_size": str(size),
        "images": "uint8, N x 3 x H x W, RGB",
    }
    for key, value in facts.items():
        graph.metadata_props.add(key=key, value=value)
    make_folder(path.parent)
    with partial_file(path) as partial:
        onnx.save(graph, partial)
    return path


def _head(classifier: FewShotClassifier) -> nn.Module:
    continual = classifier.continual_
    gaussians = continual.gaussians(classifier.known_keys)
    if isinstance(continual.model, Cnaps):
        linear = continual.model.classifier(gaussians.means_KD)
        head = nn.Linear(gaussians.width, gaussians.n_classes)
        head.weight.copy_(linear.weight_KD)
        head.bias.copy_(linear.bias_K)
        return head
    heads = {"mahalanobis": MahalanobisHead, "euclidean": EuclideanHead}
    rule = continual.model.config.rule
    if rule not in heads:
        raise BadInputError(
            f"classifiers with the metric {rule} are not exported; there are {', '.join(heads)}"
        )
    return heads[rule](gaussians)
