"""Where the window may be reached: which port, and from which machines."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from ssr_local.errors import InvalidRequest

TRIES = 50
"""Ports after the wanted one that are looked at for a suggestion."""


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def credentials(host: str, auth: str | None) -> tuple[str, str] | None:
    """The user name and password that the window asks for; None for nothing.

    Raises:
        InvalidRequest: other machines could use the model unasked, or `auth` is malformed.
    """
    if auth is None:
        if not is_local(host):
            raise InvalidRequest(
                f"--host {host} would let everyone who can reach this machine use the window. "
                "Give --auth USER:PASSWORD as well, or leave --host out to stay on this machine."
            )
        return None
    user, colon, password = auth.partition(":")
    if not (user and colon and password):
        raise InvalidRequest("--auth needs the form USER:PASSWORD, neither of them empty.")
    return user, password


def ensure_free(host: str, port: int) -> None:
    """Raises InvalidRequest, with what to do, if a server can't listen there."""
    problem = _problem(host, port)
    if problem is None:
        return
    if problem != errno.EADDRINUSE:
        raise InvalidRequest(
            f"The window can't listen on {host}, port {port}: {_words(problem)}. "
            "Check --host and --port."
        )
    free = (other for other in range(port + 1, port + TRIES) if _problem(host, other) is None)
    raise InvalidRequest(
        f"Port {port} is in use, perhaps by another ssr-chat. End that, or take another port: "
        f"--port {next(free, 'N')}"
    )


def _problem(host: str, port: int) -> int | None:
    """The error number that listening gives."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As servers do: a port that was in use a moment ago is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    except OverflowError:
        return errno.EINVAL
    return None


def _words(problem: int) -> str:
    """getaddrinfo has negative numbers of its own, for names that nobody knows."""
    return os.strerror(problem).lower() if problem > 0 else "no such address"
