"""How much of this package a command loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MOST = 75
"""Of this package."""
CODE = """
import sys
from cl_cnaps.commands.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(sum(name.split(".")[0] == "cl_cnaps" for name in sys.modules), file=sys.stderr)
"""


def test_the_default_stream_loads_few_modules(tmp_path: Path) -> None:
    small = ("--runs", "1", "--shots", "2", "--queries", "2", "--image-size", "32", "--quiet")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CODE,
            "stream",
            "--encoding",
            "first",
            "--head",
            "single",
            *small,
            "--out",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("figures/*.png"))
    assert int(done.stderr.splitlines()[-1]) <= MOST
