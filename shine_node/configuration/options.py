"""The table of all options: the one place that knows their names, kinds, ranges and defaults (PROTOCOL.md §10).

The loader, its messages and ``conf/shine-node.toml`` come from this table.
"""

from __future__ import annotations

from shine_node.configuration.addresses import Listen, Login, Url
from shine_node.configuration.kinds import (
    Choice,
    Credential,
    DataDir,
    File,
    Flag,
    Folder,
    MapSize,
    Number,
    Rising,
    Secret,
    Text,
)
from shine_node.configuration.limits import LIMITS
from shine_node.configuration.table import REQUIRED, Option, Section

__all__ = ["DEFAULT_DATA_DIR", "OPTIONS", "PEERS", "REQUIRED", "SECTIONS", "Option", "Section", "options_of"]

DEFAULT_DATA_DIR = "/var/lib/shine-node"
PEERS = "sync_servers"
"""The one section of which there may be several: ``[[sync_servers]]``."""

SECTIONS = (
    Section("server", "Who this server is, and where it listens and stores."),
    Section("server.info", "What anyone may ask this server about itself."),
    Section("server.pool", "The links to other servers."),
    Section(
        PEERS,
        "Servers that this one exchanges users and catches up with: one such section for each, here or in a file of"
        " conf.d. Entries of all files count; of two with one login the one in the later file counts.",
        reloads=True,
    ),
    Section("delivery", "How messages are brought to the recipient's servers."),
    Section("sync", "How this server catches up with the other servers of its users."),
    Section("crypto", "The threads that check signatures."),
    Section("storage", "The store, one file in dataDir."),
    Section("registration", "Who may become a user of this server."),
    Section("limits", "What one client, one peer, one user or one message may take."),
    Section("log", "The log, on standard error."),
)

