"""A person at JupyterLab: starts the command that is given, opens a kernel in it, runs one cell, and shuts the server down.

    lab.py CODE COMMAND…      COMMAND starts a server, as `strandline run jupyter lab --no-browser` does
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid

import requests
import websocket

code, command = sys.argv[1], sys.argv[2:]
folder = tempfile.TemporaryDirectory()
runtime = os.environ["JUPYTER_RUNTIME_DIR"] = folder.name
server = subprocess.Popen([*command, "--port=0", "--allow-root", "--IdentityProvider.token=open"])
info, until = None, time.time() + 60
while info is None and time.time() < until and server.poll() is None:
    time.sleep(0.2)
    files = [f for f in os.listdir(runtime) if f.startswith("jpserver-") and f.endswith(".json")]
    if files:
        with open(os.path.join(runtime, files[0])) as f:
            text = f.read()
        info = json.loads(text) if text.endswith("}") else None
if info is None:
    sys.exit("no server")
url, token = info["url"], {"Authorization": "token open"}
kernel = None
while kernel is None and time.time() < until:
    try:
        kernel = requests.post(f"{url}api/kernels", headers=token, timeout=60).json()["id"]
    except requests.ConnectionError:
        time.sleep(0.2)
channels = websocket.create_connection(f"{url.replace('http', 'ws', 1)}api/kernels/{kernel}/channels", header=["Authorization: token open"], timeout=120)
header = {"msg_id": uuid.uuid4().hex, "session": "s", "username": "u", "msg_type": "execute_request", "version": "5.3", "date": ""}
cell = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
channels.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": cell, "channel": "shell"}))
while True:
    said = json.loads(channels.recv())
    if said["msg_type"] == "error":
        print("\n".join(said["content"]["traceback"]))
    if said["msg_type"] == "execute_reply" and said["parent_header"].get("msg_id") == header["msg_id"]:
        break
channels.close()
requests.post(f"{url}api/shutdown", headers=token, timeout=60)
server.wait()
sys.exit(said["content"]["status"] != "ok" or server.returncode)
