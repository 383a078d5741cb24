"""Uploads by tuspy: whole, in chunks with checksums, interrupted and resumed, two at once.

Usage: tuspy_client.py URL FILE. Says `stored NAME` for each file that the server must have.
"""

import socket
import sys
import threading
from urllib.parse import urlsplit

from tusclient import client
from tusclient.exceptions import TusCommunicationError

url, path = sys.argv[1:]
size = len(open(path, "rb").read())


def uploader(name, **options):
    metadata = {"filename": name, "type": "application/octet-stream"}
    return client.TusClient(url).uploader(path, metadata=metadata, **options)


uploader("whole").upload()
print("stored whole")

uploader("checked", chunk_size=700_000, upload_checksum=True).upload()
print("stored checked")

# Stopped after two chunks; another client asks where to go on.
first = uploader("resumed", chunk_size=500_000)
first.upload(stop_at=1_000_000)
second = client.TusClient(url).uploader(path, url=first.url, chunk_size=800_000)
assert second.offset == 1_000_000, second.offset
second.upload()
print("stored resumed")

# A connection that breaks in the middle of a chunk.
broken = uploader("broken", chunk_size=500_000)
broken.upload(stop_at=500_000)
parts = urlsplit(broken.url)
with socket.create_connection((parts.hostname, parts.port)) as connection:
    head = (
        f"PATCH {parts.path} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n"
        f"Content-Type: application/offset+octet-stream\r\n"
        f"Upload-Offset: 500000\r\nContent-Length: {size - 500_000}\r\n\r\n"
    )
    data = open(path, "rb").read()[500_000:1_500_000]
    connection.sendall(head.encode() + data)
rest = client.TusClient(url).uploader(
    path, url=broken.url, chunk_size=900_000, retries=20, retry_delay=0.1
)
assert rest.offset >= 500_000, rest.offset
rest.upload()
print("stored broken")

# Two clients with one target never mix.
threads = [
    threading.Thread(target=lambda: uploader("both", chunk_size=250_000).upload())
    for _ in range(2)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("stored both")

try:
    client.TusClient(url).uploader(path, url=url + ".flatpath-uploads/" + "0" * 32).upload()
    raise SystemExit("an upload that is not there was found")
except TusCommunicationError as error:
    assert error.status_code == 404, error
