// Messages: threads, what became of each, writing and answering. The text of a message
// is data from somebody: it is shown as text and nothing else.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failure, get, post } from "./api";
import { List } from "./list";
import { go, toMessage } from "./place";
import { agents, attempt, contactName, contacts, failed, fetchMail, loaded, loadMail, mailMore, may, messages, notify, sorted, tick } from "./state";
import type { Message } from "./types";
import { ago, bytes, clock, Code, Empty, Icon, icons, now, Time } from "./ui";

// party is somebody: an agent here, or one of another home by the name that we have for
// it, or else the beginning of its address.
export function party(agent: string, session: string): string {
  if (agent.length > 32) {
    const known = [...contacts.values()].find((c) => c.address === agent);
    agent = known ? contactName(known) : agent.slice(0, 12) + "…";
  }
  return session ? `${agent}/${session}` : agent;
}

// ours is the agent of this home that a message is from or to.
const ours = (m: Message) => (agents.some((a) => a.name === m.from) ? m.from : m.to);

interface Thread {
  id: string;
  list: Message[]; // oldest first
  last: Message;
  waiting: number; // messages nobody is done with
}

// A message that nobody is done with.
const open = (m: Message) => ["queued", "sent", "held", "stored", "offered", "seen"].includes(m.status);
const bad = (m: Message) => ["refused", "expired", "failed"].includes(m.status);

const kinds = {
  all: () => true,
  waiting: open,
  held: (m: Message) => m.status === "held",
  failed: bad,
};

function threads(keep: (m: Message) => boolean): Thread[] {
  const by = new Map<string, Message[]>();
  for (const m of messages.values()) {
    const id = m.thread || m.id;
    const l = by.get(id);
    if (l) l.push(m);
    else by.set(id, [m]);
  }
  const out: Thread[] = [];
  for (const [id, list] of by) {
    if (!list.some(keep)) continue;
    list.sort((a, b) => a.sent_at.localeCompare(b.sent_at) || a.id.localeCompare(b.id));
    out.push({ id, list, last: list[list.length - 1], waiting: list.filter(open).length });
  }
  return out.sort((a, b) => b.last.sent_at.localeCompare(a.last.sent_at));
}

export function Mail({ id }: { id?: string }) {
  tick.value;
  const [want, setWant] = useState("");
  const [only, setOnly] = useState<keyof typeof kinds>("all");
  const [hits, setHits] = useState<Set<string> | null>(null);
  useEffect(() => {
    setHits(null);
    if (!want.trim()) return;
    const stop = new AbortController();
    const t = setTimeout(async () => {
      try {
        const found = new Set<string>();
        for (const a of agents) {
          for (const m of await fetchMail(a.name, `/v1/mail/search?agent=${encodeURIComponent(a.name)}&text=${encodeURIComponent(want)}`, stop.signal)) found.add(m.id);
        }
        setHits(found);
      } catch (e) {
        failed("Cannot search", e);
      }
    }, 250);
    return () => {
      clearTimeout(t);
      stop.abort();
    };
  }, [want]);
  const list = threads((m) => (!hits || hits.has(m.id)) && kinds[only](m));
  if (id === "new") return <Compose />;
  const chosen = id ? list.find((t) => t.list.some((m) => m.id === id)) ?? threads(() => true).find((t) => t.list.some((m) => m.id === id)) : undefined;
  return (
    <main class={"mail" + (chosen ? " open" : "")}>
      <div class="threads">
        <div class="bar">
          <h1>Messages</h1>
          <span class="grow" />
          {may("mail") && (
            <a class="button" href="#/m/new">
              <Icon d={icons.plus} />
              <span>Write</span>
            </a>
          )}
        </div>
        <div class="bar">
          <label class="find grow">
            <Icon d={icons.search} />
            <span class="hidden">Search messages</span>
            <input id="search" type="search" placeholder="Search messages" value={want} onInput={(e) => setWant(e.currentTarget.value)} />
          </label>
        </div>
        <div class="bar">
          <div class="choice" role="group" aria-label="Which messages">
            {(Object.keys(kinds) as (keyof typeof kinds)[]).map((k) => (
              <button key={k} type="button" aria-pressed={only === k} onClick={() => setOnly(k)}>
                {k}
              </button>
            ))}
          </div>
        </div>
        <List
          label="Threads, newest first"
          class="grow"
          count={list.length}
          height={64}
          empty={
            want ? (
              <p class="muted pad">{hits ? "No message has these words." : "Searching …"}</p>
            ) : only !== "all" ? (
              <p class="muted pad">None.</p>
            ) : loaded.value ? (
              <Empty title="No message yet">
                <p>Sessions write to each other, and you to them. In a terminal:</p>
                <Code text="conch send main 'how far are you?'" />
              </Empty>
            ) : undefined
          }
          row={(i) => <ThreadRow t={list[i]} current={list[i] === chosen || list[i].id === chosen?.id} />}
        />
        {mailMore.size > 0 && !want && (
          <button
            type="button"
            class="quiet"
            onClick={() =>
              attempt("Cannot load older messages", async () => {
                for (const a of [...mailMore]) {
                  const mine = [...messages.values()].filter((m) => m.from === a || m.to === a).sort((x, y) => x.sent_at.localeCompare(y.sent_at));
                  if (mine.length) await loadMail(a, mine[0].id);
                }
              })
            }
          >
            Load older messages
          </button>
        )}
      </div>
      {chosen ? (
        <ThreadView key={chosen.id} t={chosen} />
      ) : (
        <div class="none">
          <p class="muted">{list.length ? "Choose a thread to read it." : ""}</p>
        </div>
      )}
    </main>
  );
}

