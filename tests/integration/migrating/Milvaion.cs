// Jobs as an application of Milvaion has them, and the program that runs them.
using System;
using System.IO;
using System.Threading.Tasks;

class SendEmailJob : IAsyncJob
{
    public async Task ExecuteAsync(IJobContext context)
    {
        context.LogInformation("sending");
        await Task.Yield();
        string[] seen = { context.CorrelationId.ToString(), context.Job.JobNameInWorker, context.Job.JobData };
        File.WriteAllText("sent", string.Join("|", seen));
    }
}

class GenerateReportJob : IAsyncJobWithResult
{
    public Task<string> ExecuteAsync(IJobContext context)
    {
        return Task.FromResult("report of " + context.Job.JobData);
    }
}

class BrokenJob : IJob
{
    public void Execute(IJobContext context)
    {
        throw new InvalidOperationException("no good");
    }
}

class InvalidJob : IJob
{
    public void Execute(IJobContext context)
    {
        throw new PermanentJobException("never");
    }
}

static class Program
{
    static void Main()
    {
        var options = new Ganger.Worker.WorkerOptions { Concurrency = 2 };
        JobWorker.RunAsync(typeof(Program).Assembly, Activator.CreateInstance, options).GetAwaiter().GetResult();
    }
}
