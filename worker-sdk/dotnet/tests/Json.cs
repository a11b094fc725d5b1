using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Ganger.Worker.Tests
{
    /// <summary>So much of JSON as the test vectors need, on any runtime.</summary>
    internal sealed class Json
    {
        private readonly string text;
        private int at;

        private Json(string text)
        {
            this.text = text;
        }

        internal static object Read(string text)
        {
            var reader = new Json(text);
            object value = reader.Value();
            Expect.That(reader.Next() == '\0', "JSON goes on after its value");
            return value;
        }

        private char Next()
        {
            while (at < text.Length && char.IsWhiteSpace(text[at]))
            {
                at++;
            }

            return at < text.Length ? text[at] : '\0';
        }

        private void Take(char wanted)
        {
            Expect.Same(Next(), wanted, "JSON at " + at);
            at++;
        }

        private object Value()
        {
            char next = Next();
            if (next == '{')
            {
                return Object();
            }

            if (next == '[')
            {
                return List();
            }

            if (next == '"')
            {
                return Text();
            }

            int start = at;
            while (at < text.Length && "+-.".IndexOf(text[at]) + 1 + (char.IsLetterOrDigit(text[at]) ? 1 : 0) > 0)
            {
                at++;
            }

            string word = text.Substring(start, at - start);
            if (word == "null")
            {
                return null;
            }

            if (word == "true" || word == "false")
            {
                return word == "true";
            }

            return long.Parse(word, CultureInfo.InvariantCulture);
        }

        private Dictionary<string, object> Object()
        {
            var values = new Dictionary<string, object>();
            Take('{');
            while (Next() != '}')
            {
                string name = Text();
                Take(':');
                values[name] = Value();
                if (Next() == ',')
                {
                    at++;
                }
            }

            Take('}');
            return values;
        }

        private List<object> List()
        {
            var values = new List<object>();
            Take('[');
            while (Next() != ']')
            {
                values.Add(Value());
                if (Next() == ',')
                {
                    at++;
                }
            }

            Take(']');
            return values;
        }

        private string Text()
        {
            var found = new StringBuilder();
            Take('"');
            while (text[at] != '"')
            {
                if (text[at] != '\\')
                {
                    found.Append(text[at++]);
                    continue;
                }

                char escape = text[at + 1];
                at += 2;
                if (escape == 'u')
                {
                    found.Append((char)Convert.ToInt32(text.Substring(at, 4), 16));
                    at += 4;
                    continue;
                }

                int place = "nrtbf".IndexOf(escape);
                found.Append(place < 0 ? escape : "\n\r\t\b\f"[place]);
            }

            at++;
            return found.ToString();
        }
    }
}
