// Sends a message to RabbitMQ and ends when the broker has it.

using RabbitMQ.Client;

static class RabbitMq
{
    public static async Task<string> Send(string url)
    {
        var correlationId = Guid.NewGuid().ToString();
        var factory = new ConnectionFactory { Uri = new Uri(url) };
        await using var connection = await factory.CreateConnectionAsync();
        // With both, BasicPublishAsync ends when the broker has the message, and throws if it did not take it.
        await using var channel = await connection.CreateChannelAsync(new CreateChannelOptions(
            publisherConfirmationsEnabled: true,
            publisherConfirmationTrackingEnabled: true));
        var properties = new BasicProperties
        {
            Persistent = true,
            ContentType = "application/json",
            MessageId = Guid.NewGuid().ToString(),
            CorrelationId = correlationId,
            ReplyTo = "orders.replies",
            Headers = new Dictionary<string, object?>
            {
                ["tenant"] = "blue",
                ["traceparent"] = Environment.GetEnvironmentVariable("TRACEPARENT"),
            },
        };
        await channel.BasicPublishAsync(
            exchange: "",
            routingKey: "orders",
            mandatory: true, // without the queue it throws a PublishException
            basicProperties: properties,
            body: """{"order": 17}"""u8.ToArray());
        return correlationId;
    }
}
