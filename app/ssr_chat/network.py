"""Where the window may be reached: which port, and from which machines."""

from __future__ import annotations

import ipaddress
import socket

from ssr_local.errors import InvalidRequest

TRIES = 50


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


def free_port(host: str, wanted: int) -> int:
    """`wanted`, or the next free port after it.

    Raises:
        InvalidRequest: none of the next ports is free, or the address is not this machine's.
    """
    for port in range(wanted, min(wanted + TRIES, 65536)):
        if _can_bind(host, port):
            return port
    raise InvalidRequest(
        f"No port from {wanted} to {wanted + TRIES - 1} can be opened on {host}. "
        "Try another --port, or check --host."
    )


def _can_bind(host: str, port: int) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As servers do: a port that was in use a moment ago is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True
