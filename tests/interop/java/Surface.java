import java.lang.reflect.Field;
import java.util.Enumeration;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.fluss.exception.InvalidMetadataException;
import org.apache.fluss.exception.RetriableException;
import org.apache.fluss.rpc.protocol.ApiKeys;
import org.apache.fluss.rpc.protocol.Errors;

/** Prints the calls, the error codes and the message fields of a client jar, one per line. */
public class Surface {
    private static final String MESSAGES = "org/apache/fluss/rpc/messages/";
    private static final String NUMBER = "_FIELD_NUMBER";

    public static void main(String[] arguments) throws Exception {
        for (ApiKeys key : ApiKeys.values()) {
            print("call", key.id, key.name(), key.lowestSupportedVersion, key.highestSupportedVersion, key.visibility);
        }
        for (Errors error : Errors.values()) {
            Object exception = error.exception();
            print("error", error.code(), exception instanceof RetriableException,
                    exception instanceof InvalidMetadataException);
        }
        String file = ApiKeys.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        try (JarFile jar = new JarFile(file)) {
            for (Enumeration<JarEntry> all = jar.entries(); all.hasMoreElements(); ) {
                String name = all.nextElement().getName();
                if (name.startsWith(MESSAGES) && name.endsWith(".class") && !name.contains("$")) {
                    printFields(Class.forName(name.substring(0, name.length() - 6).replace('/', '.')));
                }
            }
        }
    }

    private static void printFields(Class<?> message) throws Exception {
        for (Field field : message.getDeclaredFields()) {
            String name = field.getName();
            if (name.endsWith(NUMBER)) {
                name = name.substring(1, name.length() - NUMBER.length());
                Field tag = message.getDeclaredField("_" + name + "_TAG");
                field.setAccessible(true);
                tag.setAccessible(true);
                print("field", message.getSimpleName(), name.toLowerCase(), field.getInt(null), tag.getInt(null) & 7);
            }
        }
    }

    private static void print(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(word).append(' ');
        }
        System.out.println(line.toString().trim());
    }
}
