"""Committed records stay found: at their defaults, new settings leave a record's name as it was."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cl_cnaps.models.weights import config_from_dict
from cl_cnaps.records.record import Record, config_digest, records_under

ROOT = Path(__file__).parents[2]
RECORDS = list(records_under(ROOT / "results"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.name}-{record.id}")
def test_names_are_digests_of_configurations(record: Record) -> None:
    assert config_digest(record.config).startswith(record.id)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.name}-{record.id}")
def test_records_name_no_folder_of_the_machine_that_made_them(record: Record) -> None:
    for part in ("config", "environment", "summary"):
        text = (record.path / f"{part}.json").read_text()
        assert not re.search(r'[" ]/(home|root|tmp|work|Users|mnt|data)/', text), part


def test_records_were_made_by_code_that_can_be_had() -> None:
    """Each names a commit of this history, with nothing changed after it."""
    git = ["git", "-C", str(ROOT)]
    asked = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    if asked.stdout.strip() != "false":
        pytest.skip("needs a git checkout with its whole history")
    listed = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=True)
    history = set(listed.stdout.split())
    for record in RECORDS:
        code = record.environment["code"]
        assert code["commit"] in history, record.path
        assert code["dirty"] is False, f"{record.path} was made with uncommitted changes"


@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if record.config.get("model_config")],
    ids=lambda record: record.id,
)
def test_a_streams_model_is_described_as_it_was(record: Record) -> None:
    described = record.config["model_config"]
    now = config_from_dict(described, "record").as_json()
    # Settings that came later are at what they were without them.
    assert {key: now[key] for key in described if key != "encoder"} == {
        key: value for key, value in described.items() if key != "encoder"
    }
    assert {key: now["encoder"][key] for key in described["encoder"]} == described["encoder"]
