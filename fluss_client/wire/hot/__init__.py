"""Hand-made protobuf for the messages whose payload is too large to copy or to loop over."""

from fluss_client.wire.hot.fetch import FetchedBucket, decode_fetch_log
from fluss_client.wire.hot.keys import (
    BucketKeys,
    encode_lookup,
    encode_prefix_lookup,
)
from fluss_client.wire.hot.records import BucketRecords, encode_produce_log, encode_put_kv
from fluss_client.wire.hot.scan import (
    LimitScanned,
    ScannedKv,
    decode_limit_scan,
    decode_scan_kv,
)
from fluss_client.wire.hot.values import (
    LookedUp,
    PrefixLookedUp,
    decode_lookup,
    decode_prefix_lookup,
)

__all__ = [
    "BucketKeys",
    "BucketRecords",
    "FetchedBucket",
    "LimitScanned",
    "LookedUp",
    "PrefixLookedUp",
    "ScannedKv",
    "decode_fetch_log",
    "decode_limit_scan",
    "decode_lookup",
    "decode_prefix_lookup",
    "decode_scan_kv",
    "encode_lookup",
    "encode_prefix_lookup",
    "encode_produce_log",
    "encode_put_kv",
]
