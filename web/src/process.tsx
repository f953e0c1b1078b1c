// Background processes: the list, one of them with its log, starting and ending.

import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, get, post, sessionPath } from "./api";
import { LogView } from "./logview";
import { go, toProcess, toSession } from "./place";
import { lazy } from "./preact";
import { attempt, changed, loaded, may, notify, processes, running, sorted, tick } from "./state";
import type { Process } from "./types";
import { bytes, clock, Code, CopyButton, duration, Empty, Icon, icons, Mark, now, processOutcome, processWords, Time, took } from "./ui";

const Terminal = lazy(() => import("./term").then((m) => m.ProcessTerminal));

export function Processes() {
  const list = running.value;
  if (loaded.value && list.length === 0)
    return (
      <main>
        <div class="scroll pad">
          <Empty title="No process">
            <p>A process runs beside its session's shell: a server, a watcher, a long build. In a terminal:</p>
            <Code text="conch run -s work --name clock 'while sleep 1; do date; done'" />
          </Empty>
          {may("exec") && <StartProcess />}
        </div>
      </main>
    );
  return (
    <main>
      <header>
        <div class="bar">
          <h1>Processes</h1>
        </div>
      </header>
      <div class="scroll pad">
        <ProcessRows list={list} none="No process." address />
        {may("exec") && <StartProcess />}
      </div>
    </main>
  );
}

export function ProcessRows({ list, none, address }: { list: Process[]; none: string; address?: boolean }) {
  const t = now.value;
  if (list.length === 0) return <p class="muted">{none}</p>;
  return (
    <ul class="rows-plain">
      {list.slice(0, 300).map((p) => {
        const o = processOutcome(p);
        return (
          <li key={p.process_id}>
            <a class={"item " + o} href={toProcess(p.process_id)}>
              <Mark kind={o} label={processWords(p)} />
              <span class="addr">
                {address && (
                  <span class="muted">
                    {p.agent}/{p.session}{" "}
                  </span>
                )}
                <b>{p.name || p.process_id}</b>
              </span>
              <span class="mono cut grow">{p.command}</span>
              <span class={"exit " + o}>{p.ended_at ? processWords(p) : ""}</span>
              <span class="took">{duration(took(p, t))}</span>
              <span class="muted when">{clock(p.started_at)}</span>
            </a>
          </li>
        );
      })}
      {list.length > 300 && <li class="muted pad">and {list.length - 300} older ones</li>}
    </ul>
  );
}

