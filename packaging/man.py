#!/usr/bin/env python3
"""Prints the man page ``shine-node(8)``, made from the program's own parser: ``man.py YYYY-MM-DD``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
os.environ["COLUMNS"] = "10000"  # a usage is one line

from commands import Command, Option, walk  # noqa: E402 - the line above makes it found

from shine_node import __version__  # noqa: E402
from shine_node.cli.commands import build_parser  # noqa: E402

HEAD = r"""
.SH NAME
shine\-node \- home server for signed direct messages
.SH SYNOPSIS
.B shine\-node
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
A SHiNE node keeps the signed direct messages of its users, brings them to the servers of their readers, and tries again
where one of those is off. The Debian package runs it as the service
.BR shine\-node.service ,
with the command
.BR run .
The other commands ask the running node, look after its data, or send and read messages.
.SH COMMANDS
"""

TAIL = r"""
.SH FILES
.TP
.I /etc/shine\-node/shine\-node.toml
The configuration; it needs no changes.
.TP
.I /etc/shine\-node/conf.d/*.toml
The owner's settings, read after it in the order of their names. The first start has begun with
.IR 10\-this\-server.toml .
.TP
.I /usr/share/doc/shine\-node/examples/shine\-node.toml
Every option, with its default, its range, and whether a reload brings it into force.
.TP
.I /var/lib/shine\-node
The data of the node; only its own user may look inside.
.TP
.IR shine.mdb.damaged\-... ", " shine.mdb.replaced\-... ", " shine.mdb.before\-...
There: stores that
.BR recover " or " restore
has put aside, the first because it was damaged. They are yours to remove when nothing is missing.
.TP
.I /var/lib/shine\-node/backups
The backups
.IR shine\-SERVER\-YYYYMMDD\-HHMMSS.mdb ,
made each night by
.BR shine\-node\-backup.timer ,
where storage.backupDir names no other folder.
.TP
.I /run/shine\-node/control.sock
Where the running node is asked; the group shine\-node may.
.TP
.I ~/.config/shine\-node/keys.json
The keys of the account with which
.BR send ", " inbox " and " watch
work.
.SH BACKUPS
Name a folder on another disk in
.BR storage.backupDir ,
let it belong to the user shine\-node, and have root run
.B shine\-node backup \-\-keep 14
every night, from
.IR /etc/cron.d
or a timer of systemd; README.md has both. What root makes there belongs to the node's user, who uses it when the store
is damaged.
.BR status " and " check
warn when the newest one is older than three days, or cannot be used.
.SH ENVIRONMENT
.TP
.BR STATE_DIRECTORY ", " RUNTIME_DIRECTORY ", " CREDENTIALS_DIRECTORY
Set by systemd: where the data and the control socket lie, and a certificate with its key as
.IR tls.crt " and " tls.key .
.TP
.BR NOTIFY_SOCKET ", " WATCHDOG_USEC
Set by systemd: the node says that it is ready, alive and stopping.
.TP
.B XDG_CONFIG_HOME
Where the keys of an account lie, in place of
.IR ~/.config .
.SH SIGNALS
.TP
.BR SIGTERM ", " SIGINT
The node stops in order.
.TP
.B SIGHUP
It reads its configuration and its certificate again, as
.B reload
has it do.
.SH EXIT STATUS
0: done. 1: refused, or of
.BR check " and " status
warnings. 2: the command line or the configuration is wrong, or of
.BR status " and " reload
nobody answers; of
.B run
also where it cannot use what the configuration names, such as the certificate or the data folder. 78: of
.BR run ,
its owner has to do something about the store, which the log names. The service is not started again after 2 and 78.
.SH SEE ALSO
.BR systemctl (1),
.BR journalctl (1),
.I /usr/share/doc/shine\-node/README.md.gz
"""


def main() -> int:
    """Print the page."""
    date = sys.argv[1]
    print(f'.TH SHINE\\-NODE 8 {date} "shine\\-node {__version__}" "System administration"')
    print(HEAD.strip())
    for command in walk(build_parser()):
        print("\n".join(_lines(command)))
    print(TAIL.strip())
    return 0


def _lines(command: Command) -> list[str]:
    if not command.words:
        return []
    lines = [f".SS {_plain(' '.join(command.words))}", f".B {_plain(command.usage)}", ".PP"]
    if command.text:
        lines.append(_plain(command.text))
    for option in command.options:
        lines += [".TP", _name(option), _plain(option.text or "See the description.")]
    return lines


def _name(option: Option) -> str:
    value = rf"\fI{_plain(option.value)}\fR" if option.value else ""
    if not option.flags:
        return value
    flags = ", ".join(rf"\fB{_plain(flag)}\fR" for flag in option.flags)
    return f"{flags} {value}".rstrip()


def _plain(text: str) -> str:
    """Return a text that roff takes as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.exit(main())
