"""Starts two simulated engines and `isotherm run` of the installation at a prefix, and sends a chat. SIGTERM ends it."""

import json
import socket
import subprocess
import sys
import time
import urllib.request

PREFIX = sys.argv[1]
WAIT_S_MAX = 120


def address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


def chat(listen):
    body = {"model": "demo", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"content-type": "application/json"}
    url = "http://%s/v1/chat/completions" % listen
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


replicas = [address(), address()]
engine = [PREFIX + "/libexec/isotherm/isotherm-engine", "--model", "demo", "--listen"]
programs = [subprocess.Popen(engine + [replica]) for replica in replicas]
listen = address()
run = [PREFIX + "/bin/isotherm", "run", "--listen", listen]
for option in ["--envoy-admin", "--service", "--admin"]:
    run += [option, address()]
for replica in replicas:
    run += ["--replica", "http://" + replica]
supervisor = subprocess.Popen(run)
programs.append(supervisor)
try:
    end = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            answer = chat(listen)
            break
        except OSError:
            if supervisor.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.2)
    assert answer["object"] == "chat.completion", answer
    supervisor.terminate()
    assert supervisor.wait(WAIT_S_MAX) == 0, supervisor.returncode
finally:
    for program in programs:
        program.kill()
