"""What a page is about: its title, its first sentence, and the words that it repeats."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

UNSEEN = {"script", "style", "template", "noscript"}
LETTERS_MIN = 5  # shorter words say little
WORDS = 5
SENTENCE_MAX = 300


class _Text(HTMLParser):
    """The words of a page, those of its title and of its paragraphs apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.title: list[str] = []
        self.paragraphs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN or tag in ("title", "p"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass  # what was opened within it and never closed
            if tag == "p":
                self.paragraphs.append(" ")

    def handle_data(self, data: str) -> None:
        if UNSEEN.intersection(self.inside):
            return
        if "title" in self.inside:
            self.title.append(data)
        elif "p" in self.inside:
            self.paragraphs.append(data)


def summarise(html: str) -> dict[str, object]:
    text = _Text()
    text.feed(html)
    text.close()
    body = " ".join("".join(text.paragraphs).split())
    sentence = re.match(r".*?[.!?](?=\s|$)", body)
    words = re.findall(rf"\w{{{LETTERS_MIN},}}", body.lower())
    return {
        "title": " ".join("".join(text.title).split()),
        "first": (sentence[0] if sentence else body)[:SENTENCE_MAX],
        "words": [word for word, _ in Counter(words).most_common(WORDS)],
    }
