using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;

namespace Ganger.Worker
{
    /// <summary>
    /// Bridges System.Diagnostics: what Trace and TraceSource say in a handler becomes a record of its message in the
    /// daemon's log. The rest goes to stderr, which the daemon logs too.
    /// <code>Trace.Listeners.Add(new GangerTraceListener());</code>
    /// </summary>
    public class GangerTraceListener : TraceListener
    {
        /// <inheritdoc/>
        public override bool IsThreadSafe
        {
            get { return true; }
        }

        /// <inheritdoc/>
        public override void Write(string message)
        {
            WriteLine(message);
        }

        /// <inheritdoc/>
        public override void WriteLine(string message)
        {
            Record(null, TraceEventType.Information, message);
        }

        /// <inheritdoc/>
        public override void TraceEvent(
            TraceEventCache eventCache, string source, TraceEventType eventType, int id, string message)
        {
            if (Filter == null || Filter.ShouldTrace(eventCache, source, eventType, id, message, null, null, null))
            {
                Record(source, eventType, message);
            }
        }

        /// <inheritdoc/>
        public override void TraceEvent(
            TraceEventCache eventCache,
            string source,
            TraceEventType eventType,
            int id,
            string format,
            params object[] args)
        {
            if (Filter == null || Filter.ShouldTrace(eventCache, source, eventType, id, format, args, null, null))
            {
                string message = args == null ? format : string.Format(CultureInfo.InvariantCulture, format, args);
                Record(source, eventType, message);
            }
        }

        private static void Record(string source, TraceEventType eventType, string message)
        {
            string level = Level(eventType);
            MessageInputTask task = MessageInputTask.Current;
            if (task == null || task.InHand == null)
            {
                Console.Error.WriteLine(level + ": " + message);
                return;
            }

            var fields = new List<KeyValuePair<string, object>>();
            if (!string.IsNullOrEmpty(source))
            {
                fields.Add(new KeyValuePair<string, object>("target", source));
            }

            task.Log(level, message, fields);
        }

        private static string Level(TraceEventType eventType)
        {
            if (eventType <= TraceEventType.Error)
            {
                return "error";
            }

            if (eventType == TraceEventType.Warning)
            {
                return "warn";
            }

            return eventType == TraceEventType.Information ? "info" : "debug";
        }
    }
}
