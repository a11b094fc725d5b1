// Sends a record to Kafka and ends when all replicas in sync have it.

using System.Text;
using Confluent.Kafka;

static class Kafka
{
    public static async Task<string> Send(string brokers)
    {
        var correlationId = Guid.NewGuid().ToString();
        var config = new ProducerConfig
        {
            BootstrapServers = brokers,
            Acks = Acks.All,
            EnableIdempotence = true, // a retry is no duplicate
            Partitioner = Partitioner.Murmur2Random, // a key goes where other clients' producers put it
            MessageTimeoutMs = 30_000,
        };
        var headers = new Headers();
        void Add(string name, string? value) => headers.Add(name, Encoding.UTF8.GetBytes(value ?? ""));
        Add("CorrelationId", correlationId);
        Add("ReplyTo", "orders.replies");
        Add("MessageId", Guid.NewGuid().ToString());
        Add("content-type", "application/json");
        Add("tenant", "blue");
        Add("traceparent", Environment.GetEnvironmentVariable("TRACEPARENT"));
        using var producer = new ProducerBuilder<string, string>(config).Build();
        // Throws a ProduceException if they do not have it.
        await producer.ProduceAsync("orders", new Message<string, string>
        {
            Key = "customer-4",
            Value = """{"order": 17}""",
            Headers = headers,
        });
        return correlationId;
    }
}
