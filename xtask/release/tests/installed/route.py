"""Starts two simulated engines and Isotherm of the installation at a prefix, and sends chats until one was decided on the
decision stream. SIGTERM ends the last program.

`isotherm run` starts the service and Envoy. With a second argument, the program of an Envoy, the script starts both itself:
under an emulator the command would start itself without the emulator.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request

PREFIX = sys.argv[1]
ENVOY = sys.argv[2] if len(sys.argv) > 2 else None
ISOTHERM = PREFIX + "/bin/isotherm"
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


def page(address, path):
    with urllib.request.urlopen("http://%s%s" % (address, path), timeout=10) as answer:
        return answer.read().decode()


def total(address, path, name):
    """The sum of a metric over its series."""
    samples = [line for line in page(address, path).splitlines() if name in line and line[0] != "#"]
    return sum(float(sample.rsplit(" ", 1)[1]) for sample in samples)


def is_decided_on_stream():
    """Sends a chat. The service has got more requests than Envoy has sent by external processing."""
    answer = chat(listen)
    assert answer["object"] == "chat.completion", answer
    arrived = total(admin, "/metrics", "isotherm_arrived_total")
    return arrived > total(envoy_admin, "/stats", "ext_proc.isotherm.streams_started")


def until(what, check):
    """Waits until a check is true. A program that is not there yet, or that has ended, is an OSError."""
    end = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            value = check()
        except OSError:
            value = None
        if value:
            return value
        assert time.monotonic() < end, what
        for program in programs:
            assert program.poll() is None, (what, program.args)
        time.sleep(0.2)


programs = []
replicas = [address(), address()]
for replica in replicas:
    engine = [PREFIX + "/libexec/isotherm/isotherm-engine", "--model", "demo", "--listen", replica]
    programs.append(subprocess.Popen(engine))
listen, envoy_admin, service, admin = (address() for _ in range(4))
options = ["--listen", listen, "--envoy-admin", envoy_admin, "--service", service, "--admin", admin]
for replica in replicas:
    options += ["--replica", replica]
try:
    if ENVOY:
        subprocess.run([ISOTHERM, "init", "--model", "demo"] + options, check=True)
        programs.append(subprocess.Popen([ISOTHERM, "serve", "--config", "isotherm.yaml"]))
        until("the service", lambda: page(admin, "/readyz"))
        programs.append(subprocess.Popen([ENVOY, "--config-path", "envoy.yaml", "--disable-hot-restart"]))
    else:
        programs.append(subprocess.Popen([ISOTHERM, "run"] + options))
    until("a decision on the decision stream", is_decided_on_stream)
    last = programs[-1]
    last.terminate()
    assert last.wait(WAIT_S_MAX) == 0, last.returncode
finally:
    for program in programs:
        program.kill()