export function StartProcess({ agent, label }: { agent?: string; label?: string }) {
  const [command, setCommand] = useState("");
  const [name, setName] = useState("");
  const [tty, setTTY] = useState(false);
  const [where, setWhere] = useState(agent ? `${agent}/${label}` : "");
  const list = sorted.value;
  const start = async (e: Event) => {
    e.preventDefault();
    const [a, l] = (where || (list[0] ? `${list[0].agent}/${list[0].label}` : "me/main")).split("/");
    const p = await attempt("Cannot start it", () =>
      post<Process>(`${sessionPath(a, l)}/run?create=1`, { command, ...(name ? { name } : {}), ...(tty ? { tty: true, cols: 100, rows: 30 } : {}) }),
    );
    if (!p) return;
    setCommand("");
    setName("");
    processes.set(p.process_id, p);
    changed();
    go(toProcess(p.process_id));
  };
  return (
    <form class="start" onSubmit={start}>
      <h2>Start a process</h2>
      <div class="fields">
        {!agent && (
          <label>
            Session
            <select value={where || (list[0] ? `${list[0].agent}/${list[0].label}` : "me/main")} onChange={(e) => setWhere(e.currentTarget.value)}>
              {list.length === 0 && <option value="me/main">me/main</option>}
              {list.map((s) => (
                <option key={s.agent + "/" + s.label} value={`${s.agent}/${s.label}`}>
                  {s.agent}/{s.label}
                </option>
              ))}
            </select>
          </label>
        )}
        <label class="grow">
          Command
          <input class="mono" required value={command} spellcheck={false} autocapitalize="off" autocomplete="off" onInput={(e) => setCommand(e.currentTarget.value)} />
        </label>
        <label>
          <span>
            Name <span class="muted">(optional)</span>
          </span>
          <input value={name} pattern="[A-Za-z0-9_.:\-]{1,64}" title="1 to 64 characters of A-Z a-z 0-9 _ . : -" onInput={(e) => setName(e.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={tty} onChange={(e) => setTTY(e.currentTarget.checked)} />
          on a terminal
        </label>
        <button type="submit">Start</button>
      </div>
    </form>
  );
}

// What a running process uses, asked every two seconds while somebody looks.
interface Sample {
  cpu: number; // of one processor, in percent
  memory: number;
}
const samples = 90;

function useUsage(id: string, live: boolean): Sample[] {
  const [list, setList] = useState<Sample[]>([]);
  useEffect(() => {
    setList([]);
    if (!live) return;
    let last: { at: number; cpu: number } | null = null;
    let gone = false;
    const look = async () => {
      if (document.hidden) return;
      try {
        const p = await get<Process>(`/v1/processes/${id}`);
        if (gone) return;
        const at = performance.now();
        const cpu = last ? Math.max(0, (p.cpu_ms - last.cpu) / (at - last.at)) * 100 : 0;
        if (last) setList((l) => [...l, { cpu, memory: p.memory_bytes }].slice(-samples));
        last = { at, cpu: p.cpu_ms };
        const old = processes.get(id);
        if (old && !old.ended_at && !p.ended_at) processes.set(id, p);
      } catch {
        // The daemon is away for a moment, or the process is over.
      }
    };
    look();
    const soon = setTimeout(look, 500);
    const t = setInterval(look, 2000);
    return () => {
      gone = true;
      clearTimeout(soon);
      clearInterval(t);
    };
  }, [id, live]);
  return list;
}

function Spark({ list, label, text, most }: { list: number[]; label: string; text: string; most: number }) {
  const top = Math.max(most, ...list);
  const points = list.map((v, i) => `${((i + samples - list.length) / (samples - 1)) * 120},${26 - (v / top) * 24}`);
  return (
    <div class="spark">
      <span class="muted">{label}</span>
      <svg viewBox="0 0 120 28" preserveAspectRatio="none" aria-hidden="true">
        {points.length > 1 && (
          <>
            <path class="area" d={`M${points[0].split(",")[0]},27 L${points.join(" L")} L120,27 Z`} />
            <path class="edge" d={`M${points.join(" L")}`} />
          </>
        )}
      </svg>
      <b>{text}</b>
    </div>
  );
}

const signals = ["INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"];

export function ProcessView({ id }: { id: string }) {
  tick.value;
  const listed = processes.get(id);
  const [own, setOwn] = useState<Process | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    let gone = false;
    setOwn(null);
    setError("");
    get<Process>(`/v1/processes/${id}`).then(
      (p) => !gone && setOwn(p),
      (e: Failure) => !gone && setError(e.message),
    );
    return () => {
      gone = true;
    };
  }, [id]);
  const p = listed ?? own;
  const live = !!p && !p.ended_at;
  const usage = useUsage(id, live);
  const t = now.value;
  if (!p)
    return (
      <main>
        {error && (
          <Empty title="This process is not known">
            <p>{error}</p>
            <p>
              <a href="#/p">All processes</a>
            </p>
          </Empty>
        )}
      </main>
    );
  const o = processOutcome(p);
  const command = own && own.command.length > p.command.length ? own.command : p.command;
  const end = (signal?: string) =>
    attempt("Cannot signal it", async () => {
      const r = await post<{ signal: string; processes: number; verified: boolean }>(`/v1/processes/${id}/signal`, signal ? { signal } : {});
      notify("info", signal ? `Sent ${signal}.` : r.verified ? `Ended (${r.signal}), all of it seen gone.` : `Ended by ${r.signal}; not everything was seen gone.`);
    });
  const latest = usage[usage.length - 1];
  return (
    <main class="session">
      <header>
        <div class="bar">
          <a class="button quiet" href="#/p" aria-label="All processes">
            <Icon d={icons.back} />
          </a>
          <Mark kind={o} />
          <h1 class="small">{p.name || id}</h1>
          <span class={"state " + o}>{processWords(p)}</span>
          <span class="grow" />
          {live && may("exec") && (
            <>
              <label class="inline">
                <span class="hidden">Send a signal</span>
                <select
                  value=""
                  onChange={(e) => {
                    const sig = e.currentTarget.value;
                    e.currentTarget.value = "";
                    if (sig) end(sig);
                  }}
                >
                  <option value="">Signal …</option>
                  {signals.map((s) => (
                    <option key={s}>{s}</option>
                  ))}
                </select>
              </label>
              <button type="button" class="danger" onClick={() => end()}>
                <Icon d={icons.stop} />
                <span>Kill</span>
              </button>
            </>
          )}
        </div>
        <div class="code tall">
          <pre tabIndex={0} aria-label="The process's command">
            {command}
          </pre>
          <CopyButton text={command} what="the command" small />
        </div>
        <dl class="facts">
          <div>
            <dt>session</dt>
            <dd>
              <a href={toSession(p.agent, p.session)}>
                {p.agent}/{p.session}
              </a>
            </dd>
          </div>
          <div>
            <dt>id</dt>
            <dd class="mono">{id}</dd>
          </div>
          <div>
            <dt>pid</dt>
            <dd class="mono">{p.pid}</dd>
          </div>
          <div>
            <dt>started</dt>
            <dd>
              <Time at={p.started_at} />
            </dd>
          </div>
          <div>
            <dt>{live ? "running for" : "took"}</dt>
            <dd>{duration(took(p, t))}</dd>
          </div>
          {!live && (
            <>
              <div>
                <dt>processor</dt>
                <dd>{duration(p.cpu_ms)}</dd>
              </div>
              {p.peak_memory_bytes > 0 && (
                <div>
                  <dt>peak memory</dt>
                  <dd>{bytes(p.peak_memory_bytes)}</dd>
                </div>
              )}
            </>
          )}
        </dl>
        {live && (
          <div class="sparks">
            <Spark label="CPU" list={usage.map((s) => s.cpu)} text={latest ? `${latest.cpu.toFixed(latest.cpu < 10 ? 1 : 0)} %` : "…"} most={10} />
            <Spark label="Memory" list={usage.map((s) => s.memory)} text={latest ? bytes(latest.memory) : "…"} most={1} />
          </div>
        )}
        {p.error && <p class="warn">{p.error}</p>}
      </header>
      {p.tty && live ? <Terminal id={id} /> : <LogView key={id} id={id} stick={live} label="Log" />}
      {live && !p.tty && may("exec") && <Stdin id={id} />}
    </main>
  );
}

