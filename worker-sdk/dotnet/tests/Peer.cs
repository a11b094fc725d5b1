using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Net.Sockets;
using System.Text;
using System.Threading.Tasks;

namespace Ganger.Worker.Tests
{
    /// <summary>A real worker process, with a daemon by hand on the other side.</summary>
    internal sealed class Peer : IDisposable
    {
        internal const int DeadlineMs = 60000;

        private readonly Process process;
        private readonly Task<string> stderr;
        private readonly Frames frames = new Frames(Wire.FrameBytesMax);

        internal Peer(
            string worker, int concurrency, int version, int frameBytesMax = Wire.FrameBytesMax, int told = 0)
        {
            string name = Guid.NewGuid().ToString("N");
            string path = "/tmp/CoreFxPipe_" + name;
            using (var listener = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified))
            {
                listener.Bind(new UnixDomainSocketEndPoint(path));
                try
                {
                    listener.Listen(1);
                    process = Spawn(worker + " " + concurrency + " " + frameBytesMax, version == 2 ? path : null, told);
                    stderr = process.StandardError.ReadToEndAsync();

                    // What is next on stdin is not part of the first line, though it comes with it.
                    Tell(name + "\n__of_a_newer_daemon__ 1");
                    Expect.That(listener.Poll(DeadlineMs * 1000, SelectMode.SelectRead), "no connection");
                    Pipe = listener.Accept();
                }
                finally
                {
                    File.Delete(path);
                }
            }

            Pipe.ReceiveTimeout = DeadlineMs;
            Pipe.SendTimeout = DeadlineMs;
            if (version == 2)
            {
                Answer hello = Receive();
                Expect.Same(hello.Status + hello.Text, "100");
                Expect.Same(hello.Headers["sdk"], "ganger-dotnet");
                Expect.Same(hello.Headers["concurrency"], concurrency.ToString());
            }
        }

        internal Socket Pipe { get; private set; }

        /// <summary>This program as a process of its own; with a path, one that a daemon of version 2 starts.</summary>
        internal static Process Spawn(string arguments, string path, int frameBytesMax = 0)
        {
            string program = typeof(Peer).Assembly.Location;
            string runtime = Process.GetCurrentProcess().MainModule.FileName;
            string kind = Path.GetFileNameWithoutExtension(runtime);
            bool hosted = kind == "dotnet" || kind.StartsWith("mono", StringComparison.Ordinal);
            var start = new ProcessStartInfo(runtime, hosted ? "\"" + program + "\" " + arguments : arguments)
            {
                UseShellExecute = false,
                RedirectStandardInput = true,
                RedirectStandardError = true,
            };
            start.Environment.Remove("GANGER_PROTOCOL");
            start.Environment.Remove("GANGER_PIPE");
            start.Environment.Remove("GANGER_FRAME_BYTES_MAX");
            if (frameBytesMax > 0)
            {
                start.Environment["GANGER_FRAME_BYTES_MAX"] = frameBytesMax.ToString();
            }

            if (path != null)
            {
                start.Environment["GANGER_PROTOCOL"] = "2";
                start.Environment["GANGER_PIPE"] = path;
            }

            return Process.Start(start);
        }

