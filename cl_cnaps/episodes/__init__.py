"""Few-shot tasks: how they are described and sampled."""

from cl_cnaps.data.wordnet import ClassGraph
from cl_cnaps.episodes.episode import Episode, episodes_digest
from cl_cnaps.episodes.rules import MetaDatasetConfig
from cl_cnaps.episodes.samplers import (
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetSampler,
    MixtureSampler,
)
from cl_cnaps.episodes.spec import ClassTable, SplitSpec

__all__ = [
    "ClassGraph",
    "ClassTable",
    "Episode",
    "EpisodeSampler",
    "FixedConfig",
    "FixedSampler",
    "MetaDatasetConfig",
    "MetaDatasetSampler",
    "MixtureSampler",
    "SplitSpec",
    "episodes_digest",
]
