"""What is downloaded for each set: the addresses and checksums that torchvision has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Download:
    """One file of a set."""

    urls: tuple[str, ...]
    """Where it can be had; the next is tried when one fails."""

    md5: str
    folder: str = ""
    """Where it is unpacked, below the set's own folder."""

    kept: bool = False
    """Whether an archive stays after it is unpacked: only where torchvision looks for it."""

    @property
    def file_name(self) -> str:
        """Its name on disk."""
        return self.urls[0].rpartition("/")[2]


@dataclass(frozen=True)
class Downloads:
    """All files of a set, and the folder of the data root that they make."""

    folder: str
    files: tuple[Download, ...]
    within: bool = True
    """Whether files are unpacked inside the folder, or bring the folder with them."""


def _idx(kind: str) -> Downloads:
    from torchvision import datasets

    of = getattr(datasets, kind)
    files = [
        Download(tuple(mirror + file for mirror in of.mirrors), md5, "raw") for file, md5 in of.resources
    ]
    return Downloads(kind, tuple(files))


def _cifar(kind: str) -> Downloads:
    from torchvision import datasets

    of = getattr(datasets, kind)
    return Downloads(of.base_folder, (Download((of.url,), of.tgz_md5),), within=False)


def _omniglot() -> Downloads:
    from torchvision.datasets import Omniglot

    prefix = Omniglot.download_url_prefix
    files = [Download((f"{prefix}/{part}.zip",), md5, kept=True) for part, md5 in Omniglot.zips_md5.items()]
    return Downloads(Omniglot.folder, tuple(files))


def _dtd() -> Downloads:
    from torchvision.datasets import DTD

    return Downloads("dtd", (Download((DTD._URL,), DTD._MD5),))


def _flowers() -> Downloads:
    from torchvision.datasets import Flowers102

    prefix = Flowers102._download_url_prefix
    files = [Download((prefix + file,), md5) for file, md5 in Flowers102._file_dict.values()]
    return Downloads("flowers-102", tuple(files))


def _traffic_signs() -> Downloads:
    # torchvision has these inside a method of its GTSRB.
    prefix = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
    files = {
        "GTSRB-Training_fixed.zip": "513f3c79a4c5141765e10e952eaa2478",
        "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
        "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
    }
    return Downloads("gtsrb", tuple(Download((prefix + file,), md5) for file, md5 in files.items()))


DOWNLOADS: Mapping[str, Callable[[], Downloads]] = {
    "mnist": partial(_idx, "MNIST"),
    "fashion-mnist": partial(_idx, "FashionMNIST"),
    "cifar10": partial(_cifar, "CIFAR10"),
    "cifar100": partial(_cifar, "CIFAR100"),
    "omniglot": _omniglot,
    "dtd": _dtd,
    "vgg_flower": _flowers,
    "traffic_sign": _traffic_signs,
}
"""Name -> its downloads. torchvision's FGVC Aircraft is not among them: it has no checksum."""
