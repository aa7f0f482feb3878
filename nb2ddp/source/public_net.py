"""Connect to public addresses alone, so that a link from outside never reaches a machine of the own network.

The address that is checked is the one that is connected to, for each redirection anew: a name whose server
answers differently the second time gains nothing. A proxy is not used, because it would look the name up.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import urllib.request

from nb2ddp.errors import NotebookError

_REFUSED = [
    ipaddress.ip_network(network)
    for network in (
        *("64:ff9b::/96", "64:ff9b:1::/48"),  # a NAT64 gateway translates them to any IPv4 address
        "::/96",  # IPv4 addresses in the form of before 2006
        "fec0::/10",  # once the addresses of a site
        "168.63.129.16/32",  # Azure's service for the machine itself
    )
]


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if inner:
            return is_public(str(inner))
    if any(ip in network for network in _REFUSED):
        return False
    return ip.is_global and not ip.is_multicast


def connected(host: str, port: int, timeout: float | None) -> socket.socket:
    """Return a socket that is connected to ``host``.

    Raises:
        NotebookError: one of its addresses is not public.
        OSError: it is unknown, or none of its addresses answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not all(is_public(str(address[0])) for *_, address in found):
        raise NotebookError(f"{host} is not on the public internet, so links to it are not followed here.")
    refusal = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            refusal = error
    raise refusal


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = connected(self.host, self.port, self.timeout)


class _SecureConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(
            connected(self.host, self.port, self.timeout), server_hostname=self.host
        )


class PublicHTTPHandler(urllib.request.HTTPHandler):
    """Open http links to public addresses."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class PublicHTTPSHandler(urllib.request.HTTPSHandler):
    """Open https links to public addresses."""

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, request)
