// Runs jobs that were written for Milvaion: the header JobType of a message names the class of the job, and
// the body is its data. These interfaces stand in for those of Milvaion's SDK.
using System;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Ganger.Worker;

public interface IJob
{
    void Execute(IJobContext context);
}

public interface IAsyncJob
{
    Task ExecuteAsync(IJobContext context);
}

public interface IAsyncJobWithResult
{
    Task<string> ExecuteAsync(IJobContext context);
}

// Thrown by a job that is not to be tried again.
public class PermanentJobException : Exception
{
    public PermanentJobException(string message) : base(message)
    {
    }
}

public interface IJobContext
{
    Guid CorrelationId { get; }

    JobFacts Job { get; }

    CancellationToken CancellationToken { get; }

    void LogInformation(string message);

    void LogWarning(string message);

    void LogError(string message);
}

public sealed class JobFacts
{
    public string JobNameInWorker { get; set; }

    public string JobData { get; set; }
}

public static class JobWorker
{
    // `create` makes a job, for example from the application's services; `jobs` has the classes.
    public static Task RunAsync(Assembly jobs, Func<Type, object> create, WorkerOptions options)
    {
        var types = jobs.GetTypes().Where(type => type.IsClass).ToLookup(type => type.Name);
        return GangerWorker.RunAsync((task, token) => Run(types, create, new Context(task, token)), options);
    }

    static async Task<MessageOutputTask> Run(
        ILookup<string, Type> types, Func<Type, object> create, Context context)
    {
        var type = types[context.Job.JobNameInWorker].FirstOrDefault();
        if (type == null)
        {
            return MessageOutputTask.Reject("no such job: " + context.Job.JobNameInWorker);
        }

        try
        {
            object job = create(type);
            if (job is IAsyncJob asyncJob)
            {
                await asyncJob.ExecuteAsync(context);
            }
            else if (job is IAsyncJobWithResult withResult)
            {
                return MessageOutputTask.Reply(await withResult.ExecuteAsync(context));
            }
            else if (job is IJob plain)
            {
                plain.Execute(context);
            }
            else
            {
                return MessageOutputTask.Reject("not a job: " + type.Name);
            }
        }
        catch (PermanentJobException error)
        {
            return MessageOutputTask.Reject(error.ToString());
        }

        return MessageOutputTask.Done(); // any other exception is a failed attempt
    }

    sealed class Context : IJobContext
    {
        readonly MessageInputTask task;

        public Context(MessageInputTask task, CancellationToken token)
        {
            this.task = task;
            CancellationToken = token;
            task.Headers.TryGetValue("JobType", out var type);
            Job = new JobFacts { JobNameInWorker = type ?? "", JobData = task.Message };
        }

        public Guid CorrelationId => Guid.TryParse(task.CorrelationId, out var id) ? id : Guid.Empty;

        public JobFacts Job { get; }

        public CancellationToken CancellationToken { get; }

        public void LogInformation(string message) => task.Log("info", message);

        public void LogWarning(string message) => task.Log("warn", message);

        public void LogError(string message) => task.Log("error", message);
    }
}
