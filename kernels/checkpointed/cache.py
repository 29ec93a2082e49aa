"""Prefill once, resume anywhere: checkpoints of a whole model of flash-linear-attention.

    cache = CheckpointedCache(model, document, positions=[512, 1024])
    answer = model(question, past_key_values=cache.at(1024), use_cache=True)

Covers models whose layers are Gated DeltaNet, KDA or simple GLA with short convolutions, and
full attention between them. Up to 64 new tokens such a layer runs the library's token-by-token
kernel, which rounds differently from its chunked one: exact equality is for longer inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spc_sglang.kernels.checkpointed.capture import capturing
from spc_sglang.kernels.conv_window.triton import capture as capture_windows


@dataclass(frozen=True, slots=True)
class LayerCheckpoints:
    """What one recurrent layer held at P positions.

    states: fp32 [P, HV, V, K] or [P, HV, K, V], as the layer keeps them.
    windows: last inputs of each of its short convolutions, in call order, each [P, D, W].
    """

    states: Tensor
    windows: list[Tensor]


class CheckpointedCache:
    """Checkpoints of one sequence in a model, taken in one prefill.

    positions: absolute depths to keep, multiples of 64 behind the start of the prefill or its end.
    past: a cache of the library to start from, as `at` returns it; it is not written to.
    `output` is what the model returned for the prefill.
    """

    def __init__(
        self,
        model: nn.Module,
        input_ids: Tensor,
        positions: Sequence[int],
        past: Any | None = None,
    ) -> None:
        """Run the model on input_ids [1, T]; ValueError for positions off the chunk grid."""
        if input_ids.shape[0] != 1:
            raise ValueError(f"one sequence at a time, not {input_ids.shape[0]}")
        start = 0 if past is None else past.get_seq_length()
        length = input_ids.shape[1]
        self.positions = sorted(positions)
        self._layers: list[LayerCheckpoints] = []
        prepared = capturing([length], [self.positions], input_ids.device, [start])
        with torch.inference_mode(), prepared as capture, ExitStack() as stack:
            at = torch.tensor(self.positions, dtype=torch.int32, device=input_ids.device) - start
            windows = stack.enter_context(_recording_windows(model, at))
            capture.on_state = lambda states: self._add(states, windows)
            self.output = model(input_ids, past_key_values=past, use_cache=True)
        self._kept = self.output.past_key_values
        self._check(start + length)

    def at(self, depth: int, num_sequences: int = 1) -> Any:
        """A cache of the library whose next token is number `depth`, for `num_sequences` rows.

        A fresh copy each time, since the library writes to some states in place. ValueError for
        a depth that was not kept.
        """
        if depth not in self.positions:
            raise ValueError(f"no checkpoint at {depth}; there are {self.positions}")
        row = self.positions.index(depth)
        cache = type(self._kept)()
        layers = iter(self._layers)
        for index in range(len(self._kept)):
            state = self._kept[index]
            attention = state["attn_state"]
            if attention is not None:
                cut = tuple(_copies(x[:, :depth], num_sequences) for x in attention)
                update: dict[str, Any] = {"attn_state": cut}
            else:
                layer = next(layers)
                windows = [_copies(x[row : row + 1], num_sequences) for x in layer.windows]
                update = {"recurrent_state": _copies(layer.states[row : row + 1], num_sequences)}
                if windows:
                    update["conv_state"] = tuple(windows) if len(windows) > 1 else windows[0]
            cache.update(layer_idx=index, offset=depth, **update)
        return cache

    @property
    def num_bytes(self) -> int:
        """Device memory of the recurrent checkpoints; attention keys and values come on top."""
        tensors = [x for layer in self._layers for x in (layer.states, *layer.windows)]
        return sum(x.numel() * x.element_size() for x in tensors)

    def _add(self, states: Tensor, windows: list[Tensor]) -> None:
        self._layers.append(LayerCheckpoints(states, list(windows)))
        windows.clear()

    def _check(self, depth: int) -> None:
        """We hold all that the model keeps at `depth`, its end; RuntimeError if not."""
        attention = [x["attn_state"] for x in self._kept if x["attn_state"] is not None]
        if any(keys.shape[1] != depth for keys, *_ in attention):
            raise RuntimeError("a sliding-window layer has dropped what a checkpoint would need")
        recurrent = [x for x in self._kept if x["attn_state"] is None]
        if len(recurrent) != len(self._layers):
            raise RuntimeError(
                f"{len(self._layers)} of {len(recurrent)} recurrent layers ran a chunked prefill "
                "that we can capture from; 64 tokens or fewer never do"
            )
        for kept, layer in zip(recurrent, self._layers, strict=True):
            convolutions = kept["conv_state"]
            expected = [] if convolutions is None else convolutions
            expected = [expected] if isinstance(expected, Tensor) else list(expected)
            if [x.shape[1:] for x in expected] != [x.shape[1:] for x in layer.windows]:
                raise RuntimeError("a layer keeps convolution states that we do not know")
            if kept["ffn_state"] is not None:
                raise RuntimeError("a layer keeps a feed-forward state, which we do not capture")


@contextmanager
def _recording_windows(model: nn.Module, positions: Tensor) -> Iterator[list[Tensor]]:
    """A list to which each short convolution adds its windows [P, D, W] when it is called."""
    from fla.modules import ShortConvolution

    windows: list[Tensor] = []
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, ShortConvolution):
                hook = module.register_forward_pre_hook(
                    _record_into(windows, positions), with_kwargs=True
                )
                stack.callback(hook.remove)
        yield windows


def _record_into(windows: list[Tensor], positions: Tensor) -> Callable[..., None]:
    def record(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = args[0] if args else kwargs["x"]
        old = kwargs.get("cache")
        num_positions = positions.numel()
        # one layer's pool: a row a position, and the old window behind them
        pool = inputs.new_zeros(1, num_positions + 1, module.hidden_size, module.kernel_size[0])
        if old is not None:
            pool[0, -1] = old[0]
        zeros = torch.zeros_like(positions)
        rows = torch.arange(num_positions, dtype=torch.int32, device=inputs.device)
        capture_windows(inputs, pool, positions, zeros, zeros + num_positions, rows)
        windows.append(pool[0, :-1])

    return record


def _copies(tensor: Tensor, count: int) -> Tensor:
    """[1, ...] -> a contiguous [count, ...] of its own."""
    return tensor.repeat_interleave(count, dim=0)
