// What the page knows. It is announced by one signal, at most once a frame: with a
// thousand sessions at work, a signal for each would be a page that only redraws. What
// changes is replaced, never changed in place: a component whose properties are the same
// is not drawn again.

import { computed, signal } from "@preact/signals";
import { Failure, get, listen, sessionPath } from "./api";
import type { Access, Agent, Change, Command, Contact, MailEvent, Message, Process, Quarantined, Session, Status } from "./types";

export const tick = signal(0);
let due = false;

export function changed(): void {
  if (due) return;
  due = true;
  const now = () => {
    due = false;
    tick.value++;
  };
  // A hidden page gets no frames, and is to be right when it is looked at.
  if (document.hidden) setTimeout(now, 200);
  else requestAnimationFrame(now);
}

export type Link = "connecting" | "live" | "down" | "refused";
export const link = signal<Link>("connecting");
export const access = signal<Access | null>(null);
export const status = signal<Status | null>(null);
export const loaded = signal(false);

export const may = (scope: string) => {
  const a = access.value;
  return !a || a.scopes.includes("admin") || a.scopes.includes(scope);
};

export const key = (agent: string, label: string) => agent + "/" + label;
export const sessions = new Map<string, Session>();
export const processes = new Map<string, Process>();
export const messages = new Map<string, Message>();
export let agents: Agent[] = [];
export const mailMore = new Set<string>(); // agents with older mail than was loaded

export interface History {
  agent: string;
  label: string;
  list: Command[]; // oldest first
  byID: Map<string, Command>;
  queue: Command[];
  whole: boolean;
  loading: boolean;
  heard: number; // changes that were merged
  error: Failure | null;
}
const histories = new Map<string, History>();
export const historyPart = 2000;

// order compares labels as conch does: claude:2 before claude:10.
const collator = new Intl.Collator("en", { numeric: true });
export const byName = (a: Session, b: Session) => collator.compare(a.agent, b.agent) || collator.compare(a.label, b.label);

export const sorted = computed(() => {
  tick.value;
  return [...sessions.values()].sort(byName);
});

export const running = computed(() => {
  tick.value;
  return [...processes.values()].sort((a, b) => {
    const ended = Number(!!a.ended_at) - Number(!!b.ended_at);
    return ended || b.started_at.localeCompare(a.started_at);
  });
});

// How a session stands, in a word. The order is that of urgency.
export type Standing = "busy" | "held" | "failed" | "waiting" | "idle" | "asleep";
export function standing(s: Session): Standing {
  if (s.busy) return "busy";
  if (s.attached > 0) return "held";
  if (s.last_outcome && s.last_outcome !== "done") return "failed";
  if (s.queue > 0 || s.mail > 0) return "waiting";
  return s.keeper_pid || s.live ? "idle" : "asleep";
}

// ---- notices

export interface Notice {
  id: number;
  kind: "info" | "error";
  text: string;
  hint?: string;
  href?: string;
}
export const notices = signal<Notice[]>([]);
let noticeID = 0;

export function notify(kind: Notice["kind"], text: string, hint = "", href = ""): number {
  const n = { id: ++noticeID, kind, text, hint, href };
  // A storm of them is shown as its last few.
  notices.value = [...notices.value.filter((o) => o.text !== text), n].slice(-4);
  setTimeout(() => dismiss(n.id), kind === "error" ? 12000 : 6000);
  return n.id;
}
export const dismiss = (id: number) => {
  notices.value = notices.value.filter((n) => n.id !== id);
};

export function failed(what: string, e: unknown): void {
  if (e instanceof DOMException && e.name === "AbortError") return;
  if (e instanceof Failure) {
    if (e.status === 401) link.value = "refused";
    notify("error", `${what}: ${e.message}`, e.hint);
  } else notify("error", `${what}: ${e instanceof Error ? e.message : String(e)}`);
}

// attempt runs an action of the user's and says when it failed.
export async function attempt<T>(what: string, f: () => Promise<T>): Promise<T | undefined> {
  try {
    return await f();
  } catch (e) {
    failed(what, e);
    return undefined;
  }
}

// ---- histories

export function history(agent: string, label: string): History {
  const k = key(agent, label);
  let h = histories.get(k);
  if (!h) {
    h = { agent, label, list: [], byID: new Map(), queue: [], whole: false, loading: false, heard: 0, error: null };
    histories.set(k, h);
    // Those that were not looked at lately are loaded again when they are.
    if (histories.size > 8) histories.delete(histories.keys().next().value!);
    loadHistory(h, historyPart);
  }
  return h;
}

