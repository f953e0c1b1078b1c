// The page that `conch ui` opens.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Failure, logIn, post } from "./api";
import { CommandView } from "./command";
import { Contacts } from "./contacts";
import { Help, helping, onKey } from "./keys";
import { Mail } from "./mail";
import { place } from "./place";
import { Processes, ProcessView } from "./process";
import { SessionView } from "./session";
import { Overview, Sessions } from "./sessions";
import { access, attempt, begin, contacts, dismiss, link, may, notices, notify, running, setTheme, showTheme, sorted, theme, type Link } from "./state";
import { Code, Icon, icons } from "./ui";

const linkWords: Record<Link, string> = { connecting: "connecting", live: "live", down: "the daemon is away; trying again", refused: "not let in" };

function View() {
  const p = place.value;
  switch (p.view) {
    case "session":
      return <SessionView key={p.agent + "/" + p.label} agent={p.agent!} label={p.label!} tab={p.tab!} />;
    case "command":
      return <CommandView key={p.id} agent={p.agent!} label={p.label!} id={p.id!} />;
    case "processes":
      return <Processes />;
    case "process":
      return <ProcessView key={p.id} id={p.id!} />;
    case "mail":
      return <Mail id={p.id} />;
    case "contacts":
      return <Contacts />;
  }
  return <Overview />;
}

function Nav() {
  const p = place.value;
  const at = p.view === "process" ? "processes" : p.view === "command" ? "session" : p.view;
  const mail = sorted.value.reduce((n, s) => n + s.mail, 0);
  const procs = running.value.filter((x) => !x.ended_at).length;
  const items: [string, string, string, string, number?][] = [
    ["#/", "Sessions", icons.terminal, "overview session"],
    ["#/p", "Processes", icons.cpu, "processes", procs],
    ["#/m", "Messages", icons.mail, "mail", mail],
    ["#/contacts", "Contacts", icons.people, "contacts", [...contacts.values()].filter((c) => c.state === "asked" || c.held).length],
  ];
  return (
    <nav class="views" aria-label="Views">
      {items.map(([href, text, icon, views, n]) => (
        <a key={href} href={href} aria-current={views.split(" ").includes(at) ? "page" : undefined}>
          <Icon d={icon} />
          <span>{text}</span>
          {n ? <span class={views === "mail" || views === "contacts" ? "count urgent" : "count"}>{n}</span> : null}
        </a>
      ))}
    </nav>
  );
}

function Top({ toView }: { toView: () => void }) {
  const next = { auto: "light", light: "dark", dark: "auto" } as const;
  const t = theme.value;
  return (
    <header class="top">
      <a class="skip" href="#view" onClick={(e) => (e.preventDefault(), toView())}>
        Skip to the content
      </a>
      <a class="brand" href="#/">
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M8 8a1 1 0 1 1 1.5 1A3 3 0 1 1 11 5.5 5 5 0 1 1 4 4" />
        </svg>
        conch
      </a>
      <Nav />
      <span class="grow" />
      {!may("exec") && access.value && <span class="badge">read-only</span>}
      <span class={"link " + link.value} role="status">
        <i aria-hidden="true" />
        <span>{linkWords[link.value]}</span>
      </span>
      <button type="button" class="quiet small" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => (helping.value = true)}>
        <Icon d={icons.keys} />
      </button>
      <button type="button" class="quiet small" aria-label={`Colours: ${t}. Change`} title={`Colours: ${t}`} onClick={() => setTheme(next[t])}>
        <Icon d={t === "auto" ? icons.auto : t === "dark" ? icons.moon : icons.sun} />
      </button>
      <button type="button" class="quiet small" aria-label="Log out" title="Log out" onClick={() => attempt("Cannot log out", logOut)}>
        <Icon d={icons.leave} />
      </button>
    </header>
  );
}

async function logOut(): Promise<void> {
  await post("/logout");
  link.value = "refused";
}

function Notices() {
  return (
    <div class="notices">
      {(["info", "error"] as const).map((kind) => (
        <div key={kind} role={kind === "error" ? "alert" : "status"}>
          {notices.value
            .filter((n) => n.kind === kind)
            .map((n) => (
              <div key={n.id} class={"notice " + n.kind}>
                <p>
                  {n.href ? <a href={n.href}>{n.text}</a> : n.text}
                  {n.hint && <span class="muted"> {n.hint}</span>}
                </p>
                <button type="button" class="quiet small" aria-label="Dismiss" onClick={() => dismiss(n.id)}>
                  <Icon d={icons.close} />
                </button>
              </div>
            ))}
        </div>
      ))}
    </div>
  );
}

const Refused = () => (
  <main class="refused">
    <h1>This page needs a login</h1>
    <p>Its address lets one browser in, once, within a minute. Make another in a terminal:</p>
    <Code text="conch ui" />
    <p class="muted">conch ui --read-only makes one that can look and not touch.</p>
  </main>
);

function Page() {
  const p = place.value;
  const view = useRef<HTMLDivElement>(null);
  const where = [p.view, p.agent, p.label, p.id].join("/");
  useEffect(() => {
    const names: Record<string, string> = { overview: "conch", processes: "Processes – conch", mail: "Messages – conch", contacts: "Contacts – conch" };
    document.title = p.label ? `${p.agent}/${p.label} – conch` : (names[p.view] ?? "conch");
  }, [where]);
  if (link.value === "refused") return <Refused />;
  return (
    <div class={"page at-" + p.view}>
      <Top toView={() => view.current?.focus()} />
      <aside aria-label="Sessions">
        <h2 class="hidden">Sessions</h2>
        <Sessions />
      </aside>
      <div class="view" id="view" ref={view} tabIndex={-1}>
        <View />
      </div>
      <Notices />
      <Help />
    </div>
  );
}

async function start(): Promise<void> {
  showTheme();
  const code = /^#login=(.+)$/.exec(location.hash)?.[1];
  if (code) {
    // Out of the address before anything else: it must not stay in the history.
    history.replaceState(null, "", location.pathname);
    place.value = { view: "overview" };
    try {
      await logIn(code);
    } catch (e) {
      // A cookie from before may still be good; if not, the page says what to do.
      const why = e instanceof Failure ? e : new Failure("internal", String(e), "", 0);
      notify("error", `This address let nobody in: ${why.message}. The page goes on with the login that this browser had.`, why.hint);
    }
  }
  // An address that is opened where the page is already.
  addEventListener("hashchange", () => location.hash.startsWith("#login=") && location.reload());
  addEventListener("keydown", onKey);
  render(<Page />, document.getElementById("page")!);
  begin();
}

start();
