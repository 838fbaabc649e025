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
from cl_cnaps.report.labels import count, model_name, percent
from cl_cnaps.report.standings import Verdict, caveats, paper_standings, standings, verdicts
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.table import signed

_MIXED = {"mixed-domains": "mixed domains", "mixed-offline": "the mixed stream of the installation"}
_RIVALS = ("ranpac", "lda")
_CLEAR = 0.0005
"""Differences that round to nothing are none."""


@dataclass(frozen=True)
class Evidence:
    """The records that findings are computed from."""

    streams: Sequence[StreamView] = ()
    ablations: Sequence[AblationView] = ()

    @cached_property
    def standings(self) -> pd.DataFrame:
        """The final accuracies of the streams."""
        return standings(self.streams)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Evidence:
        """Sort records by kind; those of other kinds are left out."""
        streams = [StreamView(one) for one in records if one.summary.get("verb") == "stream"]
        return cls(streams, [AblationView(one) for one in records if one.summary.get("verb") == "ablate"])


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
    """Find what learns best with a single head, by how much, on what."""
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
    """FiLM from a task's own encoding against one static FiLM, and against none, by domain."""
    view = _largest(evidence, "adaptation")
    gaps = {} if view is None else {one.row: one for one in view.differences()}
    if view is None or not {"static", "frozen"} <= set(gaps):
        return None
    titles = {one["data_set"]: one["title"] for one in view.rows[0]["results"]}
    pays, sentences, numbers = list[bool](), list[str](), dict[str, Any]()
    for row, what in (("static", "one static FiLM"), ("frozen", "frozen features")):
        gap = gaps[row]
        clear = {
            titles[name]: -mean
            for name, (mean, half) in gap.by_data_set.items()
            if half is not None and abs(mean) > half
        }
        ahead, behind = (
            _points({name: mean for name, mean in clear.items() if mean * sign > 0}) for sign in (1, -1)
        )
        parts = [f"clearly ahead {f'on {ahead}' if ahead else 'nowhere'}"]
        parts += [f"clearly behind on {behind}"] if behind else []
        parts += [f"level on {'the others' if clear else 'all'}"] if len(clear) < len(titles) else []
        pays.append(gap.half is not None and -gap.mean > gap.half)
        sentences.append(f"{signed(-gap.mean, gap.half).text} points over {what} ({', '.join(parts)})")
        numbers[row] = {"mean": -gap.mean, "half": gap.half, "clear": clear}
    verdict = {
        (True, True): "Adapting to the task pays",
        (False, True): "FiLM pays, but adapting it to the task does not clearly pay",
    }.get((pays[0], pays[1]), "Adaptation does not clearly pay")
    text = (
        f"{verdict}: on the same tasks of {count(len(titles), 'data set')}, FiLM from each task's own encoding has "
        f"{listed(sentences)}."
    )
    return Finding("adaptation", text, numbers)


def ablation_sentence(view: AblationView) -> str:
    """How far the rows are from the one they are compared with on the same tasks, here and in the paper, in points."""
    if view.base is None:
        return _query_sentence(view)
    tables = {row["row"]: row["averages"] for row in view.printed_rows}
    base = next(row["averages"] for row in view.rows if row["title"] == view.base)
    kinds: dict[str, list[str]] = {"ahead": [], "level": [], "behind": []}
    for gap in sorted(view.differences(), key=lambda one: -one.mean):
        if gap.row in tables:
            level = gap.half is None or abs(gap.mean) <= max(gap.half, _CLEAR)
            theirs = [
                (tables[gap.row][group]["paper"], base[group]["paper"])
                for group in ("all", "in")
                if group in base and None not in (tables[gap.row][group]["paper"], base[group]["paper"])
            ]
            cited = f" (paper {theirs[0][0] - theirs[0][1]:+.1f})" if theirs else ""
            kind = "level" if level else "ahead" if gap.mean > 0 else "behind"
            kinds[kind].append(f"{gap.title} {signed(gap.mean, gap.half).text}{cited}")
    parts = [f"{kind}: {listed(rows)}" for kind, rows in kinds.items() if rows]
    sets = count(len(view.rows[0]["results"]), "data set")
    return f"Against {view.base} on the same tasks of {sets}, in points, {'; '.join(parts)}."


