// Sends a record to Kafka and ends when all replicas in sync have it.

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Kafka {
    public static void main(String[] args) throws Exception {
        var correlationId = UUID.randomUUID().toString();
        var headers = Map.of(
            "CorrelationId", correlationId,
            "ReplyTo", "orders.replies",
            "MessageId", UUID.randomUUID().toString(),
            "content-type", "application/json",
            "tenant", "blue",
            "traceparent", System.getenv("TRACEPARENT"));
        var record = new ProducerRecord<>("orders", "customer-4", "{\"order\": 17}");
        headers.forEach((name, value) -> record.headers().add(name, value.getBytes(StandardCharsets.UTF_8)));
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", System.getenv().getOrDefault("KAFKA_BROKERS", "localhost:9092"),
            "acks", "all",
            "enable.idempotence", true, // a retry is no duplicate
            "delivery.timeout.ms", 30_000,
            "request.timeout.ms", 10_000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(record).get(40, TimeUnit.SECONDS); // throws if they do not have it
        }
        System.out.println(correlationId);
    }
}
