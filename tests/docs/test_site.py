"""The documentation's site: it is built from the pages, strictly and without the network, and loads nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"readme"}
    assert pages <= {path.stem for path in site.glob("*.html")}


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for path in site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=[\"']?(https?:[^\"' >]+)", text)
        loaded += re.findall(r"<link[^>]+rel=[\"']?(?:stylesheet|preconnect)[^>]+href=[\"']?(https?:[^\"' >]+)", text)
        assert not loaded, path.name


def test_links_to_files_outside_the_site_are_text(site: Path) -> None:
    text = (site / "extending.html").read_text(encoding="utf-8")
    assert "../examples" not in text
    assert "readme.html" in (site / "index.html").read_text(encoding="utf-8")


def test_the_contents_list_pages_in_the_order_of_the_navigation() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").replace("../README.md", "readme.md")
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    named = re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [page for page in named if page in listed]