const ThreadRow = ({ t, current }: { t: Thread; current: boolean }) => {
  const m = t.last;
  const first = t.list[0];
  return (
    <a class={"item thread" + (t.waiting ? " unread" : "")} href={toMessage(m.id)} aria-current={current ? "page" : undefined}>
      <span class="what">
        <span class="name">
          <b>{party(first.from, first.from_session)}</b>
          <span class="muted"> to {party(first.to, first.to_session)}</span>
          {t.list.length > 1 && <span class="count">{t.list.length}</span>}
          <span class="grow" />
          <span class="muted when">{ago(m.sent_at, now.value)}</span>
        </span>
        <span class="cut">{m.text.slice(0, 200)}</span>
        <Receipt m={m} />
      </span>
    </a>
  );
};

const receiptWords: Record<string, string> = {
  queued: "accepted",
  sent: "on its way",
  held: "held: its session is away",
  stored: "in the inbox",
  offered: "offered to the session",
  seen: "seen",
  done: "done",
  refused: "refused",
  expired: "expired",
  failed: "failed",
};
const Receipt = ({ m }: { m: Message }) => (
  <span class={"receipt " + (bad(m) ? "bad" : m.status)} title={m.reason || undefined}>
    {receiptWords[m.status] ?? m.status}
    {bad(m) && m.reason ? `: ${m.reason}` : ""}
  </span>
);

function ThreadView({ t }: { t: Thread }) {
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // The rest of the thread, if only a part of it was loaded.
    attempt("Cannot load the thread", async () => {
      const m = t.list[0];
      await fetchMail(ours(m), `/v1/mail/thread/${m.id}?agent=${encodeURIComponent(ours(m))}`);
    });
  }, [t.id]);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  }, [t.list.length]);
  return (
    <div class="reading">
      <div class="bar">
        <a class="back button quiet" href="#/m" aria-label="All messages">
          <Icon d={icons.back} />
        </a>
        <h2 class="cut">{t.list[0].text.split("\n")[0].slice(0, 80) || "(empty)"}</h2>
      </div>
      <ol class="messages">
        {t.list.map((m) => (
          <MessageView key={m.id} m={m} />
        ))}
        <div ref={end} />
      </ol>
      {may("mail") && <Reply t={t} />}
    </div>
  );
}

