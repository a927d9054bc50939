"""Arrow IPC messages with LZ4 frames that every reader takes.

Arrow's own LZ4 writer links the blocks of a frame to each other once a buffer exceeds 64 KiB,
and Java readers of Fluss reject linked blocks. Here each block stands alone:

    frame   04224D18, flags 60 (version 1, independent blocks, no checksums, no content size),
            block limit 40 (64 KiB), header checksum 82, blocks, u32 0
    block   u32 size (top bit set: stored plain), bytes

The header has no variable part, so its checksum (the second byte of xxHash-32 of the bytes
60 40) is a constant. It guards the frame's flags only; the log batch's CRC guards the data.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from fluss_client.codec.ipc_metadata import lz4_metadata, read_metadata

FRAME_HEADER = bytes.fromhex("04224d18604082")
FRAME_END = bytes(4)
BLOCK_BYTES_MAX = 64 * 1024

_STORED_PLAIN = 1 << 31
_PLAIN_BUFFER = struct.pack("<q", -1)


def encode_lz4(batch: pa.RecordBatch) -> bytes:
    """The batch as one IPC message whose buffers are frames of independent blocks."""
    plain = batch.serialize()
    metadata = read_metadata(memoryview(plain))
    codec = pa.Codec("lz4_raw")
    places = np.zeros_like(metadata.buffers)
    parts: list[bytes | pa.Buffer] = []
    position = 0
    for index, (offset, length) in enumerate(metadata.buffers.tolist()):
        size = 0
        if length:
            compressed = _buffer(codec, plain.slice(metadata.body_start + offset, length))
            size = sum(len(part) for part in compressed)
            parts += compressed
        padding = -size % 8
        parts.append(bytes(padding))
        places[index] = position, size
        position += size + padding
    head = lz4_metadata(batch.num_rows, metadata.nodes, places, position)
    return b"".join((head, *parts))


def _buffer(codec: pa.Codec, plain: pa.Buffer) -> list[bytes | pa.Buffer]:
    """One buffer: its length and a frame, or the plain bytes when a frame would be longer."""
    frame: list[bytes | pa.Buffer] = [struct.pack("<q", plain.size), FRAME_HEADER]
    for start in range(0, plain.size, BLOCK_BYTES_MAX):
        block = plain.slice(start, min(BLOCK_BYTES_MAX, plain.size - start))
        packed = codec.compress(block)
        if packed.size < block.size:
            frame += (struct.pack("<I", packed.size), packed)
        else:
            frame += (struct.pack("<I", block.size | _STORED_PLAIN), block)
    frame.append(FRAME_END)
    if sum(len(part) for part in frame) > plain.size + 8:
        return [_PLAIN_BUFFER, plain]
    return frame
