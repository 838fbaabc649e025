"""Writing a source as Meta-Dataset records: by which specification, from which splits, into which folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import ImageOps

from cl_cnaps.data.atomic import partial_folder, sync, sync_tree, write_text
from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.records import RecordSource, class_labels, encode_example, write_records
from cl_cnaps.data.registry import SPEC_FILE
from cl_cnaps.data.source import CountedSource, encode_png
from cl_cnaps.data.spec import DatasetSpec, by_fractions, find_spec, matched, read_spec, subset
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.paths import below

NOTE_FILE = "conversion.json"


@dataclass(frozen=True)
class Conversion:
    """What was written, and what was left out."""

    source: str
    folder: Path
    spec: DatasetSpec
    images: int
    without_images: tuple[str, ...]
    """Classes of the specification that the source has no images of."""

    not_in_spec: tuple[str, ...]
    """Classes of the source that the specification does not name."""

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "source": self.source,
            "spec": self.spec.name,
            "folder": str(self.folder),
            "images": self.images,
            "classes": {split: len(ids) for split, ids in self.spec.classes.items()},
            "classes_without_images": self.without_images,
            "classes_not_in_specification": self.not_in_spec,
        }


def convert(
    source: CountedSource,
    spec: DatasetSpec,
    folder: Path,
    *,
    splits: Sequence[str] | None = None,
    invert: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Conversion:
    """Write the images of `source` as records of the classes of `spec` into a new folder.

    Images of all splits of the source are taken, or of those named. Classes without images are left out of
    the written specification, and the others numbered again without gaps. Image files go in as they are if
    they are JPEG or PNG; other images become PNG, and so do all with `invert`, which turns black into white.
    `progress` is called with the number of images written since the last call. The folder appears when it is
    whole.
    """
    if folder.exists():
        raise BadInputError(f"{folder} exists; records are only written to a new folder")
    pieces = images_by_class(source, splits)
    matches = matched(class_labels(spec), list(pieces))
    if not matches:
        raise BadInputError(
            f"no class of {source.name} is one of the {len(spec.class_names):,} classes of the specification "
            f"{spec.name}: it has {', '.join(list(pieces)[:4])} ..., not {', '.join(spec.class_names[:4])}"
        )
    chosen = sorted(matches)
    written = subset(spec, {i: sum(count for _, count in pieces[matches[i]]) for i in chosen})
    images = 0
    with partial_folder(folder.parent, folder.name) as partial:
        for class_id, old_id in enumerate(chosen):
            name = matches[old_id]
            records = _records(source, name, pieces[name], class_id, invert)
            count = write_records(partial / written.file_pattern.format(class_id), records)
            images += count
            progress(count)
        result = Conversion(
            source.name,
            folder,
            written,
            images,
            tuple(label for i, label in enumerate(class_labels(spec)) if i not in matches),
            tuple(name for name in pieces if name not in matches.values()),
        )
        written.write(partial / SPEC_FILE, str(folder))
        write_text(partial / NOTE_FILE, json.dumps(_note(source, result), indent=2) + "\n")
        sync_tree(partial)
        partial.rename(folder)
        sync(folder.parent)
    return result


def record_splits(source: CountedSource) -> tuple[str, ...]:
    """Splits of a source whose images Meta-Dataset uses: all, except of the sets of which it uses one."""
    known = known_set(source.name)
    if known is not None and known.record_split in source.splits:
        return (known.record_split,)
    return source.splits


def images_by_class(
    source: CountedSource, splits: Sequence[str] | None = None
) -> dict[str, list[tuple[str, int]]]:
    """Class -> the splits it has images in, and how many; of all splits, or of those named."""
    pieces: dict[str, list[tuple[str, int]]] = {}
    for split in source.splits if splits is None else splits:
        for name in source.classes(split):
            pieces.setdefault(name, []).append((split, source.count(split, name)))
    return pieces


def _records(
    source: CountedSource, name: str, pieces: list[tuple[str, int]], class_id: int, invert: bool
) -> Iterator[bytes]:
    for split, count in pieces:
        for index in range(count):
            if invert:
                image = encode_png(ImageOps.invert(source.image(split, name, index)))
            else:
                image = source.encoded(split, name, index)
            yield encode_example(image, class_id)


def _note(source: CountedSource, result: Conversion) -> Mapping[str, object]:
    """What a later reader of the records wants to know of their making."""
    return {
        "source": source.name,
        "origin": source.origin,
        "digest": source.digest(),
        "images": result.images,
        "classes_without_images": result.without_images,
        "classes_not_in_specification": result.not_in_spec,
    }


@dataclass(frozen=True)
class Plan:
    """One conversion to be done."""

    source: CountedSource
    spec: DatasetSpec
    folder: Path
    splits: tuple[str, ...]
    """Splits of the source whose images are taken."""

    invert: bool
    images: int
    """Images in those splits."""


def plan_conversions(
    sources: Iterable[CountedSource],
    out: Path,
    *,
    spec_file: Path | None = None,
    specs: Path | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> list[Plan]:
    """Plan all before any is written, so that what is missing is reported at once; see `plan_conversion`."""
    plans: dict[Path, Plan] = {}
    for source in sources:
        plan = plan_conversion(source, out, spec_file=spec_file, specs=specs, fractions=fractions, seed=seed)
        if plan.folder in plans:
            raise BadInputError(
                f"{plans[plan.folder].source.name} and {source.name} would both be written to {plan.folder}; "
                f"convert them apart, each with its own --out"
            )
        plans[plan.folder] = plan
    return list(plans.values())


def plan_conversion(
    source: CountedSource,
    out: Path,
    *,
    spec_file: Path | None = None,
    specs: Path | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> Plan:
    """Decide how `source` becomes a folder in `out` that is called like its specification.

    That is `spec_file`; else the source's own in the folder `specs`; else one by `fractions` and `seed`. The
    sets of which Meta-Dataset takes the test images (MNIST, CIFAR) have no published specification: without
    fractions all their classes are test classes.
    """
    if isinstance(source, RecordSource):
        raise BadInputError(f"{source.path} holds records already")
    splits = record_splits(source)
    pieces = images_by_class(source, splits)
    counts = {name: sum(count for _, count in parts) for name, parts in pieces.items()}
    spec = read_spec(spec_file) if spec_file is not None else None
    if spec is None and specs is not None:
        spec = _published(source.name, specs)
    if spec is None:
        spec = _dealt_out(source.name, counts, specs, fractions, seed)
    folder = below(out, spec.name)
    if folder.exists():
        raise BadInputError(f"{folder} exists; records are only written to a new folder")
    known = known_set(source.name)
    invert = known is not None and known.inverted_in_records
    return Plan(source, spec, folder, splits, invert, sum(counts.values()))


def _published(name: str, specs: Path) -> DatasetSpec | None:
    known = known_set(name)
    wanted = known.spec if known is not None and known.spec is not None else name
    file = find_spec(wanted, specs)
    return None if file is None else read_spec(file)


def _dealt_out(
    name: str,
    counts: Mapping[str, int],
    specs: Path | None,
    fractions: tuple[float, float, float] | None,
    seed: int,
) -> DatasetSpec:
    known = known_set(name)
    if fractions is None and known is not None and known.record_split == "test":
        fractions = (0.0, 0.0, 1.0)
    if fractions is None:
        raise MissingDataError(
            f"there is no specification of {name}{f' in {specs}' if specs else ''}: give --spec FILE, "
            f"--specs FOLDER, or --fractions"
        )
    return by_fractions(name, counts, fractions, seed)
