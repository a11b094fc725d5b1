using System;

namespace Ganger.Worker
{
    /// <summary>Options of a worker; as they are made, they are good.</summary>
    public class WorkerOptions
    {
        /// <summary>How many messages are in hand at once, from 1 to 65535.</summary>
        public int Concurrency { get; set; } = 1;

        /// <summary>The longest frame: the pool's frame_bytes_max, 64 MiB unless configured.</summary>
        public int FrameBytesMax { get; set; } = Wire.FrameBytesMax;

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
