"""For mdBook: the pages that stand elsewhere in the repository join the book, so that links to them
lead somewhere there, too. Links to what is no page become plain words.
"""

import json
import os
import re
import sys

# From the top of the repository, each with its name in the list of pages.
OUTSIDE = {
    "README.md": "The README",
    "ARCHITECTURE.md": "Architecture",
    "CHANGELOG.md": "Changelog",
    "config/reference.md": "Configuration reference",
    "proto-spec/README.md": "The worker protocol",
    "proto-spec/table.md": "The table queue",
    "proto-spec/CHANGELOG.md": "The protocol's changelog",
    "proto-spec/vectors/README.md": "Test vectors",
    "samples/README.md": "Samples",
    "samples/python/README.md": "Sample: the smallest worker",
    "samples/rpc/README.md": "Sample: requests and replies",
    "samples/batch/README.md": "Sample: a long job",
    "samples/ledger/README.md": "Sample: a ledger that stays exact",
    "samples/pipeline/README.md": "Sample: a shell pipeline",
    "samples/shout/README.md": "Sample: the same worker in every language",
    "samples/thumbnails/README.md": "Sample: thumbnails",
    "samples/fetch/README.md": "Sample: fetching and summarising",
    "samples/emails/README.md": "Sample: an outbox of mail",
    "samples/webhooks/README.md": "Sample: webhooks",
    "worker-sdk/python/README.md": "The library for Python",
    "worker-sdk/node/README.md": "The library for Node",
    "worker-sdk/go/README.md": "The package for Go",
    "worker-sdk/rust/README.md": "The crate for Rust",
    "worker-sdk/java/README.md": "The library for Java",
    "worker-sdk/dotnet/README.md": "The library for .NET",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def in_book(path):
    """Where a page of the repository is in the book."""
    path = path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"
    return re.sub(r"README\.md$", "index.md", path)  # as mdBook calls it


def rewritten(content, path):
    """The links of the page at that path of the repository, as the book needs them."""

    def link(match):
        image, words, target, anchor = match.groups()
        target = os.path.normpath(os.path.join(os.path.dirname(path), target))
        target = f"{target}/README.md" if target == "docs" else target
        if target not in OUTSIDE and not target.startswith("docs/"):
            return words
        there = os.path.relpath(in_book(target), os.path.dirname(in_book(path)))
        return f"{image}[{words}]({there}{anchor or ''})"

    return LINK.sub(link, content)


def rewrite(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter and chapter["path"]:
            chapter["content"] = rewritten(chapter["content"], f"docs/{chapter['path']}")
            rewrite(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    rewrite(book["items"])
    for path, name in OUTSIDE.items():
        with open(os.path.join(context["root"], path), encoding="utf-8") as page:
            content = rewritten(page.read(), path)
        book["items"].append({"Chapter": {
            "name": name, "content": content, "number": None, "sub_items": [],
            "path": in_book(path), "source_path": None, "parent_names": [],
        }})
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
