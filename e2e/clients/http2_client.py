"""HTTP/2 by httpx and by libcurl as curl_cffi brings it: files, many at once, parts, uploads, a
refused one, one that is not read to its end.

Usage: http2_client.py BASE-URL CERTIFICATE SERVED-DIRECTORY. Says how many cases passed.
"""

import asyncio
import ssl
import sys
from pathlib import Path

import curl_cffi
import httpx
from curl_cffi.const import CurlHttpVersion

base, certificate, directory = sys.argv[1:]
directory = Path(directory)
small, large = ((directory / name).read_bytes() for name in ("small", "large"))
is_secured = base.startswith("https:")
cases = 0


def passed():
    global cases
    cases += 1


def pieces():
    """A body whose length is not known before."""
    for at in range(0, len(large), 300_000):
        yield large[at : at + 300_000]


def check_stored(status):
    stored = directory / "new-by-python"
    assert status == 201, status
    assert stored.read_bytes() == large
    stored.unlink()
    passed()


def with_httpx():
    context = ssl.create_default_context(cafile=certificate)
    with httpx.Client(base_url=base, http1=False, http2=True, verify=context) as client:
        reply = client.get("/small")
        assert (reply.http_version, reply.content) == ("HTTP/2", small)
        passed()
        assert client.get("/large").content == large
        passed()
        reply = client.get("/large", headers={"range": "bytes=70000-1070000"})
        assert reply.status_code == 206 and reply.content == large[70_000:1_070_001]
        passed()
        assert client.head("/large").headers["content-length"] == str(len(large))
        passed()
        assert client.get("/absent").status_code == 404
        passed()
        check_stored(client.put("/new-by-python", content=large).status_code)
        check_stored(client.put("/new-by-python", content=pieces()).status_code)
        # The stream is reset with most of its body on its way.
        with client.stream("GET", "/large") as reply:
            next(reply.iter_raw())
        assert client.get("/small").content == small
        passed()


async def many_at_once():
    context = ssl.create_default_context(cafile=certificate)
    limits = httpx.Limits(max_connections=1)
    options = {"base_url": base, "http1": False, "http2": True, "verify": context}
    async with httpx.AsyncClient(limits=limits, **options) as client:
        await client.get("/small")
        replies = await asyncio.gather(*(client.get(f"/small?{at}") for at in range(90)))
        assert all(reply.content == small for reply in replies)
        passed()


def with_libcurl():
    version = CurlHttpVersion.V2TLS if is_secured else CurlHttpVersion.V2_PRIOR_KNOWLEDGE
    options = {"http_version": version, "verify": certificate, "default_headers": False}
    with curl_cffi.Session(**options) as client:
        reply = client.get(f"{base}/large")
        assert reply.content == large and reply.http_version == CurlHttpVersion.V2_0
        passed()
        check_stored(client.put(f"{base}/new-by-python", data=large).status_code)
        # An answer that comes before the body has been sent reaches the client.
        for _ in range(10):
            status = client.put(f"{base}/small/new", data=large).status_code
            assert 400 <= status < 500, status
        passed()
        assert client.get(f"{base}/small").content == small
        passed()


with_httpx()
asyncio.run(many_at_once())
with_libcurl()
print(cases, "cases")
