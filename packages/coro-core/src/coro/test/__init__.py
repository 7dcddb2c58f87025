"""The old place of the test helper; see ``coro.testing`` for everything else."""
