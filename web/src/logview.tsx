import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { css } from "./ansi";
import { List } from "./list";
import { Log, Stderr, type Which } from "./log";
import { get } from "./api";
import { failed, notify } from "./state";
import type { Command } from "./types";
import { bytes, CopyButton, Icon, icons } from "./ui";

const copyLimit = 1 << 20;

// LogView shows a command's output as it comes: both streams in the order of their
// arrival, or one of them.
export function LogView({ id, stick, label }: { id: string; stick: boolean; label: string }) {
  const [which, setWhich] = useState<Which>("both");
  const [, redraw] = useState(0);
  const [want, setWant] = useState("");
  const [found, setFound] = useState<number[] | null>(null);
  const [at, setAt] = useState(0);
  const [follow, setFollow] = useState(stick);
  const [show, setShow] = useState({ row: -1, n: 0 });
  const frame = useRef(0);

  const path = `/v1/commands/${id}/events`;
  const log = useMemo(() => {
    return new Log(path, which, () => {
      if (!frame.current)
        frame.current = requestAnimationFrame(() => {
          frame.current = 0;
          redraw((n) => n + 1);
        });
    });
  }, [path, which]);
  useEffect(
    () => () => {
      log.close();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    },
    [log],
  );

  useEffect(() => {
    setFound(null);
    setAt(0);
    if (want.length < 2) return;
    const stop = new AbortController();
    const t = setTimeout(() => log.search(want, 1000, stop.signal, setFound).catch((e) => failed("Cannot search", e)), 200);
    return () => {
      clearTimeout(t);
      stop.abort();
    };
  }, [want, log, log.ended]);

  const jump = (to: number) => {
    if (!found?.length) return;
    const n = (to + found.length) % found.length;
    setAt(n);
    setFollow(false);
    setShow((s) => ({ row: found[n], n: s.n + 1 }));
  };
  useEffect(() => {
    if (found?.length && show.row < 0) jump(0);
  }, [found?.length]);
  const hit = found?.length ? found[at] : -1;
  const hits = useMemo(() => new Set(found ?? []), [found]);

  const copy = async () => {
    const c = await get<Command>(`/v1/commands/${id}`);
    const stream = which === "stderr" ? "stderr" : "stdout";
    const size = stream === "stderr" ? c.stderr_bytes : c.stdout_bytes;
    if (size > copyLimit) {
      notify("error", `${bytes(size)} is too much to copy.`, "Download it instead.");
      return null;
    }
    const r = await fetch(`/v1/commands/${id}/output?stream=${stream}`);
    if (!r.ok) throw new Error(`the daemon answered ${r.status}`);
    return r.text();
  };

  return (
    <section class="log" aria-label={label}>
      <div class="bar">
        <div class="choice" role="group" aria-label="Which stream">
          {(["both", "stdout", "stderr"] as Which[]).map((w) => (
            <button key={w} type="button" aria-pressed={which === w} onClick={() => setWhich(w)}>
              {w}
            </button>
          ))}
        </div>
        <label class="find">
          <Icon d={icons.search} />
          <span class="hidden">Search the output</span>
          <input
            type="search"
            placeholder="Search output"
            value={want}
            onInput={(e) => (setShow({ row: -1, n: show.n }), setWant(e.currentTarget.value))}
            onKeyDown={(e) => {
              if (e.key === "Enter") jump(at + (e.shiftKey ? -1 : 1));
            }}
          />
        </label>
        <span class="muted" role="status">
          {want.length > 1 && found ? (found.length ? `${at + 1} of ${found.length}${found.length === 1000 ? "+" : ""}` : "nothing found") : ""}
        </span>
        <span class="grow" />
        <span class="muted facts">
          {log.rows.toLocaleString()} {log.rows === 1 ? "line" : "lines"}, {bytes(log.bytes)}
          {!log.ended && " …"}
        </span>
        <CopyButton text={copy} what={which === "stderr" ? "stderr" : "stdout"} small />
        {(["stdout", "stderr"] as const)
          .filter((s) => which === "both" || which === s)
          .map((s) => (
            <a key={s} class="button quiet small" href={`/v1/commands/${id}/output?stream=${s}`} download={`${id}.${s}.txt`} title={`Download ${s}`} aria-label={`Download ${s}`}>
              <Icon d={icons.download} />
              {which === "both" && <span>{s}</span>}
            </a>
          ))}
      </div>
      {log.error && <p class="warn">{log.error}</p>}
      <List
        class="lines"
        role="log"
        wide
        label={label}
        count={log.rows}
        height={18}
        stick={follow || (stick && !log.ended)}
        onEdge={setFollow}
        show={show}
        rowClass={(i) => (i === hit ? "hit" : hits.has(i) ? "hits" : "")}
        empty={<p class="muted pad">{log.ended ? "It wrote nothing." : "Nothing yet."}</p>}
        row={(i) => {
          const r = log.row(i);
          if (!r) return <span class="muted">…</span>;
          return (
            <span class={r.kind === Stderr ? "line err" : "line"}>
              {r.spans.map((s, k) => {
                const style = css(s.style);
                return style ? (
                  <span key={k} style={style}>
                    {s.text}
                  </span>
                ) : (
                  s.text
                );
              })}
            </span>
          );
        }}
      />
    </section>
  );
}
