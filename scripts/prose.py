#!/usr/bin/env python3
"""Checks the prose of pages and of the code's comments: no sentence over 30 words, none of the phrases below.

Names each place; ends with 1 if there is any. Code counts as one word, code blocks and tables do not count.
Usage: scripts/prose.py [FILE...] (without arguments: all pages, and all comments of Rust files)
"""

import re
import sys
from pathlib import Path

MOST_WORDS = 30
PHRASES = [
    r"but for",
    r"so many",
    r"be it for",
    r"is told of",
    r"are told of",
    r"(?:it|he|she) who",
    r"what is \w+ of",
    r"nor is",
]


def pages():
    root = Path(__file__).resolve().parent.parent
    named = [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    named += sorted((root / "docs").rglob("*.md")) + sorted(root.glob("crates/*/README.md"))
    return named + [path for path in sorted(root.glob("crates/**/*.rs")) if "target" not in path.parts]


def comments(source):
    """The text of the comments that have lines of their own; every other line is empty, so that line numbers stay."""
    found = (re.match(r"\s*//[/!]? ?(.*)", line) for line in source.splitlines())
    return "\n".join(comment.group(1) if comment else "" for comment in found)


def paragraphs(text):
    """Line number and text of each paragraph or list item; code blocks and tables left out."""
    in_code, start, lines = False, 0, []
    for number, line in enumerate(text.splitlines() + [""], 1):
        fence = line.lstrip().startswith("```")
        if fence:
            in_code = not in_code
        stops = in_code or fence or not line.strip() or line.lstrip().startswith(("|", "#", "<"))
        begins_item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if lines and (stops or begins_item):
            yield start, " ".join(lines)
            lines = []
        if not stops:
            if not lines:
                start = number
            lines.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip())


def sentences(paragraph):
    plain = re.sub(r"`+[^`]*`+", "code", paragraph)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"[*_]{1,2}([^\s*_](?:[^*_]*[^\s*_])?)[*_]{1,2}", r"\1", plain)
    return re.split(r"(?<=[.!?:])\s+(?=[\"'(]?[A-Z0-9]|code\b)", plain)


def faults(page):
    text = page.read_text()
    for line, paragraph in paragraphs(comments(text) if page.suffix == ".rs" else text):
        for sentence in sentences(paragraph):
            words = len([word for word in sentence.split() if re.search(r"\w", word)])
            if words > MOST_WORDS:
                yield line, f"{words} words: {sentence[:90]}..."
            for phrase in PHRASES:
                found = re.search(rf"\b{phrase}\b", sentence, re.IGNORECASE)
                if found:
                    yield line, f'"{found.group(0)}": {sentence[:90]}'


def main():
    named = [Path(name) for name in sys.argv[1:]] or pages()
    count = 0
    for page in named:
        for line, fault in faults(page):
            print(f"{page}:{line}: {fault}")
            count += 1
    if count:
        print(f"{count} sentences to rewrite", file=sys.stderr)
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
