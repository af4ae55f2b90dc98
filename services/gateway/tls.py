"""Server credentials from files, read again when the files change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from services.contract.errors import InvalidField


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate chain, key, and for mutual TLS the authority of client certificates."""

    cert: Path
    key: Path
    ca: Path | None = None

    def check(self) -> None:
        """Refuse missing files before the server starts, naming the option."""
        for name, path in (("tls-cert", self.cert), ("tls-key", self.key), ("tls-ca", self.ca)):
            if path is not None and not path.is_file():
                raise InvalidField("TLS_FILE", f"{path} is not a file; give a PEM file", name)

    def stamp(self) -> tuple[int, ...]:
        """Return the files' modification times."""
        files = [self.cert, self.key, *([self.ca] if self.ca else [])]
        return tuple(path.stat().st_mtime_ns for path in files)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials that follow the files; with `ca`, clients must present a certificate."""
    files.check()
    seen = files.stamp()

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(files.key.read_bytes(), files.cert.read_bytes())],
            files.ca.read_bytes() if files.ca else None,
        )

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        try:
            stamp = files.stamp()
            if stamp == seen:
                return None
            fresh = configuration()
        except OSError:
            return None
        seen = stamp
        return fresh

    return grpc.dynamic_ssl_server_credentials(
        configuration(), fetch, require_client_authentication=files.ca is not None
    )
