"""Translate redis-py's errors into sentences that say what to do."""

from __future__ import annotations

from redis import exceptions
from redis.sentinel import MasterNotFoundError

from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.stores.redis_outage import (
    BUSY_PREFIX,
    NO_FREE_CONNECTION,
    TLS_HANG_UPS,
    ClosedInUseError,
    CredentialsError,
    is_down,
)

_NO_CONNECTION_LEFT = "has no free connection in its pool: raise max_connections"
_TOO_MANY_FILES = "cannot be connected to, as too many files are open: raise the limit (ulimit -n), or close stores"
_LOADING = "is loading its data: try again in a moment"
_BUSY = "is busy with a script that is none of this library's: try again when it has ended"
_LOGIN_REFUSED = "refuses the user name or password: correct them in the URL"
_NO_CREDENTIALS = "cannot be logged in to: see why the credential provider of its client fails"
_CLOSED_IN_USE = "has lost a connection that another thread closed: close a client when no thread uses it any more"
_TIMEOUT = (
    "did not answer in time: see whether it is reachable, not overloaded, and speaks TLS if the URL is rediss://,"
    " or raise socket_timeout"
)
_UNREACHABLE = "cannot be reached: see whether it runs and whether the address is right"
_TLS_HUNG_UP = (
    "cannot be reached: see whether it runs, and whether it wants or trusts a certificate of this client"
    " (ssl_certfile= and ssl_keyfile= in the URL)"
)
_NO_PRIMARY = (
    "cannot be reached: none of its sentinels names a primary; see whether they run, know the service by this name,"
    " and want a password or TLS (sentinel_password=, sentinel_ssl=true in the URL)"
)
_NO_SENTINEL = "is no sentinel: give the address of the sentinels, whose port is 26379 as a rule"
_CLUSTER_UNREACHABLE = "cannot be reached as a cluster: see whether its nodes run and form one"
_NOT_A_CLUSTER = "is no cluster: use a redis:// URL, or rediss:// with TLS"
_PARTIAL_COVERAGE = "is a cluster that does not serve all of its slots: try again when it does"
_SLOT_MOVED = "is a cluster: use a redis+cluster:// URL, or try again when its slots have moved"
_CROSS_SLOT = (
    "is a cluster: use a redis+cluster:// URL; or its keys are in parts behind one address, as of Redis Enterprise:"
    " use a database in one part"
)
_SLOTS_MOVING = "is a cluster whose slots are moving: try again in a moment"
_READ_ONLY_REPLICA = "is a read-only replica: use the address of the primary"
_TOO_MANY_CLIENTS = "has no room for another connection: raise its maxclients, or lower max_connections"
_CERTIFICATE_UNVERIFIED = (
    "has a certificate that cannot be verified: give the right ssl_ca_certs= in the URL, and its own host name"
)
_CLIENT_CERTIFICATE_MISSING = "wants a certificate of this client: give ssl_certfile= and ssl_keyfile= in the URL"
_CLIENT_CERTIFICATE_REFUSED = (
    "refuses the certificate of this client: see whether that of ssl_certfile= has expired,"
    " and whether the server trusts who issued it"
)
_TLS_FILES = (
    "cannot be reached with the TLS files of the URL: see whether ssl_keyfile= is the key to the certificate of"
    " ssl_certfile=, ssl_password= opens it, and all are PEM files"
)
_TLS_MISMATCH = (
    "and this client do not agree about TLS: use rediss:// for a port with TLS, and redis:// for one without"
)
_PROTECTED_MODE = "refuses connections from other machines, as it has no password: set one, and give it in the URL"
_CANNOT_SAVE = "cannot save its data, and so takes no writes: look at its log and its disk"
_TOO_FEW_REPLICAS = "has too few replicas to take writes: see whether they run, or lower its min-replicas-to-write"
_OUT_OF_MEMORY = "is out of memory: raise its maxmemory, or let more of its keys expire"
_NO_PERMISSION = (
    "forbids this to the user: grant +@read +@write +@connection +@transaction -@dangerous on the keys of the prefix,"
    " and in a cluster +cluster|slots +command"
)
_WRONG_TYPE = "holds foreign data under a key of the store: give the store a prefix of its own"
_NOT_REDIS = "does not answer as a Redis does: see whether the address is right"
_NO_DATABASE = "has no database of this number: correct it in the URL"
_UNKNOWN_COMMAND = (
    "does not know a command that the store needs: it must be Redis 6.2 or later, or Valkey, with no command renamed"
)

DRIVER_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""What a call may raise; the last, as a file of the URL is read for each connection."""

_ARGUMENTS_PREFIX = ", with args beginning with"
"""After this, a server repeats the arguments of a command that it does not know: usually a message's text."""

