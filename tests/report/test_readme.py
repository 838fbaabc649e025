"""The tables in the README and in results/README.md are those of the committed records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cl_cnaps.commands.pages import PARTS, ParsedOptions, differences, planned, recipe_of
from cl_cnaps.commands.sweep_runs import collected
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.networks import PACKAGED_IMAGE_SIZE
from cl_cnaps.models.weights import describe, shipped_root
from cl_cnaps.records.record import records_under
from cl_cnaps.report.generated import filled, weights_note, weights_of
from cl_cnaps.sweeps.recipe import Grid, Options, Recipe, read_sweep_recipe

ROOT = Path(__file__).parents[2]


GENERATED = [page for page in (ROOT / "docs").glob("*.md") if "<!-- generated:" in page.read_text()]


@pytest.mark.parametrize(
    "file", ["README.md", "results/README.md", *(f"docs/{page.name}" for page in GENERATED)]
)
def test_generated_parts_are_up_to_date(file: str) -> None:
    text = (ROOT / file).read_text()
    assert "<!-- generated:" in text
    assert filled(text, ROOT / "results", PARTS) == text, "run python -m cl_cnaps.commands.pages"


def test_a_changed_number_is_noticed() -> None:
    text = (ROOT / "README.md").read_text()
    assert "| Simple CNAPS" in text
    changed = text.replace("| Simple CNAPS", "| Simpler CNAPS", 1)
    assert filled(changed, ROOT / "results") == text


def test_every_part_that_can_be_made_is_in_a_page() -> None:
    pages = "".join(
        page.read_text() for page in (ROOT / "README.md", ROOT / "results" / "README.md", *GENERATED)
    )
    assert [name for name in PARTS if f"<!-- generated: {name} -->" not in pages] == []


def test_every_record_is_a_run_of_a_recipe_with_what_the_list_says() -> None:
    """The recipe with those options set has a run that is parsed to what the record's command is."""
    recipes: dict[str, Recipe] = {}
    runs: dict[tuple[str, str], list[ParsedOptions]] = {}
    for record in records_under(ROOT / "results"):
        if record.verb == "speed":
            continue
        name = recipe_of(record)
        recipe = recipes.setdefault(name, read_sweep_recipe(ROOT / "benchmarks" / name))
        assert recipe.verb == record.verb
        if (name, "") not in runs:
            runs[name, ""] = planned(recipe)
        changed_options = differences(record, runs[name, ""])
        assert len(changed_options) <= 3, f"{record.path} has hardly anything of {name}"
        changes = collected(recipe.verb, tuple(changed_options.items()))
        if (name, str(changes)) not in runs:
            changed = replace(recipe, options={**recipe.options, **changes}, grids=without(recipe, changes))
            runs[name, str(changes)] = planned(changed)
        assert differences(record, runs[name, str(changes)]) == {}, record.path


def test_image_sizes_of_the_tables_are_those_of_their_records() -> None:
    """Small networks make images of 28 or 32 pixels themselves."""
    sizes = {
        record.config["image_size"]
        for record in records_under(ROOT / "results")
        if record.verb == "stream" and record.config.get("baseline_on") != "network"
    }
    assert sizes == {PACKAGED_IMAGE_SIZE}
    for page in ("README.md", "docs/streams.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"images of {PACKAGED_IMAGE_SIZE} pixels" in text


def without(recipe: Recipe, changes: Options) -> tuple[Grid, ...]:
    """The grids, but for what is set."""
    return tuple({name: axis for name, axis in grid.items() if name not in changes} for grid in recipe.grids)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(BadInputError, match="no generated part 'nothing'"):
        filled("<!-- generated: nothing -->\n<!-- end generated -->", ROOT / "results")


def test_pictures_and_pages_that_the_readme_links_to_exist() -> None:
    import re

    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}, which does not exist"


def test_tables_of_earlier_weights_are_marked() -> None:
    """A record of other weights than those shipped has a line above its table; one of the shipped weights has none."""
    shipped = {describe(file).digest for file in shipped_root().glob("*.safetensors")}
    records = [record for record in records_under(ROOT / "results") if record.verb != "speed"]
    assert any(weights_of(record) & shipped for record in records)
    for record in records:
        assert bool(weights_note([record])) == bool(weights_of(record) - shipped)
