"""Multilayer perceptrons of several agents, stacked so that one matrix product serves them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from noonward.errors import ScenarioError, nearest

Precision = Literal["float32", "bf16", "float64"]
"""Arithmetic of the nets: float32; bf16 products over float32 parameters (autocast); float64 (to compare exactly)."""


class StackedMLP(nn.Module):
    """One perceptron per agent with ReLU between layers: ``h <- relu(h W_l + b_l)``, the last layer linear.

    Parameters are ``weight_l`` [M, in, out] and ``bias_l`` [M, 1, out] for M nets; a pass is one ``baddbmm`` a layer.

    Args:
        nets: Number of nets, M.
        sizes: Width of the input, of every hidden layer and of the output.
        generator: Source of the initial values, drawn net by net as ``torch.nn.Linear`` draws them: every weight and
            bias uniform on (-1/sqrt(in), 1/sqrt(in)).
        dtype: Type of the parameters.

    Example:
        >>> net = StackedMLP(2, (3, 8, 4), torch.Generator().manual_seed(0))
        >>> net(torch.zeros(2, 5, 3)).shape
        torch.Size([2, 5, 4])
    """

    def __init__(
        self, nets: int, sizes: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        drawn: list[list[torch.Tensor]] = []
        for _ in range(nets):
            drawn.append([])
            for wide, narrow in zip(self.sizes[:-1], self.sizes[1:], strict=True):
                reach = 1.0 / wide**0.5
                for shape in ((wide, narrow), (1, narrow)):
                    drawn[-1].append(torch.empty(shape, dtype=dtype).uniform_(-reach, reach, generator=generator))
        stacked = [torch.stack(each) for each in zip(*drawn, strict=True)]
        self.weights = nn.ParameterList(stacked[0::2])
        self.biases = nn.ParameterList(stacked[1::2])

    def forward(self, input_MBI: torch.Tensor) -> torch.Tensor:
        """Returns the outputs of all nets.

        Args:
            input_MBI: Inputs, [M, batch, in].

        Returns:
            Outputs, [M, batch, out].
        """
        hidden, last = input_MBI, len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden, weight)
            if layer < last:
                hidden = torch.relu_(hidden)
        return hidden

    def arrays(self) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """Returns weights [M, in, out] and biases [M, out] of every layer, float32."""
        weights = [weight.detach().cpu().numpy().astype(np.float32) for weight in self.weights]
        biases = [bias.detach().cpu().numpy().astype(np.float32)[:, 0] for bias in self.biases]
        return weights, biases


def gpu_seen() -> bool:
    """Returns whether torch sees a GPU for ``device=cuda``."""
    return bool(torch.cuda.is_available())


def dtype_of(precision: str) -> torch.dtype:
    """Returns the type of parameters under a precision.

    Raises:
        ScenarioError: There is no such precision.
    """
    if precision not in get_args(Precision):
        raise ScenarioError(f"precision {precision!r} is unknown; {nearest(precision, get_args(Precision))}")
    return torch.float64 if precision == "float64" else torch.float32


def arithmetic(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context in which nets are evaluated under a precision: autocast for ``bf16``."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def follow(targets: Iterable[nn.Parameter], sources: Iterable[nn.Parameter], rate: float) -> None:
    """Moves target parameters towards their sources: ``target <- (1 - rate) target + rate source``."""
    with torch.no_grad():
        torch._foreach_lerp_([t.data for t in targets], [s.data for s in sources], rate)


def adam(
    parameters: Iterator[nn.Parameter] | Sequence[nn.Parameter], rate: float, epsilon: float = 1e-8
) -> torch.optim.Adam:
    """Returns Adam with one fused kernel for all parameters (on CPU and CUDA)."""
    return torch.optim.Adam(parameters, lr=rate, eps=epsilon, fused=True)


def make_orthogonal(net: StackedMLP, generator: torch.Generator, *, last_gain: float) -> None:
    """Draws orthogonal weights again, of gain sqrt 2 (the last layer: ``last_gain``), and sets biases to 0."""
    with torch.no_grad():
        for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            gain = last_gain if layer == len(net.weights) - 1 else 2.0**0.5
            for one in weight:
                nn.init.orthogonal_(one, gain, generator=generator)
            bias.zero_()


def shorten_gradients(net: StackedMLP, longest: float) -> None:
    """Scales the gradient of every net of a stack to a Euclidean norm of at most ``longest``."""
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    norm_M = torch.stack([each.square().sum((1, 2)) for each in gradients]).sum(0).sqrt()
    factor_M11 = (longest / norm_M.clamp(min=longest))[:, None, None]
    for each in gradients:
        each.mul_(factor_M11)


def module_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Returns a module's parameters by name."""
    return {name: value.detach() for name, value in module.state_dict().items()}


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """Returns what an optimizer remembers, by the number of the parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {str(n): dict(optimizer.state[p]) for n, p in enumerate(parameters) if p in optimizer.state}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, dict[str, Any]]) -> None:
    """Gives an optimizer what another one remembered."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for number, kept in state.items():
        parameter = parameters[int(number)]
        # Adam's count of steps is float32 whatever the parameter's type.
        optimizer.state[parameter] = {k: torch.as_tensor(v).to(parameter.device).clone() for k, v in kept.items()}


def load_module_state(module: nn.Module, state: dict[str, Any]) -> None:
    """Gives a module the parameters of another one."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})
