"""A CNAPS model that learns a stream of tasks: the part that needs no Avalanche.

Encoding, memory and model in one module whose state dict holds everything that was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from cl_cnaps.continual.batches import PLAIN, as_images, by_task
from cl_cnaps.continual.encodings import EncodingName, StreamEncoding
from cl_cnaps.continual.memory import ClassGroup, ClassKey, ClassMemory, in_order
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.features.kept import FeatureStore, embed_or_find
from cl_cnaps.gaussian import FIT_RULES, MEANS_ALONE, Gaussians, concatenate, estimate, support_statistics
from cl_cnaps.gaussian.mahalanobis import bytes_when_kept
from cl_cnaps.models.adaptation import LinearHead
from cl_cnaps.models.cnaps import Cnaps, CnapsModel, TransductiveCnaps
from cl_cnaps.models.film import FoldedNetwork

if TYPE_CHECKING:
    from cl_cnaps.gaussian.shortlist import Shortlist

ClassIds = Literal["auto", "shared", "per-task"]
Covariance = Literal["task", "seen"]

_CLASSES_AT_ONCE = 1024
"""Classes that are scored together: their rows are copied."""
_KEPT_FACTORS = 1 << 28
"""Most bytes of class factors that are kept for the next queries."""


@dataclass(frozen=True)
class ContinualConfig:
    """How a model is used on a stream."""

    encoding: EncodingName = "first"
    class_ids: ClassIds = "auto"
    """shared: the same id in two tasks is the same class, and is merged. per-task: ids start anew in each task. auto:
    shared, unless an Avalanche benchmark says that they start anew."""
    covariance: Covariance = "seen"
    """What Sigma in Q_k is of. seen: all classes seen so far, so that neither their order nor how they were split into
    tasks matters. task: the classes that came with class k (the paper's equations). On streams of validation classes
    seen is better at 5 and 20 shots, and level at 80."""
    memory_rank: int | None = None
    """Most directions that are kept of a class's scatter, the rest shared by all classes; None: all."""
    shortlist: int | None = None
    """Classes that are scored exactly for a query, those with the nearest means; None: all."""

    def __post_init__(self) -> None:
        for name in ("memory_rank", "shortlist"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise BadInputError(f"{name} must be at least 1, got {number}")
        if self.shortlist is not None and self.covariance != "seen":
            raise BadInputError(
                "a shortlist needs the covariance of all classes seen, which whitens the space"
            )
        if self.covariance not in get_args(Covariance):
            raise BadInputError(
                f"the covariance is of {' or '.join(get_args(Covariance))}, not {self.covariance!r}"
            )
        if self.class_ids not in get_args(ClassIds):
            raise BadInputError(f"class ids are {', '.join(get_args(ClassIds))}, not {self.class_ids!r}")


class ContinualCnaps(nn.Module):
    """Learns tasks one after the other; answers queries about the classes seen so far."""

    def __init__(self, model: CnapsModel, config: ContinualConfig | None = None) -> None:
        super().__init__()
        self.config = config or ContinualConfig()
        self.model = model
        self.encoding = StreamEncoding(self.config.encoding)
        self.memory = ClassMemory(rank=self.config.memory_rank)
        self.classes_of_task: dict[int, tuple[ClassKey, ...]] = {}
        self.ids_per_task = self.config.class_ids == "per-task"
        """Whether class ids start anew in each task."""
        self.normalisation = PLAIN
        """Of the images that `forward` is given, which it undoes."""
        self.adaptations = 0
        """How often the feature extractor has changed: features made before the last change are stale."""
        self.experiences: set[int] = set()
        """Numbers of the experiences learned, which a strategy keeps here so that the state dict has them."""
        self.kept: FeatureStore | None = None  # where features are kept for others that embed the same images
        self._network: FoldedNetwork | None = None
        self._shortlist: tuple[ClassMemory, Shortlist] | None = None
        self._ready: tuple[tuple[Any, ...], Gaussians] | None = None
        rule = self.model.config.rule
        if self.config.shortlist is not None and (rule != "mahalanobis" or self.transductive):
            raise BadInputError(
                f"a shortlist is for Mahalanobis distances without refinement, not for {model.name} with {rule}"
            )
        self.eval()

    def train(self, mode: bool = True) -> ContinualCnaps:  # noqa: ARG002
        """Stay in inference mode: Avalanche switches modes, but nothing here is trained by gradient steps."""
        return super().train(False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies and files what can be computed again."""
        return {**self.__dict__, "_ready": None, "_shortlist": None}

    def modules(self, *args: Any, **options: Any) -> Iterator[nn.Module]:
        """Yield all modules, and those of the adapted network too, so that hooks see what answers."""
        yield from super().modules(*args, **options)
        if self._network is not None:
            yield from self._network.network.modules()

    @property
    def transductive(self) -> bool:
        """Whether the query set as a whole takes part in its classification."""
        return self.model.config.refines

    @property
    def pools_covariance(self) -> bool:
        """Whether the classes' covariances contain that of all classes seen."""
        means_alone = isinstance(self.model, Cnaps) or self.model.config.rule in MEANS_ALONE
        return self.config.covariance == "seen" and not means_alone

    @property
    def network(self) -> FoldedNetwork:
        """The feature extractor as the current encoding adapts it."""
        if self.encoding.tasks == 0:
            raise ClCnapsError("no task has been learned yet")
        if self._network is None:
            self._network = self.model.fold(self.model.adapt(self.encoding.value))
        return self._network

    # Learning.

    @torch.no_grad()
    def learn(
        self, images: Tensor, labels_N: Tensor, task: int | Tensor, query_images: Tensor | None = None
    ) -> Tensor:
        """Learn the labelled images that came together; returns their features.

        Args:
            images: uint8, N x 3 x H x W.
            labels_N: class ids.
            task: the task's label, which chooses the classes of the multi head later; or one for each image.
            query_images: the task's unlabelled query images; used by the transductive encoding alone.
        """
        if len(images) == 0:
            raise BadInputError(f"task {task} has no images")
        encoding, network = self._after(images, labels_N, query_images)
        features_ND = embed_or_find(self.model, images, network, self.kept)
        labels_N = labels_N.cpu()
        tasks_N = task.cpu() if isinstance(task, Tensor) else torch.full_like(labels_N, task)
        owners_N = tasks_N if self.ids_per_task else torch.full_like(labels_N, -1)
        pairs, position_N = torch.unique(torch.stack([owners_N, labels_N], dim=1), dim=0, return_inverse=True)
        keys = tuple(ClassKey(*pair) for pair in pairs.tolist())
        memory = self.memory.learn(self._group(keys, features_ND, position_N), pool=self.pools_covariance)
        # Nothing is taken over until all of it is there, so that a task that fails leaves no trace.
        for one in torch.unique(tasks_N).tolist():
            known = self.classes_of_task.get(one, ())
            new = [keys[i] for i in torch.unique(position_N[tasks_N == one]).tolist()]
            self.classes_of_task[one] = tuple(dict.fromkeys((*known, *new)))
        self.adaptations += network is not self._network
        self.encoding, self._network, self.memory = encoding, network, memory
        return features_ND

    def _after(
        self, images: Tensor, labels_N: Tensor, query_images: Tensor | None
    ) -> tuple[StreamEncoding, FoldedNetwork]:
        """The encoding after this task, and the feature extractor as it adapts it."""
        if self.encoding.settled:
            return self.encoding.observe(None), self.network
        encoding = self.encoding.observe(self.model.encode(images, labels_N, query_images))
        if self.encoding.tasks > 0 and encoding.value is self.encoding.value:  # frozen features
            return encoding, self.network
        return encoding, self.model.fold(self.model.adapt(encoding.value))

    def _group(self, keys: tuple[ClassKey, ...], features_ND: Tensor, position_N: Tensor) -> ClassGroup:
        statistics = support_statistics(features_ND, position_N, len(keys))
        if self.pools_covariance:  # they are estimated when they are needed, from all classes seen by then
            return ClassGroup(keys, estimate(statistics).without_covariances(), statistics)
        gaussians = self.model.estimate(statistics)
        if isinstance(self.model, Cnaps) or self.model.config.rule in MEANS_ALONE:
            gaussians = gaussians.without_covariances()
        return ClassGroup(keys, gaussians, statistics if self.transductive else None)

    # Answering.

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """Features N x D under the current adaptation."""
        return embed_or_find(self.model, images, self.network, self.kept)

    @torch.no_grad()
    def group_logits(self, group: ClassGroup, features_QD: Tensor) -> Tensor:
        """Logits of one group's classes, Q x K, before any refinement."""
        if isinstance(self.model, Cnaps):
            head: LinearHead = self.model.classifier(group.gaussians.means_KD)
            return self.model.logits(head, features_QD)
        return self.model.class_logits(group.gaussians, features_QD)

    @torch.no_grad()
    def pooled_logits(self, keys: Sequence[ClassKey], features_QD: Tensor) -> Tensor:
        """Logits Q x K of some classes with the covariance of all classes seen, before any refinement."""
        every = self.memory.keys
        if self.config.shortlist is not None and len(keys) == len(every) > self.config.shortlist:
            of_all = self._shortlisted.logits(features_QD)
            return of_all if keys is every else in_order([(every, of_all)], keys)
        parts = (keys[i : i + _CLASSES_AT_ONCE] for i in range(0, len(keys), _CLASSES_AT_ONCE))
        found = [self.model.class_logits(self.gaussians(part), features_QD) for part in parts]
        return torch.cat(found, dim=1)

    def gaussians(self, keys: Sequence[ClassKey]) -> Gaussians:
        """Class Gaussians in the order given, before any refinement."""
        if self.pools_covariance:
            return self._pooled_gaussians(tuple(keys))
        groups = self.memory.groups_of(keys)
        position = {key: i for i, key in enumerate(key for group in groups for key in group.keys)}
        whole = concatenate([group.gaussians for group in groups])
        return whole.select(torch.tensor([position[key] for key in keys], device=whole.means_KD.device))

    @torch.no_grad()
    def _pooled_gaussians(self, keys: tuple[ClassKey, ...]) -> Gaussians:
        """Those of the covariance of all classes; the latest are kept with their factors, if these are small enough."""
        learned = self.model.fit_log_weights._version if self.model.config.metric in FIT_RULES else 0
        made_of = (self.memory, keys, self.model.config, learned)
        if self._ready is not None and self._ready[0] == made_of:
            return self._ready[1]
        made = self.model.estimate(self.memory.statistics(keys), self.memory.scatter)
        if few := bytes_when_kept(made) <= _KEPT_FACTORS:
            made = made.for_many_queries()
        self._ready = (made_of, made) if few else None
        return made

    @torch.no_grad()
    def stored_logits(self, features_QD: Tensor, keys: Sequence[ClassKey]) -> Tensor:
        """Logits Q x K of some classes, in the order given, as they are stored: before any refinement."""
        if not keys:
            raise BadInputError("no class competes: this task was never learned")
        if self.pools_covariance:
            return self.pooled_logits(keys, features_QD)
        groups = self.memory.groups_of(keys)
        return in_order([(group.keys, self.group_logits(group, features_QD)) for group in groups], keys)

    @property
    def _shortlisted(self) -> Shortlist:
        """All classes, made ready for queries; made again when classes have been learned."""
        from cl_cnaps.gaussian.shortlist import Shortlist  # for very many classes alone

        assert self.config.shortlist is not None
        if self._shortlist is None or self._shortlist[0] is not self.memory:
            parts = [group.statistics for group in self.memory.groups if group.statistics is not None]
            made = Shortlist.build(
                parts, self.memory.scatter, candidates=self.config.shortlist, beta=self.model.config.beta
            )
            self._shortlist = (self.memory, made)
        return self._shortlist[1]

    @torch.no_grad()
    def logits(
        self, features_QD: Tensor, keys: Sequence[ClassKey], stored_QK: Tensor | None = None, *, covered: bool
    ) -> Tensor:
        """Logits Q x K of the classes that compete, refined on these queries if the model does so.

        Args:
            features_QD: the whole query set.
            keys: the classes, in the order of the columns wanted.
            stored_QK: their `stored_logits`, where those are at hand already.
            covered: whether the queries are of all these classes, and not of some task's among them.
        """
        if stored_QK is None:
            stored_QK = self.stored_logits(features_QD, keys)
        if not self.transductive:
            return stored_QK
        assert isinstance(self.model, TransductiveCnaps)
        return self.model.refined_logits(
            self.memory.statistics(keys), features_QD, stored_QK, covered=covered
        )

    @torch.no_grad()
    def forward(self, images: Tensor, task_labels: Tensor | None = None) -> Tensor:
        """Answer one batch by itself: logits over the temperature, with class id c in column c.

        Args:
            images: as an Avalanche benchmark gives them.
            task_labels: of each image, where only the classes of its task compete; else all classes do.
        """
        prepared = as_images(images, self.normalisation)
        if not self.memory.keys:
            return torch.zeros(len(prepared), 1, device=self.model.device)
        if task_labels is None:
            if self.ids_per_task:
                raise BadInputError("class ids start anew in each task: call the model with task labels")
            keys = self.memory.keys
            found = self.logits(self.embed(prepared), keys, covered=False)
            return self.by_class_id(found, keys, -1)

        def answer(rows: Tensor, task: int) -> Tensor:
            own = self.classes_of([task]) or self.memory.keys
            found = self.logits(self.embed(prepared[rows]), own, covered=self.covers([task], own))
            return self.by_class_id(found, own, task)

        return by_task(task_labels.cpu(), answer)

    def by_class_id(self, logits_QK: Tensor, keys: Sequence[ClassKey], task: int, width: int = 0) -> Tensor:
        """Logits over the temperature, with class id c in column c; ids that do not compete get a low score.

        With per-task ids a class of another task has no column of its own that would be right to choose: it comes
        after all ids, where choosing it counts as the mistake it is.

        Args:
            logits_QK: of the classes that compete.
            keys: these classes.
            task: of the queries.
            width: least number of columns for class ids.
        """
        width = max(width, *(1 + key.label for key in self.memory.keys))
        foreign = [key for key in keys if key.task not in (-1, task)]
        column = {key: width + i for i, key in enumerate(foreign)}
        column |= {key: key.label for key in keys if key.task in (-1, task)}
        scaled = logits_QK / self.model.temperature.to(logits_QK)
        # Low per query, so that it depends on nothing else in the batch, and finite, so that losses are.
        full = (scaled.min(dim=1, keepdim=True).values - 100).repeat(1, width + len(foreign))
        full[:, [column[key] for key in keys]] = scaled
        return full

    def classes_of(self, tasks: Sequence[int]) -> tuple[ClassKey, ...]:
        """The classes of some tasks, each once."""
        return tuple(dict.fromkeys(key for task in tasks for key in self.classes_of_task.get(task, ())))

    def covers(self, tasks: Sequence[int], keys: Sequence[ClassKey]) -> bool:
        """Whether queries of these tasks are of all these classes."""
        return set(keys) <= set(self.classes_of(tasks))

    def memory_bytes(self) -> int:
        """What is carried from task to task: class statistics and the encoding."""
        value = self.encoding.value
        return self.memory.nbytes() + (0 if value is None else value.numel() * value.element_size())

    # The state dict holds what was learned beside the weights.

    def get_extra_state(self) -> dict[str, Any]:
        """What was learned, as plain values and tensors."""
        return {
            "model": self.model.name,
            "variant": self.model.config.variant,
            "metric": self.model.config.metric,
            "class_ids": "per-task" if self.ids_per_task else "shared",
            "covariance": self.config.covariance,
            "memory_rank": self.config.memory_rank,
            "encoding": self.encoding.state(),
            "memory": self.memory.state(),
            "classes_of_task": {t: [list(key) for key in keys] for t, keys in self.classes_of_task.items()},
            "experiences": sorted(self.experiences),
        }

    def set_extra_state(self, state: Any) -> None:
        """Take over what another model learned with the same settings."""
        this = self.get_extra_state()
        if self.config.class_ids == "auto":
            this["class_ids"] = state["class_ids"]
        # What is kept of a class depends on these.
        says = (
            "the model {model} (variant {variant}, metric {metric}), encoding {encoding[kind]}, {class_ids} class ids, "
            "the covariance of {covariance} and {memory_rank} directions of a class"
        )
        saved, own = (
            says.format_map({**one, "memory_rank": one["memory_rank"] or "all"}) for one in (state, this)
        )
        if saved != own:
            raise ClCnapsError(f"the saved state is of {saved}; this is {own}")
        device, dtype = self.model.device, self.model.dtype
        value = state["encoding"]["value"]
        moved = None if value is None else value.to(device, dtype)
        self.encoding = StreamEncoding(self.config.encoding, state["encoding"]["tasks"], moved)
        self.memory = ClassMemory.from_state(state["memory"], device, dtype)
        self.classes_of_task = {
            int(task): tuple(ClassKey(*key) for key in keys)
            for task, keys in state["classes_of_task"].items()
        }
        self.experiences = set(state["experiences"])
        self.ids_per_task = state["class_ids"] == "per-task"
        self._network = None
        self.adaptations += 1

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ContinualCnaps:
        """Take what was learned along when the weights move to another device or precision."""
        before = (self.model.device, self.model.dtype)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (self.model.device, self.model.dtype) != before:
            self.set_extra_state(self.get_extra_state())
        return self
