"""A list of free KV indices in pieces, in place of SGLang's one tensor.

On a GPU that tensor lies on the device, and a free is the launch of a kernel. On a CPU each free
would copy all free indices, megabytes that push everything else out of the processor's caches,
and the more the longer the list: whichever cache has more KV free would look slow.
"""

from __future__ import annotations

from collections import deque

import torch
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator


class FreeListInPieces(TokenToKVPoolAllocator):
    """`TokenToKVPoolAllocator` whose `alloc` and `free` touch only what they are about."""

    def clear(self) -> None:
        super().clear()
        self._pieces = deque([self.free_pages])
        self._free = self.size
        self.free_pages = self.release_pages

    def available_size(self) -> int:
        return self._free

    def alloc(self, need_size: int) -> torch.Tensor | None:
        if need_size > self._free:
            return None
        taken: list[torch.Tensor] = []
        missing = need_size
        while missing > 0:
            piece = self._pieces.popleft()
            if piece.numel() > missing:
                self._pieces.appendleft(piece[missing:])
                piece = piece[:missing]
            taken.append(piece)
            missing -= piece.numel()
        self._free -= need_size
        return taken[0] if len(taken) == 1 else torch.cat(taken) if taken else self.free_pages

    def free(self, free_index: torch.Tensor) -> None:
        if self.free_group is not None:
            super().free(free_index)
        elif free_index.numel() > 0:
            self._pieces.append(free_index.clone())
            self._free += free_index.numel()
