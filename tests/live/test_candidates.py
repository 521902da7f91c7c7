"""What a decision notes of every site, whole or as a change: read, it is what a plain encoder writes of it all."""

import json

import msgspec
import numpy as np
import pytest

from noonward.live.world.candidates import MOST_CHANGES, CandidateTexts, candidates_of, changed_rows

SITES = ("north", 'so"uth', "öst")
SITE = np.dtype([("levels", np.int64), ("free", np.int64), ("waiting", np.int64), ("price", float), ("carbon", float)])


def plain(names, mask_A, site_S):
    """The text, site by site."""
    rows = []
    for name, feasible, site in zip(names, mask_A[1:], site_S, strict=True):
        known = {field: None if np.isnan(site[field]) else float(site[field]) for field in ("price", "carbon")}
        rows.append(
            {
                "site": name,
                "feasible": bool(feasible),
                "free": int(site["free"]),
                "waiting": int(site["waiting"]),
                "price_usd_per_mwh": known["price"],
                "carbon_g_per_kwh": known["carbon"],
            }
        )
    return msgspec.json.encode(rows).decode()


def look(texts, asker, mask_A, site_S, now_s):
    """What is noted for an asker of a question of its own."""
    texts.look(site_S, now_s)
    return texts.of(asker, mask_A)


def rows_of(seen):
    """A row per site, as a reader of the store makes them."""
    return changed_rows([] if seen.base is None else rows_of(seen.base), seen.text)


@pytest.mark.parametrize("sites", [3, 12])
def test_whatever_changes_between_questions_what_is_read_is_that_of_the_whole(sites):
    rng = np.random.default_rng(0)
    names = [*SITES, *(f"site-{n}" for n in range(3, sites))]
    texts, site_S = CandidateTexts(names), np.zeros(sites, SITE)
    shared, changes, now_s = 0, 0, 0.0
    for _ in range(500):
        if rng.random() < 0.5:  # of one site, back and forth between few values
            site_S[str(rng.choice(["free", "waiting"]))][rng.integers(sites)] = rng.integers(0, 2)
        if rng.random() < 0.1:
            site_S["price"] = rng.choice([np.nan, 50.25, -3.0], sites)
            site_S["carbon"] = rng.choice([np.nan, 0.0, 412.5], sites)
        asker, mask_A = int(rng.integers(3)), rng.integers(0, 2, 1 + sites).astype(np.uint8)
        now_s += rng.exponential(60.0)
        seen, feasible = both = look(texts, asker, mask_A, site_S, now_s)
        assert msgspec.json.encode(candidates_of(rows_of(seen), feasible)).decode() == plain(names, mask_A, site_S)
        assert texts.last(asker) is both
        changes += seen.base is not None
        again = look(texts, (asker + 1) % 3, 1 - mask_A, site_S, now_s)
        shared += again[0] is seen
        assert again[1] == feasible.translate(str.maketrans("01", "10"))
    assert shared == 500
    assert (changes > 100) == (sites > 3), "of few sites all are noted"


def test_a_change_holds_the_changed_sites_alone_and_rests_on_what_was_seen_within_an_hour():
    names = [f"site-{n}" for n in range(8)]
    texts, site_S, mask_A = CandidateTexts(names), np.zeros(8, SITE), np.ones(9, np.uint8)
    first, _ = look(texts, 0, mask_A, site_S, 0.0)
    assert look(texts, 1, mask_A, site_S, 3599.0)[0] is first, "no site has changed"
    site_S["free"][1] = 4
    second, _ = look(texts, 0, mask_A, site_S, 3599.0)
    assert second.base is first
    assert [row["site"] for row in json.loads(second.text)] == ["site-1"]
    assert second.unstored(()) == [first, second]
    assert second.unstored({first.id}) == [second]
    assert second.unstored({second.id}) == []
    first.stored = True
    assert second.unstored(()) == [second]
    site_S["free"][1] = 0
    whole, _ = look(texts, 0, mask_A, site_S, 3600.0)
    assert (whole.base, whole.id, whole.text) == (None, first.id, first.text)
    seen = whole
    for n in range(MOST_CHANGES):
        site_S["free"][1] = n + 1
        seen, before = look(texts, 0, mask_A, site_S, 3600.0)[0], seen
        assert seen.base is before
    site_S["free"][1] = 0
    assert look(texts, 0, mask_A, site_S, 3600.0)[0].base is None
    site_S["waiting"][:3] = 1
    assert look(texts, 0, mask_A, site_S, 3600.0)[0].base is None, "more than a quarter of the sites"
