"""Links that lead to public addresses alone, redirections included."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from nb2ddp.errors import NotebookError
from nb2ddp.source import public_net
from nb2ddp.source.inputs import input_of, read_input
from nb2ddp.source.public_net import connected, is_public
from tests.unit.source.test_inputs import TEXT, Server, body, leads_to


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "140.82.121.4", "192.0.1.1", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"],
)
def test_a_public_address(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *(
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
        ),
        *("fec0::1", "64:ff9b:1::7f00:1", "::7f00:1", "168.63.129.16"),
        *("64:ff9b::a00:1", "2002:7f00:1::", "2001:db8::1"),
        *("192.0.0.192", "192.0.0.1", "192.0.0.9", "100.100.100.200", "::ffff:192.0.0.192", "192.88.99.1"),
        *("3fff::1", "3fff:fff::1", "5f00::1", "100::1", "4000::1", "::ffff:0:10.0.0.1", "64:ff9b::101:101"),
        *("2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:5601:5601", "2001:20::1"),
        *("not an address", "", "127.1", "0x7f000001", "1.1.1.1%eth0"),
    ],
)
def test_an_address_of_a_network_of_ones_own(address: str) -> None:
    assert not is_public(address)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server of this machine, whose address counts as public."""
    monkeypatch.setattr(public_net, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
    return Server()


def test_a_public_link_is_read(server: Server) -> None:
    server.answers["/real.ipynb"] = body(TEXT)
    found, text = read_input(input_of(f"{server.address}/real.ipynb"), public_only=True)
    assert text == TEXT
    assert found.cells
    server.close()


def test_a_redirection_to_another_address_is_not_followed(server: Server) -> None:
    port = server.address.rpartition(":")[2]
    server.answers["/a.ipynb"] = leads_to(f"http://127.0.0.2:{port}/secret.ipynb")
    server.answers["/secret.ipynb"] = body(TEXT)
    with pytest.raises(NotebookError, match=r"127\.0\.0\.2 is not on the public internet"):
        read_input(input_of(f"{server.address}/a.ipynb"), public_only=True)
    server.close()


def test_a_name_with_one_address_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several addresses that a name has, the first that answers would be taken."""
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    found = [(*entry, ("1.1.1.1", 80)), (*entry, ("127.0.0.1", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(NotebookError, match=r"x\.org is not on the public internet"):
        connected("x.org", 80, 1.0)


def test_addresses_are_judged_without_what_python_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_global` is another in each release: Python 3.11 says it of 192.0.0.192, and of 3fff::1."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for name in ("is_global", "is_private", "is_reserved", "is_multicast"):
            monkeypatch.setattr(kind, name, property(lambda _: pytest.fail("Python is asked")))
    assert is_public("1.1.1.1")
    assert not is_public("192.0.0.192")
    assert not is_public("fc00::1")


def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of names that answers differently the second time gains nothing."""
    port = int(server.address.rpartition(":")[2])
    asked = []

    def look_up(host: str, *_: object, **__: object) -> object:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server.answers["/a.ipynb"] = body(TEXT)
    assert read_input(input_of(f"http://rebinding.org:{port}/a.ipynb"), public_only=True)[1] == TEXT
    assert asked == ["rebinding.org"]
    server.close()


def test_a_host_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_net, "is_public", lambda _: True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(NotebookError, match="cannot be reached"):
        read_input(input_of(f"http://127.0.0.1:{port}/a.ipynb"), public_only=True)
