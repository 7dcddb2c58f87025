"""The code blocks of the README and of this package's pages in the manual run as they stand there."""

import manual_blocks
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", manual_blocks.pages("coro-dns"))
def test_page(page: str) -> None:
    manual_blocks.check(page)
