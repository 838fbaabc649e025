"""The classifier as it is usually written: a dense covariance and an inverse for every class."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_covariances(support_ND: Tensor, labels_N: Tensor, way: int) -> tuple[Tensor, Tensor]:
    """Means K x D and regularised covariances K x D x D of Simple CNAPS."""
    identity = torch.eye(support_ND.shape[1])
    task = torch.cov(support_ND.T, correction=0)
    means, covariances = [], []
    for k in range(way):
        own = support_ND[labels_N == k]
        ratio = len(own) / (len(own) + 1)
        means.append(own.mean(dim=0))
        covariances.append(ratio * torch.cov(own.T, correction=0) + (1 - ratio) * task + identity)
    return torch.stack(means), torch.stack(covariances)


def dense_logits(means_KD: Tensor, covariances_KDD: Tensor, query_QD: Tensor) -> Tensor:
    """Logits Q x K, each class by the inverse of its covariance."""
    columns = []
    for mean_D, covariance_DD in zip(means_KD, covariances_KDD, strict=True):
        offset = query_QD - mean_D
        columns.append(-((offset @ torch.inverse(covariance_DD)) * offset).sum(dim=1))
    return torch.stack(columns, dim=1)


def dense_refinement(support_ND: Tensor, labels_N: Tensor, way: int, query_QD: Tensor, steps: int) -> Tensor:
    """Logits Q x K after so many steps of soft k-means, every step from all images again."""
    logits = dense_logits(*dense_covariances(support_ND, labels_N, way), query_QD)
    everything = torch.cat([support_ND, query_QD])
    identity = torch.eye(support_ND.shape[1], dtype=support_ND.dtype)
    hard = torch.nn.functional.one_hot(labels_N, way).to(support_ND)
    for _ in range(steps):
        weights = torch.cat([hard, torch.softmax(logits, dim=1)])
        task_mean = (weights.sum(dim=1) @ everything) / weights.sum()
        centred = everything - task_mean
        task = centred.T @ centred / len(everything)
        means, covariances = [], []
        for k in range(way):
            weight = weights[:, k]
            count = weight.sum()
            mean = weight @ everything / count
            offset = everything - mean
            own = (weight[:, None] * offset).T @ offset / count
            ratio = count / (count + 1)
            means.append(mean)
            covariances.append(ratio * own + (1 - ratio) * task + identity)
        logits = dense_logits(torch.stack(means), torch.stack(covariances), query_QD)
    return logits


def features_like_a_network(way: int, per_class: int, width: int, generator: torch.Generator) -> Tensor:
    """Rectified, correlated features with class structure, of the scale that the backbones give: K x N x D."""
    mixing = torch.randn(width // 4, width, generator=generator) / (width // 4) ** 0.5
    latent = torch.randn(way, per_class, width // 4, generator=generator)
    centres = torch.randn(way, 1, width // 4, generator=generator)
    return torch.relu((latent + centres) @ mixing)