export async function loadHistory(h: History, limit: number): Promise<void> {
  if (h.loading) return;
  h.loading = true;
  const heard = h.heard;
  try {
    const list = await get<Command[]>(`${sessionPath(h.agent, h.label)}/history?limit=${limit}`);
    h.queue = list.filter((c) => c.status === "queued");
    h.list = list.filter((c) => c.status !== "queued");
    h.byID = new Map(h.list.map((c) => [c.command_id, c]));
    h.whole = limit === 0 || list.length < limit;
    h.error = null;
  } catch (e) {
    h.error = e instanceof Failure ? e : new Failure("internal", String(e), "", 0);
  }
  h.loading = false;
  changed();
  // What came meanwhile may not be in it.
  if (h.heard !== heard && !h.error) setTimeout(() => loadHistory(h, limit), 100);
}

function merge(h: History, c: Change): void {
  h.heard++;
  for (const cmd of c.commands) {
    const old = h.byID.get(cmd.command_id);
    if (old) {
      const next = { ...cmd, command: old.command };
      h.byID.set(cmd.command_id, next);
      h.list[h.list.lastIndexOf(old)] = next;
    } else {
      h.byID.set(cmd.command_id, cmd);
      h.list.push(cmd);
    }
  }
  h.queue = c.queue;
  if (c.missed) loadHistory(h, h.whole && h.list.length > historyPart ? 0 : historyPart);
}

// ---- mail

let mailHeard = 0; // events of mail

// fetchMail takes messages of an agent from a call. Those of which something was heard
// meanwhile may be older than that, and are loaded again.
export async function fetchMail(agent: string, path: string, signal?: AbortSignal): Promise<Message[]> {
  const heard = mailHeard;
  const list = await get<Message[]>(path, signal);
  for (const m of list) messages.set(m.id, m);
  changed();
  if (mailHeard !== heard) reloadMail(agent);
  return list;
}

export async function loadMail(agent: string, before = ""): Promise<void> {
  const part = 200;
  const list = await fetchMail(agent, `/v1/mail/messages?agent=${encodeURIComponent(agent)}&limit=${part}` + (before ? `&before=${before}` : ""));
  if (list.length === part) mailMore.add(agent);
  else mailMore.delete(agent);
  changed();
}

let mailTimer = 0;
const mailOf = new Set<string>();
function reloadMail(...of: string[]): void {
  for (const a of of) if (agents.some((x) => x.name === a)) mailOf.add(a);
  if (mailTimer) return;
  mailTimer = setTimeout(async () => {
    mailTimer = 0;
    const list = [...mailOf];
    mailOf.clear();
    for (const a of list) {
      try {
        await loadMail(a);
      } catch (e) {
        failed("Cannot load mail", e);
      }
    }
    loadContacts(); // a message may come with a request, or wait for its answer
  }, 150) as unknown as number;
}

// ---- contacts

export const contacts = new Map<string, Contact>();
export let quarantine: Quarantined[] = [];
let contactsLoaded = false;

export async function loadContacts(): Promise<void> {
  try {
    const found: Contact[] = [];
    const letters: Quarantined[] = [];
    for (const a of agents) {
      found.push(...(await get<Contact[]>(`/v1/contacts?agent=${encodeURIComponent(a.name)}`)));
      if (may("mail")) letters.push(...(await get<Quarantined[]>(`/v1/mail/quarantine?agent=${encodeURIComponent(a.name)}`)));
    }
    for (const c of found)
      if (contactsLoaded && c.state === "asked" && contacts.get(c.agent + c.address)?.state !== "asked")
        notify("info", `${contactName(c)} asks ${c.agent} to be a contact.`, "", "#/contacts");
    contactsLoaded = true;
    contacts.clear();
    for (const c of found) contacts.set(c.agent + c.address, c);
    quarantine = letters;
    changed();
  } catch (e) {
    failed("Cannot load contacts", e);
  }
}

export const contactName = (c: Contact) => c.name || c.address.slice(0, 12) + "…";

// ---- everything

async function load(): Promise<void> {
  const [list, procs, st, who, me] = await Promise.all([
    get<Session[]>("/v1/sessions"),
    get<Process[]>("/v1/processes"),
    get<Status>("/v1/status"),
    get<Agent[]>("/v1/agents"),
    get<Access>("/v1/access"),
  ]);
  sessions.clear();
  for (const s of list) sessions.set(key(s.agent, s.label), s);
  processes.clear();
  for (const p of procs) processes.set(p.process_id, p);
  agents = who;
  status.value = st;
  access.value = me;
  for (const h of histories.values()) loadHistory(h, h.whole && h.list.length > historyPart ? 0 : historyPart);
  reloadMail(...agents.map((a) => a.name));
  loadContacts();
  loaded.value = true;
  changed();
}

