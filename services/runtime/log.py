"""Structured logs: one JSON object a line on standard error, never content of requests."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Final

from services.contract.errors import InvalidField

REFUSED_FIELDS: Final = frozenset(
    {"prompt", "text", "token_ids", "messages", "content", "token", "authorization", "logprobs"}
)
ROOT: Final = "lumotree"
Field = str | int | float | bool | None


class Logger:
    """Log events with named fields.

    Raises  InvalidField for a field whose name says that it holds request content.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    def debug(self, event: str, **fields: Field) -> None:
        """Log what only a developer wants."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        """Log what an operator may want."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Field) -> None:
        """Log what an operator should look at."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Field) -> None:
        """Log what an operator must look at."""
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: Mapping[str, Field]) -> None:
        refused = REFUSED_FIELDS.intersection(fields)
        if refused:
            name = sorted(refused)[0]
            raise InvalidField("LOG_FIELD", "logs hold no request content; leave it out", name)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": dict(fields)})


class JsonFormatter(logging.Formatter):
    """Write a record as one JSON object: time, level, logger, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        return json.dumps(line | getattr(record, "fields", {}), default=str)


def get_logger(name: str) -> Logger:
    """Return the logger of a part of the service, as "gateway.server"."""
    return Logger(name)


def set_up_logs(level: str = "warning") -> None:
    """Send the service's logs to standard error, from `level` on.

    Raises  InvalidField for an unknown level.
    """
    names = ("debug", "info", "warning", "error")
    if level not in names:
        raise InvalidField("LOG_LEVEL", f"{level!r}; use one of {', '.join(names)}", "log_level")
    logging.raiseExceptions = False  # a failed write would print what was being handled
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
