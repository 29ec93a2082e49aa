"""How much worse a placement can be when it was chosen for an estimated law.

For any checkpoints C, l(t; C) rises with t within 0..N, so replay r(t) lies in 0..N and:

    |E_p r - E_q r| <= N TV(p, q) = N ||p - q||_1 / 2          (published with N ||p - q||_1)

(reached when one law may miss, r(0) = 0; with hits only, depths 1..N, N - 1 replaces N).

The placement c' chosen for q against the best one c for p loses E_p[l_c - l_c'], at most
2 N TV = N L1. The same difference l_c - l_c' has total variation at most 2 N along t, so summation
by parts gives a bound without the dimension of the law:

    regret <= 2 N sup_t |F(t) - G(t)|,  and by DKW  sup <= sqrt(ln(2 / delta) / (2 n))

with probability 1 - delta for n independent samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from spc_sglang.placement.distance import kolmogorov, l1, total_variation
from spc_sglang.placement.histogram import effective_samples
from spc_sglang.placement.weights import OverlapWeights


@dataclass(frozen=True)
class RegretBounds:
    """Upper bounds, in tokens per request, side by side."""

    published_l1: float
    """2 N ||p - q||_1: twice the published bound on the change of any one cost."""
    total_variation: float
    """2 N TV, half of it."""
    kolmogorov: float
    """2 N sup |F - G|, never above 2 N TV."""
    vacuous_above: float
    """N: no placement can lose more, so a bound above it says nothing."""


def regret_between(true: OverlapWeights, estimate: OverlapWeights) -> RegretBounds:
    """Bounds on the regret of placing for `estimate` when `true` holds."""
    length = max(true.length, estimate.length)
    return RegretBounds(
        2.0 * length * l1(true, estimate),
        2.0 * length * total_variation(true, estimate),
        2.0 * length * kolmogorov(true, estimate),
        float(length),
    )


def regret_from_samples(
    length: int, samples: float, *, support: int | None = None, delta: float = 0.05
) -> RegretBounds:
    """The bounds after `samples` independent observations, each with probability 1 - delta.

    L1 and TV use P(||p' - p||_1 >= e) <= 2^K exp(-n e^2 / 2) for a law on K = `support` depths
    (default N) and so grow with K; the Kolmogorov form is DKW and does not. For exponential
    weights pass the effective sample size: a rule of thumb there, not a theorem.
    """
    if samples <= 0:
        raise ValueError(f"samples {samples} is not above 0: observe something first")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta {delta} is outside (0, 1): use 0.05, say")
    cells = length if support is None else support
    l1_radius = sqrt(2.0 * (cells * log(2.0) + log(1.0 / delta)) / samples)
    return RegretBounds(
        2.0 * length * l1_radius,
        length * l1_radius,
        2.0 * length * dkw_radius(samples, delta),
        float(length),
    )


def dkw_radius(samples: float, delta: float = 0.05) -> float:
    """sup_t |F_n(t) - F(t)| stays below this with probability 1 - delta."""
    return sqrt(log(2.0 / delta) / (2.0 * samples))


def replaced_sample_l1(window: int) -> float:
    """2 / n: how far the histogram of n samples moves in L1 when one sample is replaced.

    One cell loses 1 / n and another gains it, so TV moves by 1 / n and any placement's cost by at
    most N / n.
    """
    if window < 1:
        raise ValueError(f"window {window} is below 1: give a number of samples")
    return 2.0 / window


def newest_sample_l1(gamma: float) -> float:
    """2 (1 - gamma): how far one more sample moves an exponential histogram in L1, at most.

    p_new = gamma p + (1 - gamma) e_t, so p_new - p = (1 - gamma) (e_t - p).
    """
    return 2.0 * (1.0 - _checked_gamma(gamma))


@dataclass(frozen=True)
class Drift:
    """Error of an exponential histogram on a moving law, in Kolmogorov distance."""

    bias: float
    """From old samples: the law has moved since they were drawn."""
    noise: float
    """From few samples: the DKW radius at the effective sample size."""

    @property
    def total(self) -> float:
        """Their sum; times 2 N it bounds the regret per request."""
        return self.bias + self.noise


def drift_error(gamma: float, drift_per_request: float, *, delta: float = 0.05) -> Drift:
    """Bias and noise when the law moves by at most `drift_per_request` (sup |F' - F|) a request.

    The sample k requests old has weight (1 - gamma) gamma^k and is off by at most k steps, so
    bias <= drift * gamma / (1 - gamma); the noise falls with n_eff = (1 + gamma) / (1 - gamma).
    """
    memory = _checked_gamma(gamma) / (1.0 - gamma)
    if not 0.0 <= drift_per_request <= 1.0:
        raise ValueError(f"drift {drift_per_request} is outside 0..1: it is a distance per request")
    noise = dkw_radius(effective_samples(gamma), delta)
    return Drift(min(1.0, drift_per_request * memory), min(1.0, noise))


def _checked_gamma(gamma: float) -> float:
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"gamma {gamma} is outside (0, 1): 0.99 remembers about 199 samples")
    return gamma
