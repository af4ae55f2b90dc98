"""The frozen rules: read once, named by their hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

RULES = Path(__file__).with_name("rules.json")


def read_rules() -> tuple[dict[str, Any], str]:
    """Return the rules and the sha256 of their file."""
    data = RULES.read_bytes()
    rules: dict[str, Any] = json.loads(data)
    return rules, hashlib.sha256(data).hexdigest()
