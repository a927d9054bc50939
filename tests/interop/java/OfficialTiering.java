import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.lake.committer.CommitterInitContext;
import org.apache.fluss.lake.committer.LakeCommitter;
import org.apache.fluss.lake.iceberg.tiering.IcebergCommittable;
import org.apache.fluss.lake.iceberg.tiering.IcebergLakeTieringFactory;
import org.apache.fluss.lake.iceberg.tiering.IcebergWriteResult;
import org.apache.fluss.lake.writer.LakeWriter;
import org.apache.fluss.lake.writer.WriterInitContext;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableInfo;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.fluss.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * One round of tiering of a key table by Fluss's own lake writer and committer, as the Flink service
 * makes it: the changes of each range are written, then committed to Iceberg in one snapshot. Fluss
 * is not told. The one argument is JSON: bootstrap, database, table, lake (properties of the
 * catalog), ranges (partition id, partition, bucket, start, stop), summary (of the snapshot).
 */
public class OfficialTiering {
    private static final int EMPTY_POLLS = 3;

    public static void main(String[] arguments) throws Exception {
        JsonNode asked = new ObjectMapper().readTree(arguments[0]);
        Configuration client = new Configuration();
        client.setString("bootstrap.servers", asked.get("bootstrap").asText());
        Configuration lake = new Configuration();
        asked.get("lake").fields().forEachRemaining(e -> lake.setString(e.getKey(), e.getValue().asText()));
        TablePath path = TablePath.of(asked.get("database").asText(), asked.get("table").asText());
        try (Connection connection = ConnectionFactory.createConnection(client);
                Table table = connection.getTable(path)) {
            TableInfo info = table.getTableInfo();
            IcebergLakeTieringFactory factory = new IcebergLakeTieringFactory(lake);
            List<IcebergWriteResult> results = new ArrayList<>();
            for (JsonNode range : asked.get("ranges")) {
                results.add(written(factory, table, info, range));
            }
            Map<String, String> summary = new HashMap<>();
            asked.get("summary").fields().forEachRemaining(e -> summary.put(e.getKey(), e.getValue().asText()));
            try (LakeCommitter<IcebergWriteResult, IcebergCommittable> committer =
                    factory.createLakeCommitter(committing(path, info, lake, client))) {
                System.out.println(
                        committer.commit(committer.toCommittable(results), summary).getCommittedSnapshotId());
            }
        }
    }

    private static IcebergWriteResult written(
            IcebergLakeTieringFactory factory, Table table, TableInfo info, JsonNode range) throws Exception {
        Long partitionId = range.get(0).isNull() ? null : range.get(0).asLong();
        String partition = range.get(1).isNull() ? null : range.get(1).asText();
        int bucket = range.get(2).asInt();
        long start = range.get(3).asLong(), stop = range.get(4).asLong(), at = start;
        try (LakeWriter<IcebergWriteResult> writer =
                        factory.createLakeWriter(writing(info, partitionId, partition, bucket));
                LogScanner scanner = table.newScan().createLogScanner()) {
            if (partitionId == null) {
                scanner.subscribe(bucket, start);
            } else {
                scanner.subscribe(partitionId, bucket, start);
            }
            // An empty batch at the end uses up offsets, and the client shows no record of it.
            for (int empty = 0; at < stop && empty < EMPTY_POLLS; empty++) {
                for (ScanRecord record : scanner.poll(Duration.ofSeconds(1))) {
                    if (record.logOffset() < stop) {
                        writer.write(record);
                    }
                    at = record.logOffset() + 1;
                    empty = -1;
                }
            }
            return writer.complete();
        }
    }

    private static WriterInitContext writing(
            TableInfo info, Long partitionId, String partition, int bucket) {
        return new WriterInitContext() {
            public TablePath tablePath() {
                return info.getTablePath();
            }

            public TableBucket tableBucket() {
                return new TableBucket(info.getTableId(), partitionId, bucket);
            }

            public String partition() {
                return partition;
            }

            public TableInfo tableInfo() {
                return info;
            }
        };
    }

    private static CommitterInitContext committing(
            TablePath path, TableInfo info, Configuration lake, Configuration client) {
        return new CommitterInitContext() {
            public TablePath tablePath() {
                return path;
            }

            public TableInfo tableInfo() {
                return info;
            }

            public Configuration lakeTieringConfig() {
                return lake;
            }

            public Configuration flussClientConfig() {
                return client;
            }
        };
    }
}
