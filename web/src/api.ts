// The page is a client of the HTTP API like any other; its cookie says who it is.

import type { Change, MailEvent } from "./types";

export class Failure extends Error {
  constructor(public code: string, message: string, public hint: string, public status: number) {
    super(message);
  }
}

async function failure(r: Response): Promise<Failure> {
  try {
    const { error } = await r.json();
    return new Failure(error.code, error.message, error.hint, r.status);
  } catch {
    return new Failure("internal", `the daemon answered ${r.status}`, "", r.status);
  }
}

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, signal, headers: { Accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    (init.headers as Record<string, string>)["Content-Type"] = "application/json";
  }
  let r: Response;
  try {
    r = await fetch(path, init);
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Failure("not_running", "the daemon does not answer", "the page tries again by itself", 0);
  }
  if (!r.ok) throw await failure(r);
  if (r.status === 204) return undefined as T;
  return r.json();
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body: unknown = {}) => call<T>("POST", path, body);

export const sessionPath = (agent: string, label: string) =>
  `/v1/sessions/${encodeURIComponent(agent)}/${encodeURIComponent(label)}`;

// stream reads a response as it comes. It gives up when signal says so.
export async function stream(path: string, accept: string, signal: AbortSignal): Promise<ReadableStreamDefaultReader<Uint8Array> | null> {
  const r = await fetch(path, { headers: { Accept: accept }, signal, cache: "no-store" });
  if (!r.ok) throw await failure(r);
  if (r.status === 204 || !r.body) return null;
  return r.body.getReader();
}

export async function logIn(code: string): Promise<void> {
  await post("/login", { code });
}

// A page that nobody has looked at for a while lets its streams go: a browser has six
// connections to a host for all its tabs together. It goes on where it was when it is
// looked at again.
const doze = 60_000;
let asleep = false;
const sleepers = new Set<() => void>();
let wakers: (() => void)[] = [];
let dozing = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(dozing);
  if (document.hidden)
    dozing = setTimeout(() => {
      asleep = true;
      for (const f of sleepers) f();
    }, doze) as unknown as number;
  else {
    asleep = false;
    const list = wakers;
    wakers = [];
    for (const f of list) f();
  }
});
export const awake = () => (asleep ? new Promise<void>((r) => wakers.push(r)) : Promise.resolve());
export function onSleep(f: () => void): () => void {
  sleepers.add(f);
  return () => sleepers.delete(f);
}

export interface Listener {
  watching(resumed: boolean): void;
  session(c: Change): void;
  closed(agent: string, label: string): void;
  mail(e: MailEvent): void;
  down(): void;
  refused(): void;
}

// listen follows all that changes, for as long as the page lives. The browser goes on
// by itself after a cut; where it gives up, this begins again behind the last event.
export function listen(to: Listener): void {
  let last = "";
  let pause = 500;
  const begin = async () => {
    await awake();
    const source = new EventSource("/v1/events" + (last ? "?after=" + encodeURIComponent(last) : ""));
    const on = (name: string, f: (data: any) => void) =>
      source.addEventListener(name, (e) => {
        const m = e as MessageEvent;
        if (m.lastEventId) last = m.lastEventId;
        f(JSON.parse(m.data));
      });
    on("watching", (d) => {
      pause = 500;
      to.watching(d.resumed);
    });
    on("session", (d) => to.session(d));
    on("closed", (d) => to.closed(d.agent, d.label));
    on("mail", (d) => to.mail(d));
    on("receipt", (d) => to.mail(d));
    const waking = onSleep(() => {
      source.close();
      waking();
      begin();
    });
    source.onerror = async () => {
      waking();
      to.down();
      // A browser repeats with the id it heard, but not after an answer it does not
      // like, and with growing pauses: this is sooner.
      source.close();
      try {
        await get("/v1/version");
      } catch (e) {
        if (e instanceof Failure && (e.status === 401 || e.status === 403)) {
          to.refused();
          return;
        }
      }
      setTimeout(begin, pause);
      pause = Math.min(pause * 1.5, 5000);
    };
  };
  begin();
}
