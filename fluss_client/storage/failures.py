"""Failures of storage as errors: each is one sentence with what to do.

Arrow passes on what a store answered: the name of an error, and often its text. The answer to a
HEAD request has no text, so that a wrong key, a wrong clock and a missing permission look the same
there; a listing of nothing then finds out which it is.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as pafs

from fluss_client.errors import StorageCredentialsExpiredError, StorageError, StorageRefusedError
from fluss_client.storage.locations import S3, Location

FAILURES = (OSError, pa.ArrowException)
"""What the calls of a file system raise."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PROBE = ".fluss-no-such-key"
_SHOWN_MAX = 300
_DENIED = re.compile(r"ACCESS_?DENIED|HTTP status 403|Forbidden|AuthorizationFailure", re.I)
_EXPIRED = re.compile(r"ExpiredToken|EXPIRED_TOKEN|TokenRefreshRequired|token.{0,20}expired", re.I)
_UNTOLD = re.compile(r"No response body|operation: *$")
_REFUSALS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"NO_?SUCH_?BUCKET|NoSuchContainer|ContainerNotFound", re.I),
        "there is no bucket '{host}': correct the name, or create the bucket",
    ),
    (
        re.compile(r"TIME_?TOO_?SKEWED|Request(?:Expired|_EXPIRED)", re.I),
        "the clock of this machine and that of the store differ by more than the store allows: "
        "set the clock (NTP)",
    ),
    (
        _EXPIRED,
        "the credentials have expired: get new ones and run it again",
    ),
    (
        re.compile(r"INVALID_?ACCESS_?KEY_?ID|InvalidClientTokenId|INVALID_CLIENT_TOKEN", re.I),
        "the store does not know the access key: check s3.access-key-id, or AWS_ACCESS_KEY_ID, and "
        "that s3.endpoint is the store of that key",
    ),
    (
        re.compile(r"SIGNATURE_?DOES_?NOT_?MATCH", re.I),
        "the secret key does not belong to the access key: check s3.secret-access-key, or "
        "AWS_SECRET_ACCESS_KEY",
    ),
    (
        re.compile(
            r"AuthorizationHeaderMalformed|PermanentRedirect|status 301|region .{1,60}is wrong",
            re.I,
        ),
        "the bucket is in another region: set s3.region, or AWS_REGION",
    ),
    (
        re.compile(r"MISSING_AUTHENTICATION|no credentials|InvalidToken", re.I),
        "there are no credentials that the store takes: set s3.access-key-id and "
        "s3.secret-access-key, or give the process a role",
    ),
    (
        _DENIED,
        "the credentials have no permission for it: allow listing, reading and writing below "
        "this location",
    ),
)
_PASSING: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"NETWORK_CONNECTION|curlCode|could ?n.t (?:resolve|connect)|Connection refused", re.I
        ),
        "the store cannot be reached: check s3.endpoint and the network",
    ),
    (
        re.compile(r"SLOW_?DOWN|SERVICE_?UNAVAILABLE|HTTP status 503|THROTTLING", re.I),
        "the store refuses requests because there are too many: run it again, with fewer at once",
    ),
    (
        re.compile(r"^EOF|^Parquet (?:file size is|magic bytes)"),
        "an answer of the store was cut off, or a file is damaged: run it again",
    ),
)


def has_expired(error: BaseException) -> bool:
    """Return whether an error of `storage_error` says that the credentials have expired."""
    return isinstance(error, StorageCredentialsExpiredError)


def explain(
    error: BaseException, location: Location, filesystem: pafs.FileSystem | None = None
) -> str:
    """Return in one sentence why a call for a location failed. Blocks if it asks the store.

    Args:
        error: What the call raised.
        location: The file or folder.
        filesystem: The file system, to ask for the reason if the answer had none.
    """
    return _sentence(error, _told(error, location, filesystem), location)


def storage_error(
    error: BaseException,
    location: Location,
    doing: str,
    filesystem: pafs.FileSystem | None = None,
) -> StorageError:
    """Return the error for a failed call: what was to be done, and why it failed. May block.

    Args:
        error: What the call raised.
        location: The file or folder.
        doing: What was to be done: `read` or `write`.
        filesystem: The file system, to ask for the reason if the answer had none.

    Returns:
        A `StorageRefusedError` if the same call would fail again, a
        `StorageCredentialsExpiredError`, or another `StorageError`.
    """
    text = _told(error, location, filesystem)
    kind: type[StorageError] = StorageError
    if _EXPIRED.search(text):
        kind = StorageCredentialsExpiredError
    elif any(pattern.search(text) for pattern, _ in _REFUSALS):
        kind = StorageRefusedError
    return kind(f"cannot {doing} {_sentence(error, text, location)}")


@contextmanager
def room_needed(place: str, doing: str, way_out: str = "") -> Iterator[None]:
    """Raise that a local disk has no room as a `StorageError`; other errors stay.

    Args:
        place: The file or folder.
        doing: What is done there: `read` or `write`.
        way_out: What helps beside free room.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        ways = " or ".join(filter(None, ("free some", way_out)))
        raise StorageError(
            f"cannot {doing} {place}: the disk has no room ({error.strerror}): {ways}, and run it "
            "again"
        ) from error


def shortened(text: str) -> str:
    """Return a text on one line, of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_MAX else f"{line[:_SHOWN_MAX]}…"


def _told(error: BaseException, location: Location, filesystem: pafs.FileSystem | None) -> str:
    """Return what the store says; if the answer had no text, what it says to a listing."""
    text = str(error)
    untold = isinstance(error, FileNotFoundError) or _UNTOLD.search(text) or _DENIED.search(text)
    if location.family == S3 and filesystem is not None and untold:
        return _reason_of_listing(filesystem, location) or text
    return text


def _sentence(error: BaseException, text: str, location: Location) -> str:
    found = next((says for pattern, says in _REFUSALS + _PASSING if pattern.search(text)), None)
    if found:
        return f"{location}: {found.format(host=location.host)}"
    if isinstance(error, FileNotFoundError):
        return f"{location}: there is no such file or folder"
    return f"{location}: {shortened(text)}"


def _reason_of_listing(filesystem: pafs.FileSystem, location: Location) -> str | None:
    selector = pafs.FileSelector(f"{location.host}/{_PROBE}", allow_not_found=True)
    try:
        filesystem.get_file_info(selector)
        if filesystem.get_file_info(location.host).type == pafs.FileType.NotFound:
            return "NO_SUCH_BUCKET"
    except FAILURES as error:
        return str(error)
    return None
