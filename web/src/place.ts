// Where the page is: the part of its address behind #, which is never sent.

import { signal } from "@preact/signals";

export interface Place {
  view: "overview" | "session" | "command" | "processes" | "process" | "mail" | "contacts";
  agent?: string;
  label?: string;
  tab?: string;
  id?: string;
}

function read(): Place {
  const p = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  switch (p[0]) {
    case "s":
      if (p[1] && p[2]) {
        if (p[3] === "c" && p[4]) return { view: "command", agent: p[1], label: p[2], id: p[4] };
        return { view: "session", agent: p[1], label: p[2], tab: p[3] || "commands" };
      }
      break;
    case "p":
      return p[1] ? { view: "process", id: p[1] } : { view: "processes" };
    case "m":
      return { view: "mail", id: p[1] };
    case "contacts":
      return { view: "contacts" };
  }
  return { view: "overview" };
}

export const place = signal<Place>(read());

addEventListener("hashchange", () => {
  place.value = read();
});

export const go = (hash: string) => {
  location.hash = hash;
};
const part = encodeURIComponent;
export const toSession = (agent: string, label: string, tab = "") => `#/s/${part(agent)}/${part(label)}` + (tab ? "/" + tab : "");
export const toCommand = (agent: string, label: string, id: string) => `${toSession(agent, label)}/c/${part(id)}`;
export const toProcess = (id: string) => `#/p/${part(id)}`;
export const toMessage = (id: string) => `#/m/${part(id)}`;
