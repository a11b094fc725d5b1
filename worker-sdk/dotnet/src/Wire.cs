using System;
using System.Collections.Generic;
using System.Text;

namespace Ganger.Worker
{
    /// <summary>What a worker sends, before it is a frame.</summary>
    internal struct Output
    {
        /// <summary>Counts where there is no body.</summary>
        internal string Message;
        internal byte[] Body;
        internal int Status;

        /// <summary>Null for none.</summary>
        internal IEnumerable<KeyValuePair<string, string>> Headers;
        internal string Queue;
        internal ulong? Id;
        internal ulong? AfterMs;
    }

    /// <summary>The bytes of the protocol that a worker writes. No pipe is written here.</summary>
    internal static class Wire
    {
        internal const int FrameBytesMax = 64 << 20;
        internal const int DepthMax = 64;
        internal const int HeadersMax = 10000;

        internal const int Hello = 100;
        internal const int LogRecord = 101;
        internal const int Progress = 102;
        internal const int Emit = 103;

        /// <summary>
        /// Writes a frame, with its length, behind what is there. When that fails, nothing is added: an
        /// InvalidOperationException says what can't be sent.
        /// </summary>
        internal static void Append(Bytes to, Output output, int frameBytesMax)
        {
            int start = to.Count;
            try
            {
                to.Number(0, 4);
                AppendMap(to, output);
                int size = to.Count - start - 4;
                if (size > frameBytesMax)
                {
                    throw new InvalidOperationException(
                        "an answer must have at most " + frameBytesMax + " bytes (frame_bytes_max): " + size);
                }

                to.SetLength(start, size);
            }
            catch
            {
                to.Count = start;
                throw;
            }
        }

        private static void AppendMap(Bytes to, Output output)
        {
            List<KeyValuePair<string, string>> headers = null;
            if (output.Headers != null)
            {
                headers = new List<KeyValuePair<string, string>>(output.Headers);
                if (headers.Count > HeadersMax)
                {
                    throw new InvalidOperationException(
                        "an answer must have at most " + HeadersMax + " headers: " + headers.Count);
                }
            }

            bool hasQueue = !string.IsNullOrEmpty(output.Queue);
            int count = 2 + (headers == null ? 0 : 1) + (hasQueue ? 1 : 0) + (output.Id.HasValue ? 1 : 0)
                + (output.AfterMs.HasValue ? 1 : 0);
            to.MapHead(count);
            to.Text("0");
            if (output.Body == null)
            {
                to.Text(output.Message ?? "");
            }
            else
            {
                to.TextOrBytes(output.Body);
            }

            to.Text("1");
            to.Integer(output.Status);
            if (headers != null)
            {
                to.Text("2");
                to.MapHead(headers.Count);
                foreach (KeyValuePair<string, string> header in headers)
                {
                    to.Text(header.Key);
                    to.TextOrNil(header.Value);
                }
            }

            if (hasQueue)
            {
                to.Text("3");
                to.Text(output.Queue);
            }

            if (output.Id.HasValue)
            {
                to.Text("4");
                to.Unsigned(output.Id.Value);
            }

            if (output.AfterMs.HasValue)
            {
                to.Text("5");
                to.Unsigned(output.AfterMs.Value);
            }
        }
    }

    /// <summary>Bytes that grow, and MessagePack into them: each value in its shortest form.</summary>
    internal sealed class Bytes
    {
        private byte[] array = new byte[256];

        internal int Count { get; set; }

        internal byte[] Array
        {
            get { return array; }
        }

        internal void MapHead(int count)
        {
            if (count < 16)
            {
                Add((byte)(0x80 | count));
            }
            else
            {
                Head(count, 0, 0xde, 0xdf);
            }
        }

        internal void TextOrNil(string text)
        {
            if (text == null)
            {
                Add(0xc0);
            }
            else
            {
                Text(text);
            }
        }

        internal void Text(string text)
        {
            if (text == null)
            {
                throw new InvalidOperationException("a name must be a text: null");
            }

            int size;
            try
            {
                size = Utf8.Strict.GetByteCount(text);
            }
            catch (EncoderFallbackException error)
            {
                throw new InvalidOperationException(
                    "a text must be Unicode: it has half a character, U+" + ((int)error.CharUnknown).ToString("X4"), error);
            }

            TextHead(size);
            Reserve(size);
            Utf8.Strict.GetBytes(text, 0, text.Length, array, Count);
            Count += size;
        }

        internal void TextOrBytes(byte[] body)
        {
            if (Utf8.IsValid(body))
            {
                TextHead(body.Length);
            }
            else
            {
                Head(body.Length, 0xc4, 0xc5, 0xc6);
            }

            Reserve(body.Length);
            Buffer.BlockCopy(body, 0, array, Count, body.Length);
            Count += body.Length;
        }

