using Ganger.Worker;

/// <summary>A worker for ganger; with the argument `test`, its test.</summary>
static class Program
{
    static int Main(string[] args)
    {
        if (args.Length == 1 && args[0] == "test")
        {
            return GreeterTest.Run();
        }
        GangerWorker.RunAsync(Greeter.Greet).GetAwaiter().GetResult();
        return 0;
    }
}
