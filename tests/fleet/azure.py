"""Azure's blobs for tests: Azurite, which checks keys.

    azure.py FOLDER AZURITE-BLOB

Prints one line of JSON: the port, and the account and key of the container `fleet`, which has the files of FOLDER below `runs/run-17`. Ends when its
stdin ends.
"""

import base64
import email.utils
import hashlib
import hmac
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ACCOUNT = "devstoreaccount1"
# Azurite's own, in its README.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


def put(path, body, headers, query=""):
    """https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": VERSION, **headers}
    own = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    length = str(len(body)) if body else ""
    resource = f"/{ACCOUNT}/{ACCOUNT}/{path}" + query.replace("=", ":", 1).replace("?", "\n")
    text = f"PUT\n\n\n{length}\n\n\n\n\n\n\n\n\n{own}{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    # Without it urllib names a type, which would have to be signed.
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{ACCOUNT}/{path}{query}", body, headers, method="PUT")
    request.add_unredirected_header("Content-Type", "")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201, answer.status


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with tempfile.TemporaryDirectory() as place:
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", place]
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    azurite = subprocess.Popen([sys.argv[2], *words, *quiet], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        put("fleet", b"", {}, "?restype=container")
        for path in pathlib.Path(sys.argv[1]).glob("*.strand*"):
            put(f"fleet/runs/run-17/{path.name}", path.read_bytes(), {"x-ms-blob-type": "BlockBlob"})
        print(json.dumps({"port": port, "id": ACCOUNT, "secret": KEY}), flush=True)
        sys.stdin.read()
    finally:
        azurite.terminate()
        azurite.wait()
