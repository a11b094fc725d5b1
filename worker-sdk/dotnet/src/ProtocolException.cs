using System;

namespace Ganger.Worker
{
    /// <summary>What the daemon, or what pretends to be one, has sent is against the protocol.</summary>
    public class ProtocolException : Exception
    {
        /// <summary>With what is wrong.</summary>
        public ProtocolException(string message)
            : base(message)
        {
        }
    }
}
