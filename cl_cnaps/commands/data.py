"""`cl-cnaps data`: what images there are, and getting, checking and converting them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import Display, echo, footer, terminal
from cl_cnaps.errors import ClCnapsError, escaped

if TYPE_CHECKING:
    from cl_cnaps.data.source import CountedSource


@click.group()
def data() -> None:
    """List, add, fetch, verify, convert and embed images, and clean the cache of them.

    Images are looked for in the folder that CL_CNAPS_DATA names, else in the user's data folder.
    """


@data.command("list")
@options.as_json
def list_sources(as_json: bool) -> None:
    """Show which data sets are there, complete or not, and where from.

    \b
    Example:
      cl-cnaps data list
    """
    from cl_cnaps.data.catalog import CATALOG
    from cl_cnaps.data.registry import listing
    from cl_cnaps.paths import data_root

    rows = listing(data_root())
    if as_json:
        for row in rows:
            echo(json.dumps(row.as_json()))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "split", "classes", "images", "complete", "where", box=None, pad_edge=False)
    for row in rows:
        if row.problem:
            table.add_row(
                escaped(row.name), "", "", "", Text("unreadable", style="red"), escaped(row.problem)
            )
        complete = {True: "yes", False: "no", None: ""}[row.complete]
        for number, (split, found) in enumerate(row.splits.items()):
            counts = [
                f"{n:,}" if n == of else f"{n:,} of {of:,}"
                for n, of in zip(found, row.published.get(split, found), strict=True)
            ]
            name, *rest = (row.name, complete, row.location) if number == 0 else ("", "", "")
            table.add_row(*map(escaped, (name, split, *counts, *rest)))
    console = terminal()
    console.print(f"Data root: {data_root()}\n")
    console.print(table)
    absent = [row.name for row in rows if not row.found and not row.problem]
    console.print(f"\nNot there: {', '.join(absent) or 'none'}")
    can = [name for name in absent if name in CATALOG and CATALOG[name].fetchable]
    if can:
        console.print(f"Can be fetched: cl-cnaps data fetch {' '.join(can)}")


@data.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", required=True, help="What the images are to be called in other commands.")
@click.option("--replace", is_flag=True, help="Let the name mean this from now on if it is taken.")
@options.as_json
def add(path: Path, name: str, replace: bool, as_json: bool) -> None:
    """Register your own images: a folder or zip with a folder per class, Meta-Dataset records, or a feature file.

    Nothing is copied.

    \b
    Example:
      cl-cnaps data add ~/photos/mushrooms --name mushrooms
    """
    from cl_cnaps.data.registry import Row, open_path, register
    from cl_cnaps.paths import data_root

    row = Row.of(open_path(path, name))
    register(name, path, data_root(), replace=replace)
    echo(json.dumps(row.as_json()) if as_json else f"{name} is now {row.origin}")


@data.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.as_json
def fetch(names: tuple[str, ...], as_json: bool) -> None:
    """Download data sets into the data root, in torchvision's layout.

    Each is checked against its checksum and appears when it is whole; after a failure nothing is left.

    \b
    Example:
      cl-cnaps data fetch cifar10 omniglot
    """
    from cl_cnaps.data.catalog import known_set
    from cl_cnaps.data.fetch import fetch as fetch_set
    from cl_cnaps.data.registry import Row, find
    from cl_cnaps.paths import data_root

    for name in names:
        known = known_set(name)
        folder = fetch_set(known.name if known else name, data_root())
        source = find(known, data_root()) if known else None
        if source is not None:
            echo(json.dumps(Row.of(source).as_json()) if as_json else f"{folder}: {source.origin}")


@data.command()
@click.argument("names", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare the number of images of each class with this dataset_spec.json.",
)
@options.quiet
@options.as_json
def verify(names: tuple[str, ...], spec_file: Path | None, quiet: bool, as_json: bool) -> None:
    """Open every image and name each bad one; compare counts with the specification.

    SOURCE is a name from `data list`, folder:PATH, records:PATH, or `all`. Ends with status 1 if an image
    cannot be opened, or if --spec is given and counts differ.

    \b
    Example:
      cl-cnaps data verify cu_birds --spec cu_birds_dataset_spec.json
    """
    from cl_cnaps.data.conversion import record_splits
    from cl_cnaps.data.registry import open_source
    from cl_cnaps.data.source import total
    from cl_cnaps.data.spec import read_spec
    from cl_cnaps.data.verify import verify as verify_source

    spec = read_spec(spec_file) if spec_file else None
    failed = False
    for name in (wanted := _wanted(names)):
        try:
            source = open_source(name, features=True)
        except ClCnapsError as error:
            if len(wanted) == 1:
                raise
            failed = True
            echo(f"{name}: cannot be opened: {error}", err=True)
            continue
        start = time.perf_counter()
        with Display(quiet or as_json) as display:
            display.begin(f"opening {source.name}", total(source))
            progress = partial(display.show, "")
            result = verify_source(source, spec, splits=record_splits(source), progress=progress)
        seconds = time.perf_counter() - start
        failed = failed or bool(result.bad) or (spec is not None and bool(result.differences))
        if as_json:
            about = {"source": source.name, "origin": source.origin, "digest": source.digest()}
            echo(json.dumps(about | result.as_json() | {"seconds": round(seconds, 2)}))
            continue
        if not quiet:
            echo(
                f"{source.name}: {result.images:,} images opened in {seconds:.1f} s, {len(result.bad):,} bad"
            )
            echo(f"  {source.origin}")
        for problem in result.bad:
            echo(f"  bad: {problem}", err=quiet)
        if not quiet:
            for difference in result.differences:
                echo(f"  {difference.what}: {difference.found:,} of {difference.expected:,}")
    if failed:
        raise SystemExit(1)


@data.command()
@click.argument("names", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The dataset_spec.json that says which classes are for training, validation and test.",
)
@click.option(
    "--specs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of official ones (NAME_dataset_spec.json), for several sources at once.",
)
@click.option(
    "--fractions",
    nargs=3,
    type=options.Finite(0),
    metavar="TRAIN VALID TEST",
    help="Without a specification: deal out the classes at random in these proportions.",
)
@options.seed
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that gets a folder of records per source.  [default: records in the data root]",
)
@options.quiet
@options.as_json
def convert(
    names: tuple[str, ...],
    spec_file: Path | None,
    specs: Path | None,
    fractions: tuple[float, float, float] | None,
    seed: int,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write sources as Meta-Dataset records with a dataset_spec.json.

    SOURCE is a name from `data list`, folder:PATH, or `all`. Classes of the specification without images are
    left out and listed. Of mini-ImageNet the ImageNet graph keeps what spans its classes. MNIST, Fashion-MNIST
    and CIFAR have no specification: their test images become test classes.

    \b
    Example:
      cl-cnaps data convert all --specs meta_dataset_specs --out records
    """
    from cl_cnaps.data.conversion import convert as convert_source
    from cl_cnaps.data.conversion import plan_conversions
    from cl_cnaps.data.glyphs import GlyphSource
    from cl_cnaps.data.records import RecordSource
    from cl_cnaps.paths import data_root

    if spec_file is not None and len(names) > 1:
        raise click.UsageError("--spec is of one source; use --specs for several")
    # Records are there already, and characters that are drawn are no data set of Meta-Dataset.
    left_out = (RecordSource, GlyphSource) if names == ("all",) else ()
    sources = [source for source in _sources(names) if not isinstance(source, left_out)]
    folder = out or data_root() / "records"
    options.writable(folder)
    for plan in plan_conversions(
        sources, folder, spec_file=spec_file, specs=specs, fractions=fractions, seed=seed
    ):
        start = time.perf_counter()
        with Display(quiet or as_json) as display:
            display.begin(f"writing {plan.folder.name}", plan.images)
            progress = partial(display.show, "")
            result = convert_source(
                plan.source, plan.spec, plan.folder, splits=plan.splits, invert=plan.invert, progress=progress
            )
        seconds = time.perf_counter() - start
        if as_json:
            echo(json.dumps(result.as_json() | {"seconds": round(seconds, 2)}))
        elif not quiet:
            classes = ", ".join(f"{len(ids):,} {split}" for split, ids in result.spec.classes.items())
            echo(f"{result.source}: {result.images:,} images, {classes} classes in {seconds:.1f} s")
            _say_left_out("of the specification without images", result.without_images)
            _say_left_out("not in the specification", result.not_in_spec)
            footer([("records", result.folder)])


