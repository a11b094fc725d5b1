// Puts a message into a table queue, in the transaction of a row of its own.

import java.sql.SQLException;
import java.util.UUID;
import org.sqlite.SQLiteConfig;

public class Table {
    public static void main(String[] args) throws SQLException {
        var correlationId = UUID.randomUUID().toString();
        var headers = "{\"tenant\": \"blue\", \"traceparent\": \"" + System.getenv("TRACEPARENT") + "\"}";
        var config = new SQLiteConfig();
        config.setBusyTimeout(10_000);
        config.setSynchronous(SQLiteConfig.SynchronousMode.FULL); // or a power cut may take it back
        config.setTransactionMode(SQLiteConfig.TransactionMode.IMMEDIATE);
        var database = System.getenv().getOrDefault("DATABASE", "ganger.db");
        try (var db = config.createConnection("jdbc:sqlite:" + database)) {
            db.setAutoCommit(false); // what is not committed is rolled back at the end
            try (var order = db.prepareStatement("INSERT INTO orders (id, state) VALUES (17, 'new')");
                    var message = db.prepareStatement("""
                        INSERT INTO consumer_messages
                          (queue, body, headers, correlation_id, reply_to, message_id, content_type)
                        VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')""")) {
                order.executeUpdate();
                message.setString(1, "{\"order\": 17}");
                message.setString(2, headers);
                message.setString(3, correlationId);
                message.setString(4, UUID.randomUUID().toString());
                message.executeUpdate();
            }
            db.commit();
        }
        System.out.println(correlationId);
    }
}
