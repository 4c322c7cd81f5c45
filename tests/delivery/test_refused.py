"""What bounds have refused."""

from __future__ import annotations

from shine_node.delivery.refused import BOUNDS, Refused


def test_counts_go_on_and_news_are_told_once() -> None:
    refused = Refused()
    assert refused.counts == dict.fromkeys(BOUNDS, 0)
    assert refused.news() == ""
    refused.count("maxMessagesPerDay", "alice")
    refused.count("maxMessagesPerDay", "bob")
    refused.count("maxStoredMiBPerUser", "carol")
    assert refused.news() == (
        "1 by limits.maxStoredMiBPerUser (the last one about carol), 2 by limits.maxMessagesPerDay (the last one about"
        " bob)"
    )
    assert refused.news() == ""
    refused.count("maxMessagesPerDay", "alice")
    assert refused.news() == "1 by limits.maxMessagesPerDay (the last one about alice)"
    assert refused.counts == {"maxStoredMiBPerUser": 1, "maxMessagesPerDay": 3, "messagesPerMinutePerSender": 0}
