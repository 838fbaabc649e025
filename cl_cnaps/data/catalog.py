"""The data sets this project knows by name: how they are called on disk and what is in them officially."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DIGITS = tuple(str(digit) for digit in range(10))

GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger",
    "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm",
)  # fmt: skip


@dataclass(frozen=True)
class KnownSet:
    """A published data set."""

    name: str
    title: str
    folders: tuple[str, ...]
    """What its folder, or its zip without the suffix, may be called in the data root; none of a set that is drawn."""

    official: Mapping[str, tuple[int, int]]
    """Split -> number of classes and of images, as published."""

    order: tuple[str, ...] = ()
    """Class names in label order, where the order is official."""

    grey: bool = False
    spec: str | None = None
    """Name of the Meta-Dataset specification whose classes these are."""

    record_split: str | None = None
    """The split whose images Meta-Dataset uses, where it does not use all."""

    inverted_in_records: bool = False
    """Whether Meta-Dataset turns black into white in its records."""

    aliases: tuple[str, ...] = ()
    torchvision_folder: str = ""
    """Where torchvision keeps it in the data root, where that is not a folder per class."""

    fetchable: bool = False
    """Whether `data fetch` can download it (`fetch.DOWNLOADS`)."""


_SETS = (
    KnownSet(
        "mnist", "MNIST handwritten digits", ("mnist",), {"train": (10, 60_000), "test": (10, 10_000)},
        order=DIGITS, grey=True, record_split="test", torchvision_folder="MNIST/raw", fetchable=True,
    ),
    KnownSet(
        "fashion-mnist", "Fashion-MNIST garments", ("fashion_mnist", "fashion-mnist"),
        {"train": (10, 60_000), "test": (10, 10_000)}, order=GARMENTS, grey=True, record_split="test",
        torchvision_folder="FashionMNIST/raw", fetchable=True,
    ),
    KnownSet(
        "cifar10", "CIFAR-10", ("cifar10", "cifar-10"), {"train": (10, 50_000), "test": (10, 10_000)},
        order=CIFAR10, record_split="test", aliases=("cifar-10",),
        torchvision_folder="cifar-10-batches-py", fetchable=True,
    ),
    KnownSet(
        "cifar100", "CIFAR-100", ("cifar100", "cifar-100"), {"train": (100, 50_000), "test": (100, 10_000)},
        order=CIFAR100, record_split="test", aliases=("cifar-100",),
        torchvision_folder="cifar-100-python", fetchable=True,
    ),
    KnownSet(
        "omniglot", "Omniglot characters", ("omniglot", "omniglot-py"),
        {"background": (964, 19_280), "evaluation": (659, 13_180)},
        grey=True, spec="omniglot", inverted_in_records=True, fetchable=True,
    ),
    KnownSet(
        "glyphs", "characters drawn with matplotlib's fonts", (),
        {"train": (997, 31_904), "val": (174, 5_568), "test": (109, 3_488)}, grey=True,
    ),
    KnownSet(
        "mini-imagenet", "mini-ImageNet", ("mini_imagenet", "mini-imagenet", "miniImageNet"),
        {"train": (64, 38_400), "val": (16, 9_600), "test": (20, 12_000)}, spec="ilsvrc_2012",
    ),
    KnownSet(
        "tiered-imagenet", "tiered-ImageNet", ("tiered_imagenet", "tiered-imagenet", "tieredImageNet"),
        {"train": (351, 448_695), "val": (97, 124_261), "test": (160, 206_209)}, spec="ilsvrc_2012",
    ),
    KnownSet(
        "ilsvrc_2012", "ImageNet (ILSVRC 2012)", ("ilsvrc_2012", "ILSVRC2012_img_train"),
        {"all": (1000, 1_281_167)},
        spec="ilsvrc_2012", aliases=("ilsvrc-2012", "imagenet"),
    ),
    KnownSet(
        "aircraft", "FGVC Aircraft", ("aircraft",), {"all": (100, 10_000)}, spec="aircraft",
    ),
    KnownSet(
        "cu_birds", "Caltech-UCSD Birds 200", ("cu_birds", "CUB_200_2011"),
        {"all": (200, 11_788)}, spec="cu_birds",
        aliases=("cu-birds",),
    ),
    KnownSet("dtd", "Describable Textures", ("dtd",), {"all": (47, 5_640)}, spec="dtd", fetchable=True),
    KnownSet(
        "quickdraw", "Quick, Draw! bitmaps", ("quickdraw",),
        {"all": (345, 50_426_266)}, grey=True, spec="quickdraw",
    ),
    KnownSet("fungi", "FGVCx Fungi", ("fungi",), {"all": (1_394, 89_760)}, spec="fungi"),
    KnownSet(
        "vgg_flower", "Oxford Flowers 102", ("vgg_flower",), {"all": (102, 8_189)}, spec="vgg_flower",
        aliases=("vgg-flower", "flowers102"), torchvision_folder="flowers-102", fetchable=True,
    ),
    KnownSet(
        "traffic_sign", "German Traffic Signs (GTSRB)", ("traffic_sign",),
        {"train": (43, 39_209), "test": (43, 12_630)},
        spec="traffic_sign", record_split="train", aliases=("traffic-sign", "gtsrb"),
        torchvision_folder="gtsrb", fetchable=True,
    ),
    KnownSet("mscoco", "MS COCO objects", ("mscoco",), {"all": (80, 860_001)}, spec="mscoco"),
)  # fmt: skip

CATALOG: Mapping[str, KnownSet] = {known.name: known for known in _SETS}


def known_set(name: str) -> KnownSet | None:
    """The set of this name or alias; capitals and the choice of - or _ do not matter."""
    wanted = name.lower().replace("_", "-")
    for known in _SETS:
        if wanted in {known.name.replace("_", "-"), *known.aliases}:
            return known
    return None


def is_complete(counts: Mapping[str, Mapping[str, int]], official: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the official number of classes and images is there, in each split or over all."""
    found = {split: (len(classes), sum(classes.values())) for split, classes in counts.items()}
    if set(found) == set(official):
        return all(found[split] == tuple(official[split]) for split in official)
    # Other splits than the official ones: the number of images decides.
    return sum(images for _, images in found.values()) == sum(images for _, images in official.values())


def completeness(counts: Mapping[str, Mapping[str, int]], official: Mapping[str, tuple[int, int]]) -> str:
    """Describe what is there of what was published: "500 of 5,000 train images a class"."""
    if is_complete(counts, official):
        return "complete"
    parts = [_part(split, classes, official.get(split)) for split, classes in counts.items()]
    return ", ".join(parts)


def _part(split: str, classes: Mapping[str, int], official: tuple[int, int] | None) -> str:
    kind = "images" if split == "all" else f"{split} images"
    images, sizes = sum(classes.values()), set(classes.values())
    if official is None:
        return f"{images:,} {kind} in {len(classes):,} classes"
    official_classes, official_images = official
    if len(classes) == official_classes and len(sizes) == 1 and official_images % official_classes == 0:
        return f"{sizes.pop():,} of {official_images // official_classes:,} {kind} a class"
    of_all = "" if len(classes) == official_classes else f" of {official_classes:,}"
    return f"{images:,} of {official_images:,} {kind} in {len(classes):,}{of_all} classes"
