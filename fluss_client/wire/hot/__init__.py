"""Hand-written protobuf for messages whose payload must not be copied or looped over per row."""

from fluss_client.wire.hot.lookup import (
    BucketKeys,
    LookedUp,
    PrefixLookedUp,
    decode_lookup,
    decode_prefix_lookup,
    encode_lookup,
    encode_prefix_lookup,
)
from fluss_client.wire.hot.records import (
    BucketRecords,
    FetchedBucket,
    LimitScanned,
    ScannedKv,
    decode_fetch_log,
    decode_limit_scan,
    decode_scan_kv,
    encode_produce_log,
    encode_put_kv,
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