function MessageView({ m }: { m: Message }) {
  const [more, setMore] = useState<{ status: string; at: string; reason: string; session: string }[] | null>(null);
  const done = async () => {
    for (const r of m.recipients ?? []) {
      if (r.status === "done") continue;
      const [agent, session] = r.session.split("/");
      await post("/v1/mail/ack", { agent, session, ids: [m.id] });
    }
  };
  const undone = (m.recipients ?? []).some((r) => r.status !== "done") && open(m);
  return (
    <li class="message">
      <p class="who">
        <b>{party(m.from, m.from_session)}</b>
        <span class="muted"> to {party(m.to, m.to_session)}</span>
        <span class="grow" />
        <span class="muted">
          <Time at={m.sent_at} />
        </span>
      </p>
      <div class="text">{m.text}</div>
      {m.attachments?.length > 0 && (
        <ul class="files" aria-label="Attachments">
          {m.attachments.map((a) => (
            <li key={a.n}>
              {a.here ? (
                <a href={`/v1/mail/attachments/${m.id}/${a.n}?agent=${encodeURIComponent(ours(m))}`} download={a.name}>
                  <Icon d={icons.download} />
                  {a.name}
                </a>
              ) : (
                <span>{a.name}</span>
              )}
              <span class="muted">
                {bytes(a.size)}
                {a.here ? "" : a.error ? `, not here: ${a.error}` : ", on its way"}
              </span>
            </li>
          ))}
        </ul>
      )}
      <p class="bar">
        <Receipt m={m} />
        <button
          type="button"
          class="quiet small"
          aria-expanded={!!more}
          onClick={() => (more ? setMore(null) : attempt("Cannot load its receipts", async () => setMore((await get<{ history: any[] }>(`/v1/mail/receipts/${m.id}?agent=${encodeURIComponent(ours(m))}`)).history)))}
        >
          {more ? "Hide steps" : "Steps"}
        </button>
        {undone && may("mail") && (
          <button type="button" class="quiet small" onClick={() => attempt("Cannot acknowledge", done)}>
            Mark as done
          </button>
        )}
      </p>
      {more && (
        <ol class="steps">
          {more.map((s, i) => (
            <li key={i}>
              <span class="muted">{clock(s.at)}</span> {receiptWords[s.status] ?? s.status}
              {s.session && <span class="muted"> {s.session}</span>}
              {s.reason && `: ${s.reason}`}
            </li>
          ))}
        </ol>
      )}
    </li>
  );
}

// Reply answers the last message that a session here got, in that session's name.
function Reply({ t }: { t: Thread }) {
  const [text, setText] = useState("");
  const target = useMemo(() => {
    for (let i = t.list.length - 1; i >= 0; i--) {
      const m = t.list[i];
      const r = m.recipients?.[0];
      if (r && agents.some((a) => a.name === r.session.split("/")[0])) return { m, as: r.session };
    }
    return null;
  }, [t]);
  if (!target) return null;
  const send = async (e: Event) => {
    e.preventDefault();
    const [agent, session] = target.as.split("/");
    const sent = await attempt("Cannot reply", () => post<{ id: string }>(`/v1/mail/reply/${target.m.id}`, { agent, session, text, role: "user" }));
    if (sent) {
      setText("");
      attempt("Cannot load mail", () => loadMail(agent));
    }
  };
  return (
    <form class="reply" onSubmit={send}>
      <label>
        <span class="muted">
          Reply as <b>{target.as}</b> to <b>{party(target.m.from, target.m.from_session)}</b>
        </span>
        <textarea id="reply" rows={3} value={text} required onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && send(e)} />
      </label>
      <span class="bar">
        <button type="submit" disabled={!text}>
          <Icon d={icons.send} />
          <span>Reply</span>
        </button>
        <span class="muted">Ctrl+Enter sends</span>
      </span>
    </form>
  );
}

