// One command: what it was, how it went, and what it wrote.

import { useEffect, useState } from "preact/hooks";
import { get, post, sessionPath } from "./api";
import { LogView } from "./logview";
import { toSession } from "./place";
import { attempt, history, may, notify, tick } from "./state";
import type { Command } from "./types";
import { bytes, CopyButton, duration, Empty, Icon, icons, Mark, now, outcome, outcomeWords, Time, took } from "./ui";

export function CommandView({ agent, label, id }: { agent: string; label: string; id: string }) {
  tick.value;
  const h = history(agent, label);
  const known = h.byID.get(id) ?? h.queue.find((c) => c.command_id === id);
  const [own, setOwn] = useState<Command | null>(null);
  const [error, setError] = useState("");
  // The history may not reach back so far, and events carry only the beginning of a
  // long text.
  useEffect(() => {
    let gone = false;
    setOwn(null);
    setError("");
    get<Command>(`/v1/commands/${id}`).then(
      (c) => !gone && setOwn(c),
      (e) => !gone && setError(e.message),
    );
    return () => {
      gone = true;
    };
  }, [id]);
  const c = known ? { ...known, command: own && own.command.length > known.command.length ? own.command : known.command } : own;
  const t = now.value;
  if (!c)
    return (
      <main>
        {error ? (
          <Empty title="This command is not known">
            <p>{error}</p>
            <p>
              <a href={toSession(agent, label)}>
                All commands of {agent}/{label}
              </a>
            </p>
          </Empty>
        ) : null}
      </main>
    );
  const o = outcome(c);
  const path = sessionPath(agent, label);
  return (
    <main class="session">
      <header>
        <div class="bar">
          <a class="button quiet" href={toSession(agent, label)} aria-label={`All commands of ${agent}/${label}`}>
            <Icon d={icons.back} />
          </a>
          <Mark kind={o} />
          <h1 class="small">
            <span class="muted">
              {agent}/{label}
            </span>{" "}
            {id}
          </h1>
          <span class={"state " + o}>{outcomeWords(c)}</span>
          <span class="grow" />
          {may("exec") && (o === "running" || o === "queued") && (
            <button
              type="button"
              onClick={() =>
                attempt("Cannot interrupt", async () => {
                  const r = await post<{ interrupted: boolean }>(path + "/interrupt", { command_id: id });
                  notify("info", r.interrupted ? "Interrupted." : "It had ended already.");
                })
              }
            >
              <Icon d={icons.stop} />
              <span>Interrupt</span>
            </button>
          )}
          {may("exec") && (
            <button type="button" class="quiet" onClick={() => attempt("Cannot run it", () => again(path, c.command))}>
              <Icon d={icons.again} />
              <span>Run again</span>
            </button>
          )}
        </div>
        <div class="code tall">
          <pre tabIndex={0} aria-label="The command's text">
            {c.command}
          </pre>
          <CopyButton text={c.command} what="the command" small />
        </div>
        <dl class="facts">
          <div>
            <dt>started</dt>
            <dd>{c.started_at ? <Time at={c.started_at} /> : "not yet"}</dd>
          </div>
          <div>
            <dt>took</dt>
            <dd>{duration(took(c, t))}</dd>
          </div>
          <div>
            <dt>stdout</dt>
            <dd>{bytes(c.stdout_bytes)}</dd>
          </div>
          <div>
            <dt>stderr</dt>
            <dd>{bytes(c.stderr_bytes)}</dd>
          </div>
          {c.restarted && (
            <div>
              <dt>shell</dt>
              <dd>restarted from its last state</dd>
            </div>
          )}
        </dl>
      </header>
      {o === "queued" ? <p class="muted pad">It waits for its turn.</p> : <LogView key={id} id={id} stick={o === "running"} label="Output" />}
    </main>
  );
}

async function again(path: string, command: string): Promise<void> {
  const r = await fetch(path + "/exec", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ command }),
  });
  if (!r.ok) throw new Error((await r.json()).error.message);
  const id = r.headers.get("Conch-Command-Id");
  await r.body?.cancel();
  if (id) location.hash = location.hash.replace(/\/c\/.*/, "/c/" + id);
}
