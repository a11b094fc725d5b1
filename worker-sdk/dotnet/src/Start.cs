using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker
{
    /// <summary>What the daemon tells a process that it starts: which pipe to open, and the lines after that.</summary>
    internal static class Start
    {
        private const int LineBytesMax = 1 << 16;

        internal sealed class Pipe
        {
            internal Socket Socket;
            internal Stream Control;
        }

        internal static Connection Connect(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler, WorkerOptions options)
        {
            return Connected(handler, options, Open(options));
        }

        internal static Connection Connected(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler, WorkerOptions options, Pipe pipe)
        {
            int frameBytesMax = Told("GANGER_FRAME_BYTES_MAX") ?? options.FrameBytesMax;
            return new Connection(handler, options.Concurrency, frameBytesMax, pipe.Socket, pipe.Control, Spoken());
        }

        /// <summary>Opens the pipe that stdin names, when all is warm.</summary>
        internal static Pipe Open(WorkerOptions options)
        {
            if (!Console.IsInputRedirected)
            {
                throw new InvalidOperationException(
                    "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: put it into a "
                    + "[[pools]] section, or try it with Ganger.Worker.Testing.TestBench");
            }

            Stream control = new BufferedStream(Stdin.Take(), 4096);
            string name = ReadLine(control);
            if (string.IsNullOrEmpty(name))
            {
                throw new InvalidOperationException("stdin must begin with a line that names the pipe");
            }

            if (options.WarmUp != null)
            {
                options.WarmUp().GetAwaiter().GetResult();
            }

            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
            socket.Connect(new UnixDomainSocketEndPoint(PathOf(name)));
            return new Pipe { Socket = socket, Control = control };
        }

        private static string PathOf(string name)
        {
            string told = Environment.GetEnvironmentVariable("GANGER_PIPE");
            if (!string.IsNullOrEmpty(told))
            {
                return told;
            }

            string file = "CoreFxPipe_" + name;
            string below = Environment.GetEnvironmentVariable("TMPDIR");
            if (!string.IsNullOrEmpty(below) && File.Exists(Path.Combine(below, file)))
            {
                return Path.Combine(below, file);
            }

            return "/tmp/" + file;
        }

        /// <summary>2, unless the daemon is one that knows version 1 only.</summary>
        internal static int Spoken()
        {
            return Told("GANGER_PROTOCOL") >= 2 ? 2 : 1;
        }

        /// <summary>A number from 1 in the environment; null if there is none.</summary>
        private static int? Told(string variable)
        {
            string told = Environment.GetEnvironmentVariable(variable);
            int number;
            bool good = int.TryParse(told, NumberStyles.None, CultureInfo.InvariantCulture, out number) && number > 0;
            return good ? number : (int?)null;
        }

        /// <summary>A line without its end; null at the end of what there is, or at a line that is too long.</summary>
        internal static string ReadLine(Stream from)
        {
            var line = new List<byte>();
            while (line.Count < LineBytesMax)
            {
                int next;
                try
                {
                    next = from.ReadByte();
                }
                catch (IOException)
                {
                    return null;
                }
                catch (ObjectDisposedException)
                {
                    return null;
                }

                if (next < 0)
                {
                    return null;
                }

                if (next == '\n')
                {
                    return Encoding.UTF8.GetString(line.ToArray()).TrimEnd('\r');
                }

                line.Add((byte)next);
            }

            return null;
        }
    }
}