let was: Link = "connecting";
let early: (() => void)[] | null = null; // what came while everything was loaded

function told(f: () => void): void {
  if (early) early.push(f);
  else f();
}

export function begin(): void {
  listen({
    async watching(resumed) {
      const again = was === "down";
      if (!resumed || !loaded.value) {
        early = [];
        for (let pause = 500; ; pause = Math.min(2 * pause, 5000)) {
          try {
            await load();
            break;
          } catch (e) {
            if (e instanceof Failure && (e.status === 401 || e.status === 403)) {
              link.value = "refused";
              return;
            }
            await new Promise((r) => setTimeout(r, pause));
          }
        }
        const list = early;
        early = null;
        list?.forEach((f) => f());
      }
      link.value = was = "live";
      if (again) notify("info", "The daemon is back.", resumed ? "" : "Everything was loaded again.");
    },
    session: (c) => told(() => onSession(c)),
    closed: (agent, label) =>
      told(() => {
        sessions.delete(key(agent, label));
        for (const p of processes.values()) if (p.agent === agent && p.session === label) processes.delete(p.process_id);
        changed();
      }),
    mail: (e) => told(() => onMail(e)),
    down() {
      if (link.value !== "refused") link.value = was = "down";
    },
    refused() {
      link.value = "refused";
    },
  });
}

function onSession(c: Change): void {
  const s = c.session;
  const k = key(s.agent, s.label);
  if (!agents.some((a) => a.name === s.agent)) refreshAgents();
  sessions.set(k, s);
  const h = histories.get(k);
  if (h) merge(h, c);
  for (const p of c.processes) {
    const old = processes.get(p.process_id);
    processes.set(p.process_id, old ? { ...p, command: old.command } : p);
    if (old && !old.ended_at && p.ended_at && (p.exit_code !== 0 || p.status !== "exited")) {
      const how = p.signal ? `was ended by ${p.signal}` : p.exit_code === null ? "was lost" : `failed with status ${p.exit_code}`;
      notify("error", `Process ${p.name || p.process_id} ${how}.`, "", `#/p/${p.process_id}`);
    }
  }
  for (const id of c.forgotten) processes.delete(id);
  if (c.missed && s.processes > 0) refreshProcesses(s);
  changed();
}

async function refreshAgents(): Promise<void> {
  try {
    agents = await get<Agent[]>("/v1/agents");
    changed();
  } catch {
    // The next change asks again.
  }
}

async function refreshProcesses(s: Session): Promise<void> {
  try {
    for (const p of await get<Process[]>(sessionPath(s.agent, s.label) + "/processes")) processes.set(p.process_id, p);
    changed();
  } catch {
    // It has just ended, and its end is told.
  }
}

// ring tells of new mail. While the last word of it is still there, the next takes its
// place: agents may write a lot.
let rung = { id: 0, count: 0 };
function ring(e: MailEvent): void {
  const still = notices.value.some((n) => n.id === rung.id);
  const count = still ? rung.count + 1 : 1;
  if (still) dismiss(rung.id);
  const writer = [...contacts.values()].find((c) => c.address === e.from);
  const who = `${writer ? contactName(writer) : e.from}/${e.from_session}`;
  const text = count === 1 ? `New message for ${e.to}/${e.to_session} from ${who}.` : `${count} new messages, the last for ${e.to}/${e.to_session} from ${who}.`;
  rung = { id: notify("info", text, "", count === 1 ? `#/m/${e.id}` : "#/m"), count };
}

function onMail(e: MailEvent): void {
  mailHeard++;
  const m = messages.get(e.id);
  if (m) {
    // Receipts of several recipients are the server's to sum up.
    if ((m.recipients?.length ?? 0) > 1) reloadMail(m.from);
    else messages.set(e.id, { ...m, status: e.status, reason: e.reason, recipients: m.recipients?.length === 1 ? [{ ...m.recipients[0], status: e.status }] : m.recipients });
  } else reloadMail(e.from, e.to);
  if (e.type === "mail" && !m) ring(e);
  changed();
}

// ---- the page's own settings

export const theme = signal<"auto" | "light" | "dark">((localStorage.getItem("theme") as any) || "auto");
export function setTheme(t: "auto" | "light" | "dark"): void {
  theme.value = t;
  localStorage.setItem("theme", t);
  showTheme();
}
export function showTheme(): void {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}
