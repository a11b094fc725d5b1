using System;
#if NET8_0_OR_GREATER
using System.Diagnostics;
#endif

namespace Ganger.Worker
{
    /// <summary>
    /// The span of the handler's work, child of the daemon's by the message's traceparent: where somebody listens to the
    /// source "Ganger.Worker", as OpenTelemetry's AddSource makes it do. .NET Standard lacks what it takes.
    /// </summary>
    internal sealed class Tracing
    {
#if NET8_0_OR_GREATER
        private static readonly ActivitySource Source = new ActivitySource("Ganger.Worker");

        private readonly Activity activity;

        private Tracing(Activity activity)
        {
            this.activity = activity;
        }

        internal static Tracing Begin(MessageInputTask task)
        {
            if (!Source.HasListeners())
            {
                return null;
            }

            string parent;
            string state;
            task.Headers.TryGetValue("traceparent", out parent);
            task.Headers.TryGetValue("tracestate", out state);
            ActivityContext context;
            ActivityContext.TryParse(parent, state, true, out context);
            string name = "process " + task.OriginalQueueName;
            Activity activity = Source.StartActivity(name, ActivityKind.Consumer, context);
            return activity == null ? null : new Tracing(activity);
        }

        internal static void End(Tracing trace, Exception failed)
        {
            if (trace == null)
            {
                return;
            }

            if (failed != null)
            {
                trace.activity.SetStatus(ActivityStatusCode.Error, failed.Message);
            }

            trace.activity.Dispose();
        }
#else
        internal static Tracing Begin(MessageInputTask task)
        {
            return null;
        }

        internal static void End(Tracing trace, Exception failed)
        {
        }
#endif
    }
}
