using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Net.Sockets;

namespace Ganger.Worker.Tests
{
    /// <summary>The library in real worker processes.</summary>
    internal static class ProcessTests
    {
        public static void Outcomes()
        {
            Each(new[] { 1 }, 2, peer =>
            {
                foreach (object[] each in new[]
                {
                    new object[] { "", 200, "", null },
                    new object[] { "done", 200, "", null },
                    new object[] { "null", 200, "", null },
                    new object[] { "echo Grüße 漢 🦀", 201, "Grüße 漢 🦀", null },
                    new object[] { "retry", 429, "later", 1500L },
                    new object[] { "reject", 400, "never", null },
                    new object[] { "requeue", 300, "", null },
                    new object[] { "status 404", 404, "odd", null },
                })
                {
                    peer.Send((string)each[0], 9);
                    Answer found = peer.Expected((int)each[1], (string)each[2], 9);
                    Expect.Same(found.After, each[3], (string)each[0]);
                }

                var message = new Message("headers answers", 0);
                message.Headers["a"] = "ä";
                message.Headers["b"] = "";
                peer.Write(message.Frame());
                Answer reply = peer.Expected(201, "a=ä b=", 0);
                Expect.Same(reply.Headers["n"] + reply.Headers["ü"] + reply.Queue, "7éanswers");
                message = new Message("about", ulong.MaxValue)
                {
                    CorrelationId = "c",
                    Attempt = 3,
                    Left = 5000,
                    Property = new byte[] { 255 },
                };
                peer.Write(message.Frame());
                peer.Expected(201, "c q 3 5000 ff", ulong.MaxValue);
            });
        }

        public static void AHandlerThatThrowsAnswersAndGoesOn()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                foreach (string[] each in new[]
                {
                    new[] { "throw x", "System.InvalidOperationException: no good: x" },
                    new[] { "throw x", "Ganger.Worker.Tests.Modes" },
                    new[] { "throw x", "System.FormatException: the reason" },
                    new[] { "late", "no good, later" },
                    new[] { "speechless", "Speechless, whose text throws System.InvalidOperationException" },
                    new[] { "status 150", "one that ends a message: 150" },
                    new[] { "status 0", "one that ends a message: 0" },
                })
                {
                    Answer found = peer.Ask(each[0], 2);
                    Expect.Same(found.Status + " " + found.Id, "500 2", each[0]);
                    Expect.Contains(found.Text, each[1]);
                }

