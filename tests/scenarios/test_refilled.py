"""A server that has lost its store begins empty, and the users' other server fills it, without anybody's doing (§6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.cli.commands import run_command
from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.protocol.access import record_payload
from shine_node.protocol.settings import setting_payload
from shine_node.store.refill import list_refilling
from shine_node.store.settings import list_settings
from shine_node.store.verifying.verify import verify_file
from tests.scenarios.sync_world import equal, history, session, unsynced
from tests.scenarios.world import SESSIONS, Home, Person, World, tell
from tests.support.nodes import toml_text


def recover(home: Home, *words: str) -> int:
    """Run the command on the store of a server that is stopped."""
    config = home.folder / "node.toml"
    config.write_text(toml_text(home.settings))
    return run_command(["recover", "--config", str(config), *words])


async def closed_home(world: World, login: str, *peers: Home) -> Home:
    """A server that nobody may register at, and that its operator's friends are named to."""
    home = await world.home(login, sync_servers=[{"login": peer.login, "url": peer.url} for peer in peers])
    home.settings["registration"]["mode"] = "closed"  # from its next start on
    return home


async def write(world: World, home: Home, author: Person, text: str, to_login: str = "bob") -> None:
    await world.send(home, author.writes(to_login, text))
    await world.passes(1)


@pytest.mark.parametrize("lost", ["damaged", "gone"])
def test_all_users_of_both_and_their_whole_history_come_back(tmp_path: Path, lost: str) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        a2 = await closed_home(world, "a2", a1)
        r1 = await world.scripted("r1")
        alice = await world.person("alice", a2)
        bob = await world.person("bob", r1, known_at=(a1, a2))
        dora = await world.person("dora", a1, a2)
        await world.passes(SESSIONS)
        await write(world, a2, alice, "with my first phone, at one server")
        await world.passes(100)
        alice.takes_a_new_device()
        await world.moves(alice, a1, a2)
        await session(world, 12)
        for number in range(30):
            await write(world, (a1, a2)[number % 2], alice, f"message {number}")
            await write(world, a1, dora, f"to alice {number}", "alice")
        gone = alice.writes("bob", "said too much")
        await world.send(a2, gone)
        await world.send(a2, alice.removes(gone))
        setting = make_setting(alice.identity, "theme", "dark", time_ms=world.clock.now_ms())
        await a2.request("UpsertUserParam", setting_payload(setting))
        # A stranger whose record names the server, which has never let them in.
        mallory = Identity.generate("mallory")
        record = mallory.access_record([a2.access], time_ms=world.clock.now_ms())
        await a1.request("AddUser", record_payload(record))
        await session(world, 3)
        assert equal(a1, a2)
        kept, kept_dora, records = history(a2), history(a2, "dora"), a2.node.users.records("alice")
        assert len(records) == 2
        called = len(r1.times())

        await a2.stop()
        if lost == "damaged":
            content = a2.store_file.read_bytes()
            a2.store_file.write_bytes(content[: len(content) // 3])
            assert recover(a2) == 1
            assert recover(a2, "--refill") == 0
            [damaged] = a2.store_file.parent.glob("shine.mdb.damaged-*")
            assert damaged.read_bytes() == content[: len(content) // 3]
        else:
            a2.store_file.unlink()
            assert recover(a2, "--refill") == 1, "there is nothing that is damaged"
            assert recover(a2, "--refill", "--force") == 0
        await a2.start()
        with a2.node.store.read() as txn:
            assert list_refilling(txn) == ["a1"]
        await session(world, 30)
        assert a2.node.users.records("alice") == records
        for login in ("alice", "dora"):
            user = a2.node.users.get(login)
            assert user is not None
            assert a2.node.users.is_here(user)
        stranger = a2.node.users.get("mallory")
        assert stranger is None or not a2.node.users.is_here(stranger)
        assert history(a2) == kept
        assert history(a2, "dora") == kept_dora
        assert equal(a1, a2)
        assert equal(a1, a2, owner="dora")
        assert unsynced(a1) == unsynced(a2) == 0
        with a2.node.store.read() as txn:
            assert list_refilling(txn) == []
            assert [setting.value for setting in list_settings(txn, "alice")] == ["dark"]
        await world.passes(7200)
        again = len(r1.times()) - called
        assert again <= 70, "young messages join the schedule of the server that has lost them, once each"
        assert bob.identity.login == "bob"
        await a2.stop()
        assert verify_file(a2.store_file, "a2").clean

    tell(tmp_path, story)


def test_once_it_is_filled_nobody_comes_in_by_a_peer_any_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        a1 = await world.home("a1")
        a2 = await closed_home(world, "a2", a1)
        await world.person("alice", a1, a2)
        await session(world, 2)
        await a2.stop()
        a2.store_file.unlink()
        assert recover(a2, "--refill", "--force") == 0
        await a2.start()
        await session(world, 13)
        assert a2.node.users.get("alice") is not None
        late = Identity.generate("late")
        record = late.access_record([a1.access, a2.access], time_ms=world.clock.now_ms())
        await a1.request("AddUser", record_payload(record))
        await session(world, 30)
        assert a2.node.users.get("late") is None

    tell(tmp_path, story)
