"""Draws shape.svg, the picture in docs/README.md: `python3 docs/shape.py > docs/shape.svg`.

A test compares the two. The picture brings its own background, so that it can be read whatever the
page around it looks like; its colours follow the reader's light or dark mode.
"""

from html import escape

SIZE = 950, 322
# Left, top, width, height, class, and lines of text: the first is the name.
BOXES = [
    (20, 122, 124, 78, "other", ["your programs", "AMQP, Kafka", "or plain SQL"]),
    (206, 122, 124, 78, "broker", ["queue", "RabbitMQ, Kafka", "or SQLite"]),
    (206, 28, 124, 44, "broker", ["reply queue"]),
    (206, 246, 124, 52, "broker", ["dead letters", "with the reason"]),
    (398, 28, 340, 270, "daemon", []),
    (422, 122, 108, 78, "part", ["source", "takes in,", "settles"]),
    (606, 82, 108, 158, "part", ["pool", "decides,", "times, retries,", "restarts"]),
    (816, 28, 114, 62, "worker", ["worker", "your program"]),
    (816, 130, 114, 62, "worker", ["worker"]),
    (816, 236, 114, 62, "worker", ["worker"]),
]
# The points of a line that ends in an arrow, where its text begins, and the text.
ARROWS = [
    ([(144, 161), (202, 161)], (159, 153), "send"),
    ([(330, 148), (418, 148)], (350, 140), "take"),
    ([(422, 174), (334, 174)], (336, 191), "ack, retry"),
    ([(448, 122), (448, 50), (334, 50)], (350, 42), "reply"),
    ([(448, 200), (448, 272), (334, 272)], (350, 264), "bury"),
    ([(530, 148), (602, 148)], (540, 140), "message"),
    ([(606, 174), (534, 174)], (540, 191), "outcome"),
    ([(714, 106), (812, 52)], None, ""),
    ([(816, 70), (718, 124)], None, ""),
    ([(714, 154), (812, 154)], (750, 147), "message"),
    ([(816, 168), (718, 168)], (750, 185), "answer"),
    ([(714, 200), (812, 258)], None, ""),
    ([(816, 276), (718, 218)], None, ""),
]
NAMES = [((512, 54), "ganger, one process")]
LIGHT = {"paper": "#ffffff", "ink": "#1f2328", "faint": "#59636e", "broker": "#ddf4ff",
         "daemon": "#f6f8fa", "part": "#ffffff", "worker": "#dafbe1", "other": "#ffffff"}
DARK = {"paper": "#0d1117", "ink": "#f0f6fc", "faint": "#9198a1", "broker": "#0c2d6b",
        "daemon": "#161b22", "part": "#0d1117", "worker": "#033a16", "other": "#0d1117"}


def style(colours):
    """Boxes have a class for what they are, and so do lines and text."""
    rules = [f".{name}{{fill:{colour}}}" for name, colour in colours.items()]
    return "".join(rules) + f".box{{stroke:{colours['faint']}}}.line{{stroke:{colours['ink']}}}"


def box(left, top, width, height, kind, lines):
    yield (f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" '
           f'class="box {kind}"/>')
    lines = [line for line in lines if line]
    first = top + height / 2 - 9 * (len(lines) - 1) + 5
    for number, line in enumerate(lines):
        kind = "ink name" if number == 0 else "faint"
        yield text((left + width / 2, first + 18 * number), line, f"{kind} middle")


def arrow(points, at, label):
    path = " ".join(f"{x},{y}" for x, y in points)
    yield f'<polyline points="{path}" class="line" marker-end="url(#head)"/>'
    if label:
        yield text(at, label, "faint")


def text(at, words, kind):
    return f'<text x="{at[0]:g}" y="{at[1]:g}" class="{kind}">{escape(words)}</text>'


def picture():
    width, height = SIZE
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    yield "<title>Messages go from a queue through ganger to worker processes</title>"
    yield "<style>"
    yield "text{font-family:system-ui,sans-serif;font-size:13px}"
    yield ".name{font-weight:600}.middle{text-anchor:middle}polyline{fill:none}"
    yield style(LIGHT)
    yield f"@media (prefers-color-scheme: dark){{{style(DARK)}}}"
    yield "</style>"
    yield ('<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
           'markerHeight="8" orient="auto"><path d="M0,0 8,4 0,8z" class="ink"/></marker></defs>')
    yield f'<rect width="{width}" height="{height}" rx="8" class="paper"/>'
    for one in BOXES:
        yield from box(*one)
    for one in ARROWS:
        yield from arrow(*one)
    for at, words in NAMES:
        yield text(at, words, "ink name")
    yield "</svg>"


if __name__ == "__main__":
    print("\n".join(picture()))
