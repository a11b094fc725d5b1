// Runs consumers that were written for AsyncMonolith: each of its messages is in a queue that is named
// after the consumer, as it is in the column consumer_type.
using System;
using System.Threading;
using System.Threading.Tasks;
using AsyncMonolith.Consumers;
using Ganger.Worker;
using Microsoft.Extensions.DependencyInjection;

public static class ConsumerWorker
{
    // The application's services, with all that the consumers need. The host itself is not started:
    // AsyncMonolith's own processors are hosted services.
    public static Task RunAsync(IServiceProvider services, WorkerOptions options)
    {
        var registry = services.GetRequiredService<ConsumerRegistry>();
        return GangerWorker.RunAsync((task, token) => Consume(services, registry, task, token), options);
    }

    static Task<MessageOutputTask> Consume(
        IServiceProvider services, ConsumerRegistry registry, MessageInputTask task, CancellationToken token)
    {
        ConsumerMessage message = MessageOf(task);
        return registry.ConsumerTypeDictionary.TryGetValue(message.ConsumerType, out var type)
            ? Consume(services, type, message, token)
            : Task.FromResult(MessageOutputTask.Reject("no such consumer: " + message.ConsumerType));
    }

    static async Task<MessageOutputTask> Consume(
        IServiceProvider services, Type type, ConsumerMessage message, CancellationToken token)
    {
        using (IServiceScope scope = services.CreateScope())
        {
            var consumer = (IConsumer)scope.ServiceProvider.GetRequiredService(type);
            await consumer.Consume(message, token);
        }

        return MessageOutputTask.Done();
    }

    static ConsumerMessage MessageOf(MessageInputTask task)
    {
        task.Headers.TryGetValue("payload_type", out var payloadType);
        task.Properties.TryGetValue("message_id", out var id);
        return new ConsumerMessage
        {
            Id = id as string ?? "",
            CreatedAt = 0,
            AvailableAfter = 0,
            Attempts = (int)(task.Attempt ?? 1) - 1,
            ConsumerType = task.OriginalQueueName,
            PayloadType = payloadType ?? "",
            Payload = task.Message,
            InsertId = "",
            TraceId = null, // the activity that it runs in is the message's
            SpanId = null,
        };
    }
}
