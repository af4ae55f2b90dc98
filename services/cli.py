"""The `lumotree` command."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import typer

from services.commands.chat import chat
from services.commands.generate import generate
from services.commands.inspect import inspect
from services.commands.serve import serve
from services.commands.verify import verify
from services.contract.errors import ContractError

app = typer.Typer(
    name="lumotree",
    help="Tree decoding of hybrid language models that nobody can observe but by its speed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (generate, chat, serve, verify, inspect):
    app.command()(command)

for extra in entry_points(group="lumotree.commands"):
    app.command(extra.name)(extra.load())


def main() -> None:
    """Run the command line; a contract error is one message and exit code 2."""
    try:
        app()
    except ContractError as error:
        print(f"lumotree: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        print(f"lumotree: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