        internal void Tell(string lines)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(lines + "\n");
            process.StandardInput.BaseStream.Write(bytes, 0, bytes.Length);
            process.StandardInput.BaseStream.Flush();
        }

        internal void CloseStdin()
        {
            process.StandardInput.Close();
        }

        internal void Write(byte[] bytes)
        {
            for (int sent = 0; sent < bytes.Length;)
            {
                sent += Pipe.Send(bytes, sent, bytes.Length - sent, SocketFlags.None);
            }
        }

        internal void Send(string body, ulong id)
        {
            Write(new Message(body, id).Frame());
        }

        internal Answer Ask(string body, ulong id)
        {
            Send(body, id);
            return Receive();
        }

        /// <summary>Sends one that says when it is in hand.</summary>
        internal void Begin(string body, ulong id)
        {
            Expect.Same(Ask(body, id).Text, "begun", body);
        }

        internal Answer Receive()
        {
            ArraySegment<byte> frame;
            while (!frames.Next(out frame))
            {
                ArraySegment<byte> space = frames.Space();
                int count = Pipe.Receive(space.Array, space.Offset, space.Count, SocketFlags.None);
                Expect.That(count > 0, "the worker has left");
                frames.Filled(count);
            }

            return new Answer(frame);
        }

        internal Answer Expected(int status, string text, ulong? id)
        {
            Answer found = Receive();
            Expect.Same(found.Status + " " + found.Text + " " + found.Id, status + " " + text + " " + id);
            return found;
        }

        /// <summary>Sees that nothing more was said, and how the process has ended; what was on stderr.</summary>
        internal string Ended(int code)
        {
            ArraySegment<byte> space = frames.Space();
            int count = Pipe.Receive(space.Array, space.Offset, space.Count, SocketFlags.None);
            Expect.Same(count, 0, "bytes after the last answer");
            return Said(code);
        }

        /// <summary>How the process has ended, and what was on stderr.</summary>
        internal string Said(int code)
        {
            Expect.That(process.WaitForExit(DeadlineMs), "it has not ended");
            string said = stderr.GetAwaiter().GetResult();
            Expect.Same(process.ExitCode, code, said);
            return said;
        }

        public void Dispose()
        {
            if (!process.HasExited)
            {
                process.Kill();
            }

            process.WaitForExit();
            process.Dispose();
            Pipe.Dispose();
        }
    }

    /// <summary>What the daemon sends.</summary>
    internal sealed class Message
    {
        internal readonly Dictionary<string, string> Headers = new Dictionary<string, string>();
        internal ulong Attempt = 1;
        internal byte[] Body;
        internal bool Binary;
        internal string CorrelationId = "";
        internal ulong? Left;
        internal byte[] Property;
        internal bool Newer;
        internal bool OldOnly;
        private readonly ulong id;

        internal Message(string body, ulong id)
        {
            Body = Encoding.UTF8.GetBytes(body);
            this.id = id;
        }

        internal byte[] Frame()
        {
            var to = new Bytes();
            to.Number(0, 4);
            to.MapHead(OldOnly ? 4 : Newer ? 10 : 8);
            to.Text("0");
            if (Binary && Body.Length == 0)
            {
                to.Add(0xc4);
                to.Add(0);
            }
            else
            {
                to.TextOrBytes(Body);
            }

            to.Text("1");
            to.Text(CorrelationId);
            to.Text("2");
            to.Text("q");
            to.Text("3");
            to.MapHead(Headers.Count);
            foreach (KeyValuePair<string, string> header in Headers)
            {
                to.Text(header.Key);
                to.Text(header.Value);
            }

            if (!OldOnly)
            {
                AppendRest(to);
            }

            to.SetLength(0, to.Count - 4);
            var frame = new byte[to.Count];
            Buffer.BlockCopy(to.Array, 0, frame, 0, frame.Length);
            return frame;
        }

        private void AppendRest(Bytes to)
        {
            to.Text("4");
            to.Unsigned(id);
            to.Text("5");
            to.Unsigned(Attempt);
            to.Text("6");
            if (Left.HasValue)
            {
                to.Unsigned(Left.Value);
            }
            else
            {
                to.TextOrNil(null);
            }

            to.Text("7");
            to.MapHead(Property == null ? 0 : 1);
            if (Property != null)
            {
                to.Text("key");
                to.TextOrBytes(Property);
            }

            if (Newer)
            {
                to.Text("8");
                to.MapHead(1);
                to.Text("new");
                to.Add(0x91);
                to.Integer(1);
                to.Text("more");
                to.TextOrBytes(new byte[] { 255 });
            }
        }
    }

    /// <summary>What the worker sends.</summary>
    internal sealed class Answer
    {
        internal readonly Dictionary<string, string> Headers = new Dictionary<string, string>();

        internal Answer(ArraySegment<byte> frame)
        {
            foreach (KeyValuePair<object, object> pair in (KeyValuePair<object, object>[])Input.DecodeAny(frame))
            {
                string key = (string)pair.Key;
                if (key == "0")
                {
                    Text = pair.Value as string;
                    Bytes = pair.Value as byte[];
                }
                else if (key == "1")
                {
                    Status = (int)(long)pair.Value;
                }
                else if (key == "2")
                {
                    foreach (KeyValuePair<object, object> header in (KeyValuePair<object, object>[])pair.Value)
                    {
                        Headers[(string)header.Key] = (string)header.Value;
                    }
                }
                else if (key == "3")
                {
                    Queue = (string)pair.Value;
                }
                else if (key == "4")
                {
                    Id = pair.Value is ulong ? (ulong)pair.Value : (ulong)(long)pair.Value;
                }
                else
                {
                    Expect.Same(key, "5");
                    After = (long)pair.Value;
                }
            }
        }

        internal string Text { get; }

        internal byte[] Bytes { get; }

        internal int Status { get; }

        internal string Queue { get; }

        internal ulong? Id { get; }

        internal long? After { get; }
    }
}
