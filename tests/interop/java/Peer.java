import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.lookup.LookupResult;
import org.apache.fluss.client.lookup.Lookuper;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.batch.BatchScanner;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.scanner.log.ScanRecords;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.Upsert;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericArray;
import org.apache.fluss.row.GenericMap;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalArray;
import org.apache.fluss.row.InternalMap;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.fluss.types.ArrayType;
import org.apache.fluss.types.DataField;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypeParser;
import org.apache.fluss.types.DecimalType;
import org.apache.fluss.types.MapType;
import org.apache.fluss.types.RowType;

/**
 * Fluss's Java client behind a line of JSON: one request in, one answer out, until the input ends.
 *
 * <p>Values travel in a form that loses nothing: floats, decimals and wide integers as text, bytes
 * as hex, dates as days, times as milliseconds, timestamps as [milliseconds, nanoseconds], maps as
 * lists of pairs, rows as lists.
 */
public class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Connection connection;

    Peer(Map<String, String> settings) {
        connection = ConnectionFactory.createConnection(Configuration.fromMap(settings));
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Peer> peers = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode request = JSON.readTree(line);
                if (request.get("call").asText().equals("methods")) {
                    answer.put("result", methods(request.get("table").asText()));
                    out.println(JSON.writeValueAsString(answer));
                    continue;
                }
                if (request.get("call").asText().equals("predicates")) {
                    answer.put("result", predicates(request));
                    out.println(JSON.writeValueAsString(answer));
                    continue;
                }
                Map<String, String> settings = new HashMap<>();
                request.get("settings")
                        .fields()
                        .forEachRemaining(e -> settings.put(e.getKey(), e.getValue().asText()));
                String key = settings.toString();
                if (!peers.containsKey(key)) {
                    peers.put(key, new Peer(settings));
                }
                answer.put("result", peers.get(key).answer(request));
            } catch (Throwable error) {
                Throwable root = error;
                while (root.getCause() != null) {
                    root = root.getCause();
                }
                answer.put("error", root.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    /** The names of a public interface's own methods. */
    private static Object methods(String type) throws Exception {
        return Stream.of(Class.forName(type).getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()))
                .map(Method::getName)
                .distinct()
                .sorted()
                .collect(Collectors.toList());
    }

    /**
     * For each condition, what the client makes of the message again, and the rows that meet it.
     *
     * <p>By reflection: the client has these classes from 1.0 on.
     */
    private static Object predicates(JsonNode request) throws Exception {
        Class<?> message = Class.forName("org.apache.fluss.rpc.messages.PbPredicate");
        Class<?> tools = Class.forName("org.apache.fluss.rpc.util.PredicateMessageUtils");
        Class<?> condition = Class.forName("org.apache.fluss.predicate.Predicate");
        List<DataField> columns = new ArrayList<>();
        for (JsonNode column : request.get("columns")) {
            DataType kind = DataTypeParser.parse(column.get(1).asText());
            columns.add(new DataField(column.get(0).asText(), kind, (Integer) columns.size()));
        }
        RowType type = new RowType(columns);
        List<Object> found = new ArrayList<>();
        for (JsonNode bytes : request.get("predicates")) {
            Object given = message.getDeclaredConstructor().newInstance();
            byte[] encoded = HexFormat.of().parseHex(bytes.asText());
            message.getMethod("parseFrom", byte[].class).invoke(given, (Object) encoded);
            Object meant = tools.getMethod("toPredicate", message, RowType.class).invoke(null, given, type);
            Object again = tools.getMethod("toPbPredicate", condition, RowType.class).invoke(null, meant, type);
            Method test = condition.getMethod("test", InternalRow.class);
            List<Object> met = new ArrayList<>();
            for (JsonNode row : request.get("rows")) {
                met.add(test.invoke(meant, row(row, type.getChildren())));
            }
            byte[] hex = (byte[]) message.getMethod("toByteArray").invoke(again);
            found.add(List.of(HexFormat.of().formatHex(hex), met));
        }
        return found;
    }

    private Object answer(JsonNode request) throws Exception {
        String[] path = request.get("table").asText().split("\\.");
        TablePath tablePath = TablePath.of(path[0], path[1]);
        String call = request.get("call").asText();
        if (call.equals("create")) {
            create(tablePath, request);
            return null;
        }
        try (Table table = connection.getTable(tablePath)) {
            switch (call) {
                case "append":
                    return append(table, request.get("rows"));
                case "upsert":
                    return upsert(table, request);
                case "delete":
                    return delete(table, request.get("rows"));
                case "scan":
                    return scan(table, request);
                case "limit":
                    return limit(table, request.get("limit").asInt());
                case "lookup":
                    return lookup(table, request);
                case "snapshot":
                    return snapshot(table, request.get("snapshot").asLong());
                default:
                    throw new IllegalArgumentException(call);
            }
        }
    }

    private void create(TablePath path, JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode column : request.get("columns")) {
            schema.column(column.get(0).asText(), DataTypeParser.parse(column.get(1).asText()));
        }
        if (request.get("primary_keys").size() > 0) {
            schema.primaryKey(texts(request.get("primary_keys")));
        }
        TableDescriptor.Builder table =
                TableDescriptor.builder()
                        .schema(schema.build())
                        .distributedBy(
                                request.get("buckets").asInt(), texts(request.get("bucket_keys")))
                        .partitionedBy(texts(request.get("partition_keys")))
                        .comment(request.get("comment").asText());
        request.get("properties")
                .fields()
                .forEachRemaining(e -> table.property(e.getKey(), e.getValue().asText()));
        connection.getAdmin().createTable(path, table.build(), false).get();
    }

    private Object append(Table table, JsonNode rows) throws Exception {
        AppendWriter writer = table.newAppend().createWriter();
        RowType type = table.getTableInfo().getRowType();
        List<Future<?>> written = new ArrayList<>();
        for (JsonNode row : rows) {
            written.add(writer.append(row(row, type.getChildren())));
        }
        writer.flush();
        return settle(written);
    }

    private Object upsert(Table table, JsonNode request) throws Exception {
        Upsert upsert = table.newUpsert();
        if (request.hasNonNull("columns")) {
            upsert = upsert.partialUpdate(texts(request.get("columns")).toArray(new String[0]));
        }
        UpsertWriter writer = upsert.createWriter();
        RowType type = table.getTableInfo().getRowType();
        List<Future<?>> written = new ArrayList<>();
        for (JsonNode row : request.get("rows")) {
            written.add(writer.upsert(row(row, type.getChildren())));
        }
        writer.flush();
        return settle(written);
    }

    private Object delete(Table table, JsonNode rows) throws Exception {
        UpsertWriter writer = table.newUpsert().createWriter();
        RowType type = table.getTableInfo().getRowType();
        List<Future<?>> written = new ArrayList<>();
        for (JsonNode row : rows) {
            written.add(writer.delete(row(row, type.getChildren())));
        }
        writer.flush();
        return settle(written);
    }

    /** A flush of this client says nothing of writes that failed; their futures do. */
    private static int settle(List<Future<?>> written) throws Exception {
        for (Future<?> write : written) {
            write.get(60, TimeUnit.SECONDS);
        }
        return written.size();
    }

    private Object scan(Table table, JsonNode request) throws Exception {
        RowType type = table.getTableInfo().getRowType();
        Scan scan = table.newScan();
        List<DataType> types = type.getChildren();
        if (request.hasNonNull("columns")) {
            List<String> names = texts(request.get("columns"));
            scan = scan.project(names);
            List<DataType> kept = new ArrayList<>();
            for (String name : names) {
                kept.add(types.get(type.getFieldIndex(name)));
            }
            types = kept;
        }
        Map<TableBucket, Long> ends = ends(table);
        List<Object> found = new ArrayList<>();
        try (LogScanner scanner = scan.createLogScanner()) {
            ends.keySet().forEach(bucket -> subscribe(scanner, bucket));
            Map<TableBucket, Long> left = new HashMap<>(ends);
            left.values().removeIf(end -> end == 0);
            long giveUpAt = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (!left.isEmpty()) {
                if (System.nanoTime() > giveUpAt) {
                    throw new IllegalStateException("no rows up to " + left);
                }
                ScanRecords records = scanner.poll(Duration.ofMillis(500));
                for (TableBucket bucket : records.buckets()) {
                    for (ScanRecord record : records.records(bucket)) {
                        found.add(
                                List.of(
                                        bucket.getBucket(),
                                        record.logOffset(),
                                        record.getChangeType().shortString(),
                                        values(record.getRow(), types)));
                        if (left.containsKey(bucket)
                                && record.logOffset() + 1 >= left.get(bucket)) {
                            left.remove(bucket);
                        }
                    }
                }
            }
        }
        return found;
    }

    private Map<TableBucket, Long> ends(Table table) throws Exception {
        long id = table.getTableInfo().getTableId();
        TablePath path = table.getTableInfo().getTablePath();
        List<Integer> buckets = new ArrayList<>();
        for (int i = 0; i < table.getTableInfo().getNumBuckets(); i++) {
            buckets.add(i);
        }
        Map<TableBucket, Long> ends = new HashMap<>();
        if (!table.getTableInfo().isPartitioned()) {
            connection
                    .getAdmin()
                    .listOffsets(path, buckets, new OffsetSpec.LatestSpec())
                    .all()
                    .get()
                    .forEach((bucket, end) -> ends.put(new TableBucket(id, bucket), end));
            return ends;
        }
        for (PartitionInfo partition : connection.getAdmin().listPartitionInfos(path).get()) {
            String name = partition.getPartitionName();
            connection
                    .getAdmin()
                    .listOffsets(path, name, buckets, new OffsetSpec.LatestSpec())
                    .all()
                    .get()
                    .forEach(
                            (bucket, end) ->
                                    ends.put(
                                            new TableBucket(id, partition.getPartitionId(), bucket),
                                            end));
        }
        return ends;
    }

    private static void subscribe(LogScanner scanner, TableBucket bucket) {
        if (bucket.getPartitionId() == null) {
            scanner.subscribeFromBeginning(bucket.getBucket());
        } else {
            scanner.subscribeFromBeginning(bucket.getPartitionId(), bucket.getBucket());
        }
    }

    private Object limit(Table table, int limit) throws Exception {
        List<DataType> types = table.getTableInfo().getRowType().getChildren();
        List<Object> found = new ArrayList<>();
        for (TableBucket bucket : ends(table).keySet()) {
            try (BatchScanner scanner = table.newScan().limit(limit).createBatchScanner(bucket)) {
                var batch = scanner.pollBatch(Duration.ofSeconds(20));
                while (batch != null) {
                    while (batch.hasNext()) {
                        found.add(values(batch.next(), types));
                    }
                    batch.close();
                    batch = scanner.pollBatch(Duration.ofSeconds(20));
                }
            }
        }
        return found;
    }

    /** The rows of a KV snapshot of bucket 0: how many, the sum of the first column, the time. */
    private Object snapshot(Table table, long snapshot) throws Exception {
        TableBucket bucket = new TableBucket(table.getTableInfo().getTableId(), 0);
        long rows = 0;
        long sum = 0;
        long started = System.nanoTime();
        try (BatchScanner scanner = table.newScan().createBatchScanner(bucket, snapshot)) {
            var batch = scanner.pollBatch(Duration.ofSeconds(20));
            while (batch != null) {
                while (batch.hasNext()) {
                    sum += batch.next().getLong(0);
                    rows++;
                }
                batch.close();
                batch = scanner.pollBatch(Duration.ofSeconds(20));
            }
        }
        return List.of(rows, sum, System.nanoTime() - started);
    }

    private Object lookup(Table table, JsonNode request) throws Exception {
        RowType type = table.getTableInfo().getRowType();
        List<DataType> keyTypes = new ArrayList<>();
        List<String> names = texts(request.get("columns"));
        for (String name : names) {
            keyTypes.add(type.getTypeAt(type.getFieldIndex(name)));
        }
        boolean prefix = request.get("prefix").asBoolean();
        Lookuper lookuper =
                prefix
                        ? table.newLookup().lookupBy(names).createLookuper()
                        : table.newLookup().createLookuper();
        // All at once: one by one, each would wait for this client's batches to fill.
        List<CompletableFuture<LookupResult>> asked = new ArrayList<>();
        for (JsonNode key : request.get("rows")) {
            asked.add(lookuper.lookup(row(key, keyTypes)));
        }
        List<Object> found = new ArrayList<>();
        for (CompletableFuture<LookupResult> answer : asked) {
            List<Object> rows = new ArrayList<>();
            for (InternalRow row : answer.get().getRowList()) {
                rows.add(row == null ? null : values(row, type.getChildren()));
            }
            found.add(rows);
        }
        return found;
    }

    private static List<String> texts(JsonNode list) {
        List<String> found = new ArrayList<>();
        list.forEach(item -> found.add(item.asText()));
        return found;
    }

    private static GenericRow row(JsonNode values, List<DataType> types) {
        GenericRow row = new GenericRow(types.size());
        for (int i = 0; i < types.size(); i++) {
            row.setField(i, read(values.get(i), types.get(i)));
        }
        return row;
    }

    private static Object read(JsonNode value, DataType type) {
        if (value == null || value.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return value.asBoolean();
            case TINYINT:
                return (byte) value.asInt();
            case SMALLINT:
                return (short) value.asInt();
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE:
                return value.asInt();
            case BIGINT:
                return Long.parseLong(value.asText());
            case FLOAT:
                return Float.parseFloat(value.asText());
            case DOUBLE:
                return Double.parseDouble(value.asText());
            case CHAR:
            case STRING:
                return BinaryString.fromString(value.asText());
            case BINARY:
            case BYTES:
                return HexFormat.of().parseHex(value.asText());
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(
                        new BigDecimal(value.asText()), decimal.getPrecision(), decimal.getScale());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                return TimestampNtz.fromMillis(value.get(0).asLong(), value.get(1).asInt());
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return TimestampLtz.fromEpochMillis(value.get(0).asLong(), value.get(1).asInt());
            case ARRAY:
                Object[] items = new Object[value.size()];
                for (int i = 0; i < items.length; i++) {
                    items[i] = read(value.get(i), ((ArrayType) type).getElementType());
                }
                return new GenericArray(items);
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                for (JsonNode pair : value) {
                    map.put(
                            read(pair.get(0), ((MapType) type).getKeyType()),
                            read(pair.get(1), ((MapType) type).getValueType()));
                }
                return new GenericMap(map);
            case ROW:
                return row(value, ((RowType) type).getChildren());
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    private static List<Object> values(InternalRow row, List<DataType> types) {
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < types.size(); i++) {
            Object field = InternalRow.createFieldGetter(types.get(i), i).getFieldOrNull(row);
            found.add(write(field, types.get(i)));
        }
        return found;
    }

    private static List<Object> items(InternalArray array, DataType type) {
        List<Object> found = new ArrayList<>();
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        for (int i = 0; i < array.size(); i++) {
            found.add(write(getter.getElementOrNull(array, i), type));
        }
        return found;
    }

    private static Object write(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BIGINT:
            case FLOAT:
            case DOUBLE:
            case STRING:
                return value.toString();
            case CHAR:
                return value.toString();
            case BINARY:
            case BYTES:
                return HexFormat.of().formatHex((byte[]) value);
            case DECIMAL:
                return ((Decimal) value).toBigDecimal().toPlainString();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                TimestampNtz local = (TimestampNtz) value;
                return List.of(local.getMillisecond(), local.getNanoOfMillisecond());
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                TimestampLtz instant = (TimestampLtz) value;
                return List.of(instant.getEpochMillisecond(), instant.getNanoOfMillisecond());
            case ARRAY:
                return items((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP:
                List<Object> keys =
                        items(((InternalMap) value).keyArray(), ((MapType) type).getKeyType());
                List<Object> entries =
                        items(((InternalMap) value).valueArray(), ((MapType) type).getValueType());
                List<Object> pairs = new ArrayList<>();
                for (int i = 0; i < keys.size(); i++) {
                    List<Object> pair = new ArrayList<>();
                    pair.add(keys.get(i));
                    pair.add(entries.get(i));
                    pairs.add(pair);
                }
                return pairs;
            case ROW:
                return values((InternalRow) value, ((RowType) type).getChildren());
            default:
                return value;
        }
    }
}
