// Receives callbacks (Java 17 or later): DELAYD_SECRETS=whsec_… PORT=9000 java Receiver.java
import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Receiver {
    static final long TOLERANCE = 300; // seconds
    static final int MAX_BODY = 1 << 20;

    // One secret; several, separated by spaces, while a secret is rotated.
    static final List<byte[]> KEYS = Stream.of(System.getenv("DELAYD_SECRETS").split(" "))
        .map(secret -> Base64.getDecoder().decode(secret.replaceFirst("^whsec_", "")))
        .toList();

    // Replace this by a table of your database. A set in memory is lost with the process, and
    // several processes do not share it.
    static final Set<String> DONE = new HashSet<>();

    static boolean isSigned(Headers headers, byte[] body) throws GeneralSecurityException {
        String id = headers.getFirst("webhook-id");
        String moment = headers.getFirst("webhook-timestamp");
        String words = headers.getFirst("webhook-signature");
        if (id == null || words == null || moment == null) return false;
        if (!moment.matches("[0-9]{1,12}")) return false;
        long age = System.currentTimeMillis() / 1000 - Long.parseLong(moment);
        if (Math.abs(age) > TOLERANCE) return false;
        for (byte[] key : KEYS) {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update((id + "." + moment + ".").getBytes());
            byte[] digest = mac.doFinal(body); // the received bytes
            byte[] right = ("v1," + Base64.getEncoder().encodeToString(digest)).getBytes();
            for (String given : words.split(" ")) {
                // In constant time.
                if (MessageDigest.isEqual(given.getBytes(), right)) return true;
            }
        }
        return false;
    }

    // Does the work. Returns false if it was done before. With a database, commit the work and the
    // id in one transaction.
    static synchronized boolean take(String id, byte[] body) {
        if (DONE.contains(id)) return false;
        System.out.println("did " + id); // your work; if it throws, the id is not kept
        DONE.add(id);
        return true;
    }

    static void handle(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(MAX_BODY + 1);
        try {
            if (body.length > MAX_BODY) {
                answer(exchange, 413, "{\"dm_error\":413}");
            } else if (!isSigned(exchange.getRequestHeaders(), body)) {
                answer(exchange, 401, "{\"dm_error\":401}");
            } else {
                boolean isNew = take(exchange.getRequestHeaders().getFirst("webhook-id"), body);
                String duplicate = "{\"dm_error\":0,\"duplicate\":true}";
                answer(exchange, 200, isNew ? "{\"dm_error\":0}" : duplicate);
            }
        } catch (RuntimeException | GeneralSecurityException error) {
            error.printStackTrace();
            answer(exchange, 500, "{\"dm_error\":500}"); // not done: delayd calls again
        }
    }

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        exchange.getResponseHeaders().set("content-type", "application/json");
        exchange.sendResponseHeaders(status, text.length());
        exchange.getResponseBody().write(text.getBytes());
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "9000"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", Receiver::handle);
        server.setExecutor(Executors.newFixedThreadPool(64));
        server.start();
        System.out.println("listens on port " + server.getAddress().getPort());
    }
}
