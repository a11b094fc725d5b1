using System;
using System.Collections.Generic;
using System.Text;

namespace Ganger.Worker
{
    /// <summary>What the daemon sends: a frame's bytes, and what they mean. No pipe is read here.</summary>
    internal sealed class Input
    {
        private readonly byte[] bytes;
        private readonly int end;
        private int at;

        private Input(ArraySegment<byte> frame)
        {
            bytes = frame.Array;
            at = frame.Offset;
            end = frame.Offset + frame.Count;
        }

        /// <summary>Reads a message. What is against the protocol is a ProtocolException.</summary>
        internal static MessageInputTask Decode(ArraySegment<byte> frame)
        {
            return new Input(frame).Message();
        }

        /// <summary>Reads a frame that may hold anything.</summary>
        internal static object DecodeAny(ArraySegment<byte> frame)
        {
            return new Input(frame).Value(Wire.DepthMax);
        }

        private static ProtocolException Wrong(string reason)
        {
            return new ProtocolException("an input must " + reason);
        }

        private MessageInputTask Message()
        {
            if (at == end || !IsMap(bytes[at]))
            {
                throw Wrong("be a map");
            }

            var task = new MessageInputTask();
            var seen = new bool[8];
            for (ulong left = Count(); left > 0; left--)
            {
                string key = Text("have keys that are texts in UTF-8");
                if (key.Length != 1 || key[0] < '0' || key[0] > '7')
                {
                    Skip(Wire.DepthMax - 1);
                    continue;
                }

                int known = key[0] - '0';
                if (seen[known])
                {
                    throw Wrong("have each key once: \"" + key + "\" is there twice");
                }

                seen[known] = true;
                Set(task, known);
            }

            if (at != end)
            {
                throw Wrong("be one map: " + (end - at) + " bytes follow it");
            }

            for (int key = 0; key < 4; key++)
            {
                if (!seen[key])
                {
                    throw Wrong("have the keys \"0\" to \"3\": no \"" + key + "\"");
                }
            }

            return task;
        }

        private void Set(MessageInputTask task, int key)
        {
            if (Marker() == 0xc0)
            {
                at++;
                return;
            }

            if (key == 0)
            {
                task.Body = TextOrBytes("have a text or bytes under its key \"0\"");
            }
            else if (key == 1)
            {
                task.CorrelationId = Text("have a text under its key \"1\"");
            }
            else if (key == 2)
            {
                task.OriginalQueueName = Text("have a text under its key \"2\"");
            }
            else if (key == 3)
            {
                task.Headers = Headers();
            }
            else if (key == 4)
            {
                task.Id = Number("have a number from 0 under its key \"4\"");
            }
            else if (key == 5)
            {
                const string What = "have a number from 1 under its key \"5\"";
                task.Attempt = Number(What);
                if (task.Attempt == 0)
                {
                    throw Wrong(What + ": 0");
                }
            }
            else if (key == 6)
            {
                task.MillisecondsLeft = Number("have a number from 0 under its key \"6\"");
            }
            else
            {
                task.Properties = Properties();
            }
        }

        private Dictionary<string, string> Headers()
        {
            const string What = "have a map of texts to texts under its key \"3\"";
            var headers = new Dictionary<string, string>();
            for (ulong left = MapCount(What); left > 0; left--)
            {
                string name = Text(What);
                headers[name] = Text(What);
            }

            return headers;
        }

        private Dictionary<string, object> Properties()
        {
            const string What = "have a map with texts as names under its key \"7\"";
            var properties = new Dictionary<string, object>();
            for (ulong left = MapCount(What); left > 0; left--)
            {
                string name = Text(What);
                properties[name] = Value(Wire.DepthMax - 2);
            }

            return properties;
        }

        // -- values --

        /// <summary>A value that may hold lists and maps in each other so deep.</summary>
        private object Value(int depth)
        {
            byte marker = Marker();
            if (marker == 0xc0 || marker == 0xc2 || marker == 0xc3)
            {
                at++;
                return marker == 0xc0 ? null : (object)(marker == 0xc3);
            }

            if (marker == 0xca || marker == 0xcb)
            {
                at++;
                ulong bits = Big(marker == 0xca ? 4 : 8);
                return marker == 0xca
                    ? BitConverter.ToSingle(BitConverter.GetBytes((uint)bits), 0)
                    : BitConverter.Int64BitsToDouble(unchecked((long)bits));
            }

            if (IsInteger(marker))
            {
                return Integer(marker);
            }

            if (IsText(marker) || IsBytes(marker))
            {
                byte[] body = TextOrBytes("be MessagePack");
                return IsText(marker) && Utf8.IsValid(body) ? Encoding.UTF8.GetString(body) : (object)body;
            }

            if (IsMap(marker) || IsList(marker))
            {
                return Nested(marker, depth);
            }

            return Extension();
        }

        private object Nested(byte marker, int depth)
        {
            ulong count = Count();
            if (depth == 0 && count > 0)
            {
                throw TooDeep();
            }

            // What is merely claimed takes no memory.
            if (IsList(marker))
            {
                var values = new List<object>();
                for (; count > 0; count--)
                {
                    values.Add(Value(depth - 1));
                }

                return values.ToArray();
            }

            var pairs = new List<KeyValuePair<object, object>>();
            for (; count > 0; count--)
            {
                object name = Value(depth - 1);
                pairs.Add(new KeyValuePair<object, object>(name, Value(depth - 1)));
            }

            return pairs.ToArray();
        }

        private object Extension()
        {
            int size = Head() - 1;
            byte[] kind = Take(1);
            return new KeyValuePair<sbyte, byte[]>(unchecked((sbyte)kind[0]), Take(size));
        }

