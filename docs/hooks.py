"""What the documentation site adds to the pages: files beside docs/ that they link to, commands, the gallery.

Pages are written for readers of the repository too, where `../results/x.png` is a link that works.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()\.\./((?:results|benchmarks|tests)/[^)#]+)")
README = re.compile(r"\]\(\.\./README\.md[^)]*\)")


def on_files(files: Any, config: Any) -> Any:
    """Add every figure in results/, and every file that a page links to, below _repository/."""
    from mkdocs.structure.files import File

    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").rglob("*.png")}
    for page in (ROOT / "docs").glob("*.md"):
        wanted.update(match[2] for match in LINK.finditer(page.read_text(encoding="utf-8")))
    for name in sorted(wanted):
        if (ROOT / name).is_file() and not name.endswith(".md"):
            content = (ROOT / name).read_bytes()
            files.append(File.generated(config, f"_repository/{name}", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links out of docs/ to the copies, and fill in what is generated."""
    if page.file.src_path == "gallery.md":
        markdown += gallery()
    if page.file.src_path == "reference/commands.md":
        markdown += commands()
    markdown = README.sub("](index.md)", markdown)
    return LINK.sub(lambda match: _copied(match[1], match[2]), markdown)


def _copied(start: str, name: str) -> str:
    if not (ROOT / name).is_file():
        raise FileNotFoundError(f"a page links to ../{name}, which is not there")
    return start + ("reproducing.md" if name.endswith(".md") else f"_repository/{name}")


def gallery() -> str:
    """Return every figure of the committed results, by folder, with the file that it is."""
    lines = []
    for folder in sorted({path.parent for path in (ROOT / "results" / "figures").rglob("*.png")}):
        lines.append(f"\n## {folder.name}\n")
        lines += [
            f"![{folder.name}, {path.stem}](../{path.relative_to(ROOT).as_posix()})"
            for path in sorted(folder.glob("*.png"))
        ]
    return "\n\n".join(lines) + "\n"


def commands() -> str:
    """Return the help of every command, as `cl-cnaps VERB --help` prints it."""
    import click

    from cl_cnaps.commands.main import main

    texts = []

    def add(command: click.Command, path: list[str]) -> None:
        context = click.Context(command, info_name=" ".join(path), max_content_width=100)
        title = " ".join(path)
        texts.append(f"\n## {title}\n\n```text\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                if found is not None and not found.hidden:
                    add(found, [*path, name])

    add(main, ["cl-cnaps"])
    return "".join(texts)
