"""What is counted, for Prometheus: served on a local address, by its own client library, and only where that was asked for."""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Callable

from ..device.faults import Fault, Refused, Unsupported
from ..device.inventory import Skipped
from ..device.offer import Offer

_WHAT = "serve metrics"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SKIPPED = "Skipped"
Counts = Counter[tuple[str, str]]
Units = Callable[[], tuple[Sequence[Offer], Sequence[Skipped]]]


def _library() -> Any:
    """Return the library, None without it; not imported before somebody asks for metrics, as it takes 3 MB."""
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError:
        return None
    return prometheus_client


class Tally:
    """Counts since the start. allocations: by resource and outcome ("allocated", or the kind of the fault)."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.allocations: Counts = Counter()
        self._updates = [0] * (len(_BUCKETS) + 1)
        self._update_seconds = 0.0

    def updated(self, seconds: float) -> None:
        """Note that a change reached the kubelet's list so long after it woke the service."""
        self._updates[bisect_left(_BUCKETS, seconds)] += 1
        self._update_seconds += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return the histogram of update times as (upper bound, cumulative count), and their sum."""
        total, made = 0, []
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self._updates):
            total += count
            made.append((bound, float(total)))
        return made, self._update_seconds


class Collector:
    """Makes the families when they are asked for; what it reads is what the service holds anyway."""

    def __init__(
        self,
        tally: Tally,
        grants: Counts,
        units: Callable[[], tuple[Sequence[Offer], Sequence[Skipped]]],
        registered: Callable[[], dict[str, bool]],
    ) -> None:
        self._tally, self._grants, self._units, self._registered = tally, grants, units, registered

    def collect(self) -> Iterator[Any]:
        """Yield the metric families (prometheus_client's Collector protocol)."""
        offers, skipped = self._units()
        devices = Counter((one.resource, one.health, one.code) for one in offers)
        # a unit that is unhealthy is counted as that
        units = {(one.resource, one.name) for one in offers}
        devices.update((one.resource, SKIPPED, one.reason) for one in skipped if (one.resource, str(one.address)) not in units)
        yield _gauge("devices", "Units by resource, state and reason", ("resource", "state", "reason"), devices.items())
        told = [((resource,), float(value)) for resource, value in self._registered().items()]
        yield _gauge("registered", "Whether the kubelet holds a stream of the resource", ("resource",), told)
        labels = ("resource", "outcome")
        yield _counter("allocations", "Allocate calls by outcome", labels, self._tally.allocations)
        yield _counter("grants", "Requests at grant sockets by outcome", labels, self._grants)
        buckets, total = self._tally.buckets()
        yield _library().core.HistogramMetricFamily(
            "vfio_passthrough_update_seconds", "From an event to the kubelet's list", buckets, total
        )


def _gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Any:
    made = _library().core.GaugeMetricFamily(f"vfio_passthrough_{name}", text, labels=labels)
    for key, value in values:
        made.add_metric(list(key), value)
    return made


def _counter(name: str, text: str, labels: Sequence[str], counts: Counts) -> Any:
    made = _library().core.CounterMetricFamily(f"vfio_passthrough_{name}", text, labels=labels)
    for key, value in list(counts.items()):
        made.add_metric(list(key), value)
    return made


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "127.0.0.1:9810" or "[::1]:9810"; Refused for an address that others can reach."""
    host, _colon, port = text.rpartition(":")
    try:
        local = ipaddress.ip_address(host.strip("[]")).is_loopback
        number = int(port)
    except ValueError as error:
        raise Refused(what=_WHAT, subject=repr(text), cause=str(error), hint="for example 127.0.0.1:9810") from error
    if not local or not 0 < number < 65536:
        cause = "the page has no protection of its own, so the address has to be local, and the port from 1 to 65535"
        raise Refused(what=_WHAT, subject=repr(text), cause=cause, hint="for example 127.0.0.1:9810, behind a proxy that asks who it is")
    return host.strip("[]"), number


def serve(address: str, collector: Collector) -> Callable[[], None]:
    """Serve the collector's metrics in a thread; return what ends that. Unsupported without the library, Fault when in use."""
    host, port = parse_address(address)
    library = _library()
    if library is None:
        raise Unsupported(what=_WHAT, subject="prometheus_client", cause="not installed", hint="install python3-prometheus-client")
    registry = library.CollectorRegistry()
    registry.register(collector)
    try:
        started: Any = library.start_http_server(port, host, registry)
    except OSError as error:
        raise Fault(what=_WHAT, subject=address, cause=str(error.strerror), hint="choose another port") from error
    return partial(_end, started)


def _end(started: Any) -> None:
    # releases before 0.19 return nothing, and end with the process
    if started is not None:
        started[0].shutdown()
        started[0].server_close()
