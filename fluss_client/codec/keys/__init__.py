"""Keys: which encoding a table uses, and keys in that encoding, one or a whole batch."""

from fluss_client.codec.keys.batch import encode_keys
from fluss_client.codec.keys.encoding import KeyEncoding, check_key_columns, key_encoding_for
from fluss_client.codec.keys.scalar import encode_key_scalar

__all__ = [
    "KeyEncoding",
    "check_key_columns",
    "encode_key_scalar",
    "encode_keys",
    "key_encoding_for",
]
