"""`python -m spc_sglang.replay replay ...`: the `spc-sglang` command without an install."""

from spc_sglang.replay.cli import main

raise SystemExit(main())
