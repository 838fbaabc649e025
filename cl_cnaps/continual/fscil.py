"""Few-shot class-incremental streams: a base session of many classes, then sessions of few classes and few images.

Published tables use fixed image lists: one text file a session (session_2.txt, ...), an image a line, which is a path
whose last folder is the class, or a number in the training set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cl_cnaps.continual.planning import StreamConfig, plan_tasks
from cl_cnaps.continual.plans import Pool, StreamPlan, plain_view
from cl_cnaps.data import Source
from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.paths import read_text


@dataclass(frozen=True)
class FscilInfo:
    """Sizes of a published few-shot class-incremental benchmark."""

    source: str
    base: int
    ways: int
    shots: int
    sessions: int
    lists: str
    """Folder of its lists in a folder for those of all."""


FSCIL: dict[str, FscilInfo] = {
    "fscil-cifar100": FscilInfo("cifar100", 60, 5, 5, 8, "cifar100"),
    "fscil-mini-imagenet": FscilInfo("mini-imagenet", 60, 5, 5, 8, "mini_imagenet"),
    "fscil-cub": FscilInfo("cu_birds", 100, 10, 5, 10, "cub200"),
}


@dataclass(frozen=True)
class Session:
    """A novel session as its list has it: image names in the order of the file, with their class if they name one."""

    number: int
    images: tuple[tuple[str | None, str], ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the list names, in order; none where it has numbers alone."""
        return tuple(dict.fromkeys(name for name, _ in self.images if name is not None))


def plan_fscil(config: StreamConfig, source: Source) -> StreamPlan:
    """Plan the sessions of a benchmark: its published image lists, or a seeded draw where there are none."""
    info = FSCIL[config.benchmark]
    for name in ("classes_per_task", "base_classes", "class_order", "shuffle_classes", "repeat"):
        if getattr(config, name) != getattr(StreamConfig, name):
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"{config.benchmark} has its own sessions: leave {option} out")
    splits = {name: split for split in source.splits for name in source.classes(split)}
    separate = set(source.splits) >= {"train", "test"} and source.classes("train") == source.classes("test")
    sessions = [] if config.lists is None else read_sessions(config.lists, info)
    groups = class_plan(source.classes("train") if separate else tuple(splits), info, sessions)
    support = {name: "train" if separate else splits[name] for name in splits}
    notes: list[str] = []
    listed: dict[str, tuple[int, ...]] = {}
    missing: list[tuple[int, str]] = []
    for session, classes in zip(sessions, groups[1:], strict=bool(sessions)):
        found = listed_images(session, classes, source, support, info.shots)
        if not isinstance(found, str):
            listed.update(found)
            continue
        if getattr(source, "complete", None):
            raise BadInputError(
                f"the image list of session {session.number} names the image {found}, which {source.name} does not have"
            )
        missing.append((session.number, found))
    if missing:
        numbers = ", ".join(str(number) for number, _ in missing)
        notes.append(
            f"sessions {numbers}: listed images are not there, such as {missing[0][1]}; a seeded draw stands in"
        )
    if not sessions:
        notes.append("no image lists: the images of novel sessions are a seeded draw")
    if listed and config.shots not in (None, info.shots):
        raise BadInputError(f"the image lists have {info.shots} shots: leave --shots out, or --lists")

    def pool(name: str) -> Pool:
        query = "test" if separate else splits[name]
        return Pool(name, source, name, support[name], query, listed.get(name, ()))

    config = replace(config, base_shots="all" if config.base_shots is None else config.base_shots)
    titles = ["base", *(f"session {number}" for number in range(2, len(groups) + 1))]
    tasks = [
        (title, [pool(name) for name in group], plain_view)
        for title, group in zip(titles, groups, strict=True)
    ]
    return plan_tasks(config, tasks, info.shots, tuple(notes))


def read_sessions(folder: Path, info: FscilInfo) -> list[Session]:
    """Read the lists of all novel sessions from `folder`, or from the benchmark's own folder in it."""
    root = folder / info.lists if (folder / info.lists).is_dir() else folder
    sessions = []
    for number in range(2, 2 + info.sessions):
        path = root / f"session_{number}.txt"
        if not path.exists():
            raise MissingDataError(
                f"the image list {path} cannot be read; --lists needs session_2.txt to session_"
                f"{1 + info.sessions}.txt, in it or in its folder {info.lists}"
            )
        lines = [line.strip() for line in read_text(path).splitlines()]
        images = tuple(_image(line) for line in lines if line)
        if len(images) != info.ways * info.shots:
            raise BadInputError(
                f"the image list {path} names {len(images)} images; a session has {info.ways} x {info.shots}"
            )
        session = Session(number, images)
        if len(session.classes) not in (0, info.ways):
            raise BadInputError(
                f"the image list {path} names {len(session.classes)} classes; a session has {info.ways}"
            )
        sessions.append(session)
    return sessions


def class_plan(available: Sequence[str], info: FscilInfo, sessions: Sequence[Session]) -> list[list[str]]:
    """Return the classes of the base session and of every novel one.

    Lists that name classes decide; else the order of the source does.
    """
    needed = info.base + info.ways * info.sessions
    if len(available) < needed:
        raise BadInputError(f"{needed} classes are needed and {len(available)} are there")
    if sessions and sessions[0].classes:
        novel = [list(session.classes) for session in sessions]
        unknown = [name for names in novel for name in names if name not in available]
        if unknown:
            raise BadInputError(f"the image lists name the class {unknown[0]!r}, which is not there")
        later = {name for names in novel for name in names}
        return [[name for name in available if name not in later][: info.base], *novel]
    starts = range(info.base, needed, info.ways)
    return [list(available[: info.base]), *(list(available[i : i + info.ways]) for i in starts)]


def listed_images(
    session: Session, classes: Sequence[str], source: Source, splits: dict[str, str], shots: int
) -> dict[str, tuple[int, ...]] | str:
    """Return the image numbers of each class, or the first listed image that is not there, in its class.

    An image is found by the name of its file, or by its number in the training set.
    """
    if not isinstance(source, CountedSource):
        return session.images[0][1]
    wanted: dict[str, list[str]] = {name: [] for name in classes}
    indices: dict[tuple[str, str], int] = {}
    for name in classes:
        for index in range(source.count(splits[name], name)):
            indices[name, _stem(source.where(splits[name], name, index))] = index
    for folder, image in session.images:
        owners = [name for name in ([folder] if folder else classes) if (name, image) in indices]
        if len(owners) != 1 or owners[0] is None:
            return image
        wanted[owners[0]].append(image)
    found = {name: tuple(indices[name, image] for image in images) for name, images in wanted.items()}
    for name, numbers in found.items():
        if len(set(numbers)) != shots:
            raise BadInputError(
                f"the image list of session {session.number} names {len(set(numbers))} different images of {name!r}; "
                f"a class has {shots}"
            )
    return found


def _image(line: str) -> tuple[str | None, str]:
    parts = line.replace("\\", "/").split("/")
    return (parts[-2] if len(parts) > 1 else None), _stem(parts[-1])


def _stem(path: str) -> str:
    """The name of an image: of its file, without suffix, or its number without leading zeros."""
    last = re.split(r"[/\\ ]", path)[-1]
    stem = re.sub(r"\.[A-Za-z]+$", "", last)
    return stem.lstrip("0") or "0" if stem.isdecimal() else stem
