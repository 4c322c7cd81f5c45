"""The requests that wait for one link: three priorities, a bound, and deadlines (PROTOCOL.md §7)."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from typing import Any

from shine_node.peers.priorities import Priority

__all__ = ["LinkRequest", "RequestQueue"]

STALE_SLACK = 256
"""Deadlines of requests that have left the queue may outnumber the waiting ones by this before they are swept out."""


class LinkRequest:
    """One request on its way over a link.

    Args:
        op: the operation; it decides the priority.
        payload: what is sent.
        deadline: when its caller gives up, monotonic seconds.
        future: what the caller waits for.
    """

    __slots__ = ("deadline", "future", "op", "payload", "priority", "request_id", "slot_deadline")

    def __init__(
        self,
        op: str,
        payload: Mapping[str, object],
        priority: Priority,
        deadline: float,
        future: asyncio.Future[dict[str, Any]],
    ) -> None:
        self.op = op
        self.payload = payload
        self.priority = priority
        self.deadline = deadline
        self.future = future
        self.request_id = ""
        self.slot_deadline = math.inf
        """When the request's own time-out frees the slot; set when it is sent."""


class RequestQueue:
    """Requests by priority, then by arrival; at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lanes: tuple[OrderedDict[LinkRequest, None], ...] = tuple(OrderedDict() for _ in Priority)
        self._size = 0
        self._deadlines: list[tuple[float, int, LinkRequest]] = []
        self._arrivals = count()

    def __len__(self) -> int:
        return self._size

    def lengths(self) -> dict[Priority, int]:
        """Return how many wait in each priority."""
        return {priority: len(self._lanes[priority]) for priority in Priority}

    def push(self, request: LinkRequest) -> bool:
        """Add a request at the end of its priority; ``False``, and nothing is changed, where the queue is full."""
        if self._size >= self._limit:
            return False
        self._lanes[request.priority][request] = None
        self._size += 1
        heapq.heappush(self._deadlines, (request.deadline, next(self._arrivals), request))
        if len(self._deadlines) > 2 * self._size + STALE_SLACK:
            self._deadlines = [entry for entry in self._deadlines if self._holds(entry[2])]
            heapq.heapify(self._deadlines)
        return True

    def pop(self) -> LinkRequest | None:
        """Take out the request that is next; ``None`` if nothing waits."""
        for lane in self._lanes:
            if lane:
                request, _ = lane.popitem(last=False)
                self._size -= 1
                return request
        return None

    def discard(self, request: LinkRequest) -> bool:
        """Take out one request, wherever it stands; say whether it was here."""
        if not self._holds(request):
            return False
        del self._lanes[request.priority][request]
        self._size -= 1
        return True

    def take_expired(self, now: float) -> list[LinkRequest]:
        """Take out the requests whose callers' time is over at a monotonic time, earliest deadline first."""
        expired = []
        while self.next_deadline() <= now:
            request = self._deadlines[0][2]
            self.discard(request)
            expired.append(request)
        return expired

    def next_deadline(self) -> float:
        """Return the earliest deadline of a waiting request, monotonic seconds; infinity if nothing waits."""
        while self._deadlines:
            deadline, _, request = self._deadlines[0]
            if self._holds(request):
                return deadline
            heapq.heappop(self._deadlines)
        return math.inf

    def take_all(self) -> list[LinkRequest]:
        """Take out everything, in the order in which it would have been sent."""
        everything = [request for lane in self._lanes for request in lane]
        for lane in self._lanes:
            lane.clear()
        self._size = 0
        self._deadlines.clear()
        return everything

    def _holds(self, request: LinkRequest) -> bool:
        return request in self._lanes[request.priority]
