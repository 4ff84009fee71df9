"""Configs that benchmarks of whole runs share: users and items in two tables, one id of each per example."""

from __future__ import annotations


def configs(dim: int) -> dict[str, str]:
    """Files of a `--config-dir`, by path: the graph `bench_pairs` with tables of `dim`, and the model `bench_dot`."""
    return {
        "graph/bench_pairs.yaml": f"""# @package _global_
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - _self_
tables: {{user: {{dim: {dim}}}, item: {{dim: {dim}}}}}
features: {{user: {{table: user}}, item: {{table: item}}}}
""",
        "model/bench_dot.yaml": "kind: dot\nleft: [user]\nright: [item]\nbiases: []\n",
    }
