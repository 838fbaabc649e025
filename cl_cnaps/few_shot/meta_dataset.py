"""Meta-Dataset as the paper evaluates on it: eight data sets trained on, five kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Domain = Literal["in", "out"]


@dataclass(frozen=True)
class Column:
    """A column of `tab:results:meta-dataset-1` and `-2`."""

    name: str
    title: str
    domain: Domain
    """`in`: the paper's models were meta-trained on other classes of this data set."""
    sources: tuple[str, ...]
    """Sources that serve, best first; any but the first is a stand-in."""


COLUMNS = (
    Column("ilsvrc_2012", "ImageNet", "in", ("ilsvrc_2012", "mini-imagenet")),
    Column("omniglot", "Omniglot", "in", ("omniglot",)),
    Column("aircraft", "Aircraft", "in", ("aircraft",)),
    Column("cu_birds", "Birds", "in", ("cu_birds",)),
    Column("dtd", "DTD", "in", ("dtd",)),
    Column("quickdraw", "QuickDraw", "in", ("quickdraw",)),
    Column("fungi", "Fungi", "in", ("fungi",)),
    Column("vgg_flower", "Flower", "in", ("vgg_flower",)),
    Column("traffic_sign", "Signs", "out", ("traffic_sign",)),
    Column("mscoco", "MSCOCO", "out", ("mscoco",)),
    Column("mnist", "MNIST", "out", ("mnist",)),
    Column("cifar10", "CIFAR10", "out", ("cifar10",)),
    Column("cifar100", "CIFAR100", "out", ("cifar100",)),
)
"""In the paper's order."""


def column(name: str) -> Column | None:
    """The column of a data set, if it has one."""
    return next((known for known in COLUMNS if known.name == name), None)


GROUPS: Mapping[str, tuple[Domain, ...]] = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
"""Average -> the domains of the data sets that it is over."""
