using System;
using Ganger.Worker.Testing;

/// <summary>The handler in a real worker, without a daemon.</summary>
static class GreeterTest
{
    public static int Run()
    {
        bool good = Says("world", 201, "Hello, world!") & Says("", 400, "nobody to greet");
        Console.WriteLine(good ? "2 passed" : "failed");
        return good ? 0 : 1;
    }

    static bool Says(string body, int status, string message)
    {
        TestResult result = TestBench.Work(Greeter.Greet, new TestMessage(body))[0];
        if ((int)result.Status == status && result.Message == message)
        {
            return true;
        }
        Console.WriteLine("\"" + body + "\" gives " + result.Status + " " + result.Message);
        return false;
    }
}
