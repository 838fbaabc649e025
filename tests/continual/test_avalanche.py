"""The strategies as an Avalanche user meets them: any model, device, plugin, benchmark and form of images."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from avalanche.benchmarks import SplitMNIST, benchmark_from_datasets, nc_benchmark, with_task_labels
from avalanche.benchmarks.utils import (
    TaskLabels,
    as_classification_dataset,
    as_taskaware_classification_dataset,
)
from avalanche.evaluation.metrics import MAC_metrics, loss_metrics
from avalanche.training import plugins as avalanche_plugins
from avalanche.training.plugins import EvaluationPlugin, LwFPlugin
from continual.avalanche_table import table, written
from continual.small_strategies import Answers, evaluated, make
from continual.small_streams import (
    Images,
    benchmark_of,
    images_of,
    small_stream,
    support_and_query,
    write_mnist,
)
from models.small import small_model
from PIL import Image
from torchvision.transforms import Compose, Normalize, ToTensor

import cl_cnaps
from cl_cnaps.continual.baselines.feature_strategy import FeatureStrategy, cnaps_features
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.continual.one_pass import REFUSED_PLUGINS
from cl_cnaps.continual.strategies import CnapsStrategy
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.loading import LoadedModel


def loaded(name: str = "simple", **settings: Any) -> LoadedModel:
    return LoadedModel(small_model(name, **settings), "made up", None)  # type: ignore[arg-type]


# Making a strategy.


def test_strategies_come_from_the_package_and_take_what_load_returns() -> None:
    simple = loaded()
    strategy = cl_cnaps.SimpleCnapsStrategy(model=simple, evaluator=None)
    assert strategy.model.model is simple.model
    assert strategy.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("simple", "transductive", "cnaps", "protonet"):
        assert cl_cnaps.CnapsStrategy(model=loaded(name), evaluator=None).model.model.name == name
    with pytest.raises(
        BadInputError, match="needs a transductive model, got simple; CnapsStrategy takes any"
    ):
        cl_cnaps.TransductiveCnapsStrategy(model=simple)
    with pytest.raises(BadInputError, match=r"what cl_cnaps\.load returns, not a Linear"):
        cl_cnaps.SimpleCnapsStrategy(model=torch.nn.Linear(2, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "value", "says"),
    [
        ("train_epochs", 3, "in one pass; leave train_epochs out"),
        ("optimizer", None, "nothing is trained by gradient steps; leave optimizer out"),
    ],
)
def test_words_of_the_template_that_mean_nothing_are_refused(word: str, value: Any, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        make(**{word: value})


@pytest.mark.parametrize("name", sorted(REFUSED_PLUGINS))
def test_plugins_that_cannot_work_are_refused_by_name(name: str) -> None:
    kind = getattr(avalanche_plugins, name, None)
    if kind is None:
        pytest.skip(f"Avalanche does not export {name}")
    plugin = kind.__new__(kind)  # it is refused by its type: no need to know its arguments
    with pytest.raises(BadInputError, match=f"SimpleCnapsStrategy cannot use {name}: "):
        make(plugins=[plugin])


def test_a_plugin_of_ones_own_that_builds_on_a_refused_one_is_refused_too() -> None:
    class Mine(avalanche_plugins.EWCPlugin):  # type: ignore[misc]
        pass

    with pytest.raises(BadInputError, match="cannot use EWCPlugin"):
        make(plugins=[Mine(0.1)])


# Plugins see answers and losses.


@pytest.mark.parametrize("name", ["simple", "transductive"])
def test_the_model_answers_by_itself_as_the_strategy_does(name: Any) -> None:
    stream = small_stream()
    benchmark = benchmark_of(stream)
    for head in ("single", "multi"):
        strategy = make(name, head=head)
        assert strategy.model(torch.zeros(2, 3, 32, 32)).shape == (2, 1)  # before anything is learned
        strategy.train(benchmark.train_stream)
        images = stream.tasks[1].query_images.float() / 255
        labels = torch.full((len(images),), 1)
        found = strategy.model(images) if head == "single" else strategy.model(images, labels)
        torch.testing.assert_close(found, evaluated(strategy, benchmark.test_stream).outputs(1))


def test_the_model_answers_images_of_several_tasks() -> None:
    stream = small_stream(((0, 1), (2, 3, 4)))
    strategy = make(head="multi")
    strategy.train(benchmark_of(stream).train_stream)
    images = torch.cat([stream.tasks[t].query_images[:3] for t in (1, 0, 1)])
    found = strategy.model(images, torch.tensor([1] * 3 + [0] * 3 + [1] * 3))
    assert found.shape == (9, 5)
    assert torch.isin(found[3:6].argmax(dim=1), torch.tensor([0, 1])).all()
    assert torch.isin(found[[0, 8]].argmax(dim=1), torch.tensor([2, 3, 4])).all()


def test_lwf_and_mac_call_the_model() -> None:
    benchmark = benchmark_of(small_stream())
    metrics = EvaluationPlugin(MAC_metrics(epoch=True))
    with pytest.warns(UserWarning, match="LwFPlugin: it adds to the loss"):
        strategy = make(plugins=[LwFPlugin()], evaluator=metrics)
    plain = make()
    for one in (strategy, plain):
        one.train(benchmark.train_stream)
    counts = [value for name, value in metrics.get_last_metrics().items() if name.startswith("MAC")]
    assert counts
    assert all(count > 0 for count in counts)
    assert torch.equal(
        evaluated(strategy, benchmark.test_stream).outputs(0),
        evaluated(plain, benchmark.test_stream).outputs(0),
    )


def test_losses_are_of_the_models_own_probabilities() -> None:
    stream = small_stream()
    benchmark = benchmark_of(stream)
    model = small_model("simple", learned_temperature=True)
    with torch.no_grad():
        model.log_temperature.fill_(2.0)
    evaluator = EvaluationPlugin(loss_metrics(experience=True))
    strategy = CnapsStrategy(model=model, evaluator=evaluator)
    strategy.train(benchmark.train_stream)
    metrics = strategy.eval(benchmark.test_stream)
    cnaps = strategy.model
    keys = sorted(cnaps.memory.keys)
    for number, task in enumerate(stream.tasks):
        logits = cnaps.logits(cnaps.embed(task.query_images), keys, covered=False) / model.temperature
        expected = torch.nn.functional.cross_entropy(logits, task.query_labels)
        found = metrics[f"Loss_Exp/eval_phase/test_stream/Task00{number}/Exp00{number}"]
        assert found == pytest.approx(float(expected), rel=1e-4)


# Benchmarks as Avalanche makes them.


def split(**options: Any) -> Any:
    train, test = support_and_query()
    return nc_benchmark(train, test, n_experiences=3, seed=1, fixed_class_order=[*range(6)], **options)


def mean_accuracy(strategy: CnapsStrategy, benchmark: Any) -> float:
    answers = evaluated(strategy, benchmark.test_stream)
    return sum(answers.accuracy(number) for number in range(3)) / 3


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("head", ["single", "multi"])
def test_class_ids_that_restart_are_noticed(head: str, labels: bool) -> None:
    usual = make(head=head)
    usual.train(split(task_labels=True).train_stream)
    restarted = split(task_labels=labels, class_ids_from_zero_in_each_exp=True)
    strategy = make(head=head)
    strategy.train(restarted.train_stream)
    assert strategy.model.memory.keys == tuple(ClassKey(task, c) for task in range(3) for c in range(2))
    assert mean_accuracy(strategy, restarted) == mean_accuracy(usual, split(task_labels=True))
    # A state knows it, and a new strategy that has seen no experience takes it over.
    resumed = make(head=head)
    resumed.model.load_state_dict(strategy.model.state_dict())
    assert resumed.model.ids_per_task


def test_class_ids_of_another_task_are_merged_with_a_warning_unless_that_is_meant() -> None:
    """Where the benchmark does not say that ids restart, two tasks with the same ids may mean either."""
    benchmark = benchmark_of(small_stream(((0, 1), (0, 1))))
    strategy = make()
    with pytest.warns(
        UserWarning, match=r'task 1 has class ids of earlier tasks \(0, 1\).*class_ids="per-task"'
    ):
        strategy.train(benchmark.train_stream)
    for meant in ("shared", "per-task"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="task 1 has class ids")
            make(class_ids=meant).train(benchmark.train_stream)


@pytest.mark.parametrize("how", ["zeros", "none"])
def test_the_multi_head_without_task_labels_takes_experiences_for_tasks(how: str) -> None:
    unlabelled = split(task_labels=False) if how == "zeros" else benchmark_of(small_stream(), labelled=False)
    labelled = split(task_labels=True) if how == "zeros" else benchmark_of(small_stream())
    strategy, usual = make(head="multi"), make(head="multi")
    with pytest.warns(UserWarning, match="no task labels: the multi head takes the number of an experience"):
        strategy.train(unlabelled.train_stream)
    usual.train(labelled.train_stream)
    ours, theirs = evaluated(strategy, unlabelled.test_stream), evaluated(usual, labelled.test_stream)
    for number in range(3):
        assert torch.equal(ours.outputs(number), theirs.outputs(number))


def test_a_test_stream_of_one_experience_has_no_tasks_without_labels() -> None:
    train, test = support_and_query()
    data = [as_classification_dataset(data) for data in (train, test)]
    parts = [data[0].subset([i for i, c in enumerate(train.targets) if c // 2 == t]) for t in range(3)]
    benchmark = benchmark_from_datasets(train=parts, test=[data[1]])
    strategy, answers = make(head="multi"), Answers()
    strategy.plugins.append(answers)
    with pytest.warns(UserWarning, match="no task labels"):
        strategy.train(benchmark.train_stream)
    strategy.eval(benchmark.test_stream)
    assert answers.accuracy(0) > 0.8


@pytest.mark.parametrize("class_ids", ["shared", "per-task"])
@pytest.mark.parametrize("head", ["single", "multi"])
def test_several_task_labels_in_one_experience(head: str, class_ids: str) -> None:
    """The same as with one task an experience: shuffled, the images of two tasks in the first."""
    stream = small_stream(((0, 1), (2, 3), (4, 5)))

    def together(kind: str) -> Any:
        images, labels = (
            torch.cat([getattr(task, f"{kind}_{what}") for task in stream.tasks[:2]])
            for what in ("images", "labels")
        )
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        data = as_classification_dataset(Images(images[order], labels[order]))
        tasks = TaskLabels((labels[order] // 2).tolist())
        last = stream.tasks[2]
        rest = Images(getattr(last, f"{kind}_images"), getattr(last, f"{kind}_labels"))
        alone = as_classification_dataset(rest).update_data_attribute(
            "targets_task_labels", TaskLabels([2] * len(rest))
        )
        return order, [
            as_taskaware_classification_dataset(data.update_data_attribute("targets_task_labels", tasks)),
            as_taskaware_classification_dataset(alone),
        ]

    (_, train), (order, test) = together("support"), together("query")
    benchmark = with_task_labels(benchmark_from_datasets(train=train, test=test))
    strategy = make(head=head, class_ids=class_ids)
    strategy.train(benchmark.train_stream)
    assert {task: len(keys) for task, keys in strategy.model.classes_of_task.items()} == {0: 2, 1: 2, 2: 2}
    usual = make(head=head, class_ids=class_ids)
    usual.train(benchmark_of(stream).train_stream)
    expected = evaluated(usual, benchmark_of(stream).test_stream)
    found = evaluated(strategy, benchmark.test_stream)
    assert found.accuracy(0) == pytest.approx((expected.accuracy(0) + expected.accuracy(1)) / 2)
    assert found.accuracy(1) == expected.accuracy(2)
    if class_ids == "shared":
        one_by_one = torch.cat([expected.outputs(0), expected.outputs(1)])[order]
        torch.testing.assert_close(found.outputs(0), one_by_one, rtol=1e-3, atol=1e-3)


# Images as Avalanche's benchmarks give them.


class Pictures(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """PIL images of the small stream's classes, of one size or several."""

    def __init__(self, count: int, seed: int, sizes: tuple[int, ...] = (32,)) -> None:
        self.targets = torch.arange(6).repeat_interleave(count).tolist()
        arrays = images_of(torch.tensor(self.targets), seed).permute(0, 2, 3, 1).numpy()
        self.images = [
            Image.fromarray(array).resize((sizes[i % len(sizes)],) * 2) for i, array in enumerate(arrays)
        ]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], self.targets[index]


