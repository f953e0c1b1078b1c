// Small pieces that every view uses, and how numbers and times are written.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { failed, notify, standing, type Standing } from "./state";
import type { Command, Process, Session } from "./types";

// now moves once a second, for what shows how long something has taken.
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

export function duration(ms: number): string {
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 60) return Math.floor(s) + " s";
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h} h ${m % 60} min`;
  return Math.floor(h / 24) + " days";
}

export function bytes(n: number): string {
  if (n < 1000) return n + " B";
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    n /= 1000;
    if (n < 999.5 || unit === "TB") return (n < 10 ? n.toFixed(1) : Math.round(n)) + " " + unit;
  }
  return "";
}

export function ago(iso: string, at: number): string {
  const s = (at - Date.parse(iso)) / 1000;
  if (s < 5) return "now";
  if (s < 60) return Math.floor(s) + " s ago";
  if (s < 3600) return Math.floor(s / 60) + " min ago";
  if (s < 86400) return Math.floor(s / 3600) + " h ago";
  return Math.floor(s / 86400) + " d ago";
}

const sameDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const otherDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export function clock(iso: string | null): string {
  if (!iso) return "";
  const d = new Date(iso);
  return (d.toDateString() === new Date().toDateString() ? sameDay : otherDay).format(d);
}
export const Time = ({ at }: { at: string }) => (
  <time dateTime={at} title={new Date(at).toLocaleString()}>
    {clock(at)}
  </time>
);

export const took = (c: { started_at: string | null; ended_at: string | null }, at: number) =>
  c.started_at ? (c.ended_at ? Date.parse(c.ended_at) : Math.max(at, Date.parse(c.started_at))) - Date.parse(c.started_at) : 0;

// ---- how something ended

export type Outcome = "queued" | "running" | "done" | "failed" | "timeout" | "interrupted" | "lost" | "killed";

export function outcome(c: Command): Outcome {
  if (c.status === "queued" || c.status === "running" || c.status === "lost") return c.status;
  if (c.timed_out) return "timeout";
  if (c.interrupted) return "interrupted";
  return c.exit_code === 0 ? "done" : "failed";
}

export function outcomeWords(c: Command): string {
  switch (outcome(c)) {
    case "queued":
      return `waits, place ${c.position ?? "?"}`;
    case "running":
      return "running";
    case "lost":
      return "lost: nobody saw its end";
    case "timeout":
      return "timed out";
    case "interrupted":
      return "interrupted";
  }
  if (c.signal) return c.signal;
  return c.exit_code === null ? "no exit code" : `exit ${c.exit_code}`;
}

export function processOutcome(p: Process): Outcome {
  if (!p.ended_at) return "running";
  if (p.status === "killed") return "killed";
  if (p.status === "failed") return "lost";
  return p.exit_code === 0 ? "done" : "failed";
}

export function processWords(p: Process): string {
  if (!p.ended_at) return p.status;
  if (p.signal) return p.signal;
  return p.exit_code === null ? "lost" : `exit ${p.exit_code}`;
}

// Marks differ in shape as well as in colour.
const shapes: Record<string, JSX.Element> = {
  running: <circle cx="8" cy="8" r="5" class="fill" />,
  done: <path d="M3.5 8.5l3 3 6-7" class="line" />,
  failed: <path d="M4 4l8 8M12 4l-8 8" class="line" />,
  timeout: <path d="M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3.2l2.2 1.6" class="line" />,
  interrupted: <path d="M4.5 4.5h7v7h-7z" class="fill" />,
  killed: <path d="M4.5 4.5h7v7h-7z" class="fill" />,
  lost: <path d="M6 6a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.3M8 12v.01" class="line" />,
  queued: <path d="M4 8h.01M8 8h.01M12 8h.01" class="line" />,
  waiting: <path d="M8 2.5l5.5 5.5L8 13.5 2.5 8z" class="fill" />,
  held: <path d="M5 3.5v9M11 3.5v9" class="line" />,
  idle: <circle cx="8" cy="8" r="4.25" class="line" />,
  asleep: <circle cx="8" cy="8" r="2" class="fill" />,
};
export const Mark = ({ kind, label }: { kind: string; label?: string }) => (
  <svg class={"mark " + kind} viewBox="0 0 16 16" role={label ? "img" : undefined} aria-label={label} aria-hidden={label ? undefined : "true"}>
    {shapes[kind === "busy" ? "running" : kind] ?? shapes.idle}
  </svg>
);

const standingWords: Record<Standing, string> = {
  busy: "busy",
  held: "a person is at the prompt",
  failed: "last command failed",
  waiting: "something waits",
  idle: "idle",
  asleep: "asleep",
};
export function standingText(s: Session): string {
  const st = standing(s);
  if (st === "failed") return "last command " + (s.last_outcome === "timed_out" ? "timed out" : s.last_outcome === "lost" ? "was lost" : s.last_outcome === "interrupted" ? "was interrupted" : "failed");
  if (st === "waiting") return s.queue > 0 ? `${s.queue} waiting` : `${s.mail} ${s.mail === 1 ? "message waits" : "messages wait"}`;
  return standingWords[st];
}

// ---- controls

export const Icon = ({ d }: { d: string }) => (
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
    <path d={d} />
  </svg>
);
export const icons = {
  back: "M10 3L5 8l5 5",
  copy: "M6 6V3h7v7h-3M3 6h7v7H3z",
  download: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10",
  stop: "M4 4h8v8H4z",
  close: "M4 4l8 8M12 4l-8 8",
  terminal: "M2.5 3.5h11v9h-11zM5 6.5l2 1.7-2 1.7M8.5 10h2.5",
  plus: "M8 3v10M3 8h10",
  send: "M2.5 8L13.5 3 9.5 13.5 7.5 9z",
  search: "M7 2.5a4.5 4.5 0 1 0 .01 0M10.3 10.3L13.5 13.5",
  again: "M12.5 5.5A5 5 0 1 0 13 8M13 2.8v3h-3",
  list: "M3 4h10M3 8h10M3 12h10",
  gear: "M8 2.5v11M2.5 8h11",
  mail: "M2.5 4h11v8h-11zM2.5 4.5L8 9l5.5-4.5",
  cpu: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  people: "M6 7.5a2.2 2.2 0 1 0-.01 0M2 13c0-2.5 1.8-4 4-4s4 1.5 4 4M10.5 7.4a2 2 0 1 0-.6-3.9M11.5 9.3c1.5.4 2.5 1.7 2.5 3.7",
  moon: "M12.5 9.8A5.2 5.2 0 0 1 6.2 3.5a5.2 5.2 0 1 0 6.3 6.3z",
  sun: "M8 5a3 3 0 1 0 .01 0M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  auto: "M8 2.5a5.5 5.5 0 1 0 .01 0zM8 2.5v11",
  leave: "M9.5 5V2.5h-7v11h7V11M6 8h8M11.5 5.5L14 8l-2.5 2.5",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5.5 9.5h5",
};

export async function copyText(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify("info", `Copied ${what}.`);
  } catch (e) {
    failed("Cannot copy", e);
  }
}

export const CopyButton = ({ text, what, small }: { text: string | (() => Promise<string | null>); what: string; small?: boolean }) => (
  <button
    type="button"
    class={small ? "quiet small" : "quiet"}
    aria-label={"Copy " + what}
    title={"Copy " + what}
    onClick={async () => {
      try {
        const t = typeof text === "string" ? text : await text();
        if (t !== null) await copyText(t, what);
      } catch (e) {
        failed("Cannot copy", e);
      }
    }}
  >
    <Icon d={icons.copy} />
    {!small && <span>Copy {what}</span>}
  </button>
);

// Code is a command to type in a terminal.
export const Code = ({ text }: { text: string }) => (
  <div class="code">
    <code>{text}</code>
    <CopyButton text={text} what="the command" small />
  </div>
);

export const Empty = ({ title, children }: { title: string; children?: ComponentChildren }) => (
  <div class="empty">
    <h2>{title}</h2>
    {children}
  </div>
);

// Confirm is a button that asks once more, in its own place, before it does what cannot
// be undone.
export function Confirm({ label, sure, icon, onYes }: { label: string; sure: string; icon?: string; onYes: () => void }) {
  const [asking, ask] = useState(false);
  const yes = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!asking) return;
    yes.current?.focus();
    const t = setTimeout(() => ask(false), 6000);
    return () => clearTimeout(t);
  }, [asking]);
  if (!asking)
    return (
      <button type="button" class="quiet" onClick={() => ask(true)}>
        {icon && <Icon d={icon} />}
        <span>{label}</span>
      </button>
    );
  return (
    <button
      type="button"
      class="danger"
      ref={yes}
      onClick={() => {
        ask(false);
        onYes();
      }}
      onBlur={() => ask(false)}
      onKeyDown={(e) => e.key === "Escape" && (e.stopPropagation(), ask(false))}
    >
      {sure}
    </button>
  );
}

// Tabs are links: each has an address.
export const Tabs = ({ label, tabs, current }: { label: string; tabs: [string, string, string, number?, boolean?][]; current: string }) => (
  <nav class="tabs" aria-label={label}>
    {tabs.map(([id, text, href, count, urgent]) => (
      <a key={id} href={href} aria-current={id === current ? "page" : undefined}>
        {text}
        {count ? <span class={urgent ? "count urgent" : "count"}>{count}</span> : null}
      </a>
    ))}
  </nav>
);

export function home(path: string, root: string | undefined): string {
  return root && (path === root || path.startsWith(root + "/")) ? "~" + path.slice(root.length) : path;
}
