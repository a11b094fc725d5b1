// What ConsumerWorker.cs uses of AsyncMonolith and of .NET's dependency injection, which are not here,
// and consumers as an application has them.
using System;
using System.Collections.Generic;
using System.IO;
using System.Threading;
using System.Threading.Tasks;
using AsyncMonolith.Consumers;
using Microsoft.Extensions.DependencyInjection;

namespace AsyncMonolith.Consumers
{
    public sealed class ConsumerMessage
    {
        public string Id { get; set; }
        public long CreatedAt { get; set; }
        public long AvailableAfter { get; set; }
        public int Attempts { get; set; }
        public string ConsumerType { get; set; }
        public string PayloadType { get; set; }
        public string Payload { get; set; }
        public string InsertId { get; set; }
        public string TraceId { get; set; }
        public string SpanId { get; set; }
    }

    public interface IConsumer
    {
        Task Consume(ConsumerMessage message, CancellationToken cancellationToken);
    }

    public sealed class ConsumerRegistry
    {
        public IReadOnlyDictionary<string, Type> ConsumerTypeDictionary { get; set; }
    }
}

namespace Microsoft.Extensions.DependencyInjection
{
    public interface IServiceScope : IDisposable
    {
        IServiceProvider ServiceProvider { get; }
    }

    public static class Extensions
    {
        public static T GetRequiredService<T>(this IServiceProvider services)
        {
            return (T)services.GetService(typeof(T));
        }

        public static object GetRequiredService(this IServiceProvider services, Type type)
        {
            return services.GetService(type);
        }

        public static IServiceScope CreateScope(this IServiceProvider services)
        {
            return new Services();
        }
    }
}

class Services : IServiceProvider, IServiceScope
{
    public IServiceProvider ServiceProvider
    {
        get { return this; }
    }

    public object GetService(Type type)
    {
        if (type != typeof(ConsumerRegistry))
        {
            return Activator.CreateInstance(type);
        }

        var types = new Dictionary<string, Type> { { "Mailer", typeof(Mailer) }, { "Broken", typeof(Broken) } };
        return new ConsumerRegistry { ConsumerTypeDictionary = types };
    }

    public void Dispose()
    {
    }
}

class Mailer : IConsumer
{
    static readonly object File = new object();

    public Task Consume(ConsumerMessage message, CancellationToken cancellationToken)
    {
        string[] seen = { message.Id, message.PayloadType, message.Attempts.ToString(), message.Payload };
        lock (File)
        {
            System.IO.File.AppendAllText("mailed", string.Join("|", seen) + "\n");
        }

        return Task.CompletedTask;
    }
}

class Broken : IConsumer
{
    public Task Consume(ConsumerMessage message, CancellationToken cancellationToken)
    {
        throw new InvalidOperationException("no good");
    }
}

static class Program
{
    static void Main()
    {
        var options = new Ganger.Worker.WorkerOptions { Concurrency = 2 };
        ConsumerWorker.RunAsync(new Services(), options).GetAwaiter().GetResult();
    }
}
