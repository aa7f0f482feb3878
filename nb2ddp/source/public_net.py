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

# What Python's `is_global` says depends on its release, so the networks are written out here. Public is what IANA
# gives to anybody, less what its registries of special-purpose addresses hold.
_PUBLIC = [ipaddress.ip_network(network) for network in ("0.0.0.0/0", "2000::/3")]
_SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's service for the machine itself
        "2001::/23",  # protocols: Teredo, which holds an IPv4 address, ORCHID, benchmarks
        *("2001:db8::/32", "3fff::/20"),  # documentation
        "2002::/16",  # 6to4, which holds an IPv4 address
        "2620:4f:8000::/48",
    )
]


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return any(ip in network for network in _PUBLIC) and not any(ip in network for network in _SPECIAL)


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
