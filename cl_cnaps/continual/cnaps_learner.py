"""A CNAPS strategy as a learner of one stream, embedding no image twice while the feature extractor stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.continual_cnaps import Covariance
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.memory import ClassGroup, ClassKey
from cl_cnaps.continual.scenario import avalanche_benchmark
from cl_cnaps.continual.strategies import STRATEGIES, QueryScope
from cl_cnaps.continual.stream import Head, Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.features.kept import FeatureStore
from cl_cnaps.models.cnaps import CnapsModel


class CnapsLearner:
    """Trains through Avalanche; answers for both heads from one set of stored logits."""

    def __init__(
        self,
        stream: Stream,
        model: CnapsModel,
        encoding: EncodingName,
        query_scope: QueryScope = "task",
        covariance: Covariance = "seen",
        kept: FeatureStore | None = None,
        *,
        memory_rank: int | None = None,
        shortlist: int | None = None,
    ) -> None:
        from avalanche.training.plugins import EvaluationPlugin

        self._stream = stream
        with quiet_avalanche():
            self._benchmark = avalanche_benchmark(stream)
            self._strategy = STRATEGIES[model.name](
                model=model,
                encoding=encoding,
                covariance=covariance,
                memory_rank=memory_rank,
                shortlist=shortlist,
                head="multi",  # of what is shown to plugins, of which there are none: the cheaper one
                device=model.device,
                query_stream=self._benchmark.test_stream,
                query_scope=query_scope,
                evaluator=EvaluationPlugin(),
            )
        self._learner = self._strategy.learner
        self._learner.kept = kept
        self._scope: QueryScope = query_scope
        self._features: dict[int, tuple[int, Tensor]] = {}
        self._logits: dict[int, dict[ClassKey, tuple[object, Tensor]]] = {}
        """Of each task, by the first class of a group."""
        self._pooled: tuple[object, tuple[Tensor, ...]] | None = None
        self._refined: tuple[int, dict[int, Tensor]] | None = None
        self._answers: dict[tuple[int, Head], tuple[object, Tensor]] = {}
        self.embedded = 0
        """Query images embedded so far."""

    def learn(self, step: int) -> None:
        """Learn task `step`, the next in order, from its support images."""
        if step != self._learned or step >= len(self._stream.tasks):
            raise BadInputError(
                f"{self._learned} of {len(self._stream.tasks)} tasks have been learned; task {step} is not the next"
            )
        with quiet_avalanche():
            self._strategy.train(self._benchmark.train_stream[step], eval_streams=[])

    @torch.no_grad()
    def predict(self, task: int, head: Head) -> Tensor:
        """Class ids for the task's queries."""
        if not 0 <= task < self._learned:
            raise BadInputError(f"{self._learned} tasks have been learned; task {task} cannot be predicted")
        learner = self._learner
        keys = learner.classes_of_task[task] if head == "multi" else learner.memory.keys
        # An answer stays while neither the features move nor the classes that compete change.
        pooled = learner.memory.groups if learner.pools_covariance else learner.memory.groups_of(keys)
        marker = (learner.adaptations, pooled)
        kept, answer = self._answers.get((task, head), (None, torch.empty(0)))
        if kept != marker:
            ids = torch.tensor([key.label for key in keys])
            answer = ids[self._logits_of(task, head, keys).argmax(dim=1).cpu()]
            self._answers[task, head] = (marker, answer)
        return answer

    def _logits_of(self, task: int, head: Head, keys: Sequence[ClassKey]) -> Tensor:
        """Logits of a task's queries under the classes that compete."""
        if head == "single" and self._learner.transductive and self._scope == "stream":
            return self._stream_logits()[task]
        # Whoever asks for all classes asks for all tasks too; the multi head never needs a task's foreign classes.
        together = range(self._learned) if head == "single" else (task,)
        features, learner = self._query_features(task), self._learner
        if learner.pools_covariance:
            stored = self._pooled_logits(task, keys)
        else:
            stored = learner.stored_logits(
                features, keys, lambda group: self._of_group(task, group, together)
            )
        return learner.logits(features, keys, stored, covered=learner.covers(task, keys))

    @property
    def _learned(self) -> int:
        return self._learner.encoding.tasks

    def memory_bytes(self) -> int:
        """Class statistics and the encoding."""
        return self._learner.memory_bytes()

    def _query_features(self, task: int) -> Tensor:
        """Features of a task's queries under the current adaptation, embedded at most once for it."""
        version, features = self._features.get(task, (-1, torch.empty(0)))
        if version != self._learner.adaptations:
            images = self._stream.tasks[task].query_images
            features = self._learner.embed(images)
            self.embedded += len(images)
            self._features[task] = (self._learner.adaptations, features)
        return features

    def _of_group(self, task: int, group: ClassGroup, together: Iterable[int]) -> Tensor:
        """Logits of a task's queries under the classes of a group, computed once while neither changes.

        What of the tasks `together` has none yet is computed with it: a group is factored once for all queries.
        """
        marker = (group, self._learner.adaptations)

        def known(one: int) -> bool:
            return self._logits.setdefault(one, {}).get(group.keys[0], (None,))[0] == marker

        if not known(task):
            new = [one for one in together if not known(one)]
            features = [self._query_features(one) for one in new]
            found = self._learner.group_logits(group, torch.cat(features))
            for one, part in zip(new, torch.split(found, [len(each) for each in features]), strict=True):
                self._logits[one][group.keys[0]] = (marker, part)
        return self._logits[task][group.keys[0]][1]

    def _pooled_logits(self, task: int, keys: Sequence[ClassKey]) -> Tensor:
        """Stored logits of some classes where any class's depend on all: computed for all tasks and classes at once."""
        learner = self._learner
        marker = (learner.adaptations, learner.memory.groups)
        if self._pooled is None or self._pooled[0] != marker:
            features = [self._query_features(one) for one in range(self._learned)]
            logits = learner.stored_logits(torch.cat(features), learner.memory.keys)
            self._pooled = (marker, torch.split(logits, [len(part) for part in features]))
        column = {key: i for i, key in enumerate(learner.memory.keys)}
        return self._pooled[1][task][:, [column[key] for key in keys]]

    def _stream_logits(self) -> dict[int, Tensor]:
        """Single-head logits of all tasks seen, refined on all their queries together."""
        steps = self._learned
        if self._refined is None or self._refined[0] != steps:
            features = [self._query_features(task) for task in range(steps)]
            keys = self._learner.memory.keys
            stored = self._learner.stored_logits(
                torch.cat(features),
                keys,
                lambda group: torch.cat([self._of_group(task, group, range(steps)) for task in range(steps)]),
            )
            logits = self._learner.logits(torch.cat(features), keys, stored, covered=True)
            parts = torch.split(logits, [len(part) for part in features])
            self._refined = (steps, dict(enumerate(parts)))
        return self._refined[1]
