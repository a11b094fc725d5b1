using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Text;

namespace Ganger.Worker.Tests
{
    using Fields = Dictionary<string, object>;

    /// <summary>The shared test vectors, and what else must be refused.</summary>
    internal static class VectorTests
    {
        private const string Begin = "85a130a16da131a0a132a171a13380";

        public static void InputsMeanWhatTheyShould()
        {
            List<Fields> vectors = Vectors("input-v1", "input-v2");
            Expect.That(vectors.Count > 15, "only " + vectors.Count);
            foreach (Fields vector in vectors)
            {
                var meaning = (Fields)vector["meaning"];
                string name = (string)vector["name"];
                MessageInputTask task = Decode((string)vector["bytes"]);
                Expect.Same(Hex.Of(task.Body), Hex.Of(Body(meaning["message"])), name);
                Expect.Same(task.CorrelationId, meaning["correlation_id"], name);
                Expect.Same(task.OriginalQueueName, meaning["queue"], name);
                Expect.Same(task.Id, Id(meaning), name);
                Expect.Same(Text(task.Attempt), Text(meaning["attempt"]), name);
                Expect.Same(Text(task.MillisecondsLeft), Text(meaning["milliseconds_left"]), name);
                List<object> headers = List(meaning["headers"]);
                Expect.Same(task.Headers.Count, headers.Count, name);
                foreach (List<object> header in headers)
                {
                    Expect.Same(task.Headers[(string)header[0]], header[1], name);
                }

                List<object> properties = List(meaning["properties"]);
                Expect.Same(task.Properties.Count, properties.Count, name);
                foreach (List<object> property in properties)
                {
                    CheckProperty(task.Properties[(string)property[0]], (Fields)property[1], name);
                }
            }
        }

        public static void HostileInputsAreRefused()
        {
            var hostile = new Dictionary<string, string>
            {
                { "empty", "" },
                { "bin for a key", "85c40130a16da131a0a132a171a13380a13401" },
                { "a key that is not UTF-8", "85a130a16da131a0a132a171a13380a1ffc0" },
                { "a header of a number", "85a130a16da131a0a132a171a13381a16101a13401" },
                { "headers in a list", "85a130a16da131a0a132a171a13390a13401" },
                { "true for an id", Begin + "a134c3" },
                { "a fraction for an id", Begin + "a134cb3ff8000000000000" },
                { "a negative id", Begin + "a134ff" },
                { "attempt 0", Begin + "a13500" },
                { "0xc1", Begin + "a178c1" },
                { "0xc1 in properties", Begin + "a13781a161c1" },
                { "nested too deep", Begin + "a178" + Deep(64) + "c0" },
                { "nested much too deep", Begin + "a137" + Deep(1 << 20) + "c0" },
                { "properties nested too deep", Begin + "a13781a161" + Deep(63) + "c0" },
                { "claims 4 GiB", Begin + "a178c6ffffffff" },
                { "a list that claims 2 G", Begin + "a178dd7fffffff" },
                { "claims 4 G entries", "dfffffffff" },
                { "properties claim 4 G", Begin + "a137dfffffffff" },
                { "a list of 4 G in properties", Begin + "a13781a161ddffffffff" },
                { "a length that is cut", Begin + "a178da00" },
            };
            foreach (Fields vector in Vectors("input-hostile"))
            {
                hostile[(string)vector["name"]] = (string)vector["bytes"];
            }

            foreach (KeyValuePair<string, string> each in hostile)
            {
                try
                {
                    Decode(each.Value);
                }
                catch (ProtocolException)
                {
                    continue;
                }

                throw new InvalidOperationException("taken: " + each.Key);
            }
        }

        public static void UnknownKeysMayHoldAnything()
        {
            foreach (string rest in new[]
            {
                "820102c0c3", "818001", "c70305616263", Deep(63) + "c0", "d80100000000000000000000000000000000",
                "db00000001ff", "ca00000000",
            })
            {
                string bytes = "86a130a16da131a0a132a171a13380a13401a178" + rest;
                Expect.Same(Decode(bytes).Id, (ulong?)1, rest);
            }
        }

