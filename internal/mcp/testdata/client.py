"""A client of conch mcp that knows nothing of the SDK: lines of JSON on two pipes.

usage: client.py CONCH handshake|stateless

It calls every tool that the server lists, looks at what each gives, and fails if one
was left out.
"""

import json
import subprocess
import sys
import threading

conch, era = sys.argv[1:3]
CLIENT = {"name": "raw-python", "version": "0"}


class Server:
    def __init__(self, name):
        self.process = subprocess.Popen([conch, "mcp", "--handle", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.id = 0
        self.answers = {}
        self.notices = []
        self.news = threading.Condition()
        self.called = set()
        threading.Thread(target=self.read, daemon=True).start()
        if era == "handshake":
            r = self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT})
            assert r["protocolVersion"] == "2025-06-18" and r["serverInfo"]["name"] == "conch", r
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def read(self):
        for line in self.process.stdout:
            m = json.loads(line)
            assert m["jsonrpc"] == "2.0", m
            with self.news:
                if "id" in m and "method" not in m:
                    self.answers[m["id"]] = m
                else:
                    self.notices.append(m)
                self.news.notify_all()

    def write(self, m):
        self.process.stdin.write(json.dumps(m).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, method, params):
        with self.news:
            self.id += 1
            i = self.id
        if era == "stateless":
            params = dict(params, _meta={
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": CLIENT,
                "io.modelcontextprotocol/clientCapabilities": {},
            })
        self.write({"jsonrpc": "2.0", "id": i, "method": method, "params": params})
        return i

    def wait(self, i):
        with self.news:
            assert self.news.wait_for(lambda: i in self.answers, 60), "no answer to request %d" % i
            m = self.answers.pop(i)
        assert "error" not in m, m
        return m["result"]

    def request(self, method, params={}):
        return self.wait(self.begin(method, params))

    def result(self, tool, r, error):
        assert [c["type"] for c in r["content"]] == ["text"], r
        assert bool(r.get("isError")) == error, (tool, r)
        return r["structuredContent"], r["content"][0]["text"]

    def call(self, tool, error=False, **arguments):
        self.called.add(tool)
        return self.result(tool, self.request("tools/call", {"name": tool, "arguments": arguments}), error)

    def leave(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


a, b = Server("one"), Server("two")
listed = {t["name"]: t for t in a.request("tools/list")["tools"]}
for t in listed.values():
    assert t["description"] and t["inputSchema"]["type"] == "object", t

# The shell.
r, text = a.call("shell_exec", command="cd /; X=kept; echo out; echo err >&2; (exit 3)")
assert (r["exit_code"], r["stdout"], r["stderr"]) == (3, "out\n", "err\n") and text.startswith("exit 3 "), (r, text)
r, _ = a.call("shell_exec", command="echo $X $PWD; cat", stdin="given")
assert r["stdout"] == "kept /\ngiven", r
_, text = a.call("shell_exec", error=True, command="true", session="nobody")
assert text.startswith("error session_not_found: "), text
p, _ = a.call("shell_start", command="read line; echo got $line; sleep 300", name="reader")
a.call("shell_input", id="reader", text="a line\n")
r, _ = a.call("shell_wait", id=p["process_id"], log="got a .*", timeout_s=30)
assert r["reason"] == "log" and r["match"]["line"] == "got a line", r
r, _ = a.call("shell_output", id="reader")
assert r["stdout"] == "got a line\n" and r["status"] == "running", r
r, _ = a.call("shell_signal", id="reader")
assert r["verified"], r
p, _ = a.call("shell_start", command="cat", name="tty", tty=True)
a.call("shell_input", id="tty", text="typed", keys=["enter"])
for _ in range(50):
    r, text = a.call("shell_screen", id="tty")
    if r["lines"] == ["typed", "typed"]:
        break
else:
    raise AssertionError((r, text))
a.call("shell_input", id="tty", keys=["ctrl-d"])
r, _ = a.call("shell_wait", id="tty", timeout_s=30)
assert r["process"]["exit_code"] == 0, r

# Who is who.
me, _ = a.call("whoami")
you, _ = b.call("whoami")
assert (me["label"], you["label"]) == ("raw:1", "raw:2"), (me, you)
r, text = a.call("sessions")
assert r["you"] == "me/raw:1" and {s["label"] for s in r["sessions"]} >= {"raw:1", "raw:2"}, r
r, _ = b.call("use", label="reviewer")
assert r["label"] == "reviewer", r

# Mail: a question, its answer, and a message that nobody waits for.
question = a.begin("tools/call", {"name": "ask", "arguments": {"to": "reviewer", "text": "ready?", "timeout_s": 60}})
a.called.add("ask")
r, text = b.call("await_reply", timeout_s=60)
m = r["message"]
assert "\nready?\n>>>end " in m["text"] and m["from_session"] == "raw:1" and "<<<text " in text, r
b.call("send", to="raw:1", text="yes", reply_to=m["id"])
r, _ = a.result("ask", a.wait(question), False)
assert "\nyes\n>>>end " in r["reply"]["text"] and not r["timed_out"], r
a.call("ack", ids=[r["reply"]["id"]])
r, _ = b.call("send", to="raw:1", text="one more thing")
r, text = a.call("inbox")
assert ["\none more thing\n>>>end " in m["text"] for m in r["messages"]] == [True], r
a.call("ack", ids=[m["id"] for m in r["messages"]])
r, _ = a.call("inbox", peek=True)
assert r["messages"] == [], r

# Contacts: none here, and to accept one is for a person.
r, text = a.call("contacts", action="ls")
assert r["contacts"] == [], r

left_out = set(listed) - a.called - b.called
assert not left_out, left_out
a.leave()
b.leave()
print("drove %d tools, %s" % (len(listed), era))
