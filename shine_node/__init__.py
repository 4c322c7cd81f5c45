"""SHiNE node: a server for signed direct messages."""

__version__ = "0.1.0"
