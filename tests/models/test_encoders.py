"""Task encoders: what order, duplicates and the two kinds of batch statistics do to an encoding."""

from __future__ import annotations

import pytest
import torch
from models.small import small_backbone, small_model, small_task

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.encoders import (
    BackboneSetEncoder,
    MeanTaskEncoder,
    SetEncoder,
    SetEncoderConfig,
    TaskNorm,
    TransductiveTaskEncoder,
)

CONFIG = SetEncoderConfig(kind="backbone", standardise=True)


def images(n: int, seed: int = 0, size: int = 32) -> torch.Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def set_encoder(**settings: object) -> SetEncoder:
    torch.manual_seed(0)
    encoder = SetEncoder(SetEncoderConfig(**settings))  # type: ignore[arg-type]
    encoder(images(8) + 1)  # running statistics that are not those of the next images
    return encoder.eval()


def test_parameter_counts() -> None:
    assert sum(p.numel() for p in MeanTaskEncoder(SetEncoderConfig()).parameters()) == 150_144
    assert sum(p.numel() for p in TransductiveTaskEncoder(SetEncoderConfig()).parameters()) == 216_704


@torch.no_grad()
def test_running_statistics_by_default_batch_statistics_by_option() -> None:
    running, batch = set_encoder(), set_encoder(batch_statistics=True)
    batch.load_state_dict(running.state_dict())
    state = {key: value.clone() for key, value in batch.state_dict().items()}
    four = images(4, 1)
    torch.testing.assert_close(running(four)[:1], running(four[:1]))
    assert not torch.allclose(batch(four)[:1], batch(four[:1]), atol=1e-3)
    # Batch statistics are what training mode gives, without moving the running ones.
    training = running.train()
    torch.testing.assert_close(batch(four), training(four))
    for key, value in batch.state_dict().items():
        assert torch.equal(value, state[key]), key


@torch.no_grad()
def test_batch_statistics_are_those_of_all_images_whatever_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = small_task()
    encodings = []
    for limit in (1 << 30, 1):
        monkeypatch.setattr("cl_cnaps.models.cnaps.MEMORY_LIMIT", limit)
        for batch_statistics in (True, False):
            model = small_model("simple", encoder=SetEncoderConfig(batch_statistics=batch_statistics))
            encodings.append(model.encode(task.support, task.labels))
    torch.testing.assert_close(encodings[0], encodings[2])
    torch.testing.assert_close(encodings[1], encodings[3])
    assert encodings[0] is not None
    assert not torch.allclose(encodings[0], encodings[1], atol=1e-3)


@torch.no_grad()
def test_smaller_images_for_the_encoder() -> None:
    encoder = set_encoder(norm="group", image_size=32)
    large = images(2, size=64)
    torch.testing.assert_close(encoder(large), encoder(torch.nn.functional.avg_pool2d(large, 2)))


class TestTaskNorm:
    def test_standardises_what_it_was_shown(self) -> None:
        vectors = 0.7 + 0.02 * torch.randn(150, 64, generator=torch.Generator().manual_seed(0))
        norm = TaskNorm(64)
        norm.update(vectors)
        standard = norm(vectors)
        torch.testing.assert_close(standard.mean(dim=0), torch.zeros(64), rtol=0, atol=1e-4)
        torch.testing.assert_close(standard.std(dim=0, correction=0), torch.ones(64), rtol=0, atol=1e-3)
        assert float(norm(vectors + 9.0).max()) == TaskNorm.LARGEST

    def test_a_number_that_never_changes_stays_finite(self) -> None:
        norm = TaskNorm(2)
        norm.update(torch.ones(10, 2))
        assert bool(torch.isfinite(norm(torch.tensor([1.0, 1.5]))).all())

    def test_one_by_one_is_the_same_as_together(self) -> None:
        vectors = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
        one, together = TaskNorm(8), TaskNorm(8)
        together.update(vectors)
        for vector in vectors:
            one.update(vector[None])
        assert all(torch.equal(a, b) for a, b in zip(one.buffers(), together.buffers(), strict=True))


