import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Reads lines "message hex", decodes each with the client jar and prints what the jar encodes. */
public class Reencode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            System.out.println(reencoded(parts[0], fromHex(parts[1])));
        }
    }

    private static String reencoded(String name, byte[] bytes) throws Exception {
        Class<?> kind;
        try {
            kind = Class.forName("org.apache.fluss.rpc.messages." + name);
        } catch (ClassNotFoundException missing) {
            return "absent";
        }
        Object message = kind.getDeclaredConstructor().newInstance();
        kind.getMethod("parseFrom", byte[].class).invoke(message, (Object) bytes);
        return toHex((byte[]) kind.getMethod("toByteArray").invoke(message));
    }

    private static byte[] fromHex(String text) {
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String toHex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
