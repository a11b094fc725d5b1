using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Ganger.Worker.Testing;

namespace Ganger.Worker.Tests
{
    /// <summary>The harness for handlers of others, and with it the library on a socket pair.</summary>
    internal static class BenchTests
    {
        public static void ResultsAreInTheOrderOfTheMessages()
        {
            TestMessage[] messages = Enumerable.Range(0, 500).Select(n => new TestMessage("message " + n)).ToArray();
            foreach (int concurrency in new[] { 1, 16 })
            {
                var options = new WorkerOptions { Concurrency = concurrency };
                IList<TestResult> results = TestBench.Work(Shout, options, 2, messages);
                for (int n = 0; n < messages.Length; n++)
                {
                    TestResult result = results[n];
                    Expect.Same(result.Status, MessageStatus.MESSAGE_DONE_WITH_REPLY);
                    Expect.Same(result.Message, "MESSAGE " + n);
                    Expect.Same(result.Headers["loud"], "true");
                    Expect.Same(result.Queue, "answers");
                    Expect.Same(result.RetryAfter, null);
                    Expect.Same(result.Emits.Count, 1);
                    Expect.Same(result.Emits[0].Message, "message " + n);
                    Expect.Same(result.Emits[0].Queue, "heard");
                    Expect.Same(result.Logs.Count, 1);
                    Expect.Same(result.Logs[0].Headers["volume"], "11");
                    Expect.Same(string.Join(",", result.Progress), "half way");
                }
            }
        }

        public static void EverythingOfAMessageReachesTheHandler()
        {
            var message = new TestMessage(new byte[] { 255 })
            {
                CorrelationId = "c",
                OriginalQueueName = "q",
                Attempt = 3,
                MillisecondsLeft = 100,
            };
            message.Headers["a"] = "b";
            message.Properties["topic"] = "t";
            string seen = null;
            IList<TestResult> results = TestBench.Work(
                (task, token) =>
                {
                    seen = Hex.Of(task.Body) + task.CorrelationId + task.OriginalQueueName + task.Headers["a"] + task.Attempt
                        + " " + task.MillisecondsLeft + task.Properties["topic"] + task.Id;
                    return Task.FromResult(MessageOutputTask.Done());
                },
                message);
            Expect.Same(results[0].Status, MessageStatus.MESSAGE_DONE);
            Expect.Same(seen, "ffcqb3 100t0");
            Expect.Same(MessageInputTask.Current, null);
        }

        public static void CancellationReachesTheHandler()
        {
            var message = new TestMessage("") { CancelAfter = TimeSpan.FromMilliseconds(10) };
            IList<TestResult> results = TestBench.Work(
                (task, token) =>
                {
                    token.WaitHandle.WaitOne();
                    return Task.FromResult(MessageOutputTask.Retry("gave up", TimeSpan.FromMinutes(1)));
                },
                message);
            Expect.Same(results[0].Message, "gave up");
            Expect.Same(results[0].RetryAfter, TimeSpan.FromMinutes(1));
            results = TestBench.Work(Forever, message);
            Expect.Same(results[0].Status, MessageStatus.RETRY);
            Expect.That(results[0].Message.StartsWith("cancelled\n", StringComparison.Ordinal), results[0].Message);
        }

        public static void NothingIsSaidOfAMessageThatIsAnswered()
        {
            MessageInputTask kept = null;
            TestBench.Work(
                (task, token) =>
                {
                    kept = task;
                    return Task.FromResult<MessageOutputTask>(null);
                },
                new TestMessage("x"));
            var late = Expect.Throws<InvalidOperationException>(() => kept.Emit("parts", "x"));
            Expect.Contains(late.Message, "answered already");
            kept.Progress("nobody hears it");
            var alone = new MessageInputTask { Message = "ü" };
            Expect.Same(Hex.Of(alone.Body), "c3bc");
            Expect.Throws<InvalidOperationException>(() => alone.Emit("parts", "x"));
        }

        public static void Version1IsSpokenToo()
        {
            IList<TestResult> results = TestBench.Work(
                Modes.Shout, new WorkerOptions { Concurrency = 4 }, 1, new TestMessage("a"), new TestMessage("b"));
            Expect.Same(results[0].Message + results[1].Message, "A!B!");
        }

        public static void BadArgumentsAndMessagesAreTold()
        {
            Expect.Throws<ArgumentNullException>(() => TestBench.Work(null, new TestMessage("")));
            var none = new WorkerOptions { Concurrency = 0 };
            var range = Expect.Throws<ArgumentOutOfRangeException>(
                () => TestBench.Work(Modes.Shout, none, 2, new TestMessage("")));
            Expect.Contains(range.Message, "Concurrency must be within 1 and 65535: 0");
            Expect.Throws<ArgumentOutOfRangeException>(() => new MessageProcessor(none));
            Expect.Throws<ArgumentOutOfRangeException>(() => TestBench.Work(Modes.Shout, null, 3, new TestMessage("")));
            var hostile = Expect.Throws<ProtocolException>(
                () => TestBench.Work(Modes.Shout, new TestMessage("") { Attempt = 0 }));
            Expect.Contains(hostile.Message, "a number from 1 under its key \"5\": 0");
            IList<TestResult> results = TestBench.Work(
                (task, token) =>
                {
                    task.Emit("", "x");
                    return null;
                },
                new TestMessage(""));
            Expect.Same(results[0].Status, MessageStatus.UNKNOWN_ERROR);
            Expect.Contains(results[0].Message, "Emit needs the name of a queue");
            results = TestBench.Work((task, token) => null, new TestMessage(""));
            Expect.Contains(results[0].Message, "a handler must return a Task");
        }

#if NET8_0_OR_GREATER
        public static void TheHandlersSpanIsAChildOfTheDaemons()
        {
            var listener = new System.Diagnostics.ActivityListener
            {
                ShouldListenTo = source => source.Name == "Ganger.Worker",
                Sample = (ref System.Diagnostics.ActivityCreationOptions<System.Diagnostics.ActivityContext> creation) =>
                    System.Diagnostics.ActivitySamplingResult.AllData,
            };
            using (listener)
            {
                System.Diagnostics.ActivitySource.AddActivityListener(listener);
                var message = new TestMessage("");
                message.Headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
                string parent = null;
                TestBench.Work(
                    (task, token) =>
                    {
                        parent = System.Diagnostics.Activity.Current.ParentId;
                        return Task.FromResult(MessageOutputTask.Done());
                    },
                    message);
                Expect.Same(parent, message.Headers["traceparent"]);
            }
        }
#endif

        private static async Task<MessageOutputTask> Forever(MessageInputTask task, CancellationToken token)
        {
            await Task.Delay(Timeout.Infinite, token);
            return null;
        }

        private static async Task<MessageOutputTask> Shout(MessageInputTask task, CancellationToken token)
        {
            task.Emit("heard", task.Message);
            task.Progress("half way");
            await Task.Yield();
            task.Log("info", "shouting", new Dictionary<string, object> { { "volume", 11 } });
            MessageOutputTask reply = MessageOutputTask.Reply(task.Message.ToUpperInvariant());
            reply.Headers = new Dictionary<string, string> { { "loud", "true" } };
            reply.ReplyQueueName = "answers";
            return reply;
        }
    }
}
