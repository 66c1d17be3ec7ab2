"""An S3 server for tests: moto, which checks keys and signatures, and faults before it that the test asks for.

    store.py FOLDER [google]

Prints one line of JSON: the port, and a key that may do everything in the bucket `fleet`, which has the files of FOLDER below `runs/run-17`. Ends when its
stdin ends. With `google` it takes what Google's store is asked, which has the same paths and lists and other names of headers, and checks no key. `GET /-/MODE/N`: from the Nth object
that is written on (0: from now on) the server is as MODE says: `well`, `slow` (answers after 300 ms), `silent` (takes requests and answers none), `gone` (closes connections).
`GET /-/count` says how many objects were asked to be written since,
`GET /-/objects` what there is: of each key below `tables` the length and the crc32 of its bytes.
"""

import json
import os
import pathlib
import socket
import sys
import threading
import time
import zlib

KEYS = sys.argv[2:] != ["google"]
if KEYS:
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"
import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

moto = DomainDispatcherApplication(create_backend_app)
lock, state = threading.Lock(), {"mode": "well", "after": 0, "written": 0}


def app(environ, start):
    path = environ["PATH_INFO"]
    if path.startswith("/-/"):
        with lock:
            if path == "/-/objects":
                said = json.dumps(objects()).encode()
            elif path == "/-/count":
                said = str(state["written"]).encode()
            else:
                _, _, mode, after = path.split("/")
                state.update(mode=mode, after=int(after), written=0)
                said = b""
        start("200 OK", [("Content-Length", str(len(said)))])
        return [said]
    with lock:
        is_faulty = state["written"] >= state["after"]
        state["written"] += environ["REQUEST_METHOD"] == "PUT" and path.count("/") > 1
        mode = state["mode"] if is_faulty else "well"
    if mode == "slow":
        time.sleep(0.3)
    if mode == "silent":
        time.sleep(600)
    if mode == "gone":
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError
    is_amazons = KEYS or environ.get("HTTP_AUTHORIZATION", "").startswith("AWS")
    return moto(environ, start) if is_amazons else google(environ, start)


def google(environ, start):
    scope = "AKIAIOSFODNN7EXAMPLE/20260101/us-east-1/s3/aws4_request"
    environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    theirs, ours = "HTTP_X_GOOG_META_", "HTTP_X_AMZ_META_"
    environ.update({ours + name[len(theirs):]: value for name, value in environ.items() if name.startswith(theirs)})

    def begin(status, headers, *more):
        told = [(name.lower().replace("x-amz-meta-", "x-goog-meta-"), value) for name, value in headers]
        return start(status, told, *more)

    return moto(environ, begin)


def objects():
    keys = s3_backends["123456789012"]["aws"].buckets["fleet"].keys
    of = {name: key.value for name, key in keys.items() if name.startswith("tables")}
    return {name: [len(value), zlib.crc32(value)] for name, value in of.items()}


class Quiet(WSGIRequestHandler):
    def log(self, *_):
        pass


server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
client = dict(endpoint_url=f"http://127.0.0.1:{server.port}", region_name="us-east-1")
iam = boto3.client("iam", aws_access_key_id="x", aws_secret_access_key="x", **client)
iam.create_user(UserName="fleet")
allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
iam.put_user_policy(UserName="fleet", PolicyName="all", PolicyDocument=json.dumps(allow))
key = iam.create_access_key(UserName="fleet")["AccessKey"]
pair = dict(aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
s3 = boto3.client("s3", **pair, **client)
s3.create_bucket(Bucket="fleet")
for path in pathlib.Path(sys.argv[1]).glob("*.strand*"):
    s3.put_object(Bucket="fleet", Key=f"runs/run-17/{path.name}", Body=path.read_bytes())
print(json.dumps({"port": server.port, "id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}), flush=True)
sys.stdin.read()
