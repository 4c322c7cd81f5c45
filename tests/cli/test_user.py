import asyncio
import base64
import io
import json
import sys
import time
from pathlib import Path

import pytest

from shine_node.cli import user
from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeProcess
from shine_node.client.connection import Connection
from shine_node.client.identity import Identity, KeyPair
from shine_node.client.settings import make_setting
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.settings import setting_payload
from shine_node.store.environment import Store
from shine_node.store.layout import Table
from shine_node.store.sessions import add_session
from shine_node.store.usage import Used, day_of, encode_used
from tests.cli.program import run_program, write_config
from tests.store.test_sessions import make_session
from tests.support.nodes import run

HOME = AccessServer("Home", "wss://home.example/ws")
OTHER = AccessServer("other", "wss://other.example/ws")
NOW_MS = int(time.time() * 1000)
ALICE = Identity.from_seeds("Alice", root=b"\1" * 32, blockchain=b"\2" * 32, device=b"\3" * 32)

BEGINS = "can begin now: the chat page and `shine-node send` find out by themselves\n"
UNSIGNED = "has no signed record: the chat page, `shine-node send` and other servers refuse this user\n"


UNUSED = {"storedBytes": 0, "maxStoredBytes": None, "messagesToday": 0, "maxMessagesPerDay": None}


def base64_of(data):
    return base64.b64encode(data).decode()


def keys_of(identity):
    pairs = (
        ("--solana-key", identity.root),
        ("--blockchain-key", identity.blockchain),
        ("--device-key", identity.device),
    )
    return [word for option, pair in pairs for word in (option, base64_of(pair.public))]


class Cli:
    """The commands on one configuration."""

    def __init__(self, folder, capsys):
        self.folder = folder
        self.config = write_config(folder)
        self.capsys = capsys

    def __call__(self, *words):
        status = run_command(["user", words[0], "--config", str(self.config), *words[1:]])
        shown, self.said = self.capsys.readouterr()
        return status, shown

    def add_record(self, record, **more):
        path = self.folder / "record.json"
        path.write_text(json.dumps({**record_payload(record), **more}))
        return self("add", "--record", str(path))


@pytest.fixture
def cli(tmp_path, capsys):
    return Cli(tmp_path, capsys)


def test_a_user_of_this_server_alone(cli):
    assert cli("add", "--login", "Alice", *keys_of(ALICE)) == (0, f"Alice: added\nAlice {UNSIGNED}")
    status, shown = cli("show", "alice", "--json")
    assert status == 0
    assert json.loads(shown) == {
        "login": "Alice",
        "blockchainName": "Alice-001",
        "solanaKey": base64_of(ALICE.root.public),
        "blockchainKey": base64_of(ALICE.blockchain.public),
        "deviceKey": base64_of(ALICE.device.public),
        "accessServers": [{"serverLogin": "home", "url": "wss://home.example/ws"}],
        "standing": "local",
        "bchLimit": None,
        **UNUSED,
        "history": [],
    }
    assert cli("add", "--login", "ALICE", *keys_of(ALICE)) == (1, "")
    assert "USER_ALREADY_EXISTS" in cli.said


def test_the_name_of_the_blockchain(cli):
    assert cli("add", "--login", "al", "--blockchain-name", "AL-007", *keys_of(ALICE))[0] == 0
    assert json.loads(cli("show", "AL", "--json")[1])["blockchainName"] == "AL-007"
    assert cli("add", "--login", "bo", "--blockchain-name", "bo-7", *keys_of(ALICE))[0] == 1
    assert "BAD_BLOCKCHAIN_NAME" in cli.said


def test_signed_records(cli):
    first = ALICE.access_record([HOME, OTHER], time_ms=NOW_MS - 1000)
    second = ALICE.with_device(KeyPair.from_seed(b"\4" * 32)).access_record([OTHER], time_ms=NOW_MS)
    assert cli.add_record(first, bchLimit=500) == (0, f"Alice: added\nAlice {BEGINS}")
    assert cli.add_record(first) == (0, "Alice: nothing changed, this record or a newer one was known\n")
    assert cli("list") == (0, f"{'Alice':<30}  served  Home, other\n")
    status, shown = cli.add_record(second)
    assert status == 0
    assert shown == "Alice: updated\nAlice is known here and not served here: the record does not name home\n"
    shown = json.loads(cli("show", "alice", "--json")[1])
    assert shown == {
        **record_payload(second),
        "standing": "known",
        "bchLimit": 500,
        **UNUSED,
        "history": [record_payload(first)],
    }