                peer.Send("echo on", 4);
                peer.Expected(201, "on", 4);
            });
        }

        public static void AReplyThatTheDaemonWouldRefuseIsAFailure()
        {
            using (var peer = new Peer("modes", 1, 2, 4096))
            {
                Answer found = peer.Ask("large 5000", 1);
                Expect.Same(found.Status, 500);
                Expect.Contains(found.Text, "at most 4096 bytes (frame_bytes_max): 50");
                peer.Send("large 4000", 2);
                peer.Expected(201, new string('x', 4000), 2);
            }

            // The daemon's own word counts.
            using (var peer = new Peer("modes", 1, 2, Wire.FrameBytesMax, 4096))
            {
                Expect.Contains(peer.Ask("large 5000", 1).Text, "at most 4096 bytes (frame_bytes_max): 50");
            }

            using (var peer = new Peer("modes", 1, 2, 4096, 8192))
            {
                Expect.Same(peer.Ask("large 5000", 1).Status, 201);
            }
        }

        public static void WhatCanNotBeSentIsThisMessagesFailure()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                foreach (string[] each in new[]
                {
                    new[] { "text", "a text must be Unicode: it has half a character, U+D83E" },
                    new[] { "name", "a text must be Unicode" },
                    new[] { "value", "a text must be Unicode" },
                    new[] { "queue", "a text must be Unicode" },
                    new[] { "emit", "a text must be Unicode" },
                    new[] { "many", "at most 10000 headers: 10001" },
                })
                {
                    Answer found = peer.Ask("unspeakable " + each[0], 1);
                    Expect.Same(found.Status + " " + found.Id, "500 1", each[0]);
                    Expect.Contains(found.Text, each[1]);
                }

                // A reason is for people.
                peer.Send("unspeakable reason", 2);
                peer.Expected(400, "half: \ufffd", 2);
            });
        }

        public static void NamesThatAreBuiltInElsewhere()
        {
            Each(new[] { 1 }, 2, peer =>
            {
                var message = new Message("names", 1);
                foreach (string name in Modes.BuiltIns)
                {
                    message.Headers[name] = "of " + name;
                }

                peer.Write(message.Frame());
                foreach (string name in Modes.BuiltIns)
                {
                    Answer record = peer.Expected(101, "named\nand more", 1);
                    Expect.Same(record.Headers[name] + record.Headers["level"], "of " + name + "info");
                    Expect.Same(record.Headers.Count, 2);
                }

                Expect.Same(peer.Expected(101, "half: \ufffd", 1).Headers["level_"], "");
                Answer reply = peer.Expected(201, "named", 1);
                Expect.That(Modes.BuiltIns.All(name => reply.Headers[name] == "of " + name), "other headers");
            });
        }

        public static void WhatComesLateIsOnStderrOrRefused()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Send("last", 1);
                peer.Expected(200, "", 1);
                peer.Send("too-late", 2);
                peer.Expected(201, "its message is answered already", 2);
                peer.Tell("__quit__");
                Expect.Contains(peer.Ended(0), "warn: too late n=1\n");
            });
        }

        public static void AChildHasNothingOnStdin()
        {
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Send("child", 2);
                peer.Expected(201, "", 2);
                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
                peer.Tell("__quit__");
                peer.Ended(0);
            });
        }

        public static void AnExitInOneHandlerEndsTheProcessAtOnce()
        {
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Send("exit", 2);
                peer.Ended(7);
            });
        }

        public static void ATokenThatIsCancelledLeavesWhenAllIsAnswered()
        {
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Send("stop", 2);
                peer.Expected(200, "", 2);
                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
                peer.Ended(0);
            });
        }

        public static void WhatComesAfterTheStopIsGivenBack()
        {
            const string Reason = "the worker is about to end";
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Send("stop", 2);
                peer.Expected(200, "", 2);

                // The places of those that are answered are filled again; a cancelled one is given back at once.
                peer.Send("echo x", 3);
                peer.Tell("__cancel__ 3");
                peer.Expected(300, Reason, 3);
                peer.Tell("__cancel__ 4");
                peer.Send("echo x", 4);
                peer.Expected(300, Reason, 4);
                peer.Send("echo x", 5);
                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
                peer.Expected(300, Reason, 5);
                peer.Ended(0);
            });
        }

        public static void AWarmUpThatFailsConnectsNowhere()
        {
            Environment.SetEnvironmentVariable("GANGER_TEST_COLD", "no model");
            try
            {
                // Who connects finds nothing there, and says another thing.
                using (Process process = Peer.Spawn("modes 1 1000", "/tmp/ganger-nowhere"))
                {
                    process.StandardInput.WriteLine("pipe");
                    process.StandardInput.Flush();
                    Expect.Same(process.StandardError.ReadToEnd(), "no model\n");
                    process.WaitForExit();
                    Expect.Same(process.ExitCode, 1);
                }
            }
            finally
            {
                Environment.SetEnvironmentVariable("GANGER_TEST_COLD", null);
            }
        }

        public static void LargeEmptyAndBinaryBodies()
        {
            Each(new[] { 1 }, 2, peer =>
            {
                var large = new string('ü', 5 << 20);
                Expect.That(peer.Ask("echo " + large, 1).Text == large, "another text");
                byte[] binary = Enumerable.Range(0, 10 << 20).Select(n => (byte)(n % 7 * 36 + 39)).ToArray();
                peer.Write(new Message("", 2) { Body = binary }.Frame());
                Expect.That(peer.Receive().Bytes.SequenceEqual(binary), "other bytes");
                peer.Write(new Message("", 3) { Binary = true }.Frame());
                peer.Expected(200, "", 3);
                peer.Send("echo ", 4);
                peer.Expected(201, "", 4);
            });
        }

        public static void FramesInDribblesAndHeaps()
        {
            Each(new[] { 100 }, 2, peer =>
            {
                foreach (byte each in new Message("echo slow", 1).Frame())
                {
                    peer.Write(new[] { each });
                }

                peer.Expected(201, "slow", 1);
                byte[] heap = Enumerable.Range(0, 100).SelectMany(n => new Message("echo " + n, (ulong)n).Frame()).ToArray();
                peer.Write(heap.Take(heap.Length - 5).ToArray());
                peer.Write(heap.Skip(heap.Length - 5).ToArray());
                var seen = new HashSet<string>();
                for (int n = 0; n < 100; n++)
                {
                    Answer found = peer.Receive();
                    Expect.Same(found.Text, found.Id.ToString());
                    seen.Add(found.Text);
                }

                Expect.Same(seen.Count, 100);
            });
        }

        public static void ManyAtOnce()
        {
            Each(new[] { 8 }, 2, peer =>
            {
                for (int round = 0; round < 20; round++)
                {
                    for (ulong n = 0; n < 8; n++)
                    {
                        peer.Send("together", n);
                    }

                    Expect.Same(Enumerable.Range(0, 8).Select(_ => peer.Receive().Id).Distinct().Count(), 8);
                }
            });
        }

        public static void ASlowOneHoldsUpNoOther()
        {
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                for (ulong n = 2; n < 200; n++)
                {
                    peer.Send("echo x", n);
                    peer.Expected(201, "x", n);
                }

                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
            });
        }

        public static void NotesGoOutBeforeTheAnswer()
        {
            Each(new[] { 1, 4 }, 2, peer =>
            {
                peer.Send("emit 300", 5);
                for (int n = 0; n < 300; n++)
                {
                    Answer part = peer.Expected(103, "part " + n, 5);
                    Expect.Same(part.Queue + part.Headers["n"], "parts" + n);
                }

                peer.Expected(200, "", 5);
                peer.Send("progress", 1);
                peer.Expected(102, "1 of 2", 1);
                peer.Expected(200, "", 1);
                peer.Send("log", 1);
                Answer log = peer.Expected(101, "noted", 1);
                Expect.Same(log.Headers["level"] + log.Headers["target"] + log.Headers["n"], "debugtests1");
                peer.Expected(200, "", 1);
                peer.Send("trace", 1);
                log = peer.Expected(101, "hot stuff", 1);
                Expect.Same(log.Headers["level"] + log.Headers["target"], "warntests");
                peer.Expected(200, "", 1);
            });
        }

        public static void Cancelling()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Begin("stuck", 3);
                peer.Tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3");
                peer.Expected(429, "gave up", 3);

                // One that overtakes its message: stdin and the pipe have no common order.
                peer.Tell("__cancel__ 4");
                peer.Begin("stuck", 4);
                peer.Expected(429, "gave up", 4);
                peer.Begin("uncaught", 5);
                peer.Tell("__cancel__ 5");
                GaveUp(peer.Receive(), "cancelled\n");
                peer.Write(WithTimeout("uncaught 20", "20"));
                Expect.Same(peer.Receive().Text, "begun");
                peer.Tell("__cancel__ 1");
                GaveUp(peer.Receive(), "timed out: the limit is 20 ms\n");
                peer.Send("echo on", 6);
                peer.Expected(201, "on", 6);
            });
        }

        public static void Quitting()
        {
            Each(new[] { 1, 3 }, 2, peer =>
            {
                peer.Ask("echo x", 1);
                peer.Tell("__quit__");
                peer.Ended(0);
            });
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Send("sleep 200", 2);
                peer.Tell("__quit__");
                peer.Expected(200, "", 2);
                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
                peer.Ended(0);
            });
        }

        public static void TheEndOfThePipeAndOfStdin()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Send("sleep 100", 1);
                peer.Pipe.Shutdown(SocketShutdown.Send);
                peer.Expected(200, "", 1);
                peer.Ended(0);
            });
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Send("sleep 100", 1);
                peer.CloseStdin();
                peer.Expected(200, "", 1);
                peer.Ended(0);
            });
        }

        public static void ADaemonThatIsGoneIsNoError()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Send("sleep 100", 1);
                peer.Pipe.Dispose();
                Expect.Same(peer.Said(0), "");
            });
        }

        public static void WhatAWorkerDoesNotKnowItIgnores()
        {
            Each(new[] { 1 }, 2, peer =>
            {
                peer.Tell("__context_switch__\n\n__unheard__ of");
                peer.Write(new Message("echo x", 1) { Newer = true }.Frame());
                peer.Expected(201, "x", 1);
            });
        }

        public static void AHostileInputEndsTheConnection()
        {
            Each(new[] { 1, 2 }, 2, peer =>
            {
                peer.Write(Hex.Read("0000000581a130a16d")); // the length is right, three keys lack
                Expect.Contains(peer.Ended(1), "no \"1\"");
            });
            Each(new[] { 2 }, 2, peer =>
            {
                peer.Begin("stuck", 1);
                peer.Write(Hex.Read("7fffffff"));

                // What is in hand is finished.
                peer.Tell("__cancel__ 1");
                peer.Expected(429, "gave up", 1);
                Expect.Contains(peer.Ended(1), "at most 67108864 bytes");
            });
        }

        public static void Version1()
        {
            Each(new[] { 8 }, 1, peer =>
            {
                // Ahead of the answers, as `pipeline` does it; the answers are in order.
                peer.Write(Enumerable.Range(0, 200)
                    .SelectMany(n => new Message("echo " + n, 0) { OldOnly = true }.Frame()).ToArray());
                for (int n = 0; n < 200; n++)
                {
                    peer.Expected(201, n.ToString(), null);
                }

                peer.Send("progress", 1);
                peer.Expected(-1, "1 of 2", null);
                peer.Expected(200, "", null);
                peer.Send("log", 1);
                peer.Expected(200, "", null);
                Answer found = peer.Ask("emit 1", 1);
                Expect.Same(found.Status, 500);
                Expect.Contains(found.Text, "version 2");
                peer.Tell("__quit__");
                Expect.Contains(peer.Ended(0), "debug: noted target=tests n=1\n");
            });
        }

        public static void Version1GivesUpByItselfAndYieldsWhenTold()
        {
            Each(new[] { 1 }, 1, peer =>
            {
                peer.Write(WithTimeout("stuck", "100"));
                peer.Expected(-1, "begun", null);
                peer.Expected(429, "gave up", null);
                peer.Write(WithTimeout("uncaught", "100"));
                peer.Expected(-1, "begun", null);
                GaveUp(peer.Receive(), "timed out: the limit is 100 ms\n");
                foreach (string text in new[] { "-1", "soon" })
                {
                    peer.Write(WithTimeout("echo x", text));
                    peer.Expected(201, "x", null);
                }

                peer.Begin("stuck", 1);
                peer.Tell("__context_switch__");
                peer.Expected(429, "gave up", null);
            });
        }

        public static void TheClassOfMessageWorkerPoolWorksAsItDidThere()
        {
            foreach (int version in new[] { 1, 2 })
            {
                using (var peer = new Peer("processor", 1, version))
                {
                    peer.Send("ten", 1);
                    peer.Expected(201, "TEN!", version == 1 ? (ulong?)null : 1);
                    peer.Tell("__quit__");
                    peer.Ended(0);
                }
            }

            var early = Expect.Throws<InvalidOperationException>(
                () => new MessageProcessor().DoWorkAsync(Modes.Shout).GetAwaiter().GetResult());
            Expect.Contains(early.Message, "InitialAsync");
        }

        public static void AProcessWithoutADaemonSaysWhatItIs()
        {
            using (Process process = Peer.Spawn("modes 1 1000", null))
            {
                process.StandardInput.Close();
                Expect.Contains(process.StandardError.ReadToEnd(), "stdin must begin with a line");
                process.WaitForExit();
                Expect.Same(process.ExitCode, 1);
            }
        }

        /// <summary>With why, and the stack.</summary>
        private static void GaveUp(Answer answer, string why)
        {
            Expect.Same(answer.Status, 429);
            Expect.That(answer.Text.StartsWith(why, StringComparison.Ordinal), answer.Text);
            Expect.Contains(answer.Text, "TaskCanceledException");
            Expect.Contains(answer.Text, "Modes");
        }

        private static byte[] WithTimeout(string body, string milliseconds)
        {
            var message = new Message(body, 1);
            message.Headers["TimeoutMilliseconds"] = milliseconds;
            return message.Frame();
        }

        private static void Each(int[] concurrencies, int version, Action<Peer> check)
        {
            foreach (int concurrency in concurrencies)
            {
                using (var peer = new Peer("modes", concurrency, version))
                {
                    check(peer);
                }
            }
        }
    }
}