NORMALISED = Compose([ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


@pytest.mark.parametrize(
    ("sizes", "transform"),
    [((32,), None), ((32,), NORMALISED), ((32, 40), None), ((32, 40), ToTensor()), ((32, 40), NORMALISED)],
)
@pytest.mark.parametrize("kind", ["single", "multi", "lda"])
def test_pil_images_normalised_ones_and_mixed_sizes(sizes: Any, transform: Any, kind: str) -> None:
    def strategy_of(batch_size: int) -> Any:
        if kind == "lda":
            return FeatureStrategy(
                method="lda",
                features=cnaps_features(loaded()),
                num_classes=6,
                train_mb_size=batch_size,
                evaluator=None,
            )
        return make(head=kind, train_mb_size=batch_size)

    def benchmark(transform: Any) -> Any:
        return nc_benchmark(
            Pictures(8, 0, sizes),
            Pictures(6, 1, sizes),
            n_experiences=3,
            task_labels=True,
            fixed_class_order=[*range(6)],
            train_transform=transform,
            eval_transform=transform,
        )

    found = benchmark(transform)
    strategy = strategy_of(5)
    strategy.train(found.train_stream)
    answers = evaluated(strategy, found.test_stream)
    assert sum(answers.accuracy(number) for number in range(3)) / 3 > 0.7
    # Another form of the same images, and another batch size, is another way to the same answer.
    other = benchmark(ToTensor() if transform is None else None)
    again = strategy_of(64)
    again.train(other.train_stream)
    there = evaluated(again, other.test_stream, batch_size=50)
    for number in range(3):
        torch.testing.assert_close(answers.outputs(number), there.outputs(number), rtol=1e-3, atol=1e-3)


def test_normalised_images_that_cannot_be_undone_are_refused_with_what_to_pass() -> None:
    train, test = support_and_query()
    benchmark = nc_benchmark(
        train, test, n_experiences=1, task_labels=False, train_transform=lambda image: (image - 0.5) / 0.2
    )
    with pytest.raises(
        BadInputError, match="Give the benchmark train_transform and eval_transform without one"
    ):
        make().train(benchmark.train_stream)


@pytest.mark.parametrize("head", ["single", "multi"])
def test_split_mnist_runs_as_avalanche_gives_it(tmp_path: Path, head: str) -> None:
    write_mnist(tmp_path)
    benchmark = SplitMNIST(n_experiences=5, dataset_root=tmp_path, return_task_id=head == "multi", seed=0)
    strategy = make(head=head)
    for experience in benchmark.train_stream:
        strategy.train(experience)
    answers = evaluated(strategy, benchmark.test_stream)
    chance = 0.1 if head == "single" else 0.5
    assert sum(answers.accuracy(number) for number in range(5)) / 5 > chance + 0.2


def test_the_table_of_plugins_metrics_and_loggers_is_as_they_behave() -> None:
    assert written() == table()
