"""What a decision notes of every site: read again, it is what a plain encoder writes of the whole."""

import json

import msgspec
import numpy as np

from noonward.live.world.candidates import CandidateTexts, candidates_of

SITES = ("north", 'so"uth', "öst")
SITE = np.dtype([("levels", np.int64), ("free", np.int64), ("waiting", np.int64), ("price", float), ("carbon", float)])


def plain(mask_A, site_S):
    """The text, site by site."""
    rows = []
    for name, feasible, site in zip(SITES, mask_A[1:], site_S, strict=True):
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


def test_whatever_changes_between_questions_the_text_is_that_of_the_whole():
    rng = np.random.default_rng(0)
    texts, site_S = CandidateTexts(SITES), np.zeros(len(SITES), SITE)
    shared = 0
    for _ in range(500):
        if rng.random() < 0.5:  # of one site, back and forth between few values
            site_S[str(rng.choice(["free", "waiting"]))][rng.integers(3)] = rng.integers(0, 2)
        if rng.random() < 0.1:
            site_S["price"] = rng.choice([np.nan, 50.25, -3.0], 3)
            site_S["carbon"] = rng.choice([np.nan, 0.0, 412.5], 3)
        asker, mask_A = int(rng.integers(3)), rng.integers(0, 2, 4).astype(np.uint8)
        sites, feasible = both = texts.of(asker, mask_A, site_S)
        assert msgspec.json.encode(candidates_of(*both)).decode() == plain(mask_A, site_S)
        assert texts.last(asker) is both
        again = texts.of((asker + 1) % 3, 1 - mask_A, site_S)
        shared += again[0] is sites
        assert again[1] == feasible.translate(str.maketrans("01", "10"))
    assert shared == 500
    assert [row["site"] for row in json.loads(sites)] == list(SITES)


def test_jobs_that_see_the_same_share_a_text_until_it_is_stored():
    texts, site_S, mask_A = CandidateTexts(SITES), np.zeros(len(SITES), SITE), np.ones(4, np.uint8)
    first, _ = texts.of(0, mask_A, site_S)
    site_S["free"][1] = 4
    texts.of(0, mask_A, site_S)
    site_S["free"][1] = 0
    assert texts.of(1, mask_A, site_S)[0] is first
    texts.forget()
    assert texts.of(2, mask_A, site_S)[0] is first, "no site has changed"
    site_S["free"][1] = 4
    texts.of(0, mask_A, site_S)
    texts.forget()
    site_S["free"][1] = 0
    assert texts.of(1, mask_A, site_S)[0] == first