def _query_sentence(view: AblationView) -> str:
    """How far the second row is above the first with the fewest and with the most queries."""
    queries, lines = view.query_lines()
    first, second = (
        {line.tasks: line.accuracy for line in lines if line.row == row["title"]} for row in view.rows[:2]
    )
    each = [
        f"{tasks} "
        + listed(
            [
                f"{100 * (second[tasks][n]['mean'] - first[tasks][n]['mean']):+.1f} with {n} queries a class"
                for n in (queries[0], queries[-1])
            ]
        )
        for tasks in first
    ]
    return f"{view.rows[1]['title']} over {view.rows[0]['title']}, in points: {'; '.join(each)}."


def _largest(evidence: Evidence, which: str) -> AblationView | None:
    """The record of an ablation with the most data sets, then the most tasks."""
    views = [one for one in evidence.ablations if one.which == which]
    return max(
        views, key=lambda one: (len(one.rows[0]["results"]), one.rows[0]["results"][0]["tasks"]), default=None
    )


def _points(gaps: Mapping[str, float]) -> str:
    """`MNIST +1.2 and Omniglot +0.3`, the largest first."""
    order = sorted(gaps, key=lambda name: -abs(gaps[name]))
    return listed([f"{name} {100 * gaps[name]:+.1f}" for name in order])


def adapted_against_frozen(evidence: Evidence) -> Finding | None:
    """Compare adapted features with frozen ones on streams."""
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
    """Find the best encoding where tasks come from several domains."""
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
    """Find where RanPAC or LDA, on the same backbone, beat Simple CNAPS on the paper's streams, and where not."""
    ours = {head: _model(evidence, "simple", "first", head) for head in ("multi", "single")}
    sentences, numbers = list[str](), dict[str, Any]()
    for model in _RIVALS:
        above, below, level = dict[str, float](), dict[str, float](), list[str]()
        for head, of in ours.items():
            theirs = _rival(evidence, model, head)
            for benchmark in (one for one in PAPER_BENCHMARKS if one in of and one in theirs):
                title = f"{PAPER_BENCHMARKS[benchmark]} {head}"
                gap = theirs[benchmark]["mean"] - of[benchmark]["mean"]
                numbers[f"{model} {benchmark} {head}"] = gap
                if abs(gap) <= max(_CLEAR, *(one[benchmark]["half"] or 0.0 for one in (of, theirs))):
                    level.append(title)
                else:
                    (above if gap > 0 else below)[title] = gap
        words = {"beats it on": _points(above), "loses on": _points(below), "is level on": listed(level)}
        if parts := [f"{does} {where}" for does, where in words.items() if where]:
            sentences.append(f"{model_name(model)} {', '.join(parts)}")
    if not sentences:
        return None
    text = (
        f"Rivals against Simple CNAPS, in points: {'; '.join(sentences)} (level: within the larger interval)."
    )
    return Finding("rivals", text, numbers)


def calibrated_refinement(evidence: Evidence) -> Finding | None:
    """Compare refinement with none on the same tasks, with calibrated and with raw responsibilities."""
    view = _largest(evidence, "refinement")
    if view is None:
        return None
    usual = next(row["results"][0] for row in view.rows if row["row"] == "2-4")
    if usual["responsibilities"] == "raw":  # by an option: then both rows are raw
        return None
    gaps = {one.row: one for one in view.differences()}
    calibrated, raw = gaps["2-4"], gaps["raw"]
    worth = (
        "pays"
        if calibrated.half is not None and calibrated.mean > calibrated.half
        else "does not clearly pay"
    )
    text = (
        f"Refinement {worth} on few-shot tasks: two to four steps against none, on the same tasks, bring "
        f"{signed(calibrated.mean, calibrated.half).text} points with calibrated responsibilities and "
        f"{signed(raw.mean, raw.half).text} with raw ones, the paper's."
    )
    return Finding("refinement", text, {"calibrated": calibrated.mean, "raw": raw.mean})


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


def _rival(evidence: Evidence, model: str, head: str) -> dict[str, dict[str, Any]]:
    """The best standing of a rival by benchmark, whatever features it works on."""
    frame = evidence.standings
    mine = frame[(frame["model"] == model) & (frame["head"] == head) & frame["usual"].eq(True)]
    worst_first: Any = mine.sort_values("mean").to_dict("records")
    return {line["benchmark"]: line for line in worst_first}


_MAKERS: Sequence[Callable[[Evidence], Finding | None]] = (
    best_learner,
    transductive_single_head,
    adaptation_pays,
    adapted_against_frozen,
    mixed_domains,
    strongest_rivals,
    calibrated_refinement,
)
