"""Nets on a GPU: the same losses, updates and resumed runs as on the CPU; skipped where torch sees no GPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learn.batches import DIMENSIONS, feed, random_batch
from learn.test_trainer import assert_same, toy_run
from learn.two_sites import toy_task
from noonward.learn.algorithms.masac import Masac, MasacConfig
from noonward.learn.core.checkpoint import load_checkpoint
from noonward.learn.train.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def masac_on(device: str, **more: Any) -> Masac:
    config = MasacConfig(hidden=(8, 8), batch=16, precision="float64", capacity=1000, **more)
    return Masac(DIMENSIONS, config, seed=3, device=device)


@pytest.mark.parametrize("more", [{}, {"tune_temperature": True}], ids=str)
def test_losses_and_updates_are_those_of_the_cpu(more: dict[str, Any]) -> None:
    here, there = masac_on("cpu", **more), masac_on("cuda", **more)
    batch = random_batch(1)
    for mine, its in zip(here.losses(batch)[:3], there.losses(batch)[:3], strict=True):
        assert its.item() == pytest.approx(mine.item(), abs=1e-9)
    for masac in (here, there):
        feed(masac)
        for _ in range(5):
            masac.update()
    for mine, its in zip(here.actor.parameters(), there.actor.parameters(), strict=True):
        torch.testing.assert_close(its.cpu(), mine, rtol=0, atol=1e-9)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    Trainer(toy_run(device="cuda", epochs=4), toy_task(), tmp_path / "whole").run()
    Trainer(toy_run(device="cuda", epochs=2), toy_task(), tmp_path / "cut").run()
    Trainer(toy_run(device="cuda", epochs=4), toy_task(), tmp_path / "cut").run()
    assert_same(*[load_checkpoint(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")])
    assert np.isfinite(load_checkpoint(tmp_path / "cut" / "checkpoint.npz")["best_reward"])
