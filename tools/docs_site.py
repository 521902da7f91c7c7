"""What the documentation's site needs beyond its pages: the README as a page, and links that lead out of the folder.

``mkdocs.yml`` names this file as a hook.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)?(?:examples|tools|src|LICENSE|CHANGELOG)[^)]*\)")
"""Links to files that the site does not hold; their texts stay."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the README as a page, with its links as seen from the folder of the pages."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "readme.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns a page whose links lead to pages of the site, or nowhere."""
    return OUTSIDE.sub(r"\1", markdown.replace("](../README.md", "](readme.md"))