def test_a_record_from_the_standard_input(cli, monkeypatch):
    record = json.dumps(record_payload(ALICE.access_record([HOME], time_ms=NOW_MS)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(record.encode())))
    assert cli("add", "--record", "-") == (0, f"Alice: added\nAlice {BEGINS}")
    assert cli.said == ""


def test_a_record_that_is_pasted(cli, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    record = json.dumps(record_payload(ALICE.access_record([HOME], time_ms=NOW_MS)))
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(f"\n{record}\n".encode())))
    assert cli("add", "--record", "-")[0] == 0
    assert cli.said == "shine-node: paste the record, and end it with Enter and Ctrl-D\n"


def test_records_that_are_refused(cli):
    record = ALICE.access_record([HOME], time_ms=NOW_MS)
    forged = record._replace(time_ms=NOW_MS - 1)
    stranger = Identity.generate("Alice").access_record([HOME], time_ms=NOW_MS + 1)
    late = ALICE.access_record([HOME], time_ms=NOW_MS + 3_600_000)
    insecure = ALICE.access_record([AccessServer("Home", "ws://home.example/ws")], time_ms=NOW_MS)
    assert cli.add_record(forged)[0] == 1
    assert "BAD_SIGNATURE" in cli.said
    assert cli.add_record(late)[0] == 1
    assert "BAD_FIELDS" in cli.said
    assert cli.add_record(insecure)[0] == 1
    assert cli("list") == (0, "")
    assert cli.add_record(record)[0] == 0
    assert cli.add_record(stranger)[0] == 1
    assert "ROOT_KEY_MISMATCH" in cli.said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "give exactly what the chat page or `shine-node account new` shows as the record"),
        ("[]", "must hold one JSON object"),
        ("{}", "BAD_FIELDS: login is missing"),
        (" " * 70_000, "is larger than a record can be"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_files_that_hold_no_record(cli, text, problem):
    path = cli.folder / "record.json"
    if text is not None:
        path.write_text(text)
    assert cli("add", "--record", str(path)) == (1, "")
    assert problem in cli.said
    assert not (cli.folder / "data").exists()


def test_what_is_missing_is_named(cli):
    assert cli("add") == (2, "")
    assert "give --record FILE, or also --login, --solana-key, --blockchain-key, --device-key" in cli.said
    assert cli("add", "--login", "a", "--device-key", "x")[0] == 2
    assert "or also --solana-key, --blockchain-key\n" in cli.said
    assert cli("add", "--record", "x", "--blockchain-name", "a-001")[0] == 2
    assert "leave out --blockchain-name" in cli.said


def test_lists(cli):
    elsewhere = Identity.generate("carol").access_record([OTHER], time_ms=NOW_MS)
    nowhere = Identity.generate("Dave").access_record([], time_ms=NOW_MS)
    cli.add_record(ALICE.access_record([HOME, OTHER], time_ms=NOW_MS))
    cli("add", "--login", "bob", *keys_of(Identity.generate("bob")))
    cli.add_record(elsewhere)
    cli.add_record(nowhere)
    assert [line.split() for line in cli("list")[1].splitlines()] == [
        ["Alice", "served", "Home,", "other"],
        ["bob", "local", "home"],
    ]
    everybody = cli("list", "--all")[1]
    assert [line.split()[:2] for line in everybody.splitlines()[2:]] == [["carol", "known"], ["Dave", "known"]]
    assert all(line == line.rstrip() for line in everybody.splitlines())
    described = [json.loads(line) for line in cli("list", "--json")[1].splitlines()]
    assert [(one["login"], one["standing"]) for one in described] == [("Alice", "served"), ("bob", "local")]


def test_one_user_for_people(cli):
    cli.add_record(ALICE.access_record([HOME], time_ms=NOW_MS))
    status, shown = cli("show", "ALICE")
    assert status == 0
    lines = dict(line.split(" ", 1) for line in shown.splitlines())
    assert lines["login"].strip() == "Alice"
    assert lines["accessServers"].strip() == "Home wss://home.example/ws"
    assert lines["bchLimit"].strip() == "–"
    assert lines["older"].split() == ["records", "0"]


def test_what_one_user_has_stored_and_sent(cli):
    write_config(cli.folder, "[limits]\nmaxStoredMiBPerUser = 1\nmaxMessagesPerDay = 5")
    cli.add_record(ALICE.access_record([HOME], time_ms=NOW_MS))
    store = Store(cli.folder / "data" / "shine.mdb", map_size=2**24)
    try:
        store.write_now(lambda txn: add_row(txn, sent_at_ms=int(time.time() * 1000)))
    finally:
        store.close()
    shown = json.loads(cli("show", "alice", "--json")[1])
    assert (shown["storedBytes"], shown["maxStoredBytes"]) == (3_000, 2**20)
    assert (shown["messagesToday"], shown["maxMessagesPerDay"]) == (2, 5)
    write_config(cli.folder, "[limits]\nmaxStoredMiBPerUser = 0\nmaxMessagesPerDay = 0")
    lines = dict(line.split(" ", 1) for line in cli("show", "alice")[1].splitlines())
    assert [lines[name].strip() for name in ("storedBytes", "maxStoredBytes", "messagesToday")] == ["3000", "–", "2"]
    store = Store(cli.folder / "data" / "shine.mdb", map_size=2**24)
    try:
        store.write_now(lambda txn: add_row(txn, sent_at_ms=1))
    finally:
        store.close()
    assert json.loads(cli("show", "alice", "--json")[1])["messagesToday"] == 0, "that was another day"


def add_row(txn, *, sent_at_ms):
    txn.put(Table.USAGE, b"alice", encode_used(Used(3_000, day_of(sent_at_ms), 2), 0))


def test_nobody_of_that_name(cli):
    cli("add", "--login", "alice", *keys_of(ALICE))
    assert cli("show", "bob") == (1, "")
    assert "nobody is known here as bob" in cli.said
    assert cli("show", "a b") == (1, "")
    assert "BAD_LOGIN" in cli.said


def test_no_store_yet(cli):
    assert cli("list") == (1, "")
    assert "shine.mdb is not there yet: the first start of the node makes it, or `user add`" in cli.said
    assert cli("show", "alice") == (1, "")
    assert not (cli.folder / "data").exists()


def test_a_data_folder_that_cannot_be_used(cli):
    (cli.folder / "data").write_text("")
    assert cli("add", "--login", "alice", *keys_of(ALICE))[0] == 1
    assert "cannot be used (File exists)" in cli.said
    assert cli("list")[0] == 1
    assert "cannot be used (Not a directory)" in cli.said


def test_root_keeps_out_of_the_folder_of_another_user(cli, monkeypatch):
    folder = Path("/data")
    assert user.owner_problem(folder, user=1, owner=1) is None
    assert user.owner_problem(folder, user=1, owner=2) is None  # the system itself decides about that
    assert user.owner_problem(folder, user=0, owner=0) is None
    assert user.owner_problem(folder, user=0, owner=4_000_000_000).endswith("with sudo -u '#4000000000' in front")
    assert "belongs to the user" in user.owner_problem(folder, user=0, owner=1)
    monkeypatch.setattr(user, "owner_problem", lambda folder, user, owner: f"{folder} is not yours")
    assert cli("add", "--login", "alice", *keys_of(ALICE)) == (1, "")
    assert cli.said == f"shine-node: {cli.folder / 'data'} is not yours\n"


def test_while_the_node_runs(cli):
    cli("add", "--login", "alice", *keys_of(ALICE))
    first = ALICE.access_record([HOME], time_ms=NOW_MS - 1000)
    forged = ALICE.access_record([OTHER], time_ms=NOW_MS)._replace(time_ms=NOW_MS - 1)

    async def story():
        node = await NodeProcess.start(cli.config)
        try:
            added = run_program("user", "add", "--config", cli.config, "--login", "bob", *keys_of(ALICE))
            assert (added.returncode, added.stdout, added.stderr) == (0, f"bob: added\nbob {UNSIGNED}", "")
            status, _ = await asyncio.to_thread(cli, "add", "--login", "BOB", *keys_of(ALICE))
            assert status == 1 and cli.said == "shine-node: USER_ALREADY_EXISTS: this login is taken\n"
            listed = run_program("user", "list", "--config", cli.config)
            assert listed.returncode == 0
            assert listed.stdout.split() == ["alice", "local", "home", "bob", "local", "home"]
            assert await asyncio.to_thread(cli.add_record, first) == (0, "Alice: updated\n")
            assert (await asyncio.to_thread(cli.add_record, forged))[0] == 1
            assert cli.said == "shine-node: BAD_SIGNATURE: the record is not signed by its root key\n"
            async with await Connection.open(node.url) as client:  # the node itself knows them at once
                assert (await client.request("GetUser", {"login": "bob"}))["exists"] is True
                assert (await client.request("GetUserAccess", {"login": "alice"}))["timeMs"] == NOW_MS - 1000
        finally:
            await node.stop()

    run(story())
    assert cli("add", "--login", "carol", *keys_of(ALICE)) == (0, f"carol: added\ncarol {UNSIGNED}")


def test_while_a_node_starts_or_stops(cli):
    (cli.folder / "data").mkdir()
    store = Store(cli.folder / "data" / "shine.mdb", map_size=2**24)
    try:
        assert cli("add", "--login", "alice", *keys_of(ALICE)) == (1, "")
    finally:
        store.close()
    assert "in use by another process" in cli.said
    assert "If that is the node, it is just starting or stopping: try again in a moment." in cli.said


def test_exit_statuses(tmp_path):
    path = write_config(tmp_path)
    assert run_program("user", "add", "--config", path).returncode == 2
    assert run_program("user", "add", "--config", tmp_path / "none.toml", "--record", "x").returncode == 2
    assert run_program("user", "add", "--config", path, "--record", tmp_path / "none").returncode == 1


def test_everything_of_a_user_is_sent_to_the_other_server_again(cli):
    async def story():
        node = await NodeProcess.start(cli.config)
        try:
            assert await asyncio.to_thread(cli.add_record, ALICE.access_record([HOME, OTHER], time_ms=NOW_MS)) == (
                0,
                f"Alice: added\nAlice {BEGINS}",
            )
            async with await Connection.open(node.url) as client:
                setting = make_setting(ALICE, "theme", "dark", time_ms=NOW_MS)
                await client.request("UpsertUserParam", setting_payload(setting))
            for words in (["ALICE"], ["--all"]):
                assert await asyncio.to_thread(cli, "resync", *words) == (
                    0,
                    "1 settings and 0 messages go to the other server again\n",
                )
            assert (await asyncio.to_thread(cli, "resync", "bob"))[0] == 1
            assert "USER_NOT_FOUND" in cli.said
        finally:
            await node.stop()

    run(story())


def test_sessions_are_ended_whether_the_node_runs_or_not(cli):
    cli("add", "--login", "Alice", *keys_of(ALICE))
    path = cli.folder / "data" / "shine.mdb"

    def sign_in(number):
        store = Store(path, map_size=2**24)
        try:
            store.write_now(lambda txn: add_session(txn, make_session(number), greatest=9))
        finally:
            store.close()

    sign_in(1)
    sign_in(2)
    assert cli("sign-out", "ALICE") == (0, "alice: 2 sessions ended\n")
    assert cli("sign-out", "alice") == (0, "alice: 0 sessions ended\n")
    assert cli("sign-out", "bob") == (1, "")
    assert "USER_NOT_FOUND" in cli.said or "nobody is known here as bob" in cli.said
    assert cli("sign-out", "a b") == (1, "")
    sign_in(3)

    async def story():
        node = await NodeProcess.start(cli.config)
        try:
            assert await asyncio.to_thread(cli, "sign-out", "alice") == (0, "alice: 1 session ended\n")
            assert (await asyncio.to_thread(cli, "sign-out", "bob"))[0] == 1
            assert "USER_NOT_FOUND" in cli.said
        finally:
            await node.stop()

    run(story())


def test_nobody_is_signed_out_of_a_store_that_is_not_there(cli):
    assert cli("sign-out", "alice") == (1, "")
    assert "is not there yet" in cli.said
    assert not (cli.folder / "data").exists()


def test_nothing_is_sent_again_without_a_node_or_without_a_user(cli):
    assert cli("resync", "alice")[0] == 1
    assert "nobody answers at" in cli.said
    for words in ([], ["alice", "--all"]):
        assert cli("resync", *words)[0] == 2
