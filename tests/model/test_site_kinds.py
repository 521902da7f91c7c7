"""Kinds of sites: equal in all but their GPUs, and by whatever link jobs come to them."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.data.environments import build_environment
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.site_kinds import site_kinds
from reference.alike_sites import alike
from reference.cluster_utility import random_environment


@pytest.fixture
def four():
    """Four sites of 2 or 3 GPUs, the first two and the last two alike."""
    return alike(random_environment(0, sites=4), (0, 0, 2, 2))


def test_sites_that_share_zone_type_and_pue_are_of_one_kind(four):
    assert site_kinds(four, 1).tolist() == [0, 0, 1, 1]


def test_sites_of_other_zones_are_kinds_by_themselves():
    assert site_kinds(random_environment(0, sites=3), 1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("update", [{"pue": 1.9}, {"zone": "s2"}, {"gpus": 1}, {"meter": Meter(base_kw=1)}])
def test_what_differs_or_is_stated_by_site_makes_a_kind_of_its_own(four, update):
    sites = list(four.fleet.sites)
    sites[1] = sites[1].model_copy(update=update)
    changed = replace(four, fleet=four.fleet.model_copy(update={"sites": tuple(sites)}))
    assert site_kinds(changed, 2).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(("ingress", "kinds"), [(0, [0, 0, 1, 1]), (1, [0, 0, 1, 1]), (2, [0, 1, 2, 2])])
def test_links_from_their_own_ingress_do_not_tell_sites_apart_others_do(four, ingress, kinds):
    usd_IS = np.array(four.links.usd_per_gb_IS)
    usd_IS[ingress, 0] += 0.001
    assert site_kinds(replace(four, links=replace(four.links, usd_per_gb_IS=usd_IS)), 1).tolist() == kinds


def test_many_sites_are_of_as_many_kinds_as_zone_type_and_pue_allow():
    environment = build_environment(many_sites(1000, 40, zones=2))
    assert int(site_kinds(environment, 1).max()) + 1 == 8