        public static void PropertiesMayHoldAnything()
        {
            foreach (string[] pair in new[]
            {
                new[] { "c0", "null" }, new[] { "ca3fc00000", "1.5" }, new[] { "cb3ff8000000000000", "1.5" },
                new[] { "cfffffffffffffffff", "18446744073709551615" }, new[] { "ccff", "255" }, new[] { "d0ff", "-1" },
                new[] { "d38000000000000000", "-9223372036854775808" }, new[] { "d1ff7f", "-129" },
                new[] { "92a1ffc2", "[ff False]" }, new[] { "8101c40100", "{1=00}" },
                new[] { "c702050102", "extension 5 0102" }, new[] { "d4fe07", "extension -2 07" },
                new[] { "d6ff00000001", "extension -1 00000001" },
            })
            {
                MessageInputTask task = Decode("86a130a16da131a0a132a171a13380a13401a13781a161" + pair[0]);
                Expect.Same(Expect.Show(task.Properties["a"]), pair[1], pair[0]);
            }
        }

        public static void OutputsAreWrittenByteForByte()
        {
            int written = 0;
            foreach (Fields vector in Vectors("output-v1", "output-v2"))
            {
                if ((string)vector["form"] != "canonical")
                {
                    continue;
                }

                var meaning = (Fields)vector["meaning"];
                var output = new Output
                {
                    Body = Body(meaning["message"]),
                    Status = (int)(long)meaning["status"],
                    Queue = (string)meaning["reply_queue"],
                    Id = Id(meaning),
                    AfterMs = meaning["retry_after_ms"] == null ? (ulong?)null : (ulong)(long)meaning["retry_after_ms"],
                };
                if (meaning["headers"] != null)
                {
                    var headers = new List<KeyValuePair<string, string>>();
                    foreach (List<object> header in List(meaning["headers"]))
                    {
                        headers.Add(new KeyValuePair<string, string>((string)header[0], (string)header[1]));
                    }

                    output.Headers = headers;
                }

                var to = new Bytes();
                to.Text("x");
                Wire.Append(to, output, Wire.FrameBytesMax);
                string found = Hex.Of(new ArraySegment<byte>(to.Array, 6, to.Count - 6));
                Expect.Same(found, vector["bytes"], (string)vector["name"]);
                string length = Hex.Of(new ArraySegment<byte>(to.Array, 2, 4));
                Expect.Same(length, (to.Count - 6).ToString("x8", CultureInfo.InvariantCulture), "its length");
                written++;
            }

            Expect.That(written > 20, "only " + written);
        }

        public static void WhatCanNotBeSentLeavesNothingBehind()
        {
            var to = new Bytes();
            to.Text("x");
            var many = new KeyValuePair<string, string>[10001];
            for (int n = 0; n < many.Length; n++)
            {
                many[n] = new KeyValuePair<string, string>("n", null);
            }

            Expect.Throws<InvalidOperationException>(
                () => Wire.Append(to, new Output { Message = new string('x', 200) }, 100));
            Expect.Throws<InvalidOperationException>(() => Wire.Append(to, new Output { Headers = many }, 1 << 20));
            Expect.Same(to.Count, 2, "what is there");
        }

        public static void Utf8IsToldFromBytes()
        {
            var strict = new UTF8Encoding(false, true);
            foreach (string text in new[]
            {
                "", "41", "c3a9", "e6bca2", "f09fa680", "ed9fbf", "ee8080", "f48fbfbf", "e0a080", "f0908080", "80", "c1bf", "c3",
                "c341", "e0809f", "e09f80", "eda080", "f08fbfbf", "f4908080", "f5808080", "ff", "e6bc", "f09fa6", "41f09fa641",
            })
            {
                byte[] bytes = Hex.Read(text);
                bool valid = true;
                try
                {
                    strict.GetString(bytes);
                }
                catch (ArgumentException)
                {
                    valid = false;
                }

                Expect.Same(Utf8.IsValid(bytes), valid, text);
            }
        }