# The first match counts, by the driver's class and words.
_SENTENCES: tuple[tuple[type[Exception], str, type[StoreError], str], ...] = (
    (exceptions.AuthenticationError, "", StoreUnavailable, _LOGIN_REFUSED),
    (CredentialsError, "", StoreUnavailable, _NO_CREDENTIALS),
    (ClosedInUseError, "", StoreUnavailable, _CLOSED_IN_USE),
    (Exception, "Too many open files", StoreUnavailable, _TOO_MANY_FILES),
    (exceptions.MaxConnectionsError, "", StoreUnavailable, _NO_CONNECTION_LEFT),
    (exceptions.ConnectionError, NO_FREE_CONNECTION, StoreUnavailable, _NO_CONNECTION_LEFT),
    (exceptions.BusyLoadingError, "", StoreUnavailable, _LOADING),
    (exceptions.TimeoutError, "", StoreUnavailable, _TIMEOUT),
    (MasterNotFoundError, "", StoreUnavailable, _NO_PRIMARY),
    (exceptions.ConnectionError, "max number of clients", StoreUnavailable, _TOO_MANY_CLIENTS),
    *((exceptions.ConnectionError, words, StoreUnavailable, _TLS_HUNG_UP) for words in TLS_HANG_UPS),
    (exceptions.ConnectionError, "CERTIFICATE_VERIFY_FAILED", StoreUnavailable, _CERTIFICATE_UNVERIFIED),
    (exceptions.ConnectionError, "certificate required", StoreUnavailable, _CLIENT_CERTIFICATE_MISSING),
    (exceptions.ConnectionError, "alert certificate", StoreUnavailable, _CLIENT_CERTIFICATE_REFUSED),
    (exceptions.ConnectionError, "alert bad certificate", StoreUnavailable, _CLIENT_CERTIFICATE_REFUSED),
    (exceptions.ConnectionError, "alert unknown ca", StoreUnavailable, _CLIENT_CERTIFICATE_REFUSED),
    (exceptions.ConnectionError, "[X509", StoreUnavailable, _TLS_FILES),
    (exceptions.ConnectionError, "KEY_VALUES_MISMATCH", StoreUnavailable, _TLS_FILES),
    (exceptions.ConnectionError, "PEM lib", StoreUnavailable, _TLS_FILES),
    (exceptions.ConnectionError, "SSL", StoreUnavailable, _TLS_MISMATCH),
    (exceptions.ConnectionError, "protected mode", StoreUnavailable, _PROTECTED_MODE),
    (exceptions.ConnectionError, "", StoreUnavailable, _UNREACHABLE),
    (exceptions.RedisClusterException, "not covered", StoreUnavailable, _PARTIAL_COVERAGE),  # also SlotNotCoveredError
    (exceptions.RedisClusterException, "", StoreUnavailable, _CLUSTER_UNREACHABLE),
    (exceptions.MasterDownError, "", StoreUnavailable, _READ_ONLY_REPLICA),  # a ClusterError in redis-py
    (exceptions.ClusterError, "", StoreUnavailable, _PARTIAL_COVERAGE),
    (exceptions.AskError, "", StoreUnavailable, _SLOT_MOVED),
    (exceptions.ClusterCrossSlotError, "", StoreError, _CROSS_SLOT),
    (exceptions.TryAgainError, "", StoreUnavailable, _SLOTS_MOVING),
    (exceptions.ReadOnlyError, "", StoreUnavailable, _READ_ONLY_REPLICA),
    (exceptions.OutOfMemoryError, "", StoreError, _OUT_OF_MEMORY),
    (exceptions.NoPermissionError, "", StoreError, _NO_PERMISSION),
    (exceptions.ResponseError, BUSY_PREFIX, StoreUnavailable, _BUSY),
    (exceptions.ResponseError, "MISCONF", StoreError, _CANNOT_SAVE),
    (exceptions.ResponseError, "NOREPLICAS", StoreError, _TOO_FEW_REPLICAS),
    (exceptions.ResponseError, "protected mode", StoreUnavailable, _PROTECTED_MODE),
    (exceptions.ResponseError, "SENTINEL", StoreError, _NO_SENTINEL),
    (exceptions.ResponseError, "WRONGTYPE", StoreError, _WRONG_TYPE),
    (exceptions.ResponseError, "cluster support disabled", StoreUnavailable, _NOT_A_CLUSTER),
    (exceptions.ResponseError, "DB index", StoreUnavailable, _NO_DATABASE),
    (exceptions.ResponseError, "unknown command", StoreError, _UNKNOWN_COMMAND),
    (exceptions.InvalidResponse, "", StoreError, _NOT_REDIS),
    (Exception, "", StoreError, "failed"),
)


def is_full(error: StoreError) -> bool:
    """Whether an error means that the server has reached its ``maxmemory``."""
    return isinstance(error.__cause__, exceptions.OutOfMemoryError)


def translate(error: Exception, address: str) -> StoreError:
    """Make the library's error from the driver's, which becomes its cause; ``address`` holds no secret."""
    message, separator, _ = str(error).partition(_ARGUMENTS_PREFIX)
    if separator:
        error.args = (message,)  # a traceback shows the cause
    reason = _reason(error)
    kind, sentence = next(
        (kind, sentence)
        for driver, words, kind, sentence in _SENTENCES
        if isinstance(reason, driver) and words in str(reason)
    )
    cause_text = "" if sentence is _NO_PRIMARY else f" ({reason})"  # that error's text is a client's whole repr
    return kind(f"Redis at {address} {sentence}{cause_text}")


class Translation:
    """A ``with`` block whose driver's errors become the library's.

    No generator: since Python 3.12, one into which an error is thrown keeps it until garbage is collected.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DRIVER_ERRORS):
            raise translate(error, self._address) from error


def _reason(error: Exception) -> Exception:
    """The error of the last node that was asked for the cluster's nodes, unless that was out of reach."""
    cause = error.__cause__ if isinstance(error, exceptions.RedisClusterException) else None
    if isinstance(cause, exceptions.RedisClusterException):
        cause = cause.__context__  # redis-py calls it "no cluster", whatever is refused
    return cause if isinstance(cause, exceptions.RedisError) and not is_down(cause) else error
