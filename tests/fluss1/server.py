"""A test double of a Fluss 1.0 server, because no 1.0 server can be had from a registry.

It speaks the wire protocol over a real socket, with the messages of `fluss_client.wire`, and keeps
one table in memory: log batches as bytes, and the values of keys. It plays what a 1.0 server
answers to a client: bucket counts per partition, error 74 for requests that were made by another
count, pressure and error 72, scans of the key state, and log batches that a filter leaves out. A
test changes answers with `on`. What a real server does beyond that is not shown by these tests.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from google.protobuf.message import Message

from fluss_client.codec.arrow_body import compression_of
from fluss_client.codec.arrow_columns import as_wire
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import KvBatch, decode_kv_batch
from fluss_client.codec.log_batch import encode_log_batch, encode_log_body
from fluss_client.codec.rows import RowFormat, decode_rows
from fluss_client.errors import (
    FlussError,
    InvalidBucketRoutingError,
    InvalidColumnProjectionError,
    PartitionNotExistError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import ChangeType
from fluss_client.model.json import schema_to_json
from fluss_client.model.schema import Schema
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import Api
from tests.waiting import let_pass

HOST = "127.0.0.1"
TABLE_ID, SCHEMA_ID, NODE = 7, 1, 1
DATABASE, NAME = "shop", "orders"
FIRST_PARTITION = 100
NEW_VERSIONS = {"PRODUCE_LOG": 1, "PUT_KV": 3, "ALTER_TABLE": 1}
OLD_VERSIONS = {"PUT_KV": 1, "LOOKUP": 1, "PREFIX_LOOKUP": 1}
FIRST_NEW_API = apis.ALTER_DATABASE.key
"""Calls from this key on came with 1.0."""
SCANNERS_MAX = 8
SYSTEM_PREFIX = "__"
"""Begins the names of partitions that are listed only for those who ask."""

Place = tuple[int | None, int]
Script = Callable[[Any], Message | FlussError | None]


class ScriptedServer:
    """One server with one table. `requests` has every request: the call, its version, the message.

    Args:
        schema: The schema of the table.
        partitions: The bucket count of each partition of the column `day`; None for a table without
            partitions.
        buckets: The bucket count of the table.
        bucket_keys: The columns that decide on the bucket.
        properties: The options of the table.
        old: Play a server of 0.9.1: no bucket counts, none of the new calls.
    """

    def __init__(
        self,
        schema: Schema,
        partitions: dict[str, int] | None = None,
        *,
        buckets: int = 2,
        bucket_keys: list[str] | None = None,
        properties: dict[str, str] | None = None,
        old: bool = False,
    ) -> None:
        self.schema, self.buckets, self.old = schema, buckets, old
        self.properties = properties or {}
        self.bucket_keys = bucket_keys or []
        self.partitioned = partitions is not None
        self.epoch = 0 if partitions is None else int(set(partitions.values()) != {buckets})
        self._ids = itertools.count(FIRST_PARTITION)
        self.partitions: dict[str, int] = {}
        self.counts: dict[int | None, int] = {None: buckets}
        for name, count in (partitions or {}).items():
            self.add_partition(name, count)
        self.requests: list[tuple[str, int, Any]] = []
        self.logs: dict[Place, list[bytes]] = defaultdict(list)
        self.ends: Counter[Place] = Counter()
        self.values: dict[Place, dict[bytes, bytes]] = defaultdict(dict)
        self.sequences: dict[tuple[Place, int], dict[int, int]] = defaultdict(dict)
        self.scanners: dict[bytes, tuple[list[bytes], int]] = {}
        self.pressure = 0.0
        self._writers = itertools.count(1)
        self._scanner_ids = itertools.count(1)
        self._scripts: dict[int, list[Script]] = defaultdict(list)
        self._lock = threading.RLock()
        self._socket = socket.create_server((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def add_partition(self, name: str, count: int) -> int:
        """Add a partition."""
        partition_id = next(self._ids)
        self.partitions[name] = partition_id
        self.counts[partition_id] = count
        return partition_id

    def redistribute(self, name: str, count: int) -> None:
        """Give a partition another bucket count, as no server does yet; its rows are dropped."""
        with self._lock:
            self.epoch += 1
            partition_id = self.partitions[name]
            self.counts[partition_id] = count
            for held in (self.logs, self.values, self.ends):
                for place in [p for p in held if p[0] == partition_id]:
                    del held[place]

    def delete(self, place: Place, numbers: list[int]) -> None:
        """Delete some keys of a bucket, by their position in the order of the keys."""
        keys = sorted(self.values[place])
        chosen = Blobs.from_list([keys[number] for number in numbers])
        rows = Blobs.from_list([b""] * len(numbers))
        gone = np.ones(len(numbers), np.bool_)
        self._merge(place, KvBatch(SCHEMA_ID, -1, -1, chosen, rows, gone))

    def on(self, api: Api[Any, Any], script: Script) -> None:
        """Let `script` answer a call: with a message, an error, or None for the usual answer."""
        self._scripts[api.key].append(script)

    def sent(self, api: Api[Any, Any]) -> list[Any]:
        """Return the requests of one call."""
        return [message for name, _, message in self.requests if name == api.name]

    def close(self) -> None:
        """End all connections."""
        for one in [self._socket, *self._open]:
            one.close()

    # The socket

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            stream = connection.makefile("rb")
            while head := stream.read(12):
                length, key, version, request_id = struct.unpack(">ihhi", head)
                api = apis.APIS[key]
                message = api.request.FromString(stream.read(length - 8))
                try:
                    with self._lock:
                        answer = self._answer(api, version, message)
                except FlussError as error:
                    answer = error
                if isinstance(answer, FlussError):
                    kind = 1
                    answer = pb.ErrorResponse(
                        error_code=answer.error_code, error_message=str(answer)
                    )
                else:
                    kind = 0
                body = answer.SerializeToString()
                try:
                    connection.sendall(struct.pack(">ibi", len(body) + 5, kind, request_id) + body)
                except OSError:
                    return

    def _answer(self, api: Api[Any, Any], version: int, message: Any) -> Message | FlussError:
        self.requests.append((api.name, version, message))
        for script in self._scripts[api.key]:
            answer = script(message)
            if answer is not None:
                return answer
        usual = getattr(self, f"_{api.name.lower()}", None)
        return api.response() if usual is None else usual(message)

    # Descriptions

    def _api_versions(self, _: Any) -> Message:
        versions = OLD_VERSIONS if self.old else {**OLD_VERSIONS, **NEW_VERSIONS}
        return pb.ApiVersionsResponse(
            api_versions=[
                pb.PbApiVersion(api_key=key, min_version=0, max_version=versions.get(api.name, 0))
                for key, api in apis.APIS.items()
                if not (self.old and key >= FIRST_NEW_API)
            ]
        )

    def _table_json(self) -> bytes:
        return json.dumps(
            {
                "version": 1,
                "schema": json.loads(schema_to_json(self.schema)),
                "partition_key": ["day"] if self.partitioned else [],
                "bucket_key": self.bucket_keys,
                "bucket_count": self.buckets,
                "properties": self.properties,
                "custom_properties": {},
            }
        ).encode()

    def _table_exists(self, _: Any) -> Message:
        return pb.TableExistsResponse(exists=True)

    def _get_table_info(self, _: Any) -> Message:
        return pb.GetTableInfoResponse(
            table_id=TABLE_ID,
            schema_id=SCHEMA_ID,
            table_json=self._table_json(),
            created_time=1,
            modified_time=1,
            bucket_count_epoch=None if self.old else self.epoch,
        )

    def _list_partition_infos(self, message: Any) -> Message:
        wanted = {kv.value for kv in message.partial_partition_spec.partition_key_values}
        answer = pb.ListPartitionInfosResponse()
        if message.include_system_partitions and not self.old:
            answer.system_partitions_included = True
        for name, partition_id in self.partitions.items():
            system = name.startswith(SYSTEM_PREFIX)
            if (wanted and name not in wanted) or (
                system and not answer.system_partitions_included
            ):
                continue
            info = answer.partitions_info.add(partition_id=partition_id)
            info.partition_spec.partition_key_values.add(key="day", value=name)
            if not self.old:
                info.bucket_count = self.counts[partition_id]
        return answer

    def _get_metadata(self, message: Any) -> Message:
        node = pb.PbServerNode(node_id=NODE, host=HOST, port=self.port)
        answer = pb.MetadataResponse(coordinator_server=node, tablet_servers=[node])
        if message.table_path:
            table = answer.table_metadata.add(
                table_id=TABLE_ID,
                schema_id=SCHEMA_ID,
                table_json=self._table_json(),
                created_time=1,
                modified_time=1,
                bucket_count_epoch=None if self.old else self.epoch,
            )
            table.table_path.CopyFrom(message.table_path[0])
            if not self.partitioned:
                for bucket in range(self.buckets):
                    table.bucket_metadata.add(bucket_id=bucket, leader_id=NODE)
        names = {partition_id: name for name, partition_id in self.partitions.items()}
        wanted = list(message.partitions_id)
        for path in message.partitions_path:
            if path.partition_name not in self.partitions:
                raise PartitionNotExistError(f"no partition {path.partition_name}")
            wanted.append(self.partitions[path.partition_name])
        for partition_id in wanted:
            entry = answer.partition_metadata.add(
                table_id=TABLE_ID,
                partition_id=partition_id,
                partition_name=names[partition_id],
                bucket_count=None if self.old else self.counts[partition_id],
            )
            for bucket in range(self.counts[partition_id]):
                entry.bucket_metadata.add(bucket_id=bucket, leader_id=NODE)
        return answer

    def _alter_table(self, message: Any) -> Message:
        if message.HasField("modify_bucket_count"):
            self.buckets = message.modify_bucket_count.new_bucket_count
            self.epoch += 1
        return pb.AlterTableResponse()

    def _create_partition(self, message: Any) -> Message:
        (value,) = message.partition_spec.partition_key_values
        self.add_partition(value.value, self.buckets)
        return pb.CreatePartitionResponse()

    def _init_writer(self, _: Any) -> Message:
        return pb.InitWriterResponse(writer_id=next(self._writers))

    # Buckets

    def _place(self, part: Any, placed: Any = None) -> Place:
        """The place of a request's bucket; error 74 if it was made by another bucket count."""
        partition_id = part.partition_id if part.HasField("partition_id") else None
        given = part if placed is None else placed
        count = self.counts.get(partition_id)
        if count is None:
            raise UnknownTableOrBucketError(f"no partition {partition_id}")
        if not self.old:
            routed = given.routing_bucket_count
            if (routed and routed != count) or (not routed and self.epoch):
                raise InvalidBucketRoutingError(f"made by {routed} buckets, there are {count}")
        if part.bucket_id >= count:
            raise UnknownTableOrBucketError(f"no bucket {part.bucket_id} in {partition_id}")
        return partition_id, part.bucket_id

    def _each(self, parts: Any, answers: Any, work: Callable[[Place, Any, Any], None]) -> None:
        for part in parts:
            answer = answers.add(bucket_id=part.bucket_id)
            if part.HasField("partition_id"):
                answer.partition_id = part.partition_id
            try:
                work(self._place(part), part, answer)
            except FlussError as error:
                answer.error_code, answer.error_message = error.error_code, str(error)

    # Writes

    def _produce_log(self, message: Any) -> Message:
        answer = pb.ProduceLogResponse()

        def store(place: Place, part: Any, entry: Any) -> None:
            batch = bytearray(part.records)
            writer, sequence, rows = struct.unpack_from("<qii", batch, 32)
            known = self.sequences[place, writer]
            if sequence not in known:
                known[sequence] = self.ends[place]
                self._store(place, batch, rows)
            entry.base_offset = known[sequence]

        self._each(message.buckets_req, answer.buckets_resp, store)
        return answer

    def _put_kv(self, message: Any) -> Message:
        answer = pb.PutKvResponse()

        def store(place: Place, part: Any, entry: Any) -> None:
            batch = decode_kv_batch(part.records)
            known = self.sequences[place, batch.writer_id]
            if batch.batch_sequence not in known:
                known[batch.batch_sequence] = 0
                self._merge(place, batch)
            entry.log_end_offset = self.ends[place]
            if self.pressure:
                entry.pressure = self.pressure

        self._each(message.buckets_req, answer.buckets_resp, store)
        return answer

    def _merge(self, place: Place, batch: KvBatch) -> None:
        """Change the values of keys, and add a changelog batch with the old and new rows."""
        head = struct.pack("<h", batch.schema_id)
        held = self.values[place]
        changes: list[tuple[ChangeType, bytes]] = []
        for key, row, gone in zip(
            batch.keys.to_list(), batch.rows.to_list(), batch.deletes, strict=True
        ):
            old = held.pop(key, None)
            if old is not None:
                kind = ChangeType.Delete if gone else ChangeType.UpdateBefore
                changes.append((kind, old[len(head) :]))
            if not gone:
                held[key] = head + row
                kind = ChangeType.Insert if old is None else ChangeType.UpdateAfter
                changes.append((kind, row))
        if not changes:
            return
        rows = decode_rows(
            Blobs.from_list([row for _, row in changes]),
            [column.type for column in self.schema.columns],
            self.schema.get_column_names(),
            RowFormat.COMPACTED,
        )
        kinds = bytes(int(kind) for kind, _ in changes)
        body = encode_log_body(
            as_wire(rows, self.schema.wire), self.schema, "ARROW", compression_of({}), kinds
        )
        parts = encode_log_batch(
            body, schema_id=SCHEMA_ID, record_count=len(changes), append_only=False
        )
        self._store(place, bytearray(b"".join(bytes(part) for part in parts)), len(changes))

    def _store(self, place: Place, batch: bytearray, rows: int) -> None:
        struct.pack_into("<q", batch, 0, self.ends[place])
        struct.pack_into("<q", batch, 13, int(time.time() * 1000))
        self.logs[place].append(bytes(batch))
        self.ends[place] += rows

    # Reads

    def _lookup(self, message: Any) -> Message:
        answer = pb.LookupResponse()

        def find(place: Place, part: Any, entry: Any) -> None:
            for key in part.keys:
                value = self.values[place].get(key)
                entry.values.add(**({} if value is None else {"values": value}))

        self._each(message.buckets_req, answer.buckets_resp, find)
        return answer

    def _prefix_lookup(self, message: Any) -> Message:
        answer = pb.PrefixLookupResponse()

        def find(place: Place, part: Any, entry: Any) -> None:
            for prefix in part.keys:
                held = sorted(self.values[place].items())
                entry.value_lists.add(values=[v for k, v in held if k.startswith(prefix)])

        self._each(message.buckets_req, answer.buckets_resp, find)
        return answer

    def _list_offsets(self, message: Any) -> Message:
        answer = pb.ListOffsetsResponse()
        for bucket in message.bucket_id:
            entry = answer.buckets_resp.add(bucket_id=bucket)
            part = pb.PbListOffsetsRespForBucket(bucket_id=bucket)
            partition = message.partition_id if message.HasField("partition_id") else None
            place_of = pb.PbTableBucket(
                table_id=TABLE_ID, bucket_id=part.bucket_id, partition_id=partition
            )
            try:
                place = self._place(place_of, message)
                entry.offset = self.ends[place] if message.offset_type else 0
            except FlussError as error:
                entry.error_code, entry.error_message = error.error_code, str(error)
        return answer

    def _get_table_stats(self, message: Any) -> Message:
        answer = pb.GetTableStatsResponse()

        def count(place: Place, part: Any, entry: Any) -> None:
            keyed = bool(self.schema.primary_keys)
            entry.row_count = len(self.values[place]) if keyed else self.ends[place]

        self._each(message.buckets_req, answer.buckets_resp, count)
        return answer

    def _limit_scan(self, message: Any) -> Message:
        place = self._place(message)
        if self.schema.primary_keys:
            values = [v for _, v in sorted(self.values[place].items())][: message.limit]
            return pb.LimitScanResponse(is_log_table=False, records=value_batch(values))
        return pb.LimitScanResponse(is_log_table=True, records=b"".join(self.logs[place]))

    def _fetch_log(self, message: Any) -> Message:
        answer = pb.FetchLogResponse()
        for table in message.tables_req:
            found = answer.tables_resp.add(table_id=table.table_id)
            # This double does not project: the client then asks for all columns.
            fewer = len(table.projected_fields) != len(self.schema.columns)
            refused = table.projection_pushdown_enabled and fewer
            error = InvalidColumnProjectionError("not projected") if refused else None

            def read(place: Place, part: Any, entry: Any, error: FlussError | None = error) -> None:
                if error is not None:
                    raise error
                entry.high_watermark = self.ends[place]
                batches = [b for b in self.logs[place] if _next_offset(b) > part.fetch_offset]
                entry.records = b"".join(batches)

            self._each(table.buckets_req, found.buckets_resp, read)
        if not any(b.records for t in answer.tables_resp for b in t.buckets_resp):
            let_pass(min(message.max_wait_ms, 20) / 1000, "a server holds a fetch until rows come")
        return answer

    def _scan_kv(self, message: Any) -> Message:
        if message.HasField("bucket_scan_req"):
            place = self._place(message.bucket_scan_req)
            if len(self.scanners) >= SCANNERS_MAX:
                return pb.ScanKvResponse(error_code=69, error_message="too many scanners")
            scanner_id = f"scan{next(self._scanner_ids)}".encode()
            values = [value for _, value in sorted(self.values[place].items())]
            self.scanners[scanner_id] = (values, 0)
            offset: int | None = self.ends[place]
        else:
            scanner_id, offset = message.scanner_id, None
            if scanner_id not in self.scanners:
                return pb.ScanKvResponse(error_code=67, error_message="unknown scanner")
            if message.close_scanner:
                del self.scanners[scanner_id]
                return pb.ScanKvResponse(scanner_id=scanner_id, has_more_results=False)
        values, expected = self.scanners[scanner_id]
        if message.call_seq_id != expected:
            del self.scanners[scanner_id]
            return pb.ScanKvResponse(error_code=68, error_message="out of order")
        page: list[bytes] = []
        while values and (not page or sum(map(len, page)) < message.batch_size_bytes):
            page.append(values.pop(0))
        self.scanners[scanner_id] = (values, expected + 1)
        if not values:
            del self.scanners[scanner_id]
        answer = pb.ScanKvResponse(
            scanner_id=scanner_id, has_more_results=bool(values), records=value_batch(page)
        )
        if offset is not None:
            answer.log_offset = offset
        return answer


def _next_offset(batch: bytes) -> int:
    (base,) = struct.unpack_from("<q", batch, 0)
    (delta,) = struct.unpack_from("<i", batch, 28)
    return int(base) + int(delta) + 1


def value_batch(values: list[bytes]) -> bytes:
    """Encode the values of a scan's answer."""
    records = b"".join(struct.pack("<i", len(value)) + value for value in values)
    return struct.pack("<iBi", len(records) + 5, 0, len(values)) + records


@contextmanager
def scripted(*args: Any, **details: Any) -> Iterator[ScriptedServer]:
    """Run a scripted server for a while."""
    server = ScriptedServer(*args, **details)
    try:
        yield server
    finally:
        server.close()