        public static void FramesComeOutHoweverTheStreamIsCut()
        {
            foreach (Fields vector in Vectors("framing"))
            {
                foreach (int piece in new[] { 1, 2, 3, 7, int.MaxValue })
                {
                    CheckFraming(vector, piece);
                }
            }
        }

        private static void CheckFraming(Fields vector, int piece)
        {
            string name = vector["name"] + " by " + piece;
            byte[] stream = Hex.Read((string)vector["stream"]);
            var frames = new Frames((int)(long)vector["frame_bytes_max"]);
            var found = new List<object>();
            bool broken = false;
            int at = 0;
            try
            {
                while (true)
                {
                    ArraySegment<byte> frame;
                    while (frames.Next(out frame))
                    {
                        found.Add(Hex.Of(frame));
                    }

                    if (at == stream.Length)
                    {
                        break;
                    }

                    ArraySegment<byte> space = frames.Space();
                    int count = Math.Min(Math.Min(piece, space.Count), stream.Length - at);
                    Buffer.BlockCopy(stream, at, space.Array, space.Offset, count);
                    frames.Filled(count);
                    at += count;
                }
            }
            catch (ProtocolException)
            {
                broken = true;
            }

            Expect.Same(string.Join(" ", found), string.Join(" ", List(vector["frames"])), name);
            Expect.Same(broken, vector["error"] != null, name);
        }

        private static MessageInputTask Decode(string bytes)
        {
            // Not at the beginning of its array, as it is in the buffer.
            return Input.Decode(new ArraySegment<byte>(Hex.Read("ffff" + bytes + "ffff"), 2, bytes.Length / 2));
        }

        private static string Deep(int levels)
        {
            return new StringBuilder().Insert(0, "91", levels).ToString();
        }

        private static void CheckProperty(object found, Fields wanted, string name)
        {
            foreach (KeyValuePair<string, object> kind in wanted)
            {
                Expect.Same(Expect.Show(found), Expect.Show(kind.Value), name);
                bool right = kind.Key == "text" ? found is string
                    : kind.Key == "hex" ? found is byte[]
                    : kind.Key == "boolean" ? found is bool
                    : found is long || found is ulong;
                Expect.That(right, name + ": " + kind.Key + " is of another type");
            }
        }

        private static byte[] Body(object message)
        {
            var fields = (Fields)message;
            object text;
            return fields.TryGetValue("text", out text)
                ? Encoding.UTF8.GetBytes((string)text)
                : Hex.Read((string)fields["hex"]);
        }

        private static ulong? Id(Fields meaning)
        {
            return meaning["id"] == null
                ? (ulong?)null
                : ulong.Parse((string)meaning["id"], CultureInfo.InvariantCulture);
        }

        private static string Text(object number)
        {
            return Convert.ToString(number, CultureInfo.InvariantCulture);
        }

        private static List<object> List(object value)
        {
            return (List<object>)value;
        }

        private static List<Fields> Vectors(params string[] names)
        {
            var all = new List<Fields>();
            foreach (string name in names)
            {
                string text = File.ReadAllText(Path.Combine(Folder(), name + ".json"));
                var file = (Fields)Json.Read(text);
                Expect.Same(file["format"], 1L, name);
                foreach (object vector in List(file["vectors"]))
                {
                    all.Add((Fields)vector);
                }
            }

            return all;
        }

        private static string Folder()
        {
            string told = Environment.GetEnvironmentVariable("GANGER_VECTORS");
            Expect.That(!string.IsNullOrEmpty(told), "GANGER_VECTORS must name the folder proto-spec/vectors");
            return told;
        }
    }
}
