"""Places that a user names: a path or a URL, with the name of an array inside after ``::``.

fsspec, which opens URLs, has schemes that run what a file says (``reference``), that connect to any host (``ftp``) or
log in somewhere (``ssh``), and reaches each of them through a chain (``simplecache::s3://…``).  So the schemes are
those of a short list, and there are no chains.
"""

from __future__ import annotations

import re
import urllib.parse
import urllib.request

from tpca.errors import StreamError

SCHEMES = ("s3", "gs", "az", "https", "file", "memory")
_URL = re.compile(r"([^:/\\]{2,})://")  # one letter is a drive
_SLASHES = ("/", "\\")


def is_url(place: str) -> bool:
    """Whether a place is a URL: a scheme and ``://`` are its beginning."""
    return _URL.match(place) is not None


def is_plain_path(text: str) -> bool:
    """Whether a text names a file or folder of this machine: no URL, no chain, no share of another machine."""
    place, _, inner = text.partition("::")
    share = place[:1] in _SLASHES and place[1:2] in _SLASHES
    return not (is_url(place) or "://" in inner or "::" in inner or share)


def split_place(text: str) -> tuple[str, str | None]:
    """The path or URL in a text, and the name of an array inside; URLs are of known schemes, ``file:`` is a path."""
    place, mark, inner = text.partition("::")
    if "::" in inner or "://" in inner:
        raise StreamError(
            f"{text!r} has a chain of places, and one path or URL is read, with at most one '::' before the name of "
            "an array; give the place itself."
        )
    url = _URL.match(place)
    if url is not None:
        scheme = url[1]
        if scheme not in SCHEMES:
            raise StreamError(
                f"{place!r} has the scheme {scheme!r}, and URLs of {', '.join(SCHEMES)} are read; copy the data here, "
                "or open them with zarr and give the array, if you trust them."
            )
        if scheme == "file":
            place = urllib.request.url2pathname(urllib.parse.urlsplit(place).path)
    return place, inner if mark else None
