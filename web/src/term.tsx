// A live terminal: looked at first, taken over and released. What a program writes is
// xterm's to parse; what could act beyond the screen (links, titles, the clipboard) is
// off.

import { Terminal } from "@xterm/xterm";
import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { useEffect, useRef, useState } from "preact/hooks";
import { sessionPath } from "./api";
import { may, notify, theme } from "./state";
import { Icon, icons } from "./ui";

interface Told {
  type: "hello" | "redraw" | "size" | "role" | "exit" | "left" | "error";
  role?: "viewer" | "typist";
  cols?: number;
  rows?: number;
  exit_code?: number | null;
  signal?: string | null;
  message?: string;
  hint?: string;
}

function colours() {
  const css = getComputedStyle(document.documentElement);
  const v = (name: string) => css.getPropertyValue(name).trim();
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "brightBlack", "brightRed", "brightGreen", "brightYellow", "brightBlue", "brightMagenta", "brightCyan", "brightWhite"];
  return {
    background: v("--log"),
    foreground: v("--text"),
    cursor: v("--accent"),
    cursorAccent: v("--log"),
    selectionBackground: v("--busy-soft"),
    ...Object.fromEntries(names.map((n, i) => [n, v(`--ansi-${i}`)])),
  };
}

export const SessionTerminal = ({ agent, label }: { agent: string; label: string }) => (
  <View path={sessionPath(agent, label) + "/terminal"} name={`${agent}/${label}`} takeOver="Take over the prompt" held="You are at the prompt. Commands of others wait until you release it." />
);
export const ProcessTerminal = ({ id }: { id: string }) => (
  <View path={`/v1/processes/${encodeURIComponent(id)}/terminal`} name={id} takeOver="Take over the keyboard" held="What you type goes to the program." />
);

