// One session: its commands, its terminal, its processes, its mail.

import { lazy, useEffect, useRef, useState } from "./preact";
import { call, post, sessionPath } from "./api";
import { List } from "./list";
import { MailOf } from "./mail";
import { toCommand, toSession } from "./place";
import { ProcessRows, StartProcess } from "./process";
import { attempt, failed, history, historyPart, key, loaded, loadHistory, may, notify, running, sessions, standing, tick, type History } from "./state";
import { Timeline } from "./timeline";
import type { Command, Session } from "./types";
import { clock, Code, Confirm, duration, Empty, Icon, icons, Mark, now, outcome, outcomeWords, standingText, Tabs, took } from "./ui";

const Terminal = lazy(() => import("./term").then((m) => m.SessionTerminal));

export function SessionView({ agent, label, tab }: { agent: string; label: string; tab: string }) {
  tick.value;
  const s = sessions.get(key(agent, label));
  if (!s) {
    if (!loaded.value) return <main />;
    return (
      <main>
        <Empty title={`There is no session ${agent}/${label}`}>
          <p>It was closed, or never was. Its commands can still be read in a terminal:</p>
          <Code text={`conch history -s ${label} --agent ${agent}`} />
          <p>A command makes a new one:</p>
          <Code text={`conch exec -s ${label} --agent ${agent} pwd`} />
        </Empty>
      </main>
    );
  }
  const procs = running.value.filter((p) => p.agent === agent && p.session === label);
  const alive = procs.filter((p) => !p.ended_at).length;
  return (
    <main class="session">
      <header>
        <div class="bar">
          <a class="back button quiet" href="#/" aria-label="All sessions">
            <Icon d={icons.back} />
          </a>
          <Mark kind={standing(s)} />
          <h1>
            <span class="muted">{agent}/</span>
            {label}
          </h1>
          <span class={"state " + standing(s)}>{standingText(s)}</span>
          {s.sandbox && <span class="badge">sandbox</span>}
          <span class="grow" />
          <Actions s={s} />
        </div>
        <p class="muted mono cut" title={s.cwd}>
          {s.cwd || "no shell yet"}
        </p>
        <Tabs
          label="Parts of the session"
          current={tab}
          tabs={[
            ["commands", "Commands", toSession(agent, label), s.queue, true],
            ["terminal", "Terminal", toSession(agent, label, "terminal")],
            ["processes", "Processes", toSession(agent, label, "processes"), alive],
            ["mail", "Mail", toSession(agent, label, "mail"), s.mail, true],
          ]}
        />
      </header>
      {tab === "terminal" ? (
        <Terminal agent={agent} label={label} />
      ) : tab === "processes" ? (
        <div class="scroll pad">
          <ProcessRows list={procs} none="No process of this session." />
          {may("exec") && <StartProcess agent={agent} label={label} />}
        </div>
      ) : tab === "mail" ? (
        <MailOf agent={agent} label={label} />
      ) : (
        <Commands s={s} />
      )}
    </main>
  );
}

function Actions({ s }: { s: Session }) {
  if (!may("exec")) return <span class="muted">read-only</span>;
  const path = sessionPath(s.agent, s.label);
  return (
    <>
      {s.busy && (
        <button
          type="button"
          onClick={() =>
            attempt("Cannot interrupt", async () => {
              const r = await post<{ interrupted: boolean; ended?: { signal: string } }>(path + "/interrupt");
              notify("info", r.interrupted ? `Interrupted${r.ended?.signal ? ` (${r.ended.signal})` : ""}.` : "Nothing was running.");
            })
          }
        >
          <Icon d={icons.stop} />
          <span>Interrupt</span>
        </button>
      )}
      <Confirm label="Reset" sure="Reset: end the shell?" onYes={() => attempt("Cannot reset", () => post(path + "/reset").then(() => notify("info", "The shell was started anew.")))} />
      <Confirm label="Close" sure="Close for good?" onYes={() => attempt("Cannot close", () => call("POST", path + "/close").then(() => notify("info", `Session ${s.label} was closed.`)))} />
    </>
  );
}

