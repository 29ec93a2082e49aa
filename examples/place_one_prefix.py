"""Place six checkpoints on one prefix and draw them: p(t) above the saw r(t).

    python examples/place_one_prefix.py [place_one_prefix.png]

Needs no server and no GPU; the picture needs `pip install "spc-sglang[bench]"`.
"""

from __future__ import annotations

import sys

import numpy as np

from spc_sglang.placement import OverlapWeights, balanced, mean_replay, place, saw

LENGTH, BUDGET = 200, 6


def two_humps() -> OverlapWeights:
    """Requests leave the shared prefix around token 50 or around token 140."""
    t = np.arange(1, LENGTH + 1)
    density = 0.6 * np.exp(-(((t - 50) / 12) ** 2) / 2) / 12
    density += 0.4 * np.exp(-(((t - 140) / 15) ** 2) / 2) / 15
    return OverlapWeights.from_dense(density / density.sum())


def draw(law: OverlapWeights, schedules: dict[str, tuple[int, ...]], path: str) -> None:
    """p(t) on top, then r(t) for each schedule with its checkpoints as dotted lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t = np.arange(1, LENGTH + 1)
    figure, axes = plt.subplots(1 + len(schedules), 1, sharex=True, figsize=(8, 6))
    axes[0].fill_between(t, law.dense(), alpha=0.5)
    axes[0].set_ylabel("p(t)")
    for axis, (name, depths) in zip(axes[1:], schedules.items(), strict=True):
        axis.plot(t, saw(LENGTH, depths))
        for depth in depths:
            axis.axvline(depth, linestyle=":", color="tab:red")
        axis.set_ylabel("replay r(t)")
        axis.set_title(f"{name}: {mean_replay(law, depths):.2f} tokens a request", fontsize=10)
    axes[-1].set_xlabel("overlap depth t (tokens)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    law = two_humps()
    schedules = {"balanced": balanced(LENGTH, BUDGET), "placed": place(law, BUDGET).depths}
    for name, depths in schedules.items():
        print(f"{name:>8}: {depths}  {mean_replay(law, depths):.2f} tokens replayed a request")
    draw(law, schedules, sys.argv[1] if len(sys.argv) > 1 else "place_one_prefix.png")


if __name__ == "__main__":
    main()
