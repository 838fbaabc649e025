"""Simple CNAPS, Transductive CNAPS and CNAPS: encode a task, adapt, embed, fit, predict.

Predicting never changes the model: every method is a function of the weights and its arguments. Only encoding in
training mode moves the running statistics of the set encoder's batch-norm, where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    FIT_RULES,
    Gaussians,
    Normaliser,
    Rounds,
    Scatter,
    Statistics,
    class_logits,
    estimate,
    estimate_weighted,
    refinement_rounds,
    support_statistics,
)
from cl_cnaps.gaussian.checks import check_features
from cl_cnaps.models.adaptation import (
    GaussianHead,
    Head,
    LinearHead,
    LinearHeadGenerator,
    make_adaptation,
    substitute,
)
from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.config import CnapsConfig, ModelName
from cl_cnaps.models.encoders import (
    ENCODING_WIDTH,
    SMALLEST_IMAGE,
    MeanTaskEncoder,
    TransductiveTaskEncoder,
)
from cl_cnaps.models.film import Film, FoldedNetwork, Folder

__all__ = [
    "MODELS",
    "Cnaps",
    "CnapsConfig",
    "CnapsModel",
    "ModelName",
    "ProtoNet",
    "SimpleCnaps",
    "TransductiveCnaps",
    "make_model",
]

MEMORY_LIMIT = 1 << 30
"""Bytes of activations that encoding or embedding a chunk of images may take."""

_KEPT_PER_VALUE = {"batch": 3, "layer": 6, "group": 3}
"""Values that a gradient needs for each that a modulated layer puts out: a batch-norm's input, output and activation;
also the four times wider layers after a layer-norm."""


class CnapsModel(nn.Module):
    """The shared skeleton: a frozen backbone adapted to a task by FiLM, and a head fitted in closed form."""

    name: ClassVar[ModelName]
    released_normaliser: ClassVar[Normaliser] = "released-simple"

    def __init__(self, config: CnapsConfig, backbone: Backbone) -> None:
        super().__init__()
        if config.model != self.name:
            raise BadInputError(f"a configuration for {config.model} was given to {type(self).__name__}")
        # The resolved size goes into every record and weight file.
        self.config = replace(config, image_size=backbone.info.image_size)
        self.backbone = backbone
        if config.adaptation == "film":
            if not backbone.film_layers:
                raise BadInputError(
                    f"{backbone.info.name} has no batch-, layer- or group-norm with a bias that FiLM could modulate: "
                    "choose adaptation none, its frozen features"
                )
            if config.encoder.image_size is None and backbone.info.image_size < SMALLEST_IMAGE:
                raise BadInputError(
                    f"images of {backbone.info.image_size} pixels are too small for the set encoder, which needs "
                    f"{SMALLEST_IMAGE}; choose a larger image_size, or adaptation none"
                )
            encoder = TransductiveTaskEncoder if config.encodes_queries else MeanTaskEncoder
            self.task_encoder = encoder(config.encoder, backbone)
            self.adaptation = make_adaptation(config.generator, backbone.film_layers)
        if config.learned_temperature:
            self.log_temperature = nn.Parameter(torch.tensor(3.0 if config.adaptation == "film" else 0.0))
        if config.metric in FIT_RULES:
            self.fit_log_weights = nn.Parameter(torch.tensor([0.5, 0.5, 1.0]).log())
        self.source_encodings: Mapping[str, Tensor] = {}
        """Mean encodings of the sources that the weights were validated on, where they are known."""
        self._folders: dict[int, Folder] = {}
        self._layer_area: float | None = None

    @property
    def temperature(self) -> Tensor:
        """What logits are divided by before they become probabilities."""
        if self.config.learned_temperature:
            return self.log_temperature.exp()
        return torch.ones((), dtype=self.dtype, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.network.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights, and so of everything computed with them."""
        return next(self.backbone.network.parameters()).dtype

    @property
    def uses_queries_to_encode(self) -> bool:
        """Whether the task encoding needs the unlabelled query images."""
        return self.config.adaptation == "film" and self.task_encoder.uses_queries

    @contextmanager
    def at_image_size(self, size: int) -> Iterator[None]:
        """Show the backbone images of another side for a while."""
        usual = self.backbone.info
        usual.check_size(size)
        self.backbone.info = replace(usual, image_size=size)
        try:
            yield
        finally:
            self.backbone.info = usual

    def training_bytes_per_image(self) -> int:
        """Estimate the activations that a training pass holds for one image: what each modulated layer keeps."""
        if self._layer_area is None:
            self._layer_area = _layer_area(self.backbone)
        return round(self._layer_area * self.backbone.info.image_size**2 * self.dtype.itemsize)

    # Encode and adapt.

    def encode(self, support: Tensor, labels_N: Tensor, query: Tensor | None = None) -> Tensor | None:
        """Task encoding (64 numbers) from uint8 images; None without adaptation.

        The query images are used by the transductive model only; their labels are not an argument.
        """
        if self.config.adaptation == "none":
            return None
        support_N64 = self._set_encode(support)
        query_Q64 = self._set_encode(query) if query is not None and self.task_encoder.uses_queries else None
        own: Tensor = self.task_encoder.pool(support_N64, labels_N, query_Q64)
        if self.config.modulation == "own":
            return own
        if not self.source_encodings:
            raise BadInputError(
                f"the modulation {self.config.modulation} needs the mean encodings of training sources, which these "
                "weights do not have: it is for weights that `cl-cnaps metatrain` made"
            )
        return substitute(self.config.modulation, own, self.source_encodings)

    def adapt(self, encoding: Tensor | None) -> Film:
        """FiLM parameters for a task encoding; the identity without one."""
        if encoding is None:
            like = next(self.backbone.network.parameters())
            return Film.identity(self.backbone.film_layers, like)
        film: Film = self.adaptation(encoding, self.backbone.info.image_size)
        return film

    def _set_encode(self, images: Tensor) -> Tensor:
        encoder = self.task_encoder.set_encoder
        # Batch statistics are those of all images together.
        whole = (self.training and encoder.config.kind == "convolutional") or encoder.config.batch_statistics
        step = max(1, len(images) if whole else MEMORY_LIMIT // self._bytes_to_encode(images))
        parts = [encoder(self.backbone.prepare(images[i : i + step])) for i in range(0, len(images), step)]
        like = next(encoder.parameters())
        return torch.cat(parts) if parts else like.new_zeros(0, ENCODING_WIDTH)

    def _bytes_to_encode(self, images: Tensor) -> int:
        """Memory for one image in the set encoder, whose first layer holds its input, output, norm and ReLU."""
        side = self.task_encoder.set_encoder.config.image_size or self.backbone.info.image_size
        return self._bytes_to_prepare(images) + 4 * ENCODING_WIDTH * side**2 * self.dtype.itemsize

    def _bytes_to_prepare(self, images: Tensor) -> int:
        """Memory for one image as numbers: its own size and the network's, each in up to three forms."""
        return 3 * (images.shape[1:].numel() + 3 * self.backbone.info.image_size**2) * self.dtype.itemsize

    # Embed.

    def embed(self, images: Tensor, film: Film) -> Tensor:
        """Features N x D of uint8 images under FiLM, differentiable if anything that leads to `film` is."""
        if torch.is_grad_enabled() and any(part.requires_grad for part in (*film.gammas, *film.betas)):
            from cl_cnaps.models.film_training import training_forward

            return training_forward(self.backbone, film, self.backbone.prepare(images))
        return self.embed_folded(images, self.fold(film))

    def fold(self, film: Film) -> FoldedNetwork:
        """The backbone with FiLM built into its weights: make it once per task, embed many images with it."""
        size = self.backbone.info.image_size
        if size not in self._folders:
            self._folders[size] = Folder(self.backbone)
        return self._folders[size].fold(film)

    @torch.no_grad()
    def embed_folded(
        self, images: Tensor, network: FoldedNetwork, memory_limit: int = MEMORY_LIMIT
    ) -> Tensor:
        """Features N x D in chunks whose activations stay under `memory_limit` bytes."""
        chunk = network.images_within(memory_limit, self._bytes_to_prepare(images))
        features = torch.empty(len(images), self.backbone.info.width, dtype=self.dtype, device=self.device)
        for i in range(0, len(images), chunk):
            features[i : i + chunk] = network(self.backbone.prepare(images[i : i + chunk]))
        return features

    # Fit and predict.

    @property
    def normaliser(self) -> Normaliser:
        """How this model turns sums of squares into covariances."""
        return "paper" if self.config.normaliser == "paper" else self.released_normaliser

    def fit(self, features_ND: Tensor, labels_N: Tensor, n_classes: int) -> Head:
        """The classes of a task from its support features."""
        statistics = support_statistics(features_ND, labels_N, n_classes)
        return GaussianHead(statistics, self.estimate(statistics))

    def estimate(self, statistics: Statistics, scatter: Scatter | None = None) -> Gaussians:
        """Class Gaussians from statistics; `scatter` is what Sigma is made of, if not these classes alone."""
        if self.config.metric not in FIT_RULES:
            return estimate(statistics, self.normaliser, self.config.beta, scatter)
        own, shared, _ = self.fit_log_weights.exp()
        if self.config.metric == "fit-lda":
            own = torch.zeros_like(own)
        scale = self._fit_scale
        return estimate_weighted(
            statistics.scaled(scale), (own, shared), None if scatter is None else scatter.scaled(scale)
        )

    @property
    def _fit_scale(self) -> Tensor:
        """What features are multiplied by under FiT's heads: Q / e3 is the Q of features over the root of e3."""
        return (-0.5 * self.fit_log_weights[2]).exp()

    def class_logits(self, gaussians: Gaussians, query_QD: Tensor) -> Tensor:
        """Logits Q x K of queries under class Gaussians, before any refinement."""
        if self.config.metric in FIT_RULES:
            query_QD = query_QD * self._fit_scale
        return class_logits(gaussians, query_QD, self.config.rule)

    def logits(self, head: Head, query_QD: Tensor) -> Tensor:
        """Logits Q x K; for a model that refines, in evaluation those after refinement on this query set."""
        assert isinstance(head, GaussianHead)
        return self.class_logits(head.gaussians, query_QD)

    def probabilities(self, head: Head, query_QD: Tensor) -> Tensor:
        """Class probabilities Q x K."""
        return torch.softmax(self.logits(head, query_QD) / self.temperature, dim=1)

    def forward(self, support: Tensor, labels_N: Tensor, query: Tensor, n_classes: int) -> Tensor:
        """Query logits of one task from its images."""
        film = self.adapt(self.encode(support, labels_N, query))
        return self.task_logits(self.embed(torch.cat([support, query]), film), labels_N, n_classes)

    def task_logits(self, features_ND: Tensor, labels_N: Tensor, n_classes: int) -> Tensor:
        """Query logits of one task from its features: of the labelled images, then of the queries."""
        support_ND, query_QD = torch.split(features_ND, [len(labels_N), len(features_ND) - len(labels_N)])
        return self.logits(self.fit(support_ND, labels_N.to(features_ND.device), n_classes), query_QD)


class SimpleCnaps(CnapsModel):
    """Simple CNAPS (Bateni et al. 2020; Section method:simple-cnaps): class Gaussians and Mahalanobis distance."""

    name = "simple"


class ProtoNet(CnapsModel):
    """The same adapted features with squared Euclidean distance to the class means (Snell et al. 2017)."""

    name = "protonet"

    def __init__(self, config: CnapsConfig, backbone: Backbone) -> None:
        super().__init__(replace(config, metric="euclidean"), backbone)


class TransductiveCnaps(CnapsModel):
    """Transductive CNAPS (Section sec:transductive-cnaps): queries take part in the encoding and in the classes.

    The variants FEOT and COT leave out one of the two.
    """

    name = "transductive"
    released_normaliser = "released-transductive"

    def logits(self, head: Head, query_QD: Tensor) -> Tensor:
        """Logits in training from the support alone, but for Transductive+; in evaluation refined on this query set."""
        if not self.config.refines or (self.training and self.config.variant != "plus"):
            return super().logits(head, query_QD)
        assert isinstance(head, GaussianHead)
        return self.refined_logits(head.statistics, query_QD)

    def refined_logits(
        self,
        support: Statistics,
        query_QD: Tensor,
        initial_logits_QK: Tensor | None = None,
        *,
        covered: bool = True,
    ) -> Tensor:
        """Logits Q x K refined on the query set as this model does it; arguments as of `refinement`."""
        rounds = self.refinement(support, query_QD, initial_logits_QK, covered=covered)
        return rounds.end(self.config.refine_min, self.config.refine_max).logits_QK

    def refinement(
        self,
        support: Statistics,
        query_QD: Tensor,
        initial_logits_QK: Tensor | None = None,
        *,
        covered: bool = True,
    ) -> Rounds:
        """The rounds of the refinement, to be ended under any bounds.

        Args:
            support: statistics of the labelled images.
            query_QD: features of the whole query set.
            initial_logits_QK: logits to start from in place of the support-only fit.
            covered: whether the query set has images of all classes that compete, by which `auto` responsibilities
                are chosen.
        """
        kind = self.config.responsibilities
        calibrated = kind == "calibrated" or (kind == "auto" and covered)
        return refinement_rounds(
            support,
            query_QD,
            normaliser=self.normaliser,
            beta=self.config.beta,
            rule="gmm" if self.config.rule == "gmm" else "mahalanobis",
            initial_logits_QK=initial_logits_QK,
            temperature=self.temperature if calibrated else 1.0,
        )


class Cnaps(CnapsModel):
    """The original CNAPS (Requeima et al. 2019; Section sec:cnaps): a generated linear classifier."""

    name = "cnaps"

    def __init__(self, config: CnapsConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.classifier = LinearHeadGenerator(backbone.info.width)

    def fit(self, features_ND: Tensor, labels_N: Tensor, n_classes: int) -> Head:
        """The generated classifier of a task."""
        head: LinearHead = self.classifier(support_statistics(features_ND, labels_N, n_classes).means_KD)
        return head

    def logits(self, head: Head, query_QD: Tensor) -> Tensor:
        """W z + b."""
        assert isinstance(head, LinearHead)
        check_features(query_QD, "query", head.weight_KD.shape[1])
        return query_QD @ head.weight_KD.T + head.bias_K


@torch.no_grad()
def _layer_area(backbone: Backbone) -> float:
    """Return the values that a gradient through the modulated layers needs, per pixel of the input."""
    size, values = backbone.info.image_size, 0

    def count(kind: str, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        nonlocal values
        values += _KEPT_PER_VALUE[kind] * output.numel()

    with ExitStack() as hooks:
        for layer in backbone.film_layers:
            norm = backbone.network.get_submodule(layer.name)
            hooks.enter_context(norm.register_forward_hook(partial(count, layer.kind)))
        backbone.network(torch.zeros(1, 3, size, size).to(next(backbone.network.parameters())))
    return values / size**2


MODELS: dict[ModelName, type[CnapsModel]] = {
    model.name: model for model in (SimpleCnaps, TransductiveCnaps, Cnaps, ProtoNet)
}


def make_model(config: CnapsConfig, backbone: Backbone, seed: int = 0) -> CnapsModel:
    """A model with freshly drawn adaptation weights; in evaluation mode."""
    if config.model not in MODELS:
        raise BadInputError(f"unknown model {config.model!r}; there are {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = MODELS[config.model](config, backbone)
    return model.eval()
