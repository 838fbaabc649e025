from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

from cl_cnaps.continual.baselines import BASELINES, make_baseline
from cl_cnaps.continual.baselines.settings import IdentityMap, NetworkSettings
from cl_cnaps.continual.stream import accuracy
from cl_cnaps.errors import BadInputError, ClCnapsError

CPU = torch.device("cpu")
EVERY = [(name, on) for name, info in BASELINES.items() for on in info.inputs]
NETWORKS = [name for name, info in BASELINES.items() if isinstance(info.defaults, NetworkSettings)]


def quick(name: str, epochs: int = 2) -> dict[str, Any]:
    """Settings for a small network and few steps, or few random features."""
    if name not in NETWORKS:
        drawn = getattr(BASELINES[name].defaults, "map", IdentityMap())
        return {} if drawn == IdentityMap() else {"map": replace(drawn, width=64)}
    return {"epochs": epochs, "batch_size": 8, "hidden": 32, "learning_rate": 5e-3}


def make(name, stream, on, features, seed=0, **settings):
    changed = {**quick(name), **settings}
    return make_baseline(name, stream, on=on, features=features, seed=seed, device=CPU, **changed)


def learned(*args, **kwargs):
    learner = make(*args, **kwargs)
    for step in range(len(learner.inputs.support)):
        learner.learn(step)
    return learner


def tensors_of(thing, seen=None):
    """Every tensor that can be reached from an object, except the inputs it was given and scores of queries."""
    seen = set() if seen is None else seen
    if id(thing) in seen or type(thing).__name__ == "StreamInputs":
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
        return
    if isinstance(thing, dict):
        children = list(thing.values())
    elif isinstance(thing, (list, tuple, set)):
        children = list(thing)
    elif type(thing).__module__.split(".")[0] in ("avalanche", "cl_cnaps", "torch"):
        children = [child for name, child in getattr(thing, "__dict__", {}).items() if name != "_kept"]
    else:
        children = []
    for child in children:
        yield from tensors_of(child, seen)


def digest(learner):
    return [tensor.detach().clone() for tensor in tensors_of(learner)]


def same(left, right):
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_names_are_the_ones_promised():
    promised = (
        "naive joint replay ewc si rwalk vcl lwf slda ncm fecam pixel-ncm "
        "simplecil lda lda-cv ridge ranpac acil klda randumb fsa-film joint-probe"
    )
    assert sorted(BASELINES) == sorted(promised.split())
    assert all(info.help.endswith(".") and info.citation for info in BASELINES.values())


