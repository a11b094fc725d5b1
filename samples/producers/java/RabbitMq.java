// Sends a message to RabbitMQ and ends when the broker has it.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

public class RabbitMq {
    public static void main(String[] args) throws Exception {
        var correlationId = UUID.randomUUID().toString();
        var properties = new AMQP.BasicProperties.Builder()
            .deliveryMode(2) // persistent
            .contentType("application/json")
            .messageId(UUID.randomUUID().toString())
            .correlationId(correlationId)
            .replyTo("orders.replies")
            .headers(Map.of("tenant", "blue", "traceparent", System.getenv("TRACEPARENT")))
            .build();
        var body = "{\"order\": 17}".getBytes(StandardCharsets.UTF_8);
        var factory = new ConnectionFactory();
        factory.setUri(System.getenv().getOrDefault("AMQP_URL", "amqp://localhost"));
        try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
            channel.confirmSelect();
            var returned = new AtomicReference<String>();
            channel.addReturnListener(message -> returned.set(message.getReplyText()));
            // Not waitForConfirms, which can take a refusal for a confirmation (docs/producers.md).
            var taken = new CompletableFuture<Boolean>();
            channel.addConfirmListener(
                (tag, multiple) -> taken.complete(true),
                (tag, multiple) -> taken.complete(false));
            channel.addShutdownListener(taken::completeExceptionally);
            var mandatory = true; // without the queue it comes back, before it is confirmed
            channel.basicPublish("", "orders", mandatory, properties, body);
            if (!taken.get(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not sent: the broker did not take it");
            }
            if (returned.get() != null) {
                throw new IllegalStateException("not sent: " + returned.get());
            }
        }
        System.out.println(correlationId);
    }
}
