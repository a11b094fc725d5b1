using System.Threading;
using System.Threading.Tasks;
using Ganger.Worker;

/// <summary>What the worker does: it greets whoever is named in the message.</summary>
static class Greeter
{
    public static Task<MessageOutputTask> Greet(MessageInputTask task, CancellationToken token)
    {
        if (task.Message == "")
        {
            // Never tried again: a dead letter.
            return Task.FromResult(MessageOutputTask.Reject("nobody to greet"));
        }
        return Task.FromResult(MessageOutputTask.Reply("Hello, " + task.Message + "!"));
    }
}
