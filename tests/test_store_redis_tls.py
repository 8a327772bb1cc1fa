"""Redis behind TLS, with certificates that the tests make: who is trusted, and what is said where nobody is."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from socket import create_connection, socket
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
import redis
import redis.asyncio

from langmem_adapters.errors import ConfigurationError, StoreUnavailable
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_client import make_link
from langmem_adapters.stores.redis_errors import translate
from langmem_adapters.stores.redis_sources import default_options
from langmem_adapters.stores.redis_url import from_url
from tests.servers import Proxy, RedisServer, free_port, listening, redis_servers
from tests.test_store_redis import NS, answering, ids
from tests.waiting import until


def _speaks_tls(path: Path) -> bool:
    done = subprocess.run([path, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=30, check=False)
    return b"tls-cert-file" in done.stdout + done.stderr  # the first thing that it misses


_TLS_SERVER = next((path for path in redis_servers().values() if _speaks_tls(path)), None)


class Certificates(NamedTuple):
    """Files: whom to trust, and a certificate with its key of each side."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path
    stranger_key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    new_key += ["-addext", "keyUsage=critical,keyCertSign,digitalSignature"]  # Python 3.13 trusts none without

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    for name in ("authority", "stranger"):
        openssl("req", "-x509", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    issued = ["-CA", "authority.pem", "-CAkey", "authority.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name in ("server", "client"):
        openssl(
            "req", "-x509", *new_key, *issued, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"
        )
    files = ("authority.pem", "server.pem", "server.key", "client.pem", "client.key", "stranger.pem", "stranger.key")
    return Certificates(*(folder / file for file in files))


def tls_front(server: RedisServer, certificates: Certificates) -> AbstractContextManager[int]:
    """Speaks TLS before a server that does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED

    def handle(connection: socket) -> None:
        with (
            suppress(OSError),
            create_connection(("127.0.0.1", server.port)) as behind,
            context.wrap_socket(connection, server_side=True) as front,
        ):
            while data := front.recv(65536):
                behind.sendall(data)
                front.sendall(behind.recv(65536))

    return listening(handle)


@contextmanager
def tls_server(path: Path, certificates: Certificates, *args: str) -> Iterator[tuple[RedisServer, int]]:
    """A server that speaks TLS itself, and the port on which it does."""
    port = free_port()
    options = {
        "--tls-port": str(port),
        "--tls-cert-file": str(certificates.server),
        "--tls-key-file": str(certificates.server_key),
        "--tls-ca-cert-file": str(certificates.authority),
    }
    with RedisServer(path, args=(*args, *(word for option in options.items() for word in option))) as server:
        yield server, port


@pytest.fixture(scope="module", params=["front", *(["server"] if _TLS_SERVER else [])])
def port(request: pytest.FixtureRequest, certificates: Certificates, redis_server: RedisServer) -> Iterator[int]:
    """Of a server that speaks TLS with those who show a certificate."""
    if request.param == "front" or _TLS_SERVER is None:
        with tls_front(redis_server, certificates) as port:
            yield port
        return
    with tls_server(_TLS_SERVER, certificates) as (_, port):
        yield port


def own(certificates: Certificates) -> str:
    return f"ssl_certfile={certificates.client}&ssl_keyfile={certificates.client_key}"


def refusal(url: str) -> str:
    """What is said, long before the patience ends: nothing of this passes by itself."""
    store = RedisStore(url, retry_for=60)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        store.get(NS)
    assert time.monotonic() - began < 30
    store.close()
    return str(caught.value)


def test_certificates_that_fit(port: int, certificates: Certificates, key_prefix: str) -> None:
    url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates.authority}&{own(certificates)}"
    store = RedisStore(url, prefix=key_prefix)
    store.append(NS, [("a", b"1")])
    store.write(NS, put={"k": b"v"}, guard={"k": None})
    assert ids(store) == ["a"]
    store.clear(NS)
    store.close()


@pytest.mark.parametrize("kind", [redis.asyncio.Redis, partial(redis.Redis, decode_responses=True)], ids=["aio", "str"])
def test_what_a_client_trusts_and_shows(
    kind: Callable[..., Any], port: int, certificates: Certificates, key_prefix: str
) -> None:
    files = {"ssl_certfile": str(certificates.client), "ssl_keyfile": str(certificates.client_key)}
    client = kind(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=str(certificates.authority), **files)
    with closing(RedisStore(client, prefix=key_prefix)) as store:
        store.append(NS, [("a", b"1")])
        assert ids(store) == ["a"]
        store.clear(NS)


@pytest.fixture(scope="module")
def cluster_port(certificates: Certificates) -> Iterator[int]:
    """Of a cluster of one node, which speaks TLS with those who show a certificate."""
    if _TLS_SERVER is None:
        pytest.skip("no server here speaks TLS")
    with tls_server(_TLS_SERVER, certificates, "--cluster-enabled", "yes", "--tls-cluster", "yes") as (server, port):
        with redis.Redis(port=server.port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            until(lambda: node.cluster("info")["cluster_state"] == "ok")
        yield port


@pytest.mark.parametrize("kind", ["url", "aio", "str"])
def test_a_cluster(kind: str, cluster_port: int, certificates: Certificates, key_prefix: str) -> None:
    files: dict[str, Any] = {
        "ssl_ca_certs": str(certificates.authority),
        "ssl_certfile": str(certificates.client),
        "ssl_keyfile": str(certificates.client_key),
    }
    client: Any = f"redis+cluster://127.0.0.1:{cluster_port}?ssl=true&{urlencode(files)}"
    if kind == "aio":
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster_port, ssl=True, **files)
    elif kind == "str":
        client = redis.RedisCluster(host="127.0.0.1", port=cluster_port, ssl=True, decode_responses=True, **files)
    with closing(RedisStore(client, prefix=key_prefix)) as store:
        store.append(NS, [("a", b"\xff")])
        assert [item.data for item in store.scan(NS).items] == [b"\xff"]
        store.clear(NS)
    if kind == "str":
        client.close()


def test_a_server_that_nobody_vouches_for(port: int, certificates: Certificates) -> None:
    for trusted in (f"&ssl_ca_certs={certificates.stranger}", ""):
        said = refusal(f"rediss://127.0.0.1:{port}?{own(certificates)}{trusted}")
        assert "has a certificate that cannot be verified: give the right ssl_ca_certs= in the URL" in said


def test_a_server_of_another_name(port: int, certificates: Certificates) -> None:
    said = refusal(f"rediss://localhost:{port}?ssl_ca_certs={certificates.authority}&{own(certificates)}")
    assert "and its own host name" in said


def test_a_client_without_a_certificate(port: int, certificates: Certificates) -> None:
    said = refusal(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates.authority}")
    assert "wants a certificate of this client: give ssl_certfile= and ssl_keyfile= in the URL" in said


def test_a_client_whose_certificate_the_server_does_not_trust(port: int, certificates: Certificates) -> None:
    strange = f"ssl_certfile={certificates.stranger}&ssl_keyfile={certificates.stranger_key}"
    said = refusal(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates.authority}&{strange}")
    assert "refuses the certificate of this client: see whether that of ssl_certfile= has expired" in said


@pytest.mark.parametrize(
    ("trusted", "key"), [("authority", "stranger_key"), ("authority", "client"), ("server_key", "client_key")]
)
def test_files_that_do_not_fit(port: int, certificates: Certificates, trusted: str, key: str) -> None:
    files = certificates._asdict()
    shown = f"ssl_certfile={certificates.client}&ssl_keyfile={files[key]}"
    said = refusal(f"rediss://127.0.0.1:{port}?ssl_ca_certs={files[trusted]}&{shown}")
    assert "see whether ssl_keyfile= is the key to the certificate of ssl_certfile=" in said


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("rediss://h:1/0?ssl_ca_certs={}", "ssl_ca_certs"),
        ("redis+cluster://h:1?ssl=true&ssl_keyfile={}", "ssl_keyfile"),
        ("redis+sentinel://h:1/mine?sentinel_ssl=true&sentinel_ssl_certfile={}", "sentinel_ssl_certfile"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(url: str, name: str, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no + such.pem", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigurationError) as caught:
            RedisStore(url.format(quote(str(path))))
        assert str(caught.value).startswith(f"{name}={path} in the URL of a Redis store cannot be read: {why}")


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        *((wish, redis.SSLConnection) for wish in ("1", "true", "True", "yes", "on")),
        *((wish, redis.Connection) for wish in ("0", "false", "no", "off")),
    ],
)
def test_tls_of_the_sentinels_is_a_wish_of_its_own(wish: str, kind: type) -> None:
    pool: Any = from_url(f"redis+sentinel://h:1/mine?ssl=true&sentinel_ssl={wish}", default_options(1, 1.0))
    assert pool.connection_class.__name__ == "SentinelManagedSSLConnection"
    assert pool.sentinel_manager.sentinels[0].connection_pool.connection_class is kind


@pytest.mark.parametrize("kind", [redis.asyncio.Sentinel, partial(redis.Sentinel, decode_responses=True)])
@pytest.mark.parametrize("of_sentinels", [True, False])
@pytest.mark.parametrize("of_primary", [True, False])
def test_a_client_s_tls_with_the_sentinels_and_with_the_primary(
    kind: Callable[..., Any], of_sentinels: bool, of_primary: bool
) -> None:
    sentinels = kind([("h", 1)], sentinel_kwargs={"ssl": of_sentinels, "password": "a"}, password="b")
    client = sentinels.master_for("mine", **({"ssl": True} if of_primary else {}))
    pool: Any = make_link(client, max_connections=1, socket_timeout=1.0).source
    sentinel_pool = pool.sentinel_manager.sentinels[0].connection_pool
    assert issubclass(pool.connection_class, redis.SSLConnection) is of_primary
    assert issubclass(sentinel_pool.connection_class, redis.SSLConnection) is of_sentinels
    assert (sentinel_pool.connection_kwargs["password"], pool.connection_kwargs["password"]) == ("a", "b")


class GoingDown(Proxy):
    """Hangs up on the first client when it begins a handshake, as a server does that is going down."""

    def __init__(self, port: int) -> None:
        self.hello = b""
        super().__init__(port)

    def ask(self, client: socket, server: socket) -> None:
        if not self.hello:
            self.hello = client.recv(65536)
            return
        self.answer(client, server)

    def answer(self, server: socket, client: socket) -> None:
        while data := server.recv(65536):
            client.sendall(data)


def test_a_server_that_goes_down_in_a_handshake_is_asked_again(
    port: int, certificates: Certificates, key_prefix: str
) -> None:
    options = f"ssl_ca_certs={certificates.authority}&{own(certificates)}"
    with closing(GoingDown(port)) as line:
        with closing(RedisStore(f"rediss://127.0.0.1:{line.port}?{options}", prefix=key_prefix, retry_for=30)) as store:
            assert store.append(NS, [("a", b"1")]).new == [True]
            store.clear(NS)
        assert line.hello


def test_a_refused_certificate_is_said_too_if_the_server_has_hung_up_before_it_is_read() -> None:
    hang_up = redis.ConnectionError(
        "Error 8 while writing to socket. EOF occurred in violation of protocol (_ssl.c:1)."
    )
    assert "wants or trusts a certificate of this client (ssl_certfile=" in str(translate(hang_up, "h:1"))
    named = redis.ConnectionError("Error 1 connecting to GEOFF:1. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed")
    assert "give the right ssl_ca_certs=" in str(translate(named, "GEOFF:1"))


def test_tls_where_there_is_none() -> None:
    with answering(b"-ERR unknown command\r\n") as port:
        said = refusal(f"rediss://127.0.0.1:{port}")
    assert "do not agree about TLS: use rediss:// for a port with TLS" in said
