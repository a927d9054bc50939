"""The members that the two surfaces promise, one line each, in the words of their guides.

`await name(args)` is awaited, `name(args)` is not, `.name` is a property or attribute, `Name(args)`
is the constructor. An argument may show its default; `=…` stands for any default.
"""

from __future__ import annotations

CONFIG = """
Config(properties=None)
.bootstrap_servers .writer_request_max_size .writer_acks .writer_retries .writer_batch_size
.writer_batch_timeout_ms .writer_bucket_no_key_assigner .scanner_remote_log_prefetch_num
.remote_file_download_thread_num .scanner_remote_log_read_concurrency
.scanner_log_max_poll_records .scanner_log_fetch_max_bytes .scanner_log_fetch_min_bytes
.scanner_log_fetch_wait_max_time_ms .scanner_log_fetch_max_bytes_for_bucket .connect_timeout_ms
.security_protocol .security_sasl_mechanism .security_sasl_username .security_sasl_password
"""
NEWER_CONFIG = """
.writer_dynamic_batch_size_enabled .writer_dynamic_batch_size_min .writer_enable_idempotence
.writer_max_inflight_requests_per_bucket .writer_buffer_memory_size
.writer_buffer_wait_timeout_ms .writer_kv_backpressure_max_throttle_ms
"""

# What neither surface awaits, and both have.
VALUES = {
    "ServerNode": ".id .host .port .server_type .uid",
    "ScanRecords": """
        buckets() records(bucket) count() is_empty() keys() values() items()
        __len__() __getitem__(index) __contains__(bucket) __iter__()
    """,
    "ScanRecord": ".offset .timestamp .change_type .row",
    "RecordBatch": ".batch .bucket .base_offset .last_offset",
    "Schema": """
        Schema(schema, primary_keys=None, auto_increment_column=None)
        get_column_names() get_column_types() get_columns() get_primary_keys()
        get_auto_increment_columns()
    """,
    "TableDescriptor": """
        TableDescriptor(schema, *, partition_keys=None, bucket_count=None, bucket_keys=None,
            comment=None, log_format=None, kv_format=None, properties=None, custom_properties=None)
        get_schema()
    """,
    "TablePath": "TablePath(database_name, table_name) .database_name .table_name table_path_str()",
    "TableInfo": """
        .table_id .table_path .num_buckets .schema_id .comment .created_time .modified_time
        get_primary_keys() get_partition_keys() get_bucket_keys() has_primary_key()
        is_partitioned() get_schema() get_column_names() get_column_count() get_properties()
        get_custom_properties()
    """,
    "PartitionInfo": ".partition_id .partition_name",
    "DatabaseDescriptor": """
        DatabaseDescriptor(comment=None, custom_properties=None) .comment get_custom_properties()
    """,
    "DatabaseInfo": ".database_name .created_time .modified_time get_database_descriptor()",
    "LakeSnapshot": """
        LakeSnapshot(snapshot_id) .snapshot_id .table_buckets_offset
        get_bucket_offset(bucket) get_table_buckets()
    """,
    "TableBucket": """
        TableBucket(table_id, bucket) with_partition(table_id, partition_id, bucket)
        .table_id .bucket_id .partition_id
    """,
    "FlussError": "FlussError(message, error_code=…) .message .error_code .is_retriable",
    "OffsetSpec": "earliest() latest() timestamp(ts)",
    "ChangeType": ".AppendOnly .Insert .UpdateBefore .UpdateAfter .Delete short_string()",
    "ColumnRef": """
        ColumnRef(name) .name equal(value) not_equal(value) less_than(value) less_or_equal(value)
        greater_than(value) greater_or_equal(value) is_null() is_not_null() starts_with(prefix)
        ends_with(suffix) contains(infix) is_in(values) not_in(values)
    """,
    "Predicate": "and_(other) or_(other)",
    "TableAppend": "create_writer()",
    "TableLookup": "create_lookuper() lookup_by(column_names)",
    "TablePrefixLookup": "create_lookuper()",
}

