"""One request in flight and a queue behind it: who is answered what, and when (PROTOCOL.md §7); no I/O."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from shine_node.peers.queue import LinkRequest, RequestQueue
from shine_node.peers.snapshot import printable
from shine_node.protocol.envelope import Answer, encode_request
from shine_node.protocol.errors import (
    CallerTimeout,
    LinkDown,
    LinkError,
    LinkLost,
    PeerRefused,
    QueueFull,
    RequestTimeout,
)

__all__ = ["Exchange"]


class Exchange:
    """The requests of one link. All times are monotonic seconds, given by the caller.

    Args:
        server: the peer's login, for the errors.
        max_waiting: the bound of the queue.
        request_seconds: how long a sent request keeps the slot.
        on_deadline: told each time by which ``expire`` must be called.
    """

    def __init__(
        self, server: str, *, max_waiting: int, request_seconds: float, on_deadline: Callable[[float], None]
    ) -> None:
        self._server = server
        self._request_seconds = request_seconds
        self._on_deadline = on_deadline
        self.queue = RequestQueue(max_waiting)
        self.in_flight: LinkRequest | None = None
        self._send: Callable[[str], None] | None = None
        self._ids = count(1)
        self.succeeded = 0
        self.failed = 0
        self.timed_out = 0
        self.last_error = ""

    @property
    def busy(self) -> bool:
        """Whether a request waits or is under way."""
        return self.in_flight is not None or len(self.queue) > 0

    def next_id(self) -> str:
        """Return a ``requestId`` that this link never had before."""
        return str(next(self._ids))

    def submit(self, request: LinkRequest, now: float) -> None:
        """Send a request if the slot is free, or let it wait.

        Raises:
            QueueFull: as many are waiting as may.
        """
        if self._send is not None and self.in_flight is None:
            self._start(request, now)
        elif not self.queue.push(request):
            error = QueueFull(self._server, request.op)
            self.failed += 1
            self.last_error = str(error)
            raise error
        self._on_deadline(request.deadline)

    def connect(self, send: Callable[[str], None], now: float) -> None:
        """Begin to send over a connection."""
        self._send = send
        self._start_next(now)

    def detach(self) -> None:
        """Stop sending; requests wait. Only while nothing is in flight."""
        self._send = None

    def disconnect(self, error: type[LinkLost | LinkDown], detail: str) -> None:
        """Stop sending, and fail what is under way and what waits."""
        self._send = None
        requests = self.queue.take_all()
        if self.in_flight is not None:
            requests.insert(0, self.in_flight)
            self.in_flight = None
        for request in requests:
            self._fail(request, error(self._server, request.op, detail))
        self.last_error = detail

    def receive(self, answer: Answer, now: float) -> bool:
        """Give an answer to the request in flight; ``False`` for one that answers nothing here, which is dropped."""
        request = self.in_flight
        if request is None or not (answer.request_id == request.request_id or answer.refuses_unread):
            return False
        self.in_flight = None
        if answer.ok:
            if _is_open(request):
                self.succeeded += 1
            if not request.future.done():
                request.future.set_result(answer.payload)
        else:
            code, message = printable(answer.error), printable(answer.message)  # they go to logs, and come from outside
            refused = PeerRefused(self._server, request.op, answer.status, code, message, answer.payload)
            self._fail(request, refused)
        self._start_next(now)
        return True

    def abandon(self, request: LinkRequest) -> None:
        """Take a request whose caller is gone out of the queue; one under way keeps the slot."""
        self.queue.discard(request)

    def next_deadline(self) -> float:
        """Return when ``expire`` has something to do; infinity if nothing waits."""
        deadline = self.queue.next_deadline()
        request = self.in_flight
        if request is not None:
            deadline = min(deadline, request.slot_deadline)
            if not request.future.done():
                deadline = min(deadline, request.deadline)
        return deadline

    def expire(self, now: float) -> bool:
        """Fail the requests whose time is over; say whether one of them had been sent and freed the slot."""
        for request in self.queue.take_expired(now):
            self._fail(request, CallerTimeout(self._server, request.op, "it was still waiting"))
        current = self.in_flight
        if current is None:
            return False
        if current.slot_deadline <= now:
            self.in_flight = None
            self._fail(current, RequestTimeout(self._server, current.op, f"{self._request_seconds:g} s"))
            self._start_next(now)
            return True
        if current.deadline <= now:
            self._fail(current, CallerTimeout(self._server, current.op, "it was under way"))
        return False

    def _fail(self, request: LinkRequest, error: LinkError) -> None:
        if _is_open(request):
            if isinstance(error, CallerTimeout | RequestTimeout):
                self.timed_out += 1
            else:
                self.failed += 1
        self.last_error = str(error)
        if not request.future.done():
            request.future.set_exception(error)

    def _start_next(self, now: float) -> None:
        while self.in_flight is None and self._send is not None:
            request = self.queue.pop()
            if request is None:
                return
            self._start(request, now)

    def _start(self, request: LinkRequest, now: float) -> None:
        request_id = self.next_id()
        try:
            frame = encode_request(request.op, request_id, request.payload)
        except TypeError as error:  # a payload that is no JSON is its caller's defect, and takes no slot
            request.future.set_exception(error)
            return
        request.request_id = request_id
        request.slot_deadline = now + self._request_seconds
        self.in_flight = request
        self._on_deadline(request.slot_deadline)
        assert self._send is not None  # noqa: S101 - both callers have looked
        self._send(frame)


def _is_open(request: LinkRequest) -> bool:
    """Say whether a request has not been counted yet: its caller waits, or went away without a word."""
    return not request.future.done() or request.future.cancelled()
