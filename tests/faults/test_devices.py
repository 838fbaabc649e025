from __future__ import annotations

import pytest

from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.loading import resolve_device


@pytest.mark.parametrize("name", ["meta", "hpu:3", "abacus", "", "cpu:x", "cuda:99"])
def test_devices_that_cannot_compute_are_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="cannot be used here") as caught:
        resolve_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["folder:~nouser/x", "folder:", "records: ", "folder:a\0b", "records:~nouser"]
)
def test_sources_that_are_no_paths_are_refused(name: str) -> None:
    with pytest.raises(ClCnapsError) as caught:
        open_source(name)
    assert "\n" not in str(caught.value)