function View({ path, name, takeOver, held }: { path: string; name: string; takeOver: string; held: string }) {
  const box = useRef<HTMLDivElement>(null);
  const at = useRef<{ term: Terminal; fit: FitAddon; find: SearchAddon; socket: WebSocket | null; role: string }>(null);
  const [role, setRole] = useState("viewer");
  const [state, setState] = useState<"connecting" | "live" | "away" | "over">("connecting");
  const [end, setEnd] = useState("");
  const [aloud, setAloud] = useState(false);
  const [round, again] = useState(0);
  const [want, setWant] = useState("");

  useEffect(() => {
    const term = new Terminal({
      allowProposedApi: true, // for widths of characters
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: 13,
      lineHeight: 1.2,
      scrollback: 5000,
      cursorBlink: false,
      disableStdin: true,
      theme: colours(),
      minimumContrastRatio: 4.5,
      linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
    });
    const fit = new FitAddon();
    const find = new SearchAddon();
    term.loadAddon(fit);
    term.loadAddon(find);
    term.loadAddon(new Unicode11Addon());
    term.unicode.activeVersion = "11";
    term.open(box.current!);
    term.textarea?.setAttribute("aria-label", `Terminal of ${name}`);
    const me = { term, fit, find, socket: null as WebSocket | null, role: "viewer" };
    at.current = me;

    const encode = new TextEncoder();
    const typed = (b: Uint8Array<ArrayBuffer>) => {
      if (me.role === "typist" && me.socket?.readyState === WebSocket.OPEN) me.socket.send(b);
    };
    term.onData((s) => typed(encode.encode(s)));
    term.onBinary((s) => typed(Uint8Array.from(s, (c) => c.charCodeAt(0) & 255)));

    // A typist's window decides on the size, a viewer's shows the one there is.
    const size = () => {
      if (me.role !== "typist" || me.socket?.readyState !== WebSocket.OPEN) return;
      const d = fit.proposeDimensions();
      if (!d || !(d.cols >= 2) || !(d.rows >= 1)) return;
      const cols = Math.min(d.cols, 1000);
      const rows = Math.min(d.rows, 300);
      me.socket.send(JSON.stringify({ type: "resize", cols, rows }));
    };
    let timer = 0;
    const watch = new ResizeObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(size, 80) as unknown as number;
    });
    watch.observe(box.current!);

    const become = (r: string) => {
      me.role = r;
      setRole(r);
      term.options.disableStdin = r !== "typist";
      term.options.cursorBlink = r === "typist";
      if (r === "typist") {
        size();
        term.focus();
      }
    };
    let gone = false;
    let retry = 0;
    const connect = () => {
      const u = new URL(path, location.href);
      u.protocol = u.protocol === "https:" ? "wss:" : "ws:";
      u.searchParams.set("read_only", "1");
      const s = new WebSocket(u);
      s.binaryType = "arraybuffer";
      me.socket = s;
      const wanted = me.role; // after a cut one is what one was
      s.onmessage = (e) => {
        if (typeof e.data !== "string") {
          term.write(new Uint8Array(e.data));
          return;
        }
        const m: Told = JSON.parse(e.data);
        switch (m.type) {
          case "hello":
            setState("live");
            become(m.role ?? "viewer");
            term.resize(m.cols!, m.rows!);
            if (wanted === "typist") s.send(JSON.stringify({ type: "role", role: "typist" }));
            break;
          case "redraw":
            term.reset();
            break;
          case "size":
            term.resize(m.cols!, m.rows!);
            break;
          case "role":
            become(m.role!);
            break;
          case "exit":
            setEnd(m.signal ? `It was ended by ${m.signal}.` : `It ended with status ${m.exit_code}.`);
            break;
          case "left":
            setEnd("You left the prompt. The session goes on.");
            break;
          case "error":
            notify("error", m.message ?? "The terminal refused something.", m.hint);
            break;
        }
      };
      s.onclose = (e) => {
        if (gone) return;
        if (e.code === 1000) {
          become("viewer");
          setState("over");
          return;
        }
        setState("away");
        retry = setTimeout(connect, 1000) as unknown as number;
      };
    };
    connect();

    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => {
      term.options.theme = colours();
    };
    dark.addEventListener("change", repaint);
    const unwatch = theme.subscribe(() => setTimeout(repaint, 0));
    return () => {
      gone = true;
      clearTimeout(retry);
      clearTimeout(timer);
      dark.removeEventListener("change", repaint);
      unwatch();
      watch.disconnect();
      me.socket?.close();
      term.dispose();
      at.current = null;
    };
  }, [path, round]);

  useEffect(() => {
    if (at.current) at.current.term.options.screenReaderMode = aloud;
  }, [aloud, round]);

  const ask = (r: string) => at.current?.socket?.send(JSON.stringify({ type: "role", role: r }));
  const words =
    state === "over" ? end || "The terminal was closed." : state === "away" ? "The connection was cut; trying again …" : state === "connecting" ? "Connecting …" : role === "typist" ? held : "You are looking on: what runs appears here.";
  return (
    <section class="terminal" aria-label={`Terminal of ${name}`}>
      <div class="bar">
        <span class={"state " + (role === "typist" ? "held" : state === "away" ? "failed" : "")} role="status">
          {words}
        </span>
        <span class="grow" />
        <label class="find">
          <Icon d={icons.search} />
          <span class="hidden">Search the terminal</span>
          <input
            type="search"
            placeholder="Search"
            value={want}
            size={10}
            onInput={(e) => {
              setWant(e.currentTarget.value);
              at.current?.find.findPrevious(e.currentTarget.value, { incremental: true });
            }}
            onKeyDown={(e) => e.key === "Enter" && (e.shiftKey ? at.current?.find.findNext(want) : at.current?.find.findPrevious(want))}
          />
        </label>
        <button type="button" class="quiet" aria-pressed={aloud} title="Let a screen reader follow the terminal" onClick={() => setAloud(!aloud)}>
          Screen reader
        </button>
        {state === "over" ? (
          <button type="button" onClick={() => (setEnd(""), setState("connecting"), again(round + 1))}>
            <Icon d={icons.again} />
            <span>Look again</span>
          </button>
        ) : !may("exec") ? (
          <span class="muted">read-only</span>
        ) : role === "typist" ? (
          <button type="button" onClick={() => ask("viewer")}>
            Release
          </button>
        ) : (
          <button type="button" disabled={state !== "live"} onClick={() => ask("typist")}>
            <Icon d={icons.terminal} />
            <span>{takeOver}</span>
          </button>
        )}
      </div>
      <div class="screen" ref={box} />
    </section>
  );
}
