"""Counters, gauges and histograms with fixed label sets, in Prometheus' text form."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from services.contract.errors import InvalidField

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
Labels = tuple[str, ...]
M = TypeVar("M", bound="Metric")


class Metric(ABC):
    """One family of series; a subclass says how a series is written."""

    kind = ""

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        if not all(_NAME.fullmatch(part) for part in (name, *labels)):
            raise InvalidField("METRIC", f"{name}: use lower case, digits and _", "name")
        self.name, self.text, self.labels = name, text, labels
        self._lock = threading.Lock()

    def lines(self) -> list[str]:
        """Return the family's text."""
        head = [f"# HELP {self.name} {self.text}", f"# TYPE {self.name} {self.kind}"]
        with self._lock:
            return head + self._series()

    @abstractmethod
    def _series(self) -> list[str]:
        """Return the family's series, a line each."""

    def _key(self, values: Labels) -> Labels:
        if len(values) != len(self.labels):
            text = f"{self.name} has labels {self.labels}; got {len(values)} values"
            raise InvalidField("METRIC", text, "labels")
        return values


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        super().__init__(name, text, labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, amount: float = 1.0, *values: str) -> None:
        """Add an amount, at least 0, to one series."""
        if amount < 0:
            raise InvalidField("METRIC", f"{self.name} only grows; got {amount}", "amount")
        with self._lock:
            key = self._key(values)
            self._values[key] = self._values.get(key, 0.0) + amount

    def _series(self) -> list[str]:
        return [_line(self.name, self.labels, key, x) for key, x in sorted(self._values.items())]


class Gauge(Metric):
    """A number read at the time of asking."""

    kind = "gauge"

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        super().__init__(name, text, ())
        self._read = read

    def _series(self) -> list[str]:
        return [_line(self.name, (), (), float(self._read()))]


class Total(Gauge):
    """A number that only grows, counted elsewhere and read at the time of asking."""

    kind = "counter"


class Histogram(Metric):
    """Counts of observations up to each bound."""

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        super().__init__(name, text, ())
        self._bounds = sorted(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def _series(self) -> list[str]:
        total, lines = 0, []
        for bound, count in zip([*self._bounds, float("inf")], self._counts, strict=True):
            total += count
            name = "+Inf" if bound == float("inf") else f"{bound:g}"
            lines.append(_line(f"{self.name}_bucket", ("le",), (name,), total))
        return [*lines, f"{self.name}_sum {_number(self._sum)}", f"{self.name}_count {total}"]


class Registry:
    """All families of a process, each name once."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, text: str, labels: Labels = ()) -> Counter:
        """Add a counter."""
        return self._add(Counter(name, text, labels))

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> Gauge:
        """Add a gauge."""
        return self._add(Gauge(name, text, read))

    def total(self, name: str, text: str, read: Callable[[], float]) -> Total:
        """Add a counter that is read."""
        return self._add(Total(name, text, read))

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        """Add a histogram."""
        return self._add(Histogram(name, text, bounds))

    def render(self) -> str:
        """Return the text that a scrape gets (CONTENT_TYPE)."""
        return "\n".join(line for m in self._metrics.values() for line in m.lines()) + "\n"

    def _add(self, metric: M) -> M:
        if metric.name in self._metrics:
            raise InvalidField("METRIC", f"{metric.name} exists already; pick another", "name")
        self._metrics[metric.name] = metric
        return metric


def _line(name: str, labels: Labels, values: Labels, value: float) -> str:
    pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in zip(labels, values, strict=True))
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
