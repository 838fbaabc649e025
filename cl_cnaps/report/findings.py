"""What was found, in sentences that are computed from records; one whose records are not there stays silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from cl_cnaps.names import ENCODINGS, PAPER_BENCHMARKS
from cl_cnaps.records.record import Record
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.labels import count, model_name, percent
from cl_cnaps.report.standings import Verdict, caveats, paper_standings, standings, verdicts
from cl_cnaps.report.stream import StreamView

_MIXED = {"mixed-domains": "mixed domains", "mixed-offline": "the mixed stream of the installation"}
_RIVALS = ("ranpac", "lda")
_CLEAR = 0.0005
"""Differences that round to nothing are none."""


@dataclass(frozen=True)
class Evidence:
    """The records that findings are computed from."""

    streams: Sequence[StreamView] = ()
    few_shot: Sequence[FewShotView] = ()
    ablations: Sequence[AblationView] = ()

    @cached_property
    def standings(self) -> pd.DataFrame:
        """The final accuracies of the streams."""
        return standings(self.streams)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Evidence:
        """Sort records by kind; those of other kinds are left out."""
        kinds: Mapping[str, Any] = {"stream": StreamView, "evaluate": FewShotView, "ablate": AblationView}
        found = [
            [kind(one) for one in records if one.summary.get("verb") == verb] for verb, kind in kinds.items()
        ]
        return cls(*found)


@dataclass(frozen=True)
class Finding:
    """A sentence with a short name, and the numbers in it, for tests."""

    name: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def findings(evidence: Evidence) -> list[Finding]:
    """Return every sentence whose records are there."""
    return [found for make in _MAKERS if (found := make(evidence)) is not None]


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def best_learner(evidence: Evidence) -> Finding | None:
    """What learns best with a single head, by how much, on what."""
    found = verdicts(evidence.streams)
    if not found:
        return None
    text = f"Best with a single head: {'; '.join(map(_verdict, found))}."
    return Finding("best", " ".join([text, *caveats(evidence.streams)]), {"verdicts": found})


def _verdict(one: Verdict) -> str:
    beside = []
    if one.rival is not None:
        beside.append(f"{100 * (one.mean - one.rival[1]):+.1f} points over the best rival, {one.rival[0]}")
    if one.paper is not None:
        beside.append(f"the paper's best, {one.paper[0]}: {100 * one.paper[1]:.1f} %")
    return f"on {one.title} {one.label}, {one.number} %" + (f" ({'; '.join(beside)})" if beside else "")


def transductive_single_head(evidence: Evidence) -> Finding | None:
    """The paper's transductive single head is at chance; what it gives when classes absent from a task are kept."""
    paper = paper_standings()
    paper = paper[
        (paper["model"] == "transductive") & (paper["encoding"] == "first") & (paper["head"] == "single")
    ]
    theirs = {line["benchmark"]: line["mean"] for line in paper.to_dict("records")}
    ours = _model(evidence, "transductive", "first", "single")
    shared = [name for name in PAPER_BENCHMARKS if name in ours and name in theirs]
    if not shared:
        return None
    pairs = [(PAPER_BENCHMARKS[name], ours[name]["mean"], theirs[name]) for name in shared]
    text = (
        "The paper's Transductive CNAPS with a single head is at chance "
        f"({listed([f'{title} {100 * mean:.1f} %' for title, _, mean in pairs])}): its released code divides by zero "
        "for classes that are absent from the current task. Refined from the stored statistics it gives "
        f"{listed([f'{title} {percent(mean)} %' for title, mean, _ in pairs])}."
    )
    return Finding("transductive-single-head", text, {"pairs": pairs})


def adaptation_pays(evidence: Evidence) -> Finding | None:
    """Own against static FiLM, by domain: where the difference is clear of its interval."""
    views = [one for one in evidence.ablations if one.which == "adaptation"]
    if not views:
        return None
    view = max(views, key=lambda one: (len(one.rows[0]["results"]), one.rows[0]["results"][0]["tasks"]))
    gap = next((one for one in view.differences() if one.row == "static"), None)
    if gap is None:
        return None
    titles = {one["data_set"]: one["title"] for one in view.rows[0]["results"]}
    gaps = {name: gap.by_data_set[name] for name in titles}
    clear = {name: -mean for name, (mean, half) in gaps.items() if half is not None and abs(mean) > half}
    ahead = [f"{titles[name]} {100 * mean:+.1f}" for name, mean in clear.items() if mean > 0]
    behind = [f"{titles[name]} {100 * mean:+.1f}" for name, mean in clear.items() if mean < 0]
    sentences = [f"clearly ahead on {listed(ahead)}"] if ahead else ["clearly ahead nowhere"]
    sentences += [f"clearly behind on {listed(behind)}"] if behind else []
    level = len(titles) - len(clear)
    sentences += [f"level on {'the others' if clear else 'all'}"] if level else []
    half = "" if gap.half is None else f" ± {100 * gap.half:.1f}"
    text = (
        f"FiLM from a task's own encoding against one static FiLM: {-100 * gap.mean:+.1f}{half} points on the same "
        f"tasks of {count(len(titles), 'data set')}; {', '.join(sentences)}."
    )
    return Finding("adaptation", text, {"mean": -gap.mean, "half": gap.half, "clear": clear})


