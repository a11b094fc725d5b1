using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("Ganger.Worker.Tests")]
