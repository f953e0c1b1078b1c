// Agents of other homes: who asks to be let in, whose word counts for what, and letters
// that could not be opened. What is decided here is a person's to decide.

import { useEffect, useState } from "preact/hooks";
import { post } from "./api";
import { access, attempt, contactName, contacts, loadContacts, may, notify, quarantine, tick } from "./state";
import type { Contact } from "./types";
import { bytes, Code, Confirm, CopyButton, Empty, Mark, Time } from "./ui";

const stateWords: Record<string, string> = {
  requested: "asked, no answer yet",
  asked: "asks to be a contact",
  accepted: "contact",
  blocked: "blocked",
  refused: "does not want our mail",
};
const authorities: [string, string][] = [
  ["inform", "to be known, not to be followed"],
  ["ask", "may ask for answers"],
  ["act", "may ask for work to be done"],
];

export function Contacts() {
  tick.value;
  useEffect(() => {
    const t = setInterval(() => !document.hidden && loadContacts(), 10000);
    loadContacts();
    return () => clearInterval(t);
  }, []);
  const list = [...contacts.values()];
  const waiting = list.filter((c) => c.state === "asked" || c.held);
  const rest = list.filter((c) => !(c.state === "asked" || c.held));
  return (
    <main>
      <header>
        <div class="bar">
          <h1>Contacts</h1>
        </div>
      </header>
      <div class="scroll pad contacts">
        {may("admin") && access.value?.decides === false && (
          <p class="warn">This login was not made by a person in a terminal: it can accept nobody, raise nothing and confirm nothing. Run conch ui in a terminal of your own.</p>
        )}
        {list.length === 0 && (
          <Empty title="No contact yet">
            <p>A contact is an agent of another home. Ask one, by its address:</p>
            <Code text="conch contacts add NAME ADDRESS" />
            <p>Your own address, for others:</p>
            <Code text="conch whoami" />
          </Empty>
        )}
        {waiting.length > 0 && (
          <section>
            <h2>For you to decide</h2>
            {waiting.map((c) => (
              <Card key={c.agent + c.address} c={c} />
            ))}
          </section>
        )}
        {rest.length > 0 && (
          <section>
            <h2>Known</h2>
            {rest.map((c) => (
              <Card key={c.agent + c.address} c={c} />
            ))}
          </section>
        )}
        {quarantine.length > 0 && (
          <section>
            <div class="bar">
              <h2>Letters that could not be opened</h2>
              <span class="grow" />
              {may("admin") && (
                <Confirm
                  label="Throw away"
                  sure="Throw all of them away?"
                  onYes={() =>
                    attempt("Cannot throw them away", async () => {
                      for (const agent of new Set(quarantine.map((q) => q.agent))) await post("/v1/mail/quarantine/clear", { agent, peer: "" });
                      await loadContacts();
                    })
                  }
                />
              )}
            </div>
            <ul class="rows-plain">
              {quarantine.map((q) => (
                <li key={q.n} class="pad">
                  <Mark kind="lost" label="not opened" /> <b>{q.reason}</b>
                  <p class="muted">
                    for {q.agent}, from <span class="mono">{q.from || "nobody known"}</span>, {bytes(q.bytes)}, <Time at={q.at} />
                    {q.asked ? "; its sender was asked for it again" : ""}
                  </p>
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
    </main>
  );
}

function Card({ c }: { c: Contact }) {
  const [number, setNumber] = useState("");
  const [name, setName] = useState(c.name);
  const decide = may("admin");
  const who = { agent: c.agent, peer: c.address };
  const act = (what: string, path: string, more: object, done: string) =>
    attempt(what, async () => {
      await post(`/v1/contacts/${path}`, { ...who, ...more });
      notify("info", done);
      await loadContacts();
    });
  const title = contactName(c);
  return (
    <article class={"contact " + (c.held ? "held" : c.state)} aria-label={`Contact ${title}`}>
      <div class="bar">
        <Mark kind={c.held || c.state === "asked" ? "waiting" : c.state === "accepted" ? "done" : c.state === "blocked" || c.state === "refused" ? "failed" : "queued"} />
        <h3>{title}</h3>
        <span class={"state " + (c.held || c.state === "asked" ? "waiting" : "")}>{c.held ? "its keys have changed" : stateWords[c.state]}</span>
        {c.verified && <span class="badge">verified</span>}
        <span class="grow" />
        <span class="muted">of {c.agent}</span>
      </div>
      <p class="bar">
        <span class="mono cut">{c.address}</span>
        <CopyButton text={c.address} what="the address" small />
      </p>
      {c.held && <p class="warn">{c.held}. Its mail is held until you decide: compare the safety number by another way first.</p>}
      {c.text && (
        <p>
          <span class="muted">It says:</span> <q class="text">{c.text}</q>
        </p>
      )}
      {c.pending > 0 && <p class="muted">{c.pending} of your messages wait for it.</p>}
      {number && (
        <div class="safety">
          <p>Read these to each other, in person or on the phone. If they are the same, nobody stands between you.</p>
          <p class="mono number" aria-label="Safety number">
            {number}
          </p>
          {decide && !c.verified && (
            <button type="button" onClick={() => act("Cannot confirm", "verify", { confirm: true }, "Noted: you compared the numbers.")}>
              They are the same
            </button>
          )}
        </div>
      )}
      {decide ? (
        <div class="bar wrap">
          {(c.state === "asked" || c.held || c.state === "blocked") && (
            <>
              <label class="inline">
                <span class="muted">called</span>
                <input value={name} size={12} pattern="[a-z0-9][a-z0-9\-]{0,31}" aria-label="Your name for it" onInput={(e) => setName(e.currentTarget.value)} />
              </label>
              <button
                type="button"
                onClick={async () => {
                  await act("Cannot accept", "accept", {}, `${title} was let in.`);
                  if (name && name !== c.name) await act("Cannot name it", "add", { name }, `It is called ${name} now.`);
                }}
              >
                {c.held ? "Trust the new keys" : "Accept"}
              </button>
            </>
          )}
          {c.state !== "blocked" && <Confirm label="Block" sure={`Block ${title}?`} onYes={() => act("Cannot block", "block", {}, `${title} is blocked.`)} />}
          {/* Before something of it was opened there are no keys to compare. */}
          {c.state !== "asked" && (
            <button
              type="button"
              class="quiet"
              aria-expanded={!!number}
              onClick={() => (number ? setNumber("") : attempt("Cannot make the safety number", async () => setNumber((await post<{ number: string }>("/v1/contacts/verify", who)).number)))}
            >
              Safety number
            </button>
          )}
          {c.state === "accepted" && (
            <>
              <label class="inline">
                <span class="muted">its word</span>
                <select value={c.authority} aria-label={`What the word of ${title} counts for`} onChange={(e) => act("Cannot change it", "authority", { authority: e.currentTarget.value }, "Changed.")}>
                  {authorities.map(([a, words]) => (
                    <option key={a} value={a}>
                      {a}: {words}
                    </option>
                  ))}
                </select>
              </label>
              <Confirm label="Reset" sure="Begin anew with it?" onYes={() => act("Cannot reset", "reset", {}, "Begun anew.")} />
            </>
          )}
        </div>
      ) : (
        <p class="muted">Your login may not decide on contacts.</p>
      )}
    </article>
  );
}

