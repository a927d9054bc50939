"""Bytes in bulk: blobs, varints, unaligned numbers and checksums."""
