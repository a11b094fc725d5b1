using System;
using System.Threading.Tasks;

namespace Ganger.Worker
{
    /// <summary>Options of a worker; as they are made, they are good.</summary>
    public class WorkerOptions
    {
        /// <summary>How many messages are in hand at once, from 1 to 65535.</summary>
        public int Concurrency { get; set; } = 1;

        /// <summary>
        /// The longest frame under a daemon that does not tell its own, the pool's frame_bytes_max, in
        /// GANGER_FRAME_BYTES_MAX; 64 MiB unless set.
        /// </summary>
        public int FrameBytesMax { get; set; } = Wire.FrameBytesMax;

        /// <summary>
        /// Runs before the worker connects: start_timeout counts, timeout does not. What takes its time only once
        /// belongs here, such as the first use of a database context. What it throws ends the worker. Null for
        /// nothing.
        /// </summary>
        public Func<Task> WarmUp { get; set; }

        internal void Check()
        {
            if (Concurrency < 1 || Concurrency > 65535)
            {
                throw new ArgumentOutOfRangeException(
                    nameof(Concurrency), "Concurrency must be within 1 and 65535: " + Concurrency);
            }

            if (FrameBytesMax < 1)
            {
                throw new ArgumentOutOfRangeException(
                    nameof(FrameBytesMax), "FrameBytesMax must be 1 or more: " + FrameBytesMax);
            }
        }
    }
}
