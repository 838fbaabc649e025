"""Few-shot tasks: how they are described and sampled."""

from cl_cnaps.data.wordnet import ClassGraph
from cl_cnaps.episodes.episode import Episode, episodes_digest
from cl_cnaps.episodes.rules import MetaDatasetConfig, VariableConfig
from cl_cnaps.episodes.samplers import (
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetSampler,
    MixtureSampler,
    VariableSampler,
)
from cl_cnaps.episodes.spec import ClassTable, DatasetSpec, SplitSpec, read_spec

__all__ = [
    "ClassGraph",
    "ClassTable",
    "DatasetSpec",
    "Episode",
    "EpisodeSampler",
    "FixedConfig",
    "FixedSampler",
    "MetaDatasetConfig",
    "MetaDatasetSampler",
    "MixtureSampler",
    "SplitSpec",
    "VariableConfig",
    "VariableSampler",
    "episodes_digest",
    "read_spec",
]
