import pytest

from shine_node.peers.priorities import Priority, priority_of

TABLE = {
    Priority.REALTIME: ["ReceiveIncomingMessage", "ReceiveOutcomingMessage", "GetDmDeliveryStatus"],
    Priority.NORMAL: ["SettingsSyncBatch", "DmSyncBatch", "AccessDataSyncBatch", "GetUserAccess", "SetUserAccess"],
    Priority.BULK: ["GetBlockchainHeads", "GetBlocks", "AddBlock"],
}


@pytest.mark.parametrize(("op", "priority"), [(op, priority) for priority, ops in TABLE.items() for op in ops])
def test_the_table_of_the_specification(op: str, priority: Priority) -> None:
    assert priority_of(op) is priority


def test_realtime_goes_first_and_bulk_last() -> None:
    assert sorted(Priority) == [Priority.REALTIME, Priority.NORMAL, Priority.BULK]


@pytest.mark.parametrize("op", ["SendMessagePair", "ServerHello", "realtime", ""])
def test_what_no_server_asks_another_is_refused(op: str) -> None:
    with pytest.raises(ValueError, match="no operation between servers"):
        priority_of(op)
