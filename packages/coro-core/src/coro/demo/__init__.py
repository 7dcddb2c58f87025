"""Programs that show what coro does; `python -m coro.demo.c10k` holds ten thousand busy connections."""