def adapted_against_frozen(evidence: Evidence) -> Finding | None:
    """What adapted features bring over frozen ones on streams."""
    adapted = _model(evidence, "simple", "first", "single")
    frozen = _model(evidence, "simple", None, "single", adapted=False)
    gaps = {
        title: adapted[name]["mean"] - frozen[name]["mean"]
        for name, title in PAPER_BENCHMARKS.items()
        if name in adapted and name in frozen
    }
    if not gaps:
        return None
    each = listed([f"{title} {100 * gap:+.1f}" for title, gap in gaps.items()])
    text = f"Adapted against frozen features, Simple CNAPS with a single head: {each} points."
    return Finding("adapted-and-frozen", text, {"gaps": gaps})


def mixed_domains(evidence: Evidence) -> Finding | None:
    """Which encoding wins where tasks come from several domains."""
    sentences, numbers = list[str](), dict[str, Any]()
    frame = evidence.standings
    mine = frame[(frame["model"] == "simple") & (frame["head"] == "single") & frame["plain"].eq(True)]
    for benchmark, title in _MIXED.items():
        lines = mine[(mine["benchmark"] == benchmark) & mine["encoding"].isin(ENCODINGS)].to_dict("records")
        if not lines:
            continue
        shots = max((line["shots"] for line in lines), key=[line["shots"] for line in lines].count)
        found = {line["encoding"]: line for line in reversed(lines) if line["shots"] == shots}
        if len(found) < 2:
            continue
        order = sorted(found, key=lambda one: -found[one]["mean"])
        first, second = (found[one] for one in order[:2])
        numbers[benchmark] = {one: found[one]["mean"] for one in order}
        each = listed([f"{one} {percent(found[one]['mean'], found[one]['half'])} %" for one in order])
        clear = first["mean"] - second["mean"] > (first["half"] or 0.0) + (second["half"] or 0.0) + _CLEAR
        lead = f"the {order[0]} encoding is best" if clear else "no encoding is clear of the others"
        sentences.append(f"On {title}, Simple CNAPS with a single head, {lead}: {each}.")
    return Finding("mixed-domains", " ".join(sentences), numbers) if sentences else None


def strongest_rivals(evidence: Evidence) -> Finding | None:
    """Where RanPAC or LDA, on the same backbone, beat Simple CNAPS, and where not."""
    ours = {head: _model(evidence, "simple", "first", head) for head in ("multi", "single")}
    sentences, numbers = list[str](), dict[str, Any]()
    for model in _RIVALS:
        above, below, level = list[str](), list[str](), list[str]()
        for head, of in ours.items():
            theirs = _rival(evidence, model, head)
            for benchmark in of:
                if benchmark not in theirs:
                    continue
                gap = theirs[benchmark] - of[benchmark]["mean"]
                title = f"{PAPER_BENCHMARKS.get(benchmark, benchmark)} {head}"
                numbers[f"{model} {benchmark} {head}"] = gap
                words = f"{title} {100 * gap:+.1f}"
                (level if abs(gap) < _CLEAR else above if gap > 0 else below).append(words)
        parts = [f"is above on {listed(above)}"] if above else []
        parts += [f"is below on {listed(below)}"] if below else []
        parts += [f"is level on {listed(level)}"] if level else []
        if parts:
            sentences.append(f"{model_name(model)} {'; '.join(parts)}")
    if not sentences:
        return None
    return Finding("rivals", f"Against Simple CNAPS, in points: {'. '.join(sentences)}.", numbers)


def calibrated_refinement(evidence: Evidence) -> Finding | None:
    """What refinement brings over none on the same tasks, by the kind of responsibilities."""
    sentences, numbers = list[str](), dict[str, Any]()
    views = [one for one in evidence.ablations if one.which == "refinement"]
    for kind in ("raw", "calibrated"):
        for view in views:
            row = next((row for row in view.rows if row["row"] == "2-4"), None)
            if row is None or _responsibilities(row["results"][0]) != kind:
                continue
            gap = next((one for one in view.differences() if one.row == "2-4"), None)
            if gap is not None and kind not in numbers:
                numbers[kind] = gap.mean
                half = "" if gap.half is None else f" ± {100 * gap.half:.1f}"
                sentences.append(f"{100 * gap.mean:+.1f}{half} with {kind} responsibilities")
    if "calibrated" not in numbers:
        return None
    return Finding(
        "refinement",
        f"Two to four steps of refinement against none, in points: {listed(sentences)}.",
        numbers,
    )


def _responsibilities(row: Mapping[str, Any]) -> str | None:
    """The kind that a few-shot row has: `auto` is calibrated, since queries are of all classes; None of old records."""
    kind = row.get("responsibilities")
    return "calibrated" if kind == "auto" else kind


def _model(
    evidence: Evidence, model: str, encoding: str | None, head: str, *, adapted: bool = True
) -> dict[str, dict[str, Any]]:
    """The standings of one model in its usual setting by benchmark; the first record of each."""
    frame = evidence.standings
    mine = frame[
        (frame["model"] == model)
        & (frame["head"] == head)
        & frame["usual"].eq(True)
        & frame["cnaps"].eq(True)
        & frame["adapted"].eq(adapted)
    ]
    mine = mine[mine["encoding"] == encoding] if encoding else mine
    return {line["benchmark"]: line for line in reversed(mine.to_dict("records"))}


def _rival(evidence: Evidence, model: str, head: str) -> dict[str, float]:
    """The best mean of a rival by benchmark, whatever features it works on."""
    frame = evidence.standings
    mine = frame[(frame["model"] == model) & (frame["head"] == head) & frame["usual"].eq(True)]
    return {str(name): float(mean) for name, mean in mine.groupby("benchmark")["mean"].max().items()}


_MAKERS: Sequence[Callable[[Evidence], Finding | None]] = (
    best_learner,
    transductive_single_head,
    adaptation_pays,
    adapted_against_frozen,
    mixed_domains,
    strongest_rivals,
    calibrated_refinement,
)
