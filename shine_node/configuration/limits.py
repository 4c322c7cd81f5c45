"""The part of the table of options that bounds what one client, peer, user or message may take (PROTOCOL.md §10)."""

from __future__ import annotations

from shine_node.configuration.addresses import Logins, Networks
from shine_node.configuration.kinds import Number
from shine_node.configuration.table import Option

__all__ = ["LIMITS"]

_MEBIBYTES_16 = 16 * 1024 * 1024

LIMITS = (
    Option("limits", "maxBodyBytes", Number(1, _MEBIBYTES_16), 65536, "Bytes of one message."),
    Option("limits", "maxBlockBytes", Number(1, 4194304), 524288, "Bytes of one block of a chain."),
    Option(
        "limits",
        "maxFrameBytes",
        Number(65536, 67108864),
        1048576,
        "Bytes of one frame, at least 4 x maxBodyBytes + 65536 and 1.4 x maxBlockBytes + 65536.",
    ),
    Option(
        "limits",
        "maxConnections",
        Number(1, 1000000),
        2000,
        "Connections from clients and servers that may be open at once.",
        reloads=True,
    ),
    Option(
        "limits",
        "maxConnectionsPerAddress",
        Number(1, 1000000),
        64,
        "Connections that may be open from one address; of IPv6, from one network of 64 bits.",
        reloads=True,
    ),
    Option(
        "limits",
        "requestsPerSecond",
        Number(1, 1000000),
        200,
        "Requests of a client in a second, for each connection. A large one counts as several.",
        reloads=True,
    ),
    Option(
        "limits",
        "peerRequestsPerSecond",
        Number(1, 1000000),
        2000,
        "Requests of a server in a second, for each connection. A large one counts as several; what the large "
        "ones of one address count together is bounded by this number too.",
        reloads=True,
    ),
    Option(
        "limits",
        "maxOutboundBytes",
        Number(65536, 1073741824),
        4194304,
        "Bytes that may wait for a client that reads slowly; at more it is disconnected, and comes again.",
        reloads=True,
    ),
    Option(
        "limits",
        "requestsPerSecondPerAddress",
        Number(1, 1000000),
        1000,
        "Requests in a second of all clients of one address together; of IPv6, of one network of 64 bits. For servers "
        "it is peerRequestsPerSecond.",
        reloads=True,
    ),
    Option(
        "limits",
        "failedLogins",
        Number(0, 1000000),
        20,
        "Log-ins from one address that may fail in ten minutes, a quarter of them of one user; a wrong "
        "registration.token counts as one. Nobody else waits for them. 0 is no limit.",
        reloads=True,
    ),
    Option(
        "limits",
        "maxStoredMiBPerUser",
        Number(0, 16777216),
        0,
        "MiB of messages that are kept for one user of this server. Nobody's old messages are removed; what the user "
        "removes is always taken. 0 is no limit.",
        reloads=True,
    ),
    Option(
        "limits",
        "maxMessagesPerDay",
        Number(0, 1000000000),
        0,
        "Messages and edits that one user may send through this server from midnight to midnight, UTC; and four times "
        "as many receipts, and removals of messages that are not here, in 24 hours. 0 is no limit.",
        reloads=True,
    ),
    Option(
        "limits",
        "messagesPerMinutePerSender",
        Number(0, 1000000),
        240,
        "Messages and edits in a minute from one sender to one user of this server, wherever they come from; and four "
        "times as many receipts, and removals of messages that are not here. 0 is no limit.",
        reloads=True,
    ),
    Option(
        "limits",
        "blockedPeers",
        Logins(),
        [],
        "Servers that are not spoken to, by login. One that comes is known by what it says of itself, in its greeting "
        "or with a message; one that says nothing may bring messages as any stranger may: see blockedAddresses.",
        reloads=True,
    ),
    Option(
        "limits",
        "blockedAddresses",
        Networks(),
        [],
        "Addresses and networks that may not connect; behind a proxy, those that it names. An IPv4 address may also be "
        "written as IPv6.",
        reloads=True,
    ),
)