_ADMIN = """
    await create_database(name, database_descriptor=None, ignore_if_exists=False)
    await drop_database(name, ignore_if_not_exists=False, cascade=True)
    await list_databases() await database_exists(name) await get_database_info(name)
    await create_table(table_path, table_descriptor, ignore_if_exists=False)
    await drop_table(table_path, ignore_if_not_exists=False)
    await get_table_info(table_path) await list_tables(database_name) await table_exists(table_path)
    await list_offsets(table_path, bucket_ids, offset_spec)
    await list_partition_offsets(table_path, partition_name, bucket_ids, offset_spec)
    await create_partition(table_path, partition_spec, ignore_if_exists=False)
    await drop_partition(table_path, partition_spec, ignore_if_not_exists=False)
    await list_partition_infos(table_path, partition_spec=None)
    await get_latest_lake_snapshot(table_path) await get_server_nodes()
"""
_TABLE = """
    new_scan() new_append() new_upsert() new_lookup() get_table_info() get_table_path()
    has_primary_key()
"""
_SCAN = """
    project(indices) project_by_name(names) with_fixed_schema(fixed_schema) limit(n)
    filter(predicate) create_bucket_batch_scanner(bucket)
    await create_log_scanner() await create_record_batch_log_scanner()
"""
_UPSERT = "partial_update_by_name(columns) partial_update_by_index(column_indices) create_writer()"
_APPEND_WRITER = (
    "append(row) write_arrow(table) write_arrow_batch(batch) write_pandas(df) await flush()"
)
_UPSERT_WRITER = "upsert(row) delete(pk) await flush()"
_SUBSCRIBE = """
    subscribe(bucket_id, start_offset) subscribe_buckets(bucket_offsets)
    subscribe_partition(partition_id, bucket_id, start_offset)
    subscribe_partition_buckets(partition_bucket_offsets)
    unsubscribe(bucket_id) unsubscribe_partition(partition_id, bucket_id) to_arrow_batch_reader()
"""

GUIDES = VALUES | {
    "Config": CONFIG + NEWER_CONFIG,
    "FlussConnection": """
        await create(config) await get_admin() await get_table(table_path) close()
        __enter__() __exit__(exc_type, exc, traceback)
    """,
    "FlussAdmin": _ADMIN,
    "FlussTable": _TABLE,
    "TableScan": _SCAN,
    "TableUpsert": _UPSERT,
    "AppendWriter": _APPEND_WRITER,
    "UpsertWriter": _UPSERT_WRITER,
    "WriteResultHandle": "await wait()",
    "Lookuper": "await lookup(pk)",
    "PrefixLookuper": "await lookup(prefix)",
    "LogScanner": _SUBSCRIBE
    + """
        poll(timeout_ms) poll_arrow(timeout_ms) poll_record_batch(timeout_ms)
        to_arrow() to_pandas()
    """,
    "BatchScanner": (
        ".bucket await next_batch() await collect_all_batches() to_arrow() to_pandas()"
    ),
}
"""The facade, `fluss_client`: the newer guide, and what the official client has added since."""

OLDER_GUIDE = {
    "FlussConnection": "await connect(config)",
    "FlussAdmin": """
        await get_table(table_path)
        await list_offsets(table_path, bucket_ids, *, offset_type=None, timestamp=None)
        await list_partition_offsets(table_path, partition_name, bucket_ids, *, offset_type=None,
            timestamp=None)
    """,
    "FlussTable": "await new_append_writer() new_upsert(columns=None) new_lookup()",
    "TableScan": "await create_batch_scanner()",
    "LogScanner": "poll_batches(timeout_ms)",
    "TableUpsert": "upsert(row) delete(pk) await flush()",
    "TableLookup": "await lookup(pk)",
}
"""Names that only the older guide has; the facade has them too."""

OFFICIAL = VALUES | {
    "Config": CONFIG + NEWER_CONFIG,
    "FlussConnection": """
        await create(config) get_admin() await get_table(table_path) await close()
        __enter__() await __aenter__()
    """,
    "FlussAdmin": _ADMIN,
    "FlussTable": _TABLE,
    "TableScan": _SCAN,
    "TableUpsert": _UPSERT,
    "AppendWriter": _APPEND_WRITER + " await __aenter__()",
    "UpsertWriter": _UPSERT_WRITER + " await __aenter__()",
    "WriteResultHandle": "await wait()",
    "Lookuper": "await lookup(pk)",
    "PrefixLookuper": "await lookup(prefix)",
    "LogScanner": _SUBSCRIBE
    + """
        await poll(timeout_ms) await poll_arrow(timeout_ms) await poll_record_batch(timeout_ms)
        await to_arrow() await to_pandas() __aiter__()
    """,
    "BatchScanner": """
        .bucket await next_batch() await collect_all_batches() await to_arrow() await to_pandas()
    """,
}
"""The core, `fluss_client.aio`: the official client's release 1.0.0."""
