// A first worker: it answers in capitals.
using Ganger.Worker;

static class Program
{
    static void Main()
    {
        var options = new WorkerOptions { Concurrency = 4 };
        GangerWorker.Run((task, token) => MessageOutputTask.Reply(task.Message.ToUpperInvariant() + "!"), options);
    }
}
