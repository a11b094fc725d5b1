// Sends a message to RabbitMQ and ends when the broker has it.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
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
            var mandatory = true; // without the queue it comes back, before it is confirmed
            channel.basicPublish("", "orders", mandatory, properties, body);
            channel.waitForConfirmsOrDie(30_000); // throws if it was not taken
            if (returned.get() != null) {
                throw new IllegalStateException("not sent: " + returned.get());
            }
        }
        System.out.println(correlationId);
    }
}
