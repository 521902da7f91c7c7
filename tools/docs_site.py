"""What the documentation's site needs beyond its pages: README, CONTRIBUTING and CHANGELOG as pages, and links that
lead out of the folder.

``mkdocs.yml`` names this file as a hook.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
SHIM = "https://unpkg.com/iframe-worker/shim"
"""Script that the theme's plugin ``offline`` loads from another host; a copy of it is part of the site."""
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Files of the repository's root that are pages of the site, under their names in small letters."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:examples|tools|src|tests|LICENSE|SECURITY|CITATION)[^)]*\)")
"""Links to files that the site does not hold; their texts stay."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the repository's root, with their links as seen from the folder of the pages."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        for other in PAGES:
            text = text.replace(f"]({other}", f"]({other.lower()}")
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns a page whose links lead to pages of the site, or nowhere."""
    for name in PAGES:
        markdown = markdown.replace(f"](../{name}", f"]({name.lower()}").replace(
            f"](../../{name}", f"](../{name.lower()}"
        )
    return OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Returns a page as HTML that loads the script of its search from the site itself."""
    return output.replace(SHIM, "../" * page.url.count("/") + "javascripts/iframe-worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Returns a page without a source, such as that for a wrong address, with the same script."""
    return output_content.replace(SHIM, "javascripts/iframe-worker.js")