        internal void Integer(long number)
        {
            if (number >= 0)
            {
                Unsigned((ulong)number);
            }
            else if (number >= -32)
            {
                Add(unchecked((byte)number));
            }
            else if (number >= sbyte.MinValue)
            {
                Add(0xd0);
                Number(unchecked((ulong)number), 1);
            }
            else if (number >= short.MinValue)
            {
                Add(0xd1);
                Number(unchecked((ulong)number), 2);
            }
            else if (number >= int.MinValue)
            {
                Add(0xd2);
                Number(unchecked((ulong)number), 4);
            }
            else
            {
                Add(0xd3);
                Number(unchecked((ulong)number), 8);
            }
        }

        internal void Unsigned(ulong number)
        {
            if (number < 0x80)
            {
                Add((byte)number);
            }
            else if (number <= byte.MaxValue)
            {
                Add(0xcc);
                Number(number, 1);
            }
            else if (number <= ushort.MaxValue)
            {
                Add(0xcd);
                Number(number, 2);
            }
            else if (number <= uint.MaxValue)
            {
                Add(0xce);
                Number(number, 4);
            }
            else
            {
                Add(0xcf);
                Number(number, 8);
            }
        }

        internal void Add(byte value)
        {
            Reserve(1);
            array[Count++] = value;
        }

        /// <summary>The lowest bytes of a number, the highest of them first.</summary>
        internal void Number(ulong number, int width)
        {
            Reserve(width);
            for (int shift = 8 * (width - 1); shift >= 0; shift -= 8)
            {
                array[Count++] = unchecked((byte)(number >> shift));
            }
        }

        internal void SetLength(int at, int size)
        {
            array[at] = (byte)(size >> 24);
            array[at + 1] = unchecked((byte)(size >> 16));
            array[at + 2] = unchecked((byte)(size >> 8));
            array[at + 3] = unchecked((byte)size);
        }

        private void TextHead(int size)
        {
            if (size < 32)
            {
                Add((byte)(0xa0 | size));
            }
            else
            {
                Head(size, 0xd9, 0xda, 0xdb);
            }
        }

        /// <summary>A length of one, two or four bytes behind its marker; 0 is a marker that there is not.</summary>
        private void Head(int size, byte one, byte two, byte four)
        {
            if (one != 0 && size <= byte.MaxValue)
            {
                Add(one);
                Number((ulong)size, 1);
            }
            else if (size <= ushort.MaxValue)
            {
                Add(two);
                Number((ulong)size, 2);
            }
            else
            {
                Add(four);
                Number((ulong)size, 4);
            }
        }

        private void Reserve(int more)
        {
            long wanted = (long)Count + more;
            if (wanted <= array.Length)
            {
                return;
            }

            if (wanted > int.MaxValue - 64)
            {
                throw new InvalidOperationException("too much for one frame: " + wanted + " bytes");
            }

            long doubled = Math.Min(2L * array.Length, int.MaxValue - 64);
            System.Array.Resize(ref array, (int)Math.Max(wanted, doubled));
        }
    }

    internal static class Utf8
    {
        /// <summary>An encoding that loses nothing: it throws instead.</summary>
        internal static readonly UTF8Encoding Strict = new UTF8Encoding(false, true);

        /// <summary>A text for people, in which U+FFFD stands for half a character.</summary>
        internal static string Mended(string text)
        {
            return text == null ? "" : Encoding.UTF8.GetString(Encoding.UTF8.GetBytes(text));
        }

        /// <summary>Whether it is UTF-8, without the cost of an exception.</summary>
        internal static bool IsValid(byte[] bytes)
        {
            int at = 0;
            while (at < bytes.Length)
            {
                byte first = bytes[at++];
                if (first < 0x80)
                {
                    continue;
                }

                int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
                if (first < 0xc2 || first > 0xf4 || at + more > bytes.Length)
                {
                    return false;
                }

                // The second byte's range keeps out what is too long, too high, or half a surrogate pair.
                byte low = first == 0xe0 ? (byte)0xa0 : first == 0xf0 ? (byte)0x90 : (byte)0x80;
                byte high = first == 0xed ? (byte)0x9f : first == 0xf4 ? (byte)0x8f : (byte)0xbf;
                for (int n = 0; n < more; n++)
                {
                    byte next = bytes[at++];
                    if (next < low || next > high)
                    {
                        return false;
                    }

                    low = 0x80;
                    high = 0xbf;
                }
            }

            return true;
        }
    }
}
