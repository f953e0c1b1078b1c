// The commands of a session as a picture: when each ran, for how long, and how it
// ended. The list below says the same in words.

import { useEffect, useRef, useState } from "preact/hooks";
import { go, toCommand } from "./place";
import type { Command } from "./types";
import { clock, duration, outcome, outcomeWords, took } from "./ui";

const latest = -1; // as long as the last of them need
const most = 40;
const spans: [string, number][] = [
  ["latest", latest],
  ["10 min", 10 * 60e3],
  ["1 h", 3600e3],
  ["6 h", 6 * 3600e3],
  ["1 d", 86400e3],
  ["all", 0],
];

export function Timeline({ list, agent, label, at }: { list: Command[]; agent: string; label: string; at: number }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  const [span, setSpan] = useState(latest);
  useEffect(() => {
    const o = new ResizeObserver(() => setWidth(box.current?.clientWidth || 600));
    o.observe(box.current!);
    return () => o.disconnect();
  }, []);
  const begun = list.filter((c) => c.started_at);
  if (begun.length === 0) return <div ref={box} />;
  const busy = begun.some((c) => !c.ended_at);
  const to = busy ? at : Math.max(...begun.slice(-50).map((c) => Date.parse(c.ended_at ?? c.started_at!)));
  const from = span > 0 ? to - span : Date.parse(begun[span === latest ? Math.max(0, begun.length - most) : 0].started_at!);
  const x = (t: number) => 4 + ((t - from) / Math.max(1, to - from)) * (width - 8);
  const seen = begun.filter((c) => (c.ended_at ? Date.parse(c.ended_at) : at) >= from).slice(-600);
  // Each goes into the first lane that is free where it begins.
  const lanes: number[] = [];
  const bars = seen.map((c) => {
    const a = Math.max(x(Date.parse(c.started_at!)), 0);
    const b = Math.max(a + 4, x(c.ended_at ? Date.parse(c.ended_at) : at));
    let lane = lanes.findIndex((end) => end + 1 <= a);
    if (lane < 0) lane = lanes.length < 4 ? lanes.push(0) - 1 : lanes.indexOf(Math.min(...lanes));
    lanes[lane] = b;
    return { c, a, b, lane };
  });
  const high = Math.max(1, lanes.length) * 13;
  const marks = 4;
  return (
    <section class="timeline" aria-label="Timeline">
      <div ref={box}>
        <svg width={width} height={high + 22} viewBox={`0 0 ${width} ${high + 22}`} role="img" aria-label={`${seen.length} commands from ${clock(new Date(from).toISOString())} to ${clock(new Date(to).toISOString())}; the list below has them`}>
          {Array.from({ length: marks + 1 }, (_, i) => {
            const t = from + ((to - from) * i) / marks;
            return (
              <g key={i} class="axis">
                <line x1={x(t)} x2={x(t)} y1="0" y2={high + 4} />
                <text x={x(t)} y={high + 17} text-anchor={i === 0 ? "start" : i === marks ? "end" : "middle"}>
                  {clock(new Date(t).toISOString())}
                </text>
              </g>
            );
          })}
          {bars.map(({ c, a, b, lane }) => {
            const o = outcome(c);
            return (
              <g key={c.command_id} class={"barre " + o} onClick={() => go(toCommand(agent, label, c.command_id))}>
                <title>{`${c.command.slice(0, 200)}\n${outcomeWords(c)}, ${duration(took(c, at))}${c.restarted ? ", shell restarted" : ""}`}</title>
                <rect x={a} y={lane * 13 + 2} width={b - a} height="10" rx="2" />
                {o === "timeout" && <path class="cap" d={`M${b} ${lane * 13 + 1}v12`} />}
                {c.restarted && <path class="restart" d={`M${b + 2} ${lane * 13 + 3}l4 4-4 4z`} />}
                {o === "failed" && b - a > 22 && (
                  <text x={a + 4} y={lane * 13 + 10}>
                    {c.exit_code}
                  </text>
                )}
              </g>
            );
          })}
        </svg>
      </div>
      <div class="bar legend">
        <span class="key done">ok</span>
        <span class="key failed">failed</span>
        <span class="key timeout">timed out</span>
        <span class="key interrupted">interrupted</span>
        <span class="key running">running</span>
        <span class="key restart">shell restarted</span>
        <span class="grow" />
        <div class="choice" role="group" aria-label="Span of the timeline">
          {spans.map(([name, ms]) => (
            <button key={name} type="button" aria-pressed={span === ms} onClick={() => setSpan(ms)}>
              {name}
            </button>
          ))}
        </div>
      </div>
    </section>
  );
}