// Stdin sends lines to a process.
function Stdin({ id }: { id: string }) {
  const [text, setText] = useState("");
  const offset = useRef<number | null>(null);
  const send = (data: string, close: boolean) =>
    attempt("Cannot write to it", async () => {
      const q = close ? "?close=1" : "";
      const r = await fetch(`/v1/processes/${id}/stdin${q}`, { method: "POST", body: data, headers: { "Content-Type": "application/octet-stream" } });
      if (!r.ok) {
        const { error } = await r.json();
        throw new Failure(error.code, error.message, error.hint, r.status);
      }
      offset.current = (await r.json()).offset;
    });
  return (
    <form
      class="run"
      onSubmit={(e) => {
        e.preventDefault();
        send(text + "\n", false).then(() => setText(""));
      }}
    >
      <span class="prompt" aria-hidden="true">
        &gt;
      </span>
      <input class="mono" aria-label="A line for its standard input" placeholder="Write a line to its stdin" value={text} spellcheck={false} autocapitalize="off" autocomplete="off" onInput={(e) => setText(e.currentTarget.value)} />
      <button type="submit">Send</button>
      <button type="button" class="quiet" onClick={() => send("", true).then(() => notify("info", "Its input has ended."))}>
        End input
      </button>
    </form>
  );
}

