"""Pipelines of diffusers in gangs by xDiT (the package ``xfuser``), on CUDA: for Stable Diffusion 3.5, which diffusers
itself cannot split.

Written against xfuser 0.7 and never run: no GPU was at hand.

A gang splits the tokens of an image; in every attention each member gathers all tokens for its share of the heads
(Ulysses). xfuser keeps its groups in globals, and replaces the pipeline's transformer, so the pipeline is loaded again
when its gang is dissolved. It leaves the images at the last member, which sends them to the others.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from noonward.live.edge.pipeline import Pipeline


class XDiT(Pipeline):
    """A pipeline loaded from a folder in the layout of diffusers; arguments as ``Pipeline``."""

    _size = 1

    def joined(self, rank: int, size: int) -> None:
        """Splits the transformer's tokens among the members of the gang."""
        from xfuser import xFuserArgs
        from xfuser.core.distributed import init_distributed_environment
        from xfuser.model_executor.pipelines.register import xFuserPipelineWrapperRegister

        init_distributed_environment(world_size=size, rank=rank, local_rank=torch.cuda.current_device())
        config, _ = xFuserArgs(model=self._folder, ulysses_degree=size).create_config()
        self._pipe = xFuserPipelineWrapperRegister.get_class(self._pipe)(self._pipe, config)
        self._size = size

    def left(self) -> None:
        """Ends xfuser's groups, and the gang's with them, and reloads the pipeline."""
        from xfuser.core.distributed import get_runtime_state

        if self._size > 1:
            get_runtime_state().destroy_distributed_env()
            self._pipe, self._size = self._loaded(), 1

    def _images(self, result: Any) -> list[Any]:
        """Returns the images, which the last member alone has got, at every member."""
        if self._size == 1:
            return super()._images(result)
        sent = [None if dist.get_rank() < self._size - 1 else super()._images(result)]
        dist.broadcast_object_list(sent, src=self._size - 1)
        assert sent[0] is not None
        return sent[0]
