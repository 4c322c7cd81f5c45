"""What all scenarios have."""

from __future__ import annotations

import pytest

from shine_node.store import job_queue


@pytest.fixture(autouse=True, scope="package")
def nobody_waits_long_for_a_commit_to_share() -> object:
    """The stories wait for what may wait, again and again; nodes in processes of their own are as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_queue, "LATER_SECONDS", 0.002)
        yield
