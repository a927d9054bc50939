import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.admin.ClusterHealth;
import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.lookup.Lookuper;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.scanner.batch.BatchScanner;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.DatabaseChange;
import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.PartitionSpec;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.predicate.Predicate;
import org.apache.fluss.predicate.PredicateBuilder;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.utils.CloseableIterator;

/**
 * Makes every call of the 1.0 client whose request or answer has new fields, and prints what came.
 *
 * <p>Arguments: the address, and `keys` or `log`. The table has the columns id, part, day and v.
 */
public class Calls {
    private static final TablePath PATH = TablePath.of("shop", "orders");
    private static final Duration WAIT = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("bootstrap.servers", arguments[0]);
        try (Connection connection = ConnectionFactory.createConnection(settings);
                Table table = connection.getTable(PATH)) {
            Calls calls = new Calls(connection.getAdmin(), table);
            if (arguments[1].equals("keys")) {
                calls.upsert();
            } else {
                calls.append();
            }
            calls.offsets();
            print("stats", calls.admin.getTableStats(PATH).get().getRowCount());
            for (TableBucket bucket : calls.buckets()) {
                print("limit", calls.rows(table.newScan().limit(7), bucket));
            }
            if (arguments[1].equals("keys")) {
                calls.lookups();
                for (TableBucket bucket : calls.buckets()) {
                    print("state", calls.rows(table.newScan(), bucket));
                }
            } else {
                calls.filtered();
            }
            calls.administer();
        }
        System.exit(0);
    }

    private final Admin admin;
    private final Table table;

    private Calls(Admin admin, Table table) {
        this.admin = admin;
        this.table = table;
    }

    private static void print(String what, Object found) {
        System.out.println(what + " " + found);
    }

    private static List<GenericRow> given() {
        List<GenericRow> rows = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            rows.add(
                    GenericRow.of(
                            (long) (i / 2),
                            1,
                            BinaryString.fromString(i % 2 == 0 ? "old" : "new"),
                            BinaryString.fromString(Integer.toString(i))));
        }
        return rows;
    }

    private void upsert() throws Exception {
        UpsertWriter writer = table.newUpsert().createWriter();
        given().forEach(writer::upsert);
        writer.flush();
    }

    private void append() throws Exception {
        AppendWriter writer = table.newAppend().createWriter();
        given().forEach(writer::append);
        writer.flush();
    }

    private Map<String, PartitionInfo> partitions() throws Exception {
        return admin.listPartitionInfos(PATH).get().stream()
                .collect(Collectors.toMap(PartitionInfo::getPartitionName, p -> p, (a, b) -> a, TreeMap::new));
    }

    private List<TableBucket> buckets() throws Exception {
        List<TableBucket> found = new ArrayList<>();
        for (PartitionInfo partition : partitions().values()) {
            for (int bucket = 0; bucket < partition.getBucketCount(); bucket++) {
                found.add(new TableBucket(table.getTableInfo().getTableId(), partition.getPartitionId(), bucket));
            }
        }
        return found;
    }

    private void offsets() throws Exception {
        for (PartitionInfo partition : partitions().values()) {
            List<Integer> all =
                    IntStream.range(0, partition.getBucketCount()).boxed().collect(Collectors.toList());
            Map<Integer, Long> ends =
                    admin.listOffsets(PATH, partition.getPartitionName(), all, new OffsetSpec.LatestSpec())
                            .all()
                            .get();
            print("ends", partition.getPartitionName() + " " + new TreeMap<>(ends));
        }
    }

    private static String text(InternalRow row) {
        return row.getLong(0) + "/" + row.getInt(1) + "/" + row.getString(2) + "/" + row.getString(3);
    }

    private List<String> rows(Scan scan, TableBucket bucket) throws Exception {
        List<String> found = new ArrayList<>();
        try (BatchScanner scanner = scan.createBatchScanner(bucket)) {
            for (CloseableIterator<InternalRow> batch = scanner.pollBatch(WAIT);
                    batch != null;
                    batch = scanner.pollBatch(WAIT)) {
                while (batch.hasNext()) {
                    found.add(text(batch.next()));
                }
                batch.close();
            }
        }
        Collections.sort(found);
        return found;
    }

    private void lookups() throws Exception {
        Lookuper whole = table.newLookup().createLookuper();
        print("row", text(whole.lookup(GenericRow.of(3L, 1, BinaryString.fromString("new"))).get().getSingletonRow()));
        Lookuper prefix = table.newLookup().lookupBy("id", "day").createLookuper();
        List<InternalRow> found =
                prefix.lookup(GenericRow.of(3L, BinaryString.fromString("old"))).get().getRowList();
        print("rows", found.stream().map(Calls::text).collect(Collectors.toList()));
    }

    private void filtered() throws Exception {
        PredicateBuilder builder = new PredicateBuilder(table.getTableInfo().getRowType());
        Predicate condition =
                PredicateBuilder.and(
                        builder.greaterOrEqual(0, 10L),
                        PredicateBuilder.or(
                                builder.startsWith(3, BinaryString.fromString("5")), builder.isNull(3)),
                        builder.in(0, List.of(26L, 27L, 28L)));
        long left = 60;
        List<String> found = new ArrayList<>();
        try (LogScanner scanner = table.newScan().filter(condition).createLogScanner()) {
            for (TableBucket bucket : buckets()) {
                scanner.subscribeFromBeginning(bucket.getPartitionId(), bucket.getBucket());
            }
            while (left > 0) {
                var records = scanner.poll(Duration.ofMillis(500));
                records.forEach(record -> found.add(text(record.getRow())));
                left -= records.count();
            }
        }
        Collections.sort(found);
        print("log", found);
    }

    private void administer() throws Exception {
        admin.createPartition(PATH, new PartitionSpec(Collections.singletonMap("day", "third")), false).get();
        long id = table.getTableInfo().getTableId();
        long partition = partitions().get("new").getPartitionId();
        ClusterHealth health = admin.getClusterHealth().get();
        print("health", health.getStatus() + " " + health.getNumReplicas());
        admin.alterDatabase(
                        "shop",
                        List.of(
                                DatabaseChange.set("a", "1"),
                                DatabaseChange.reset("b"),
                                DatabaseChange.updateComment("new words")),
                        true)
                .get();
        print("snapshots", admin.listKvSnapshots(id, partition).get().getTableId());
        print("manifests", admin.listRemoteLogManifests(id, partition).get().size());
        admin.listPartitionInfos(PATH, true).get();
        admin.alterTable(PATH, List.of(TableChange.modifyBucketCount(8)), false).get();
        print("count", admin.getTableInfo(PATH).get().getNumBuckets());
    }
}