OPTIONS = (
    Option(
        "server",
        "login",
        Login(),
        REQUIRED,
        "The name of this server among servers. Do not change it later.",
        example="myserver",
    ),
    Option(
        "server",
        "url",
        Url(),
        REQUIRED,
        "The address at which clients and other servers reach this server.",
        example="wss://myserver.example/ws",
    ),
    Option("server", "listen", Listen(), "127.0.0.1:7070", "Where to listen for connections."),
    Option(
        "server",
        "dataDir",
        DataDir(),
        DEFAULT_DATA_DIR,
        "The folder of the store, private to this server. Where systemd names a state directory, that is the default."
        " The packaged service may write elsewhere only after its unit allows it: see its example data-dir.conf.",
    ),
    Option(
        "server",
        "tlsCert",
        Credential("tls.crt"),
        "",
        "The certificate, in PEM with its chain. Without one the server speaks ws://, for a proxy in front of it. Where"
        " systemd hands over the credentials tls.crt and tls.key, they are the defaults; a restart reads them anew.",
        reloads=True,
    ),
    Option(
        "server",
        "tlsKey",
        Credential("tls.key"),
        "",
        "The private key of the certificate, in PEM, without a pass phrase.",
        reloads=True,
    ),
    Option(
        "server",
        "chatPage",
        Flag(),
        True,
        "Whether browsers that ask for this server's address, without /ws, get a page to chat with.",
    ),
    Option("server.info", "physicalRegion", Text(1000), "", "Where the server stands."),
    Option("server.info", "description", Text(1000), "", "What the server is for."),
    Option("server.info", "origin", Text(1000), "", "Who runs the server."),
    Option("server.info", "extraInfo", Text(1000), "", "Anything else."),
    Option(
        "server.pool",
        "pingIdleSeconds",
        Number(1, 86400),
        120,
        "Seconds without useful traffic after which a link is pinged.",
    ),
    Option(
        "server.pool",
        "pongTimeoutSeconds",
        Number(1, 600),
        15,
        "Seconds to wait for the answer to a ping; then the link is lost.",
    ),
    Option(
        "server.pool",
        "requestTimeoutSeconds",
        Number(1, 600),
        12,
        "Seconds to wait for the answer to a request that was sent.",
    ),
    Option(
        "server.pool", "connectTimeoutSeconds", Number(1, 600), 15, "Seconds to wait for a connection and its greeting."
    ),
    Option(
        "server.pool",
        "callerTimeoutSeconds",
        Number(1, 3600),
        35,
        "Seconds that a request may take in all, waiting for its turn included; not below requestTimeoutSeconds.",
    ),
    Option(
        "server.pool",
        "maxQueuePerPeer",
        Number(1, 1000000),
        2000,
        "Requests that may wait for one peer; more are refused at once.",
    ),
    Option(
        "server.pool",
        "refreshSeconds",
        Number(1, 3600),
        30,
        "Seconds after which the list of known peers is read again.",
    ),
    Option(
        "server.pool",
        "idleCloseSeconds",
        Number(1, 86400),
        600,
        "Seconds without use after which a link to an occasional peer is closed.",
    ),
    Option(
        "server.pool", "maxConnections", Number(1, 100000), 256, "Links to occasional peers that may be open at once."
    ),
    Option(
        "server.pool",
        "snapshotSeconds",
        Number(1, 86400),
        300,
        "Seconds between two summaries of all links in the log.",
    ),
    Option(
        "server.pool",
        "allowInsecurePeers",
        Flag(),
        False,
        "Whether ws:// without encryption is allowed, for this server's url and for others. For trials on one machine.",
    ),
    Option(
        "server.pool",
        "allowPrivatePeers",
        Flag(),
        False,
        "Whether peers may have loopback, link-local, private or multicast addresses: in a network at home.",
    ),
    Option(
        "server.pool",
        "caFile",
        File(),
        "",
        'Certificates, in PEM, of authorities that peers are checked against; "" is those of the system.',
    ),
    Option(PEERS, "login", Login(), REQUIRED, "The name of that server.", reloads=True, example="friend"),
    Option(
        PEERS, "url", Url(), REQUIRED, "The address of that server.", reloads=True, example="wss://friend.example/ws"
    ),
    Option(
        "delivery",
        "scheduleSeconds",
        Rising(16, 604800),
        [0, 30, 300, 1500, 3600],
        "When attempts are made, in seconds since a message was accepted; after the last one it has failed.",
    ),
    Option(
        "delivery",
        "workerIntervalMs",
        Number(50, 60000),
        5000,
        "Milliseconds between two looks for attempts that are due.",
    ),
    Option(
        "delivery",
        "leaseMs",
        Number(1000, 3600000),
        60000,
        "Milliseconds for which an attempt is claimed; the claim is renewed while the attempt runs.",
    ),
    Option(
        "delivery",
        "firstAttemptTimeoutMs",
        Number(0, 60000),
        8000,
        "Milliseconds that a sender waits at most for the result of the first attempt.",
    ),
    Option(
        "delivery",
        "maxConcurrent",
        Number(1, 10000),
        64,
        "Attempts that may run at once. Those that wait for servers which take nothing are not counted among them, and "
        "there may be half as many of these, for a short time as many.",
    ),
    Option("sync", "intervalSeconds", Number(1, 86400), 30, "Seconds between two sessions with the same server."),
    Option(
        "sync",
        "accessIntervalSeconds",
        Number(1, 86400),
        300,
        "Seconds, at least, between two exchanges of access records with the same server.",
    ),
    Option("sync", "pageLimit", Number(1, 500), 100, "Entries to ask for at a time."),
    Option(
        "crypto",
        "threads",
        Number(1, 64),
        2,
        "Threads that check signatures; more than there are processors gain nothing.",
    ),
    Option(
        "crypto", "maxQueue", Number(1, 1000000), 1024, "Requests that may wait for a check; more are refused as busy."
    ),
    Option(
        "storage",
        "mapSizeMiB",
        MapSize(8, 16777216),
        16384,
        "The greatest size of the store, MiB: address space, not disk. It is fixed when the store is opened.",
    ),
    Option(
        "storage",
        "minFreeMiB",
        Number(0, 16777216),
        128,
        "MiB of the disk that stay free: with less, new messages are refused, and all else goes on. 0 is no such rule.",
        reloads=True,
    ),
    Option(
        "storage",
        "whenDamaged",
        Choice(("backup", "refill", "stop")),
        "backup",
        "What to go on with at the start when the store's file is damaged; the file itself is kept. backup: the newest"
        " sound backup in backupDir, and what came since then comes back from the users' other servers; without a"
        " backup the node stops. refill: without a backup begin with an empty store, which the servers of"
        " [[sync_servers]] fill with the users whom both have, and their history. stop: wait for `shine-node recover`.",
    ),
    Option(
        "storage",
        "backupDir",
        Folder(),
        "",
        "The folder of the backups, files named shine-*.mdb. Empty: the folder backups in dataDir. Another disk is"
        " better; the packaged service sees none below /home and /root.",
    ),
    Option(
        "registration",
        "mode",
        Choice(("open", "token", "closed")),
        "closed",
        "Who may register: anyone, who has the token, or only users that the command `shine-node user add` adds.",
    ),
    Option("registration", "token", Secret(1000), "", 'What a client must send to register, where mode is "token".'),
    Option(
        "registration",
        "allowUnsigned",
        Flag(),
        False,
        "Whether clients may register users without a signed record; such users are known to this server alone.",
    ),
    *LIMITS,
    Option(
        "log",
        "level",
        Choice(("debug", "info", "warning", "error")),
        "info",
        "What is written, from the least weighty on.",
        reloads=True,
    ),
    Option(
        "log",
        "format",
        Choice(("text", "json")),
        "text",
        "Lines for people, or one JSON object to a line.",
        reloads=True,
    ),
)


def options_of(section: str) -> tuple[Option, ...]:
    """Return the options of one section, in the order of the table."""
    return tuple(option for option in OPTIONS if option.section == section)
