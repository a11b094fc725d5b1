using System;
using System.IO;
using System.Runtime.InteropServices;

namespace Ganger.Worker
{
    /// <summary>
    /// The lines that the daemon writes to stdin, where nobody else reads them. On unix stdin is moved to a descriptor
    /// that no child process inherits, and /dev/null put in its place: a child that reads stdin would wait there for
    /// ever, and swallow the daemon's lines.
    /// </summary>
    internal static class Stdin
    {
        private const int InputDescriptor = 0;
        private const int ReadOnly = 0;

        /// <summary>O_CLOEXEC of Linux.</summary>
        private const int CloseOnExec = 0x80000;

        internal static Stream Take()
        {
            Console.SetIn(TextReader.Null);
            if (Environment.OSVersion.Platform == PlatformID.Unix)
            {
                try
                {
                    return Moved();
                }
                catch (Exception error) when (error is DllNotFoundException || error is EntryPointNotFoundException)
                {
                    // A C library of another name: it stays where it is.
                }
            }

            return Console.OpenStandardInput();
        }

        private static Stream Moved()
        {
            int moved = Done(dup(InputDescriptor), "dup");
            if (RuntimeInformation.IsOSPlatform(OSPlatform.Linux))
            {
                Done(dup3(InputDescriptor, moved, CloseOnExec), "dup3");
            }

            int nothing = Done(open("/dev/null", ReadOnly), "open");
            Done(dup2(nothing, InputDescriptor), "dup2");
            close(nothing);
            return new Lines(moved);
        }

        private static int Done(int result, string what)
        {
            if (result < 0)
            {
                throw new IOException("stdin can't be moved: " + what + ", error " + Marshal.GetLastWin32Error());
            }

            return result;
        }

        [DllImport("libc", SetLastError = true)]
        private static extern int dup(int descriptor);

        [DllImport("libc", SetLastError = true)]
        private static extern int dup2(int descriptor, int place);

        [DllImport("libc", SetLastError = true)]
        private static extern int dup3(int descriptor, int place, int flags);

        [DllImport("libc", SetLastError = true)]
        private static extern int open([MarshalAs(UnmanagedType.LPStr)] string path, int flags);

        [DllImport("libc", SetLastError = true)]
        private static extern int close(int descriptor);

        [DllImport("libc", SetLastError = true)]
        private static extern IntPtr read(int descriptor, byte[] into, UIntPtr count);

        /// <summary>What comes from a descriptor, until the process ends.</summary>
        private sealed class Lines : Stream
        {
            private const int Interrupted = 4;

            private readonly int descriptor;

            internal Lines(int descriptor)
            {
                this.descriptor = descriptor;
            }

            public override bool CanRead
            {
                get { return true; }
            }

            public override bool CanSeek
            {
                get { return false; }
            }

            public override bool CanWrite
            {
                get { return false; }
            }

            public override long Length
            {
                get { throw new NotSupportedException(); }
            }

            public override long Position
            {
                get { throw new NotSupportedException(); }
                set { throw new NotSupportedException(); }
            }

            public override int Read(byte[] buffer, int offset, int count)
            {
                var into = new byte[count];
                while (true)
                {
                    var taken = (int)read(descriptor, into, (UIntPtr)(uint)count);
                    if (taken >= 0)
                    {
                        Buffer.BlockCopy(into, 0, buffer, offset, taken);
                        return taken;
                    }

                    if (Marshal.GetLastWin32Error() != Interrupted)
                    {
                        throw new IOException("stdin can't be read: error " + Marshal.GetLastWin32Error());
                    }
                }
            }

            public override void Flush()
            {
            }

            public override long Seek(long offset, SeekOrigin origin)
            {
                throw new NotSupportedException();
            }

            public override void SetLength(long value)
            {
                throw new NotSupportedException();
            }

            public override void Write(byte[] buffer, int offset, int count)
            {
                throw new NotSupportedException();
            }
        }
    }
}
