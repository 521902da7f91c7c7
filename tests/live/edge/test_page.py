"""The page: what it shows, and that prompts cannot break it."""

from live.edge.fakes import Bench
from noonward.live.edge.page import page_file
from noonward.live.edge.status import status
from noonward.live.web.html import Html


def drawn(tmp_path):
    """Returns a bench with a done, a failed and a waiting task."""
    bench = Bench(tmp_path, tries=1).ready()
    bench.controller.submit(prompt="<b>boat</b>", gang=2)
    bench.controller.tick()
    bench.now_s = 2.0
    bench.load(0, 1, seconds=2.0)
    bench.now_s = 6.0
    bench.draw(0, 1)
    bench.submit(gang=1)
    bench.workers.answer(0, "load", OSError("no such folder"))
    bench.submit(gang=4)
    bench.submit(gang=4)
    return bench


def test_tasks_images_servers_and_expected_times_are_shown(tmp_path):
    bench = drawn(tmp_path)
    text = page_file(Html(), status(bench.controller), tmp_path)
    for words in (
        "1 queued, 1 running, 1 done, 1 failed",
        "&lt;b&gt;boat&lt;/b&gt;",
        "seed 1, 20 steps, gang of 2",
        "server 0: OSError: no such folder",
        "data:image/png;base64,cG5n",
        "tiny (without text encoder: prompts are not understood), other",
        '<td>2.000</td><td class="text">1 load</td>',
        '<td>10.000</td><td class="text">the scenario</td>',
        "2,800 J",
    ):
        assert words in text, words
    assert "<b>" not in text
    assert "http" not in text


def test_a_gang_is_drawn_on_all_its_servers_with_its_load_first(tmp_path):
    bench = drawn(tmp_path)
    found = status(bench.controller)
    found["tasks"] = found["tasks"][:1]
    found["now_unix_s"] = found["tasks"][0]["submitted_unix_s"] + 10.0
    text = page_file(Html(), found, tmp_path)
    for y in (0, 26):
        assert f'<rect x="80.0" y="{y}" width="212.0" height="20" class="load"' in text
        assert f'<rect x="292.0" y="{y}" width="424.0" height="20" class="gang-2"' in text


def test_a_service_without_tasks_has_a_page(tmp_path):
    text = page_file(Html(), status(Bench(tmp_path).controller), tmp_path)
    assert "0 queued" in text
    assert "Who worked when" not in text
