using System;

namespace Ganger.Worker
{
    /// <summary>Frames out of what has arrived, in pieces of any size. No pipe is read here.</summary>
    internal sealed class Frames
    {
        internal const int ReadBytes = 1 << 16;
        private const int LengthBytes = 4;

        private readonly int frameBytesMax;
        private byte[] buffer = new byte[ReadBytes];
        private int start;
        private int end;

        internal Frames(int frameBytesMax)
        {
            this.frameBytesMax = frameBytesMax;
        }

        /// <summary>The next frame, without its length, if it has come whole. It is good until the next call.</summary>
        internal bool Next(out ArraySegment<byte> frame)
        {
            frame = default(ArraySegment<byte>);
            int size = Size();
            if (size < 0 || end - start - LengthBytes < size)
            {
                return false;
            }

            frame = new ArraySegment<byte>(buffer, start + LengthBytes, size);
            start += LengthBytes + size;
            return true;
        }

        /// <summary>Where the next bytes go: never empty, and large enough for the frame that has begun.</summary>
        internal ArraySegment<byte> Space()
        {
            int size = Size();
            long whole = size < 0 ? LengthBytes + 1 : (long)LengthBytes + size;
            if (start == end)
            {
                start = 0;
                end = 0;
                if (buffer.Length > ReadBytes)
                {
                    buffer = new byte[ReadBytes];
                }
            }

            if (start + whole > buffer.Length)
            {
                byte[] into = whole > buffer.Length ? new byte[whole] : buffer;
                Buffer.BlockCopy(buffer, start, into, 0, end - start);
                buffer = into;
                end -= start;
                start = 0;
            }

            return new ArraySegment<byte>(buffer, end, buffer.Length - end);
        }

        /// <summary>So many bytes have been put into the space.</summary>
        internal void Filled(int count)
        {
            end += count;
        }

        /// <summary>The length of the frame that has begun, judged before anything is made of it; -1 if it is not known.</summary>
        private int Size()
        {
            if (end - start < LengthBytes)
            {
                return -1;
            }

            uint size = ((uint)buffer[start] << 24) | ((uint)buffer[start + 1] << 16)
                | ((uint)buffer[start + 2] << 8) | buffer[start + 3];
            if (size == 0)
            {
                throw new ProtocolException("a frame's length must be 1 or more: 0");
            }

            if (size > int.MaxValue)
            {
                throw new ProtocolException("a frame's length must not have its top bit set: 0x" + size.ToString("x"));
            }

            if (size > (uint)frameBytesMax)
            {
                throw new ProtocolException(
                    "a frame must have at most " + frameBytesMax + " bytes (WorkerOptions.FrameBytesMax): " + size);
            }

            return (int)size;
        }
    }
}