function Commands({ s }: { s: Session }) {
  tick.value;
  const h = history(s.agent, s.label);
  const [want, setWant] = useState("");
  const t = now.value;
  const words = want.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...h.list, ...h.queue];
  const list = words.length ? all.filter((c) => words.every((w) => (c.command + " " + outcomeWords(c)).toLowerCase().includes(w))) : all;
  const longest = Math.max(1, ...list.slice(-500).map((c) => took(c, t)));
  return (
    <>
      {h.list.length > 0 && <Timeline list={list} agent={s.agent} label={s.label} at={t} />}
      <div class="bar">
        <label class="find grow">
          <Icon d={icons.search} />
          <span class="hidden">Search commands</span>
          <input id="search" type="search" placeholder="Search commands and how they ended" value={want} onInput={(e) => setWant(e.currentTarget.value)} />
        </label>
        <span class="muted facts">
          {list.length.toLocaleString()} {list.length === 1 ? "command" : "commands"}
        </span>
        {!h.whole && h.list.length > 0 && (
          <button type="button" class="quiet small" onClick={() => loadHistory(h, 0)} title={`The last ${historyPart} are shown`}>
            Load older
          </button>
        )}
      </div>
      {h.error && !h.list.length ? (
        <p class="warn">{h.error.message}</p>
      ) : (
        <List
          label="Commands, newest last"
          class="grow commands"
          count={list.length}
          height={34}
          stick
          empty={h.loading ? <p class="muted pad">Loading …</p> : <NoCommands h={h} want={want} />}
          row={(i) => <CommandRow c={list[i]} s={s} longest={longest} at={t} />}
        />
      )}
      {may("exec") && <RunBox s={s} />}
    </>
  );
}

const NoCommands = ({ h, want }: { h: History; want: string }) =>
  want ? (
    <p class="muted pad">No command is like that.</p>
  ) : (
    <Empty title="No command yet">
      <p>Type one below, or in a terminal:</p>
      <Code text={`conch exec -s ${h.label} pwd`} />
    </Empty>
  );

const CommandRow = ({ c, s, longest, at }: { c: Command; s: Session; longest: number; at: number }) => {
  const ms = took(c, at);
  const o = outcome(c);
  // Durations differ by thousands: the bar's length goes by their logarithm.
  const share = o === "queued" ? 0 : Math.max(2, (100 * Math.log1p(ms)) / Math.log1p(longest));
  return (
    <a class={"item command " + o} href={toCommand(s.agent, s.label, c.command_id)}>
      <Mark kind={o} label={outcomeWords(c)} />
      <span class="mono cut grow">{c.command}</span>
      {c.restarted && (
        <span class="badge wait" title="The shell was restarted">
          restarted
        </span>
      )}
      <span class={"exit " + o}>{o === "done" || o === "running" ? "" : outcomeWords(c)}</span>
      <span class="length" aria-hidden="true">
        <i class={o} style={{ width: share + "%" }} />
      </span>
      <span class="took">{o === "queued" ? "" : duration(ms)}</span>
      <span class="muted when">{clock(c.started_at)}</span>
    </a>
  );
};

// RunBox runs a command in the session's shell, like any other client.
function RunBox({ s }: { s: Session }) {
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const run = async () => {
    if (!text.trim()) return;
    const command = text;
    setText("");
    try {
      // The answer begins when the command is accepted; what it does is heard of by
      // the events.
      const r = await fetch(`${sessionPath(s.agent, s.label)}/exec`, {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
        body: JSON.stringify({ command }),
      });
      if (!r.ok) {
        const { error } = await r.json();
        setText(command);
        notify("error", `Cannot run it: ${error.message}`, error.hint);
        return;
      }
      await r.body?.cancel();
    } catch (e) {
      setText(command);
      failed("Cannot run it", e);
    }
  };
  useEffect(() => {
    const el = box.current!;
    el.style.height = "auto";
    el.style.height = Math.min(el.scrollHeight, 160) + "px";
  }, [text]);
  return (
    <form
      class="run"
      onSubmit={(e) => {
        e.preventDefault();
        run();
      }}
    >
      <span class="prompt" aria-hidden="true">
        $
      </span>
      <textarea
        id="run"
        ref={box}
        rows={1}
        class="mono"
        aria-label={`Command to run in ${s.agent}/${s.label}`}
        placeholder={s.busy ? "Run a command (it waits for its turn)" : "Run a command"}
        value={text}
        spellcheck={false}
        autocapitalize="off"
        autocomplete="off"
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            run();
          }
        }}
      />
      <button type="submit" disabled={!text.trim()}>
        Run
      </button>
    </form>
  );
}

