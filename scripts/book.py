#!/usr/bin/env python3
"""Builds the documentation site from docs/ with mdBook. Fails on a broken link, on a page that SUMMARY.md lacks, and on a claim whose test is gone.

The pages stay where they are, so that their links work in a checkout too. The pages of the repository's root are part of the site: so mdBook reads a copy of
docs/ with these pages in it. Links are checked twice: that the file exists, here; that the page and the heading exist, in what mdBook made.
Usage: scripts/book.py MDBOOK (the program); the site is in target/book.
"""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COPY = ROOT / "target" / "book-pages"
SITE = ROOT / "target" / "book"
ROOT_PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
REPOSITORY = "https://github.com/umbrella-storage/umbrella/blob/main/"
LINK = re.compile(r"(\]\()([^()\s]+)(\))")


def in_site(target):
    """Where a file of the repository is in the site, relative to its root; None if it is not part of it."""
    if target.parent == ROOT and target.name in ROOT_PAGES:
        return Path(target.name)
    return target.relative_to(DOCS) if target.is_relative_to(DOCS) else None


def convert(page, place, faults):
    """The text of a page for the site, in which it is at `place`: links lead to the copies, or into the repository."""

    def replace(match):
        link, _, heading = match[2].partition("#")
        if not link or re.match(r"[a-z]+:", link):
            return match[0]
        target = (page.parent / unquote(link)).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            faults.append(f"{page.relative_to(ROOT)}: {link} does not exist")
            return match[0]
        site = in_site(target)
        new = REPOSITORY + str(target.relative_to(ROOT)) if site is None else "../" * (len(place.parts) - 1) + str(site)
        return match[1] + new + ("#" + heading if heading else "") + match[3]

    lines, in_code = [], False
    for line in page.read_text().splitlines():
        in_code ^= line.lstrip().startswith("```")
        lines.append(line if in_code else LINK.sub(replace, line))
    return "\n".join(lines) + "\n"


def copy_pages():
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(DOCS, COPY)
    faults = []
    for page in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ROOT_PAGES)]:
        place = in_site(page)
        (COPY / place).write_text(convert(page, place, faults))
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", (COPY / "SUMMARY.md").read_text()))
    pages = {str(page.relative_to(COPY)) for page in COPY.rglob("*.md")} - {"SUMMARY.md"}
    faults += [f"docs/SUMMARY.md: {page} is missing" for page in sorted(pages - listed)]
    return faults


def lost_tests():
    """The tests that the page of claims names, and that do not exist."""
    code = "".join(path.read_text() for path in ROOT.glob("crates/**/*.rs"))
    tests = set(re.findall(r"\bfn (\w+)", code))
    for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`", (DOCS / "contributing" / "claims.md").read_text()):
        if name not in tests:
            yield f"docs/contributing/claims.md: there is no test {name}"


class Page(HTMLParser):
    """The headings and links of a page of the site."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value and not re.match(r"[a-z]+:", value):
                self.links.append(value)


def broken_links():
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            name, _, heading = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists():
                yield f"{path.relative_to(SITE)}: {link} does not exist"
            elif heading and target in pages and heading not in pages[target].ids:
                yield f"{path.relative_to(SITE)}: {link} names a heading that does not exist"


def main():
    faults = [*copy_pages(), *lost_tests()]
    if not faults:
        subprocess.run([sys.argv[1], "build", COPY, "--dest-dir", SITE], check=True)
        faults = sorted(set(broken_links()))
    print("\n".join(faults) or f"docs: {SITE.relative_to(ROOT)}/index.html")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