async function upload(f: File): Promise<{ id: string }> {
  const r = await fetch(`/v1/mail/upload?name=${encodeURIComponent(f.name)}`, { method: "POST", body: f, headers: { "Content-Type": "application/octet-stream" } });
  const body = await r.json();
  if (!r.ok) throw new Failure(body.error.code, `${f.name}: ${body.error.message}`, body.error.hint, r.status);
  return body;
}

export function Compose({ to }: { to?: string }) {
  const list = sorted.value;
  const [from, setFrom] = useState("");
  const [rcpt, setTo] = useState(to ?? "");
  const [text, setText] = useState("");
  const files = useRef<HTMLInputElement>(null);
  const me = agents.find((a) => a.active)?.name ?? "me";
  const send = async (e: Event) => {
    e.preventDefault();
    const [agent, session] = (from || `${me}/main`).split("/");
    const sent = await attempt("Cannot send", async () => {
      const attachments: string[] = [];
      for (const f of files.current?.files ?? []) attachments.push((await upload(f)).id);
      return post<{ id: string; status: string; to: string; to_session: string | null }>("/v1/mail/send", { agent, session, to: rcpt, text, role: "user", ...(attachments.length ? { attachments } : {}) });
    });
    if (!sent) return;
    notify("info", `Sent to ${party(sent.to, sent.to_session ?? "")}: ${receiptWords[sent.status] ?? sent.status}.`);
    setText("");
    await attempt("Cannot load mail", () => loadMail(agent));
    go(toMessage(sent.id));
  };
  return (
    <main class="scroll pad">
      <form class="compose" onSubmit={send}>
        <div class="bar">
          <a class="button quiet" href="#/m" aria-label="All messages">
            <Icon d={icons.back} />
          </a>
          <h1>New message</h1>
        </div>
        <label>
          From
          <select value={from || `${me}/main`} onChange={(e) => setFrom(e.currentTarget.value)}>
            {!list.some((s) => s.agent === me && s.label === "main") && <option value={`${me}/main`}>{me}/main</option>}
            {list.map((s) => (
              <option key={s.agent + s.label} value={`${s.agent}/${s.label}`}>
                {s.agent}/{s.label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>
            To <span class="muted">a label, agent/label, an agent, or an address</span>
          </span>
          <input id="to" required list="parties" value={rcpt} autocomplete="off" spellcheck={false} onInput={(e) => setTo(e.currentTarget.value)} />
          <datalist id="parties">
            {agents.map((a) => (
              <option key={a.name} value={a.name} />
            ))}
            {list.map((s) => (
              <option key={s.agent + s.label} value={`${s.agent}/${s.label}`} />
            ))}
            {[...contacts.values()].map((c) => (
              <option key={c.agent + c.address} value={c.name || c.address} />
            ))}
          </datalist>
        </label>
        <label>
          Text
          <textarea id="text" rows={8} required value={text} onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && send(e)} />
        </label>
        <label>
          Files
          <input type="file" multiple ref={files} />
        </label>
        <span class="bar">
          <button type="submit" disabled={!text || !rcpt}>
            <Icon d={icons.send} />
            <span>Send</span>
          </button>
          <span class="muted">Ctrl+Enter sends</span>
        </span>
      </form>
    </main>
  );
}

// MailOf is the mail of one session: what it got and what it sent.
export function MailOf({ agent, label }: { agent: string; label: string }) {
  tick.value;
  const list = threads((m) => (m.from === agent && m.from_session === label) || (m.recipients ?? []).some((r) => r.session === `${agent}/${label}`) || (m.to === agent && m.to_session === label));
  return (
    <div class="scroll pad">
      {list.length === 0 ? (
        <Empty title="No mail">
          <p>Write to this session in a terminal:</p>
          <Code text={`conch send ${agent}/${label} 'hello'`} />
        </Empty>
      ) : (
        <ul class="rows-plain">
          {list.slice(0, 200).map((t) => (
            <li key={t.id}>
              <ThreadRow t={t} current={false} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
