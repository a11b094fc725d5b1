using System;
using System.Net.Sockets;
using System.Threading;

namespace Ganger.Worker
{
    /// <summary>
    /// Frames on their way out, from any thread. Those that wait for each other go out in one write.
    /// </summary>
    internal sealed class Outbox
    {
        /// <summary>So much may wait for the pipe; who has more to say waits with it.</summary>
        private const int WaitingBytesMax = 1 << 20;

        private readonly object gate = new object();
        private readonly Socket pipe;
        private readonly int frameBytesMax;
        private Bytes waiting = new Bytes();
        private Bytes spare = new Bytes();
        private bool writing;
        private bool gone;

        internal Outbox(Socket pipe, int frameBytesMax)
        {
            this.pipe = pipe;
            this.frameBytesMax = frameBytesMax;
        }

        /// <summary>
        /// Sends an output. One about a message needs it in hand; the last one of these ends that. It fails if the
        /// output can't be sent as it is. A daemon that is gone is no error: the end of the pipe says so.
        /// </summary>
        internal void Send(Output output, InHand about, bool last)
        {
            lock (gate)
            {
                while (writing && waiting.Count > WaitingBytesMax)
                {
                    Monitor.Wait(gate);
                }

                if (about != null && about.Over)
                {
                    throw new InvalidOperationException("its message is answered already");
                }

                Wire.Append(waiting, output, frameBytesMax);
                if (last)
                {
                    about.Over = true;
                }

                if (writing)
                {
                    return;
                }

                writing = true;
            }

            Write();
        }

        /// <summary>Waits until nothing waits.</summary>
        internal void Flushed()
        {
            lock (gate)
            {
                while (writing)
                {
                    Monitor.Wait(gate);
                }
            }
        }

        /// <summary>Writes what is there and what comes meanwhile.</summary>
        private void Write()
        {
            while (true)
            {
                Bytes data;
                lock (gate)
                {
                    if (waiting.Count == 0)
                    {
                        writing = false;
                        Monitor.PulseAll(gate);
                        return;
                    }

                    data = waiting;
                    waiting = spare;
                    spare = null;
                }

                WriteAll(data);
                lock (gate)
                {
                    data.Count = 0;
                    spare = data.Array.Length <= WaitingBytesMax ? data : new Bytes();
                    Monitor.PulseAll(gate);
                }
            }
        }

        private void WriteAll(Bytes data)
        {
            int sent = 0;
            try
            {
                while (!gone && sent < data.Count)
                {
                    sent += pipe.Send(data.Array, sent, data.Count - sent, SocketFlags.None);
                }
            }
            catch (SocketException)
            {
                gone = true;
            }
            catch (ObjectDisposedException)
            {
                gone = true;
            }
        }
    }
}