def test_the_list_loads_neither_torch_nor_avalanche():
    code = (
        "import sys, cl_cnaps.continual.baselines as b;"
        "assert len(b.BASELINES) == 22;"
        "assert not {'torch', 'avalanche', 'sklearn'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "on"), EVERY)
def test_each_learns_silently_and_well_above_chance(name, on, make_stream, features, capfd):
    stream = make_stream()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = learned(name, stream, on, features, **quick(name, epochs=6))
        multi = [accuracy(learner.predict(i, "multi"), t.query_labels) for i, t in enumerate(stream.tasks)]
    assert sum(multi) / 3 > 0.8
    assert set(learner.predict(0, "multi").tolist()) <= {0, 1}
    assert set(learner.predict(0, "single").tolist()) <= set(range(6))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize(("name", "on"), EVERY)
def test_predicting_changes_nothing(name, on, make_stream, features):
    learner = make(name, make_stream(), on, features)
    learner.learn(0)
    learner.learn(1)
    before, state = digest(learner), torch.get_rng_state()
    assert before
    first = [learner.predict(task, head) for task in (0, 1) for head in ("single", "multi")]
    getattr(learner, "_kept", {}).clear()
    again = [learner.predict(task, head) for task in (0, 1) for head in ("single", "multi")]
    assert same(before, digest(learner))
    assert same(first, again)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", [*NETWORKS, "slda", "fecam", "ncm", "ranpac", "klda", "joint-probe"])
def test_two_runs_are_equal_and_leave_the_global_generators_alone(name, make_stream, features):
    stream = make_stream()
    torch.manual_seed(1)
    one = learned(name, stream, "features", features)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    two = learned(name, stream, "features", features)
    assert torch.equal(state, torch.get_rng_state())
    # Avalanche's replay memory keeps the order weights of its draw, so every tensor is compared, not only weights.
    assert same(digest(one), digest(two))


@pytest.mark.parametrize("name", ["naive", "vcl"])
def test_another_seed_is_another_run(name, make_stream, features):
    stream = make_stream()
    one = learned(name, stream, "features", features, seed=0)
    two = learned(name, stream, "features", features, seed=1)
    assert not same(list(one.model.parameters()), list(two.model.parameters()))


@pytest.mark.parametrize("on", ["features", "network"])
@pytest.mark.parametrize("competing", ["present", "seen"])
@pytest.mark.parametrize("name", ["ewc", "si", "rwalk", "lwf"])
def test_regularised_weights_are_finite_and_not_those_of_naive(name, competing, on, make_stream, features):
    stream = make_stream()
    naive = learned("naive", stream, on, features, competing=competing)
    other = learned(name, stream, on, features, competing=competing)
    # Batches and initial weights are the same: only the method can make a difference.
    assert not same(list(naive.model.parameters()), list(other.model.parameters()))
    assert all(bool(torch.isfinite(weight).all()) for weight in other.model.parameters())


@pytest.mark.parametrize(("name", "on"), EVERY)
def test_uneven_tasks_single_classes_and_classes_seen_again(name, on, make_stream, features):
    stream = make_stream(((0, 1, 2), (9,), (1, 5), (9, 0)))
    learner = learned(name, stream, on, features)
    for number, task in enumerate(stream.tasks):
        assert set(learner.predict(number, "multi").tolist()) <= set(task.classes)
        assert set(learner.predict(number, "single").tolist()) <= {0, 1, 2, 5, 9}
    assert torch.equal(learner.predict(1, "multi"), torch.full((6,), 9))


@pytest.mark.parametrize("name", ["naive", "rwalk", "vcl", "pixel-ncm"])
def test_a_first_task_of_one_class(name, make_stream):
    stream = make_stream(((3,), (1, 2)))
    learner = learned(name, stream, "network", None, **quick(name, epochs=6))
    assert accuracy(learner.predict(1, "multi"), stream.tasks[1].query_labels) > 0.8


@pytest.mark.parametrize("name", ["naive", "replay", "vcl", "pixel-ncm"])
def test_colour_streams_of_another_size(name, make_stream):
    stream = make_stream(((0, 1), (2, 3)), grey=False, size=40)
    learner = learned(name, stream, "network", None, **quick(name, epochs=6))
    assert learner.inputs.support[0].shape[1:] == (3, 32, 32)
    assert accuracy(learner.predict(1, "multi"), stream.tasks[1].query_labels) > 0.8


@pytest.mark.parametrize(
    "name", ["naive", "joint", "replay", "slda", "ncm", "lda", "ridge", "ranpac", "klda", "joint-probe"]
)
def test_one_shot(name, make_stream, features):
    learner = learned(name, make_stream(shots=1), "features", features)
    assert len(learner.predict(2, "single")) == 12


def test_a_loss_that_is_no_number_names_method_task_and_step(make_stream, features):
    learner = make("ewc", make_stream(), "features", features, learning_rate=1e30)
    with pytest.raises(ClCnapsError, match=r"ewc.* at step \d \(task 'task \(\d, \d\)'\), iteration \d+"):
        for step in range(3):
            learner.learn(step)


def test_memory_counts_what_each_method_keeps(make_stream, features):
    def kept(name, **settings):
        return learned(name, make_stream(), "features", features, **settings).memory_bytes()

    # One hidden layer of 32 on 24 features, 6 classes.
    weights = 4 * (24 * 32 + 32 + 32 * 6 + 6)
    image, label = 4 * 24, 8
    assert kept("naive") == weights
    assert kept("joint") == weights + 72 * (image + label)
    assert kept("replay", memory=18) == weights + 18 * (image + label)
    assert kept("ewc") == weights + 3 * 2 * weights
    assert kept("si") == 3 * weights
    assert kept("rwalk") == 4 * weights
    assert kept("lwf") == 2 * weights
    assert kept("vcl") == 2 * weights
    assert kept("ncm") == 6 * (image + 8)
    assert kept("slda") == 6 * image + 6 * 4 + 4 * 24 * 24
    assert kept("fecam") == 6 * (image + 4 * 24 * 24)


@pytest.mark.parametrize(
    ("name", "on", "settings", "message"),
    [
        ("nonsense", "features", {}, "no baseline 'nonsense'; there are naive"),
        ("slda", "network", {}, "does not run on 'network'; it runs on features"),
        ("pixel-ncm", "features", {}, "it runs on network"),
        ("naive", "features", {"strength": 1.0}, "no setting strength; its settings: epochs"),
        ("naive", "features", {"epochs": 0}, "epochs must be at least 1, not 0"),
        ("si", "features", {"damping": 0.0}, "damping must be above 0"),
        ("naive", "features", {"competing": "all"}, "competing must be one of"),
        ("naive", "features", {"architecture": "cnn"}, "is for on='network'"),
    ],
)
def test_bad_requests_say_what_is_wrong(name, on, settings, message, make_stream, features):
    with pytest.raises(BadInputError, match=message):
        make_baseline(name, make_stream(), on=on, features=features, seed=0, device=CPU, **settings)


def test_features_are_needed_on_features(make_stream):
    with pytest.raises(BadInputError, match="needs a feature function"):
        make_baseline("ncm", make_stream(), on="features", features=None, seed=0, device=CPU)


def test_tasks_come_in_order_and_only_learned_ones_are_predicted(make_stream, features):
    learner = make("ncm", make_stream(), "features", features)
    with pytest.raises(BadInputError, match="cannot predict task 0"):
        learner.predict(0, "single")
    with pytest.raises(BadInputError, match="cannot learn task 1"):
        learner.learn(1)
