"""Build the recipes of benchmarks/ into the package; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class WithRecipes(build_py):
    """Copy benchmarks/**/*.toml to cl_cnaps/benchmarks; an editable install reads them where they are."""

    def run(self) -> None:
        """Build the package, then add the recipes."""
        super().run()
        if self.editable_mode:
            return
        for source in sorted((HERE / "benchmarks").rglob("*.toml")):
            target = Path(self.build_lib) / "cl_cnaps" / source.relative_to(HERE)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": WithRecipes})