@data.command()
@click.argument("name", metavar="SOURCE")
@options.model_options("backbone", "backbone_weights", "image_size", "seed", "device")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The feature file: NAME.npz or NAME.safetensors.",
)
@options.quiet
@options.as_json
def embed(
    name: str,
    backbone: str | None,
    backbone_weights: str,
    image_size: int | None,
    seed: int,
    device: str,
    out: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write the features that a frozen backbone gives to all images of a source.

    The file is a source for stream, evaluate and active: features:FILE. It appears when it is whole.

    \b
    Example:
      cl-cnaps data embed cifar100 --backbone timm:resnet50 --out cifar100.npz
      cl-cnaps stream --benchmark features:cifar100.npz --classes-per-task 10
    """
    from cl_cnaps.data.feature_files import check_suffix, write_features
    from cl_cnaps.data.registry import open_source
    from cl_cnaps.data.source import total
    from cl_cnaps.features.frozen import embed_source
    from cl_cnaps.models.loading import load_model
    from cl_cnaps.torch_setup import set_up_torch

    check_suffix(out)
    options.writable(out.parent)
    set_up_torch()
    source = open_source(name)
    loaded = load_model(
        "simple",
        adaptation="none",
        backbone=backbone,
        backbone_weights=backbone_weights,
        image_size=image_size,
        seed=seed,
        device=device,
    )
    start = time.perf_counter()
    with Display(quiet or as_json) as display:
        display.begin(f"embedding {source.name}", total(source))
        table = embed_source(source, loaded.model, partial(display.show, ""))
    write_features(out, table)
    seconds = time.perf_counter() - start
    images, width = table.features_ND.shape
    if as_json:
        about = {"file": str(out), "images": images, "width": width, "digest": table.digest()}
        echo(json.dumps({**about, **table.metadata, "seconds": round(seconds, 2)}))
    elif not quiet:
        echo(f"{source.name}: features of {images:,} images, {width} wide, in {seconds:.1f} s")
        footer([("features", out)])


@data.command()
@click.argument("source", required=False)
@options.as_json
def clean(source: str | None, as_json: bool) -> None:
    """Remove cached images: those of one SOURCE, or without one all, with everything else cached of data.

    Nothing is lost: caches are made again when needed.

    \b
    Example:
      cl-cnaps data clean
    """
    from cl_cnaps.data.packing import clean as clean_cache

    files, freed = clean_cache(source)
    echo(
        json.dumps({"files": files, "bytes": freed})
        if as_json
        else f"{files:,} files removed, {freed / 1e6:,.1f} MB freed"
    )


def _wanted(names: tuple[str, ...]) -> list[str]:
    """Return the names of sources; `all` is every one that `data list` shows as there."""
    from cl_cnaps.data.registry import listing
    from cl_cnaps.paths import data_root

    return [row.name for row in listing(data_root()) if row.found] if names == ("all",) else list(names)


def _sources(names: tuple[str, ...]) -> Iterator[CountedSource]:
    """Open each source of images in turn; of `all`, feature files are left out."""
    from cl_cnaps.data.registry import open_source

    for name in _wanted(names):
        source = open_source(name, features=names == ("all",))
        if source.feature_width is None:
            yield source


def _say_left_out(what: str, names: tuple[str, ...]) -> None:
    if names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        echo(f"  left out: {len(names):,} classes {what}: {shown}")
