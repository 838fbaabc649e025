"""A CNAPS strategy as the learner of one stream."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.continual_cnaps import Covariance
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.evaluator import QueryScope, QuerySet
from cl_cnaps.continual.one_pass import avalanche_benchmark
from cl_cnaps.continual.strategies import STRATEGIES
from cl_cnaps.continual.stream import Head, Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.features.kept import FeatureStore
from cl_cnaps.models.cnaps import CnapsModel


class CnapsLearner:
    """Learns the tasks of a stream through Avalanche, and answers through the strategy's evaluator.

    With `batch` it learns online: each task comes in batches of so many images, in an order drawn from `seed`, and each
    image is seen once. The encoding `first` needs the whole first task, whose batches are held until it is complete;
    the other encodings take a batch for a task.
    """

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
        batch: int | None = None,
        seed: int = 0,
    ) -> None:
        from avalanche.training.plugins import EvaluationPlugin

        self._stream = stream
        with quiet_avalanche():
            held = encoding == "first" and model.config.adaptation == "film"
            self._parts = [
                _batches(len(task.support_labels), None if held and t == 0 else batch, seed + t)
                for t, task in enumerate(stream.tasks)
            ]
            self._benchmark = avalanche_benchmark(stream, self._parts)
            tests = self._benchmark.test_stream
            self._strategy = STRATEGIES[model.name](
                model=model,
                encoding=encoding,
                covariance=covariance,
                memory_rank=memory_rank,
                shortlist=shortlist,
                class_ids="shared",
                head="multi",  # of what is shown to plugins, of which there are none: the cheaper one
                device=model.device,
                query_stream=[tests[t] for t, parts in enumerate(self._parts) for _ in parts],
                query_scope=query_scope,
                evaluator=EvaluationPlugin(),
            )
        self.cnaps = self._strategy.model
        self.cnaps.kept = kept
        self._queries: list[QuerySet] = []

    def learn(self, step: int) -> None:
        """Learn task `step`, the next in order, from its support images."""
        learned, tasks = len(self._queries), self._stream.tasks
        if step != learned or step >= len(tasks):
            raise BadInputError(
                f"{learned} of {len(tasks)} tasks have been learned; task {step} is not the next"
            )
        with quiet_avalanche():
            start = sum(map(len, self._parts[:step]))
            experiences = self._benchmark.train_stream[start : start + len(self._parts[step])]
            self._strategy.train(experiences, eval_streams=[])
        self._queries.append(QuerySet.of(tasks[step].query_images, [step]))

    def predict(self, task: int, head: Head) -> Tensor:
        """Class ids for the task's queries."""
        ids, logits = self._logits(task, head)
        return ids[logits.argmax(dim=1).cpu()]

    def log_probabilities(self, task: int, head: Head) -> tuple[Tensor, Tensor]:
        """Ids of the classes that compete, and log softmax(logits / temperature)."""
        ids, logits = self._logits(task, head)
        scaled = logits.double() / self.cnaps.model.temperature.detach().double()
        return ids, scaled.log_softmax(dim=1).cpu()

    def _logits(self, task: int, head: Head) -> tuple[Tensor, Tensor]:
        learned, tasks = len(self._queries), self._stream.tasks
        if not 0 <= task < (len(tasks) if head == "single" and learned else learned):
            raise BadInputError(f"{learned} tasks have been learned; task {task} cannot be predicted")
        known = task < learned
        queries = self._queries[task] if known else QuerySet.of(tasks[task].query_images, [task])
        scores = self._strategy.scores
        ids = torch.tensor([key.label for key in scores.competing(queries, head)])
        return ids, scores.logits(queries, head, self._queries)

    def memory_bytes(self) -> int:
        """Class statistics and the encoding."""
        return self.cnaps.memory_bytes()


def _batches(images: int, size: int | None, seed: int) -> list[Tensor]:
    """The numbers of a task's images: all in order, or in batches in random order."""
    if size is None:
        return [torch.arange(images)]
    order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
    return list(torch.split(order, size))
