"""``python -m coro.backdoor ADDRESS``: see ``_client``."""

import sys

from coro.backdoor._client import main

if __name__ == "__main__":
    sys.exit(main())
