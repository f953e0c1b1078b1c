// All sessions: the list at the side, and the overview.

import { signal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { post } from "./api";
import { List } from "./list";
import { go, place, toProcess, toSession } from "./place";
import { agents, attempt, key, loaded, may, messages, running, sorted, standing, status, type Standing } from "./state";
import type { Session } from "./types";
import { ago, Code, duration, Empty, home, Icon, icons, Mark, now, standingText } from "./ui";

export const filter = signal("");
const only = signal<Standing | "">("");

function matches(s: Session, words: string[]): boolean {
  if (only.value && standing(s) !== only.value) return false;
  const text = `${s.agent}/${s.label} ${s.cwd} ${s.command ?? ""} ${s.last_command ?? ""} ${standingText(s)}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

type Row = { agent: string; n: number } | Session;

export const shown = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  return sorted.value.filter((s) => matches(s, words));
};

// Sessions is the list at the side, by agent.
export function Sessions() {
  const list = shown();
  const rows: Row[] = [];
  let last = "";
  let head: { agent: string; n: number } | null = null;
  for (const s of list) {
    if (s.agent !== last) rows.push((head = { agent: (last = s.agent), n: 0 }));
    head!.n++;
    rows.push(s);
  }
  const at = place.value;
  const current = at.agent && at.label ? key(at.agent, at.label) : "";
  const t = now.value;
  return (
    <div class="sessions">
      <div class="bar">
        <label class="find grow">
          <Icon d={icons.search} />
          <span class="hidden">Filter sessions</span>
          <input id="filter" type="search" placeholder="Filter sessions" value={filter.value} onInput={(e) => (filter.value = e.currentTarget.value)} />
        </label>
        {may("exec") && <NewSession />}
      </div>
      {only.value && (
        <p class="only">
          Only {only.value} sessions{" "}
          <button type="button" class="quiet small" onClick={() => (only.value = "")}>
            Show all
          </button>
        </p>
      )}
      <List
        label="Sessions"
        count={rows.length}
        height={48}
        class="grow"
        rowClass={(i) => ("n" in rows[i] ? "group" : "")}
        empty={loaded.value ? <p class="muted pad">{sorted.value.length ? "No session is like that." : "No session yet."}</p> : undefined}
        row={(i) => {
          const r = rows[i];
          if ("n" in r)
            return (
              <h3>
                {r.agent} <span class="muted">{r.n}</span>
              </h3>
            );
          return <SessionRow s={r} at={t} current={current === key(r.agent, r.label)} />;
        }}
      />
    </div>
  );
}

const SessionRow = ({ s, at, current }: { s: Session; at: number; current: boolean }) => {
  const st = standing(s);
  return (
    <a class={"item " + st} href={toSession(s.agent, s.label)} aria-current={current ? "page" : undefined} data-session={key(s.agent, s.label)}>
      <Mark kind={st} label={standingText(s)} />
      <span class="what">
        <span class="name">
          <b>{s.label}</b>
          {s.mail > 0 && (
            <span class="badge mail" title={`${s.mail} in its inbox`}>
              <Icon d={icons.mail} />
              {s.mail}
            </span>
          )}
          {s.queue > 0 && <span class="badge wait">{s.queue} queued</span>}
          {s.processes > 0 && <span class="badge">{s.processes} proc</span>}
          <span class="grow" />
          <span class="muted when">{st === "busy" ? duration(at - Date.parse(s.last_active)) : ago(s.last_active, at)}</span>
        </span>
        <span class="mono cut muted">{s.busy ? s.command : s.last_command || home(s.cwd, undefined) || "–"}</span>
      </span>
    </a>
  );
};

function NewSession() {
  const [open, setOpen] = useState(false);
  const [label, setLabel] = useState("");
  const [agent, setAgent] = useState("");
  if (!open)
    return (
      <button type="button" class="quiet" aria-label="New session" title="New session" onClick={() => setOpen(true)}>
        <Icon d={icons.plus} />
      </button>
    );
  const make = async (e: Event) => {
    e.preventDefault();
    const who = agent || agents.find((a) => a.active)?.name || "me";
    const s = await attempt("Cannot make the session", () => post<Session>("/v1/sessions", { label, agent: who }));
    if (s) {
      setOpen(false);
      setLabel("");
      go(toSession(s.agent, s.label));
    }
  };
  return (
    <form class="pop" onSubmit={make} onKeyDown={(e) => e.key === "Escape" && setOpen(false)}>
      <label>
        Label
        <input autoFocus required pattern="[A-Za-z0-9_:\-]{1,32}" title="1 to 32 characters of A-Z a-z 0-9 _ : -" value={label} onInput={(e) => setLabel(e.currentTarget.value)} />
      </label>
      {agents.length > 1 && (
        <label>
          Agent
          <select value={agent} onChange={(e) => setAgent(e.currentTarget.value)}>
            {agents.map((a) => (
              <option key={a.name} value={a.name}>
                {a.name}
              </option>
            ))}
          </select>
        </label>
      )}
      <span class="bar">
        <button type="submit">Make</button>
        <button type="button" class="quiet" onClick={() => setOpen(false)}>
          Cancel
        </button>
      </span>
    </form>
  );
}

// Overview is what a tired person looks at first.
export function Overview() {
  const list = sorted.value;
  const t = now.value;
  const procs = running.value;
  const groups = useMemo(() => {
    const g: Record<Standing, Session[]> = { busy: [], held: [], failed: [], waiting: [], idle: [], asleep: [] };
    for (const s of list) g[standing(s)].push(s);
    return g;
  }, [list]);
  const alive = procs.filter((p) => !p.ended_at);
  const unread = list.reduce((n, s) => n + s.mail, 0);
  if (loaded.value && list.length === 0)
    return (
      <main class="glance">
        <Empty title="No session yet">
          <p>A session is made by the first command that names it. In a terminal:</p>
          <Code text="conch exec -s work 'echo hello from conch'" />
          <p>Agents get one when they start conch as their tool server:</p>
          <Code text="claude mcp add conch -- conch mcp" />
          <p class="muted">This page shows it the moment it is there.</p>
        </Empty>
      </main>
    );
  const tile = (kind: Standing, text: string) => (
    <button type="button" class={"tile " + kind} aria-pressed={only.value === kind} disabled={!groups[kind].length} onClick={() => (only.value = only.value === kind ? "" : kind)}>
      <Mark kind={kind} />
      <b>{groups[kind].length}</b>
      <span>{text}</span>
    </button>
  );
  return (
    <main class="glance">
      <h1>Overview</h1>
      <div class="tiles">
        {tile("busy", "busy")}
        {tile("failed", "failed")}
        {tile("waiting", "waiting")}
        {tile("held", "held by a person")}
        {tile("idle", "idle")}
        {tile("asleep", "asleep")}
        <a class="tile" href="#/p">
          <Icon d={icons.cpu} />
          <b>{alive.length}</b>
          <span>{alive.length === 1 ? "process" : "processes"}</span>
        </a>
        <a class="tile" href="#/m">
          <Icon d={icons.mail} />
          <b>{unread}</b>
          <span>{messages.size && unread === 1 ? "message waits" : "messages wait"}</span>
        </a>
      </div>
      <Part title="Running now" list={groups.busy} none="No command runs." at={t} />
      <Part title="Needs a look" list={[...groups.failed, ...groups.waiting, ...groups.held]} none="Nothing failed, nothing waits." at={t} />
      {alive.length > 0 && (
        <section>
          <h2>Processes</h2>
          <ul class="rows-plain">
            {alive.slice(0, 8).map((p) => (
              <li key={p.process_id}>
                <a class="item" href={toProcess(p.process_id)}>
                  <Mark kind="running" label="running" />
                  <b>{p.name || p.process_id}</b>
                  <span class="mono cut grow">{p.command}</span>
                  <span class="muted when">{duration(t - Date.parse(p.started_at))}</span>
                </a>
              </li>
            ))}
          </ul>
          {alive.length > 8 && <a href="#/p">All {alive.length} processes</a>}
        </section>
      )}
      {status.value && (
        <p class="muted foot">
          conch {status.value.version}, daemon {status.value.daemon_pid}, home <span class="mono">{status.value.home}</span>
        </p>
      )}
    </main>
  );
}

function Part({ title, list, none, at }: { title: string; list: Session[]; none: string; at: number }) {
  const most = 12;
  return (
    <section>
      <h2>
        {title} {list.length > 0 && <span class="muted">{list.length}</span>}
      </h2>
      {list.length === 0 ? (
        <p class="muted">{none}</p>
      ) : (
        <ul class="rows-plain">
          {list.slice(0, most).map((s) => {
            const st = standing(s);
            return (
              <li key={key(s.agent, s.label)}>
                <a class={"item " + st} href={toSession(s.agent, s.label, st === "waiting" && s.queue === 0 ? "mail" : "")}>
                  <Mark kind={st} label={standingText(s)} />
                  <span class="addr">
                    <span class="muted">{s.agent}/</span>
                    <b>{s.label}</b>
                  </span>
                  <span class="mono cut grow">{s.busy ? s.command : st === "failed" ? s.last_command : ""}</span>
                  <span class="say">{st === "busy" ? "" : standingText(s)}</span>
                  <span class="muted when">{st === "busy" ? "for " + duration(at - Date.parse(s.last_active)) : ago(s.last_active, at)}</span>
                </a>
              </li>
            );
          })}
        </ul>
      )}
      {list.length > most && <p class="muted">and {list.length - most} more, in the list</p>}
    </section>
  );
}
