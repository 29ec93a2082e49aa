"""Plan checkpoints on a small prefix tree and draw it.

    python examples/plan_tree.py [plan_tree.png]

Needs no server and no GPU; the picture needs `pip install "spc-sglang[bench]"`.
"""

from __future__ import annotations

import sys

from spc_sglang.planning import PrefixTree, plan_tree, split_branches

# A system prompt (1), two tools behind it (2, 3), and conversations that part later.
TREE = PrefixTree(
    parents=[-1, 0, 1, 1, 2, 2, 3, 3, 3, 6],
    depths=[0, 700, 1200, 900, 1500, 2600, 1000, 1900, 2400, 3000],
    weights=[0, 2, 1, 0, 9, 3, 2, 5, 1, 4],
)
BUDGET = 4


def columns(tree: PrefixTree) -> list[float]:
    """Leaves side by side, parents above the middle of their children."""
    children = tree.children()
    column = [0.0] * tree.size
    next_leaf = 0

    def visit(node: int) -> None:
        nonlocal next_leaf
        for child in children[node]:
            visit(child)
        if children[node]:
            column[node] = sum(column[child] for child in children[node]) / len(children[node])
        else:
            column[node] = next_leaf
            next_leaf += 1

    visit(0)
    return column


def draw(tree: PrefixTree, checkpoints: tuple[int, ...], path: str) -> None:
    """Nodes at their depth, larger with more requests, checkpoints red."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    x = columns(tree)
    figure, axis = plt.subplots(figsize=(7, 5))
    for node in range(1, tree.size):
        parent = tree.parents[node]
        axis.plot([x[parent], x[node]], [tree.depths[parent], tree.depths[node]], color="0.7")
    for node in range(tree.size):
        colour = "tab:red" if node in checkpoints else "tab:blue"
        size = 40 + 40 * tree.weights[node]
        axis.scatter(x[node], tree.depths[node], s=size, color=colour, zorder=2)
        axis.annotate(f"{node}", (x[node], tree.depths[node]), (9, 4), textcoords="offset points")
    axis.invert_yaxis()
    axis.set_xticks([])
    axis.set_ylabel("depth (tokens)")
    axis.set_title("checkpoints in red, area = requests that end here", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    print(split_branches(TREE).reason)
    for budget in range(BUDGET + 1):
        plan = plan_tree(TREE, budget)
        print(
            f"M = {budget}: nodes {plan.checkpoints}, replay {plan.replay:g} tokens, "
            f"at least {plan.lower_bound:g} for any plan ({plan.method})"
        )
    draw(TREE, plan.checkpoints, sys.argv[1] if len(sys.argv) > 1 else "plan_tree.png")


if __name__ == "__main__":
    main()
