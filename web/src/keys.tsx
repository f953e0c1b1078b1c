// Shortcuts. None of them works while somebody types.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { go, place, toSession } from "./place";
import { key } from "./state";
import { shown } from "./sessions";

export const helping = signal(false);

export const shortcuts: [string, string][] = [
  ["g o", "overview"],
  ["g p", "processes"],
  ["g m", "messages"],
  ["g c", "contacts"],
  ["j / k", "next, previous session"],
  ["1 2 3 4", "commands, terminal, processes, mail of the session"],
  ["/", "search what is shown"],
  ["f", "filter sessions"],
  ["r", "run a command, or reply"],
  ["n", "new message"],
  ["u", "up: back to the list"],
  ["?", "this help"],
  ["Esc", "leave a field, close this"],
];

let prefix = "";
const focus = (...ids: string[]) => {
  for (const id of ids) {
    const el = document.getElementById(id);
    if (el) {
      el.focus();
      return true;
    }
  }
  return false;
};

export function onKey(e: KeyboardEvent): void {
  const el = e.target as HTMLElement;
  const typing = el.closest("input, textarea, select, .xterm, [contenteditable]");
  if (e.key === "Escape") {
    if (helping.value) helping.value = false;
    else if (typing && !el.closest(".xterm")) el.blur();
    return;
  }
  if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
  const k = prefix + e.key;
  prefix = "";
  const p = place.value;
  const move = (by: number) => {
    const list = shown();
    if (!list.length) return;
    const at = p.agent ? list.findIndex((s) => key(s.agent, s.label) === key(p.agent!, p.label!)) : -1;
    const s = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + by))];
    go(toSession(s.agent, s.label));
  };
  const tab = (name: string) => p.agent && p.label && go(toSession(p.agent, p.label, name));
  switch (k) {
    case "g":
      prefix = "g";
      break;
    case "go":
      go("#/");
      break;
    case "gp":
      go("#/p");
      break;
    case "gm":
      go("#/m");
      break;
    case "gc":
      go("#/contacts");
      break;
    case "j":
      move(1);
      break;
    case "k":
      move(-1);
      break;
    case "1":
      tab("");
      break;
    case "2":
      tab("terminal");
      break;
    case "3":
      tab("processes");
      break;
    case "4":
      tab("mail");
      break;
    case "/":
      focus("search", "filter");
      break;
    case "f":
      focus("filter");
      break;
    case "r":
      focus("run", "reply");
      break;
    case "n":
      go("#/m/new");
      break;
    case "u":
      if (p.view === "command") tab("");
      else if (p.view === "process") go("#/p");
      else if (p.view === "mail") go("#/m");
      else go("#/");
      break;
    case "?":
      helping.value = true;
      break;
    default:
      return;
  }
  e.preventDefault();
}

export function Help() {
  const box = useRef<HTMLDialogElement>(null);
  const open = helping.value;
  useEffect(() => {
    const d = box.current!;
    if (open && !d.open) d.showModal();
    if (!open && d.open) d.close();
  }, [open]);
  return (
    <dialog ref={box} aria-labelledby="help-title" onClose={() => (helping.value = false)} onClick={(e) => e.target === box.current && (helping.value = false)}>
      <h2 id="help-title">Keyboard</h2>
      <dl class="keys">
        {shortcuts.map(([k, what]) => (
          <div key={k}>
            <dt>
              <kbd>{k}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={() => (helping.value = false)}>
        Close
      </button>
    </dialog>
  );
}