        private object Integer(byte marker)
        {
            at++;
            if (marker < 0x80)
            {
                return (long)marker;
            }

            if (marker >= 0xe0)
            {
                return (long)unchecked((sbyte)marker);
            }

            if (marker < 0xd0)
            {
                ulong number = Big(1 << (marker - 0xcc));
                return number > long.MaxValue ? (object)number : (long)number;
            }

            int width = 1 << (marker - 0xd0);
            int unused = 64 - (8 * width);
            return unchecked((long)(Big(width) << unused)) >> unused;
        }

        private ulong Number(string what)
        {
            byte marker = Marker();
            if (!IsInteger(marker))
            {
                SkipTo(what);
            }

            object number = Integer(marker);
            if (number is ulong)
            {
                return (ulong)number;
            }

            if ((long)number < 0)
            {
                throw Wrong(what + ": " + number);
            }

            return (ulong)(long)number;
        }

        private string Text(string what)
        {
            if (!IsText(Marker()))
            {
                SkipTo(what);
            }

            int size = Head();
            int start = Past(size);
            try
            {
                return Utf8.Strict.GetString(bytes, start, size);
            }
            catch (ArgumentException)
            {
                throw Wrong(what + ": not UTF-8");
            }
        }

        private byte[] TextOrBytes(string what)
        {
            if (!IsText(Marker()) && !IsBytes(Marker()))
            {
                SkipTo(what);
            }

            return Take(Head());
        }

        private ulong MapCount(string what)
        {
            if (!IsMap(Marker()))
            {
                SkipTo(what);
            }

            return Count();
        }

        /// <summary>A value of another type: what is broken in it in any case is said as such.</summary>
        private void SkipTo(string what)
        {
            Skip(Wire.DepthMax - 1);
            throw Wrong(what);
        }

        // -- what there is of any type --

        private void Skip(int depth)
        {
            byte marker = Marker();
            if (IsMap(marker) || IsList(marker))
            {
                ulong count = Count();
                count = IsMap(marker) ? 2 * count : count;
                if (depth == 0 && count > 0)
                {
                    throw TooDeep();
                }

                for (; count > 0; count--)
                {
                    Skip(depth - 1);
                }

                return;
            }

            Past(Head());
        }

        private byte Marker()
        {
            if (at == end)
            {
                throw Wrong("be whole: it ends before a value");
            }

            if (bytes[at] == 0xc1)
            {
                throw Wrong("be MessagePack, which never has the byte 0xc1");
            }

            return bytes[at];
        }

        /// <summary>Past the marker and the count of a list or a map: the count.</summary>
        private ulong Count()
        {
            byte marker = Marker();
            at++;
            if (marker < 0xa0)
            {
                return (ulong)(marker & 0x0f);
            }

            return Big(marker == 0xdc || marker == 0xde ? 2 : 4);
        }

        /// <summary>Past the marker and the length of what is neither list nor map: how many bytes belong to it.</summary>
        private int Head()
        {
            byte marker = Marker();
            at++;
            if (marker < 0x80 || marker >= 0xe0 || marker == 0xc0 || marker == 0xc2 || marker == 0xc3)
            {
                return 0;
            }

            if (marker < 0xc0)
            {
                return marker & 0x1f;
            }

            if (marker <= 0xc6)
            {
                return Length(1 << (marker - 0xc4), 0);
            }

            if (marker <= 0xc9)
            {
                return Length(1 << (marker - 0xc7), 1);
            }

            if (marker <= 0xcb)
            {
                return marker == 0xca ? 4 : 8;
            }

            if (marker <= 0xd3)
            {
                return 1 << ((marker - 0xcc) & 3);
            }

            if (marker <= 0xd8)
            {
                return 1 + (1 << (marker - 0xd4));
            }

            return Length(1 << (marker - 0xd9), 0);
        }

        private int Length(int width, int more)
        {
            ulong length = Big(width) + (ulong)more;
            if (length > (ulong)(end - at))
            {
                throw Claims(length);
            }

            return (int)length;
        }

        private ulong Big(int width)
        {
            int start = Past(width);
            ulong number = 0;
            for (int n = 0; n < width; n++)
            {
                number = (number << 8) | bytes[start + n];
            }

            return number;
        }

        private byte[] Take(int count)
        {
            int start = Past(count);
            var taken = new byte[count];
            Buffer.BlockCopy(bytes, start, taken, 0, count);
            return taken;
        }

        /// <summary>Goes past so many bytes: where they begin.</summary>
        private int Past(int count)
        {
            if (count > end - at)
            {
                throw Claims((ulong)count);
            }

            at += count;
            return at - count;
        }

        private ProtocolException Claims(ulong count)
        {
            return Wrong("be whole: it claims " + (count - (ulong)(end - at)) + " bytes more");
        }

        private static ProtocolException TooDeep()
        {
            return Wrong("be nested at most " + Wire.DepthMax + " deep");
        }

        private static bool IsMap(byte marker)
        {
            return (marker & 0xf0) == 0x80 || marker == 0xde || marker == 0xdf;
        }

        private static bool IsList(byte marker)
        {
            return (marker & 0xf0) == 0x90 || marker == 0xdc || marker == 0xdd;
        }

        private static bool IsText(byte marker)
        {
            return (marker & 0xe0) == 0xa0 || (marker >= 0xd9 && marker <= 0xdb);
        }

        private static bool IsBytes(byte marker)
        {
            return marker >= 0xc4 && marker <= 0xc6;
        }

        private static bool IsInteger(byte marker)
        {
            return marker < 0x80 || marker >= 0xe0 || (marker >= 0xcc && marker <= 0xd3);
        }
    }
}
