"""Mechanical coding-agent transcripts over Python source; no model is involved.

A user asks about a function, the assistant calls tools, tool results carry the real source, and
the assistant answers with a copy or an edited copy of it. Messages are in OpenAI form.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from models.recipe.corpus.functions import Function, find_functions

Message = dict[str, Any]


def _tool(name: str, description: str, required: tuple[str, ...], **types: str) -> Message:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: Final = [
    _tool(
        "read_file",
        "Read lines of a file.",
        ("path",),
        path="string",
        start="integer",
        end="integer",
    ),
    _tool(
        "edit_file",
        "Replace old text by new text in a file.",
        ("path", "old", "new"),
        path="string",
        old="string",
        new="string",
    ),
    _tool(
        "grep",
        "Search a pattern in the repository.",
        ("pattern",),
        pattern="string",
        path="string",
    ),
]
SYSTEM: Final = (
    "You are a coding assistant working in the repository.",
    "You are a careful coding agent. Use the tools to inspect and edit the repository.",
    "You are a helpful assistant for Python code.",
)
EDITS: Final = ("rename", "log", "guard", "nodoc")


class Session:
    """Grow one conversation about one file.

    Args    think_share: share of assistant messages with a line of reasoning. max_lines: of a
            file that may be read whole.
    """

    def __init__(
        self,
        random: Random,
        path: str,
        text: str,
        think_share: float = 0.35,
        max_lines: int = 160,
    ) -> None:
        self.random, self.path, self.lines = random, path, text.split("\n")
        self.functions = find_functions(text)
        self.messages: list[Message] = []
        self._think_share, self._max_lines = think_share, max_lines
        self._seen: set[str] = set()

    def turn(self) -> bool:
        """Add one request and its answer; return False when every function was used."""
        left = [f for f in self.functions if f.qualified not in self._seen]
        if not left:
            return False
        function = self.random.choice(left)
        self._seen.add(function.qualified)
        kinds = ["show", "rename", "log", "show", "rename", "log", "guard"]
        if function.starts_with_doc:
            kinds += ["explain", "nodoc", "explain"]
        kind = self.random.choice(kinds)
        if kind in EDITS:
            self._edit(kind, function)
        else:
            self._answer(kind, function)
        return True

    def _answer(self, kind: str, f: Function) -> None:
        path, name = self.path, f.qualified
        asked = {
            "show": (
                f"Show me the function `{name}` in `{path}`.",
                f"What does `{name}` in {path} look like?",
                f"Print the source of `{name}` from `{path}`.",
            ),
            "explain": (
                f"What does `{name}` in `{path}` do?",
                f"Explain `{name}` from {path}.",
            ),
        }
        self._user(*asked[kind])
        self._look(f)
        if kind == "show":
            source = f"Here is `{f.name}` from `{path}`:\n\n```python\n{self._source(f)}\n```"
            reason = f"The user wants the source of `{f.name}`, lines {f.first} to {f.last}."
            return self._say(source, reason)
        first = " ".join(f.doc.split("\n\n")[0].split())
        taken = ", ".join(f"`{name}`" for name in f.arguments[:6])
        text = f"`{f.name}` is defined at line {f.first} of `{path}`. {first}"
        text += f"\n\nIt takes {taken}." if taken else ""
        return self._say(text, f"The docstring of `{f.name}` says what it does.")

    def _edit(self, kind: str, f: Function) -> None:
        if kind == "guard" and not f.arguments:
            return
        asked, edited, done = getattr(self, f"_{kind}")(f)
        self._user(*asked)
        self._look(f)
        if self.random.random() < 0.5:
            reason = f"I will replace the body of `{f.name}` with an edited copy."
            self._call("edit_file", reason, path=self.path, old=self._source(f), new=edited)
            self.messages.append({"role": "tool", "content": f"Edited {self.path}"})
            return self._say(done)
        text = f"Here is the updated `{f.name}`:\n\n```python\n{edited}\n```"
        return self._say(text, f"I will answer with an edited copy of `{f.name}`.")

    def _rename(self, f: Function) -> tuple[tuple[str, ...], str, str]:
        new = self._new_name(f.name)
        asked = (
            f"Rename `{f.qualified}` to `{new}` in `{self.path}`.",
            f"In {self.path}, please rename the function `{f.name}` to `{new}`.",
        )
        edited = re.sub(rf"\b{f.name}\b", new, self._source(f))
        return asked, edited, f"I renamed `{f.name}` to `{new}` in `{self.path}`."

    def _log(self, f: Function) -> tuple[tuple[str, ...], str, str]:
        asked = (
            f"Add a debug log line at the start of `{f.qualified}` in `{self.path}`.",
            f"Please log every call of `{f.name}` in {self.path} at debug level.",
        )
        line = f'logger.debug("{f.name} called")'
        if f.arguments:
            line = f'logger.debug("{f.name}: {f.arguments[0]}=%r", {f.arguments[0]})'
        return asked, self._with(f, line), f"`{f.name}` now logs each call at debug level."

    def _guard(self, f: Function) -> tuple[tuple[str, ...], str, str]:
        name = f.arguments[0]
        asked = (
            f"Make `{f.qualified}` in `{self.path}` raise a ValueError when `{name}` is None.",
            f"Add a check to `{f.name}` in {self.path}: `{name}` must not be None.",
        )
        lines = f"if {name} is None:", f'    raise ValueError("{name} must not be None")'
        return (
            asked,
            self._with(f, *lines),
            f"`{f.name}` now raises a ValueError when `{name}` is None.",
        )

    def _nodoc(self, f: Function) -> tuple[tuple[str, ...], str, str]:
        asked = (
            f"Remove the docstring of `{f.qualified}` in `{self.path}`.",
            f"Drop the docstring from `{f.name}` in {self.path}.",
        )
        lines = self.lines[f.first - 1 : f.last]
        del lines[f.doc_first - f.first : f.doc_last - f.first + 1]
        return asked, "\n".join(lines), f"I removed the docstring of `{f.name}`."

    def _with(self, f: Function, *added: str) -> str:
        """Return the function with lines added before its first statement."""
        lines = self.lines[f.first - 1 : f.last]
        at = (f.doc_last if f.doc_first else f.body_first - 1) - f.first + 1
        lines[at:at] = [" " * (f.indent + 4) + line for line in added]
        return "\n".join(lines)

    def _look(self, f: Function) -> None:
        """Search for the function, perhaps, and read around it, or the file."""
        if self.random.random() < 0.4:
            hits = [
                f"{self.path}:{number}:{line.strip()}"
                for number, line in enumerate(self.lines, 1)
                if re.search(rf"\b{re.escape(f.name)}\b", line)
            ]
            reason = f"I will search for `{f.name}` first."
            self._call("grep", reason, pattern=f.name, path=self.path)
            self.messages.append({"role": "tool", "content": "\n".join(hits[:12])})
        first, last, count = 1, len(self.lines), len(self.lines)
        if self.random.random() >= 0.5 or count > self._max_lines:
            reach = self.random.randint(3, 40)
            first = max(1, f.first - self.random.randint(0, reach))
            last = min(count, f.last + self.random.randint(0, reach))
        part = {} if (first, last) == (1, count) else {"start": first, "end": last}
        reason = f"I need to look at `{f.name}` in {self.path}."
        self._call("read_file", reason, path=self.path, **part)
        content = "\n".join(self.lines[first - 1 : last]).rstrip("\n")
        self.messages.append({"role": "tool", "content": content})

    def _source(self, f: Function) -> str:
        return "\n".join(self.lines[f.first - 1 : f.last])

    def _user(self, *variants: str) -> None:
        self.messages.append({"role": "user", "content": self.random.choice(variants)})

    def _call(self, name: str, reason: str, **arguments: Any) -> None:
        function = {"name": name, "arguments": arguments}
        calls = [{"id": "", "type": "function", "function": function}]
        self._assistant({"content": "", "tool_calls": calls}, reason)

    def _say(self, text: str, reason: str = "") -> None:
        self._assistant({"content": text}, reason)

    def _assistant(self, parts: Message, reason: str) -> None:
        message = {"role": "assistant", **parts}
        if reason and self.random.random() < self._think_share:
            message["reasoning_content"] = reason
        self.messages.append(message)

    def _new_name(self, name: str) -> str:
        ends = ("_impl", "_inner", "_checked", "_v2", "_values", "_compat", "_helper", "_safe")
        starts = ("do_", "get_", "make_", "run_", "build_", "apply_")
        if self.random.random() < 0.6:
            return name + self.random.choice(ends)
        return self.random.choice(starts) + name.lstrip("_")


def make_session(
    random: Random, path: str, text: str, num_turns: int, **options: Any
) -> list[Message] | None:
    """Return the messages of a conversation; None if the file has no function to speak of."""
    session = Session(random, path, text, **options)
    if not session.functions:
        return None
    if random.random() < 0.8:
        session.messages.append({"role": "system", "content": random.choice(SYSTEM)})
    before = len(session.messages)
    for _ in range(num_turns):
        if not session.turn():
            break
    return session.messages if len(session.messages) > before else None


def load_template(path: Path) -> Callable[..., str]:
    """Return a function that renders messages with a chat template file."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(path.read_text()).render
