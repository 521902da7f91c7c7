"""Workers in plain processes, without Ray: for tests of what a gang computes."""

import gc
import multiprocessing
from contextlib import contextmanager
from pathlib import Path

PRELOADED = [
    "noonward.live.edge.worker",
    "diffusers.models.transformers.pixart_transformer_2d",
    "diffusers.pipelines.flux.pipeline_flux",
    "diffusers.pipelines.qwenimage.pipeline_qwenimage",
    "diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3",
]


def _tensor_bytes() -> int:
    """Returns the bytes of all tensors of this process."""
    import torch

    gc.collect()
    return sum(each.nbytes for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter))


def _serve(pipe) -> None:
    """Answers calls to a worker until the pipe closes; ``latent`` returns that of its last image."""
    from noonward.live.edge.pixart import PixArt
    from noonward.live.edge.worker import Worker

    latents = {}
    decode = PixArt.images
    PixArt.images = lambda model, latent: latents.update(last=latent) or decode(model, latent)
    worker = Worker()
    worker.latent = lambda: latents["last"].numpy()
    worker.tensor_bytes = lambda: latents.clear() or _tensor_bytes()
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(worker, name)(*arguments))
        except Exception as error:
            pipe.send(error)


def _write_small(folder) -> None:
    from noonward.live.edge.small_model import write_small_model

    write_small_model(folder)


def _context():
    """Returns what forks processes from one that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def written(folder: Path, write=_write_small) -> Path:
    """Writes a model in a process of its own; returns its folder."""
    writer = _context().Process(target=write, args=(folder,))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    return folder


class Gang:
    """Some workers."""

    def __init__(self, pipes) -> None:
        self._pipes, self._attempt, self._group, self._size = pipes, 0, 0, 0

    def call(self, n, name, *arguments):
        """Calls a worker and returns its answer."""
        self.send(n, name, *arguments)
        return self.answer(n)

    def load(self, folder) -> None:
        """Loads a model in every worker that does not hold it."""
        for n in range(len(self._pipes)):
            self.call(n, "load", str(folder))

    def send(self, n, name, *arguments) -> None:
        """Begins a call."""
        self._pipes[n].send((name, arguments))

    def answer(self, n):
        """Returns the answer of a call that was begun."""
        answer = self._pipes[n].recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def generate(self, size, drawing, *, prompt="a lighthouse", seed=3, steps=12, negative="", sides_px=None, more=()):
        """Generates an image on the first workers; returns every member's part. Gangs of a size stay until another.

        ``more``: (prompt, seed) of further images of the same order.
        """
        from noonward.live.edge.orders import Order, Picture

        self._attempt += 1
        stands = size == self._size
        if not stands:
            self._group, self._size = self._group + 1, size
        order = Order(
            attempt=self._attempt,
            group=self._group,
            pictures=tuple(
                Picture(task="test", prompt=prompt, negative=negative, seed=seed)
                for prompt, seed in ((prompt, seed), *more)
            ),
            sides_px=sides_px,
            steps=steps,
            drawing=drawing,
            size=size,
            address=self.call(0, "meet", self._attempt) if size > 1 and not stands else None,
            join_s=120.0,
            group_s=120.0,
        )
        for n in range(size):
            self.send(n, "generate", order, n)
        answers = [self._pipes[n].recv() for n in range(size)]
        if failed := [answer for answer in answers if isinstance(answer, Exception)]:
            self._size = 0
            raise failed[0]
        return answers

    def latent(self, size, drawing, **given):
        """Generates an image and returns its latent."""
        self.generate(size, drawing, **given)
        return self.call(0, "latent")


@contextmanager
def gang_of(count: int):
    """Starts workers."""
    context = _context()
    pairs = [context.Pipe() for _ in range(count)]
    workers = [context.Process(target=_serve, args=(theirs,), daemon=True) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    for _, theirs in pairs:
        theirs.close()
    try:
        yield Gang([ours for ours, _ in pairs])
    finally:
        for ours, _ in pairs:
            ours.close()
        for worker in workers:
            worker.join(20)
            worker.kill()
