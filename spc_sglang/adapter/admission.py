"""What each admitted request tells: once per admission, booked to counters and statistics.

A waiting request is looked up in every scheduling round; only the last look-up before it is
admitted counts. It rides on the request until the batch that admits it is prepared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spc_sglang.adapter.capture import CaptureLedger, Refusal
from spc_sglang.adapter.priced_states import Lookup, PricedStates
from spc_sglang.adapter.state_file import StateFile
from spc_sglang.planning.counters import CacheCounters
from spc_sglang.planning.node import Kind
from spc_sglang.planning.observation import Admission, Observations

_ATTRIBUTE = "_spc_observation"


@dataclass(slots=True)
class Observation:
    """The last match of a request: full-KV depth t, restore depth l, and their tree nodes.

    `overlaps` are depths between l and t where past requests left the path, with weights;
    `continues` says that the request goes on from the tail of an earlier one.
    """

    overlap_depth: int
    restore_depth: int
    match_id: int | None = None
    restored_id: int = 0
    overlaps: tuple[tuple[int, float], ...] = ()
    continues: bool = False
    counted: bool = False


_UNMATCHED = Observation(0, 0, counted=True)


def observation_of(req: Any) -> Observation:
    """The last look-up of a request; one that was never looked up matched nothing."""
    found: Observation = getattr(req, _ATTRIBUTE, _UNMATCHED)
    return found


def tail_kind(req: Any) -> Kind:
    """What the state at the end of this request's prompt or output is."""
    return Kind.TURN if observation_of(req).continues else Kind.TAIL


def note_match(req: Any, result: Any) -> None:
    """Remember a look-up on its request; replaces that of an earlier round."""
    found = Observation(
        result.full_kv_hit_length,
        result.device_prefix_len + result.host_hit_length,
        result.last_visited_node_id,
        result.best_match_node,
    )
    setattr(req, _ATTRIBUTE, found)


class Admissions:
    """Books admissions; `priced` is None where SGLang's own tree core chooses victims."""

    def __init__(
        self,
        observations: Observations,
        counters: CacheCounters,
        priced: PricedStates | None,
        state_file: StateFile | None,
        grid: int,
        ledger: CaptureLedger,
    ) -> None:
        self._ledger = ledger
        self._observations = observations
        self._counters = counters
        self._priced = priced
        self._state_file = state_file
        self._grid = grid

    def observe(self, req: Any) -> Observation:
        """The observation of a request in a batch; books it the first time it is seen.

        A request that was retracted comes back for its own tokens and teaches nothing.
        """
        observation = observation_of(req)
        if observation.counted:
            return observation
        observation.counted = True
        if req.retracted_stain:
            self._counters.readmitted_requests += 1
            return observation
        lookup = None
        if self._priced is not None:
            lookup = self._priced.look_up(
                observation.match_id, observation.restored_id, observation.restore_depth
            )
            observation.overlaps = lookup.admitted.overlaps
            observation.continues = lookup.admitted.continues
        self._book(req, observation, lookup)
        return observation

    def _book(self, req: Any, observation: Observation, lookup: Lookup | None) -> None:
        prompt = len(req.origin_input_ids)
        self._observations.add(
            Admission(
                prompt=prompt,
                overlap_depth=min(observation.overlap_depth, prompt),
                restore_depth=min(observation.restore_depth, prompt),
                owner_prompt=None if lookup is None else lookup.owner_prompt,
                earlier_visits=0 if lookup is None else lookup.admitted.earlier_visits,
            )
        )
        refused = self._ledger.refused_depths(
            req, observation.restore_depth, observation.overlap_depth
        )
        self._counters.admit(
            prompt_tokens=prompt,
            overlap_depth=observation.overlap_depth,
            restore_depth=observation.restore_depth,
            grid=self._grid,
            ghost_depth=None if lookup is None else lookup.admitted.ghost_depth,
            no_slot_depth=refused.get(Refusal.NO_SLOT),
            refused_depth=refused.get(Refusal.TOO_CHEAP),
        )
        if self._state_file is not None:
            self._state_file.admitted()