class TestBackboneSetEncoder:
    def test_reads_channel_statistics_of_the_first_layer(self) -> None:
        backbone = small_backbone()
        encoder = BackboneSetEncoder(CONFIG, backbone)
        prepared = images(3)
        with torch.no_grad():
            layer = backbone.network.bn1(backbone.network.conv1(prepared))
            expected = torch.cat([layer.mean(dim=(2, 3)), layer.std(dim=(2, 3), correction=0)], dim=1)
        torch.testing.assert_close(encoder.statistics(prepared), expected, rtol=1e-3, atol=1e-5)
        assert not any(name.startswith("_backbone") for name in encoder.state_dict())

    def test_tells_sources_apart_once_calibrated(self) -> None:
        model = small_model("simple", encoder=CONFIG)
        prepare = model.backbone.prepare
        kinds = [[small_task(seed=i).support // (1 + kind) for i in range(6)] for kind in (0, 1)]
        model.task_encoder.calibrate([prepare(task) for tasks in kinds for task in tasks])
        labels = small_task().labels
        encodings = [torch.stack([model.encode(t, labels) for t in tasks]).detach() for tasks in kinds]
        apart = (encodings[0].mean(dim=0) - encodings[1].mean(dim=0)).norm()
        spread = (encodings[0] - encodings[0].mean(dim=0)).norm(dim=1).mean()
        assert float(apart) > float(spread)

    def test_needs_standardisation_and_a_backbone(self) -> None:
        with pytest.raises(BadInputError, match="needs standardise"):
            SetEncoderConfig(kind="backbone")
        with pytest.raises(BadInputError, match="needs the backbone"):
            MeanTaskEncoder(CONFIG)


def test_an_untrained_transductive_encoding_is_near_that_of_simple_cnaps() -> None:
    simple, transductive = (small_model(name, encoder=CONFIG) for name in ("simple", "transductive"))
    transductive.task_encoder.set_encoder.load_state_dict(simple.task_encoder.set_encoder.state_dict())
    task = small_task()
    for model in (simple, transductive):
        model.task_encoder.calibrate([model.backbone.prepare(small_task(seed=i).support) for i in range(8)])
    with torch.no_grad():
        one, other = (m.encode(task.support, task.labels, task.query) for m in (simple, transductive))
    assert one is not None
    assert other is not None
    assert float((one - other).norm()) < 0.5 * float(one.norm())


class TestPooling:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    support = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    query = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))

    def transductive(self) -> TransductiveTaskEncoder:
        torch.manual_seed(0)
        return TransductiveTaskEncoder(SetEncoderConfig()).requires_grad_(False)

    def test_mean_over_all_support_images(self) -> None:
        encoder = MeanTaskEncoder(SetEncoderConfig())
        torch.testing.assert_close(encoder.pool(self.support, self.labels, None), self.support.mean(dim=0))

    def test_transductive_is_an_lstm_over_the_class_mean_of_means_and_the_query_mean(self) -> None:
        encoder = self.transductive()
        e_s = torch.stack([self.support[self.labels == k].mean(dim=0) for k in range(3)]).mean(dim=0)
        zero = torch.zeros(2, 64)
        hidden, cell = encoder.lstm(e_s[None], (zero, zero))[1]
        second = encoder.lstm(self.query.mean(dim=0)[None], (hidden, cell))[0]
        torch.testing.assert_close(encoder.pool(self.support, self.labels, self.query), second[0])

    def test_order_does_not_matter(self) -> None:
        encoder = self.transductive()
        expected = encoder.pool(self.support, self.labels, self.query)
        order = torch.tensor([5, 2, 0, 4, 1, 3])
        shuffled = encoder.pool(self.support[order], self.labels[order], self.query.flip(0))
        torch.testing.assert_close(shuffled, expected)
        torch.testing.assert_close(encoder.pool(self.support, 7 - self.labels, self.query), expected)

    def test_more_copies_of_a_classs_images_do_not_matter_but_another_class_does(self) -> None:
        encoder = self.transductive()
        expected = encoder.pool(self.support, self.labels, self.query)
        twice = torch.cat([self.support, self.support[:3]]), torch.cat([self.labels, self.labels[:3]])
        torch.testing.assert_close(encoder.pool(*twice, self.query), expected)
        mean = MeanTaskEncoder(SetEncoderConfig())
        assert not torch.allclose(mean.pool(*twice, None), mean.pool(self.support, self.labels, None))
        merged = encoder.pool(self.support, self.labels.clamp_max(1), self.query)
        assert not torch.allclose(merged, expected, atol=1e-4)

    def test_queries_are_needed_and_used(self) -> None:
        encoder = self.transductive()
        expected = encoder.pool(self.support, self.labels, self.query)
        other = encoder.pool(self.support, self.labels, self.query + 1)
        assert not torch.allclose(other, expected, atol=1e-4)
        for nothing in (None, self.query[:0]):
            with pytest.raises(BadInputError, match="query images"):
                encoder.pool(self.support, self.labels, nothing)

    def test_support_that_is_not_there(self) -> None:
        for encoder in (MeanTaskEncoder(SetEncoderConfig()), self.transductive()):
            with pytest.raises(BadInputError, match="support images"):
                encoder.pool(self.support[:0], self.labels[:0], self.query)
            with pytest.raises(BadInputError, match="one label per support image"):
                encoder.pool(self.support, self.labels[:5], self.query)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(BadInputError, match="batch or group"):
        SetEncoderConfig(norm="layer")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="batch statistics need batch-norm"):
        SetEncoderConfig(norm="group", batch_statistics=True)
    with pytest.raises(BadInputError, match="too few"):
        SetEncoderConfig(image_size=16)
