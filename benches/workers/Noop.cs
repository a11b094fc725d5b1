using Ganger.Worker;

/// <summary>A worker that does nothing; its argument is how many tasks at once.</summary>
internal static class Noop
{
    private static void Main(string[] args)
    {
        GangerWorker.Run((task, token) => null, new WorkerOptions { Concurrency = int.Parse(args[0]) });
    }
}
