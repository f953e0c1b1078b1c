package store

import (
	"fmt"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// migrations[n] takes a file of version n to version n+1 (user_version). They
// only go forward, and one that was released is never changed: a mistake in it
// is mended by the next. Every time that is compared with the clock later is
// counted on mail's own clock; times that are shown are Unix nanoseconds.
var migrations = []string{
	// 1: the owner, the clock, labels and policies; messages, the copies of
	// each in its recipients' inboxes, and all that became of them. Every index
	// is a page more to write for each message, so there are few, and most
	// only hold what is out of the ordinary. Numbers grow without
	// AUTOINCREMENT as long as the youngest rows stay, and only old ones go.
	`
CREATE TABLE owner (
	one        INTEGER PRIMARY KEY CHECK (one = 1),
	generation INTEGER NOT NULL
);
CREATE TABLE clock (
	one    INTEGER PRIMARY KEY CHECK (one = 1),
	boot   TEXT NOT NULL,
	steady INTEGER NOT NULL,
	wall   INTEGER NOT NULL
);
CREATE TABLE labels (
	agent      TEXT NOT NULL,
	label      TEXT NOT NULL,
	priority   INTEGER NOT NULL DEFAULT 0,
	first_seen INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL,
	PRIMARY KEY (agent, label)
) WITHOUT ROWID;
CREATE TABLE claims (
	agent   TEXT NOT NULL,
	harness_session TEXT NOT NULL,
	label   TEXT NOT NULL,
	harness TEXT NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (agent, harness_session, label)
) WITHOUT ROWID;
CREATE TABLE policies (
	agent  TEXT PRIMARY KEY,
	policy TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
	n            INTEGER PRIMARY KEY,     -- the order of acceptance
	id           TEXT NOT NULL,
	from_agent   TEXT NOT NULL,
	from_session TEXT NOT NULL,
	to_agent     TEXT NOT NULL,
	to_session   TEXT NOT NULL,           -- '': the agent
	policy       TEXT NOT NULL,           -- '': the agent's
	role         TEXT NOT NULL,
	text         TEXT NOT NULL,
	in_reply_to  TEXT NOT NULL,
	thread       TEXT NOT NULL,           -- id of the first message of the chain
	auto         INTEGER NOT NULL,
	via          TEXT NOT NULL,
	hash         BLOB NOT NULL,           -- of what the sender asked for
	status       TEXT NOT NULL,
	open         INTEGER NOT NULL,        -- 1: may get (more) recipients
	sent_at      INTEGER NOT NULL,
	expires      INTEGER NOT NULL,        -- mail's clock; 0: never
	spread_until INTEGER NOT NULL,        -- mail's clock; broadcasts
	UNIQUE (id, from_agent)
);
CREATE INDEX messages_by_thread ON messages(thread, n) WHERE in_reply_to <> '';
CREATE INDEX messages_by_reply ON messages(in_reply_to) WHERE in_reply_to <> '';
CREATE INDEX messages_open ON messages(to_agent, n) WHERE open = 1;
CREATE INDEX messages_expiring ON messages(expires) WHERE expires > 0;
CREATE TABLE deliveries (
	agent       TEXT NOT NULL,
	label       TEXT NOT NULL,
	msg         INTEGER NOT NULL REFERENCES messages(n),
	state       TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	lease       INTEGER NOT NULL,         -- mail's clock
	times       INTEGER NOT NULL,         -- how often it was fetched
	PRIMARY KEY (agent, label, msg)
) WITHOUT ROWID;
CREATE INDEX deliveries_waiting ON deliveries(agent, label, msg) WHERE state IN ('held', 'stored', 'offered', 'seen');
CREATE INDEX deliveries_held ON deliveries(agent, label, msg) WHERE state = 'held';
CREATE TABLE receipts (
	n      INTEGER PRIMARY KEY,           -- also the number of the event
	msg    INTEGER NOT NULL REFERENCES messages(n),
	status TEXT NOT NULL,
	at     INTEGER NOT NULL,
	reason TEXT NOT NULL,
	agent  TEXT NOT NULL,                 -- of the recipient, where it is about one
	label  TEXT NOT NULL
);
CREATE INDEX receipts_by_msg ON receipts(msg, n);
`,
	// 2: search in the text. The index holds no copy of it, and is behind: it
	// is brought up to date by who searches, since it would cost a send as
	// much as all the rest.
	`
CREATE VIRTUAL TABLE message_text USING fts5(text, content='messages', content_rowid='n', tokenize='unicode61');
CREATE TABLE indexed (
	one     INTEGER PRIMARY KEY CHECK (one = 1),
	through INTEGER NOT NULL
);
INSERT INTO indexed VALUES (1, 0);
`,
	// 3: what the way over a relay needs. dedupe is exact and permanent: per
	// peer and epoch the highest number below which all have come, and those
	// above it that have.
	`
CREATE TABLE outbox (
	msg        INTEGER NOT NULL REFERENCES messages(n),
	peer       TEXT NOT NULL,
	epoch      INTEGER NOT NULL,
	seq        INTEGER NOT NULL,
	attempt    INTEGER NOT NULL,
	ciphertext BLOB NOT NULL,
	next_at    INTEGER NOT NULL,
	PRIMARY KEY (peer, epoch, seq)
) WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox(next_at);
CREATE TABLE dedupe (
	peer    TEXT NOT NULL,
	epoch   INTEGER NOT NULL,
	through INTEGER NOT NULL,
	PRIMARY KEY (peer, epoch)
) WITHOUT ROWID;
CREATE TABLE dedupe_sparse (
	peer  TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	seq   INTEGER NOT NULL,
	PRIMARY KEY (peer, epoch, seq)
) WITHOUT ROWID;
CREATE TABLE contacts (
	agent     TEXT NOT NULL,
	address   TEXT NOT NULL,
	name      TEXT NOT NULL,
	state     TEXT NOT NULL,
	authority TEXT NOT NULL,
	since     INTEGER NOT NULL,
	PRIMARY KEY (agent, address)
) WITHOUT ROWID;
`,
	// 4: which request fetched a message, so that the same one, sent again over
	// another connection, gets it again in spite of the lease.
	`
ALTER TABLE deliveries ADD COLUMN token TEXT NOT NULL DEFAULT '';
`,
	// 5: the auto-responder. What travels with a message so that responders do
	// not answer each other for ever; for whom it is on; its runs, and which
	// messages each was for. A message whose open is 2 is being answered.
	`
ALTER TABLE messages ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN chain TEXT NOT NULL DEFAULT ''; -- responders' agents, with spaces between
CREATE TABLE responders (
	agent TEXT PRIMARY KEY,
	since INTEGER NOT NULL                -- mail that came before is not answered
) WITHOUT ROWID;
CREATE TABLE runs (
	n            INTEGER PRIMARY KEY,
	agent        TEXT NOT NULL,
	label        TEXT NOT NULL,           -- whose mail it is; '': the agent's
	peer         TEXT NOT NULL,           -- who wrote
	peer_session TEXT NOT NULL,
	session      TEXT NOT NULL,           -- where it runs
	dir          TEXT NOT NULL,           -- its directory, to be removed
	command      TEXT NOT NULL,           -- its command's id
	status       TEXT NOT NULL,
	reason       TEXT NOT NULL,
	hops         INTEGER NOT NULL,        -- of what it sends
	chain        TEXT NOT NULL,
	started_at   INTEGER NOT NULL,
	ended_at     INTEGER NOT NULL,
	bytes_in     INTEGER NOT NULL,
	bytes_out    INTEGER NOT NULL,
	exit_code    INTEGER                  -- null: nobody saw one
);
CREATE INDEX runs_running ON runs(agent, session) WHERE status = 'running';
CREATE INDEX runs_by_time ON runs(started_at);
CREATE TABLE answers (
	msg   INTEGER PRIMARY KEY REFERENCES messages(n),
	run   INTEGER NOT NULL,               -- the last
	times INTEGER NOT NULL,
	again INTEGER NOT NULL                -- 1: the run was cut short; once more
);
CREATE INDEX answers_by_run ON answers(run);
`,
	// 6: mail between homes. The tables that 3 made for it were never used; an
	// agent here may be known to a peer there next to another agent of this
	// home, so all of it is per agent and peer.
	`
DROP TABLE outbox;
DROP TABLE dedupe;
DROP TABLE dedupe_sparse;
DROP TABLE contacts;
CREATE TABLE accounts (                   -- an agent's own keys for encryption
	agent      TEXT PRIMARY KEY,
	address    TEXT NOT NULL,
	state      BLOB NOT NULL,             -- sealed under the agent's key
	epoch      INTEGER NOT NULL,          -- of these keys; outgoing numbers are counted in it
	store      TEXT NOT NULL,             -- this run of the daemon, as the relay knows it
	generation INTEGER NOT NULL           -- and its number
) WITHOUT ROWID;
CREATE TABLE contacts (
	agent     TEXT NOT NULL,
	address   TEXT NOT NULL,
	name      TEXT NOT NULL,              -- '': none
	state     TEXT NOT NULL,
	authority TEXT NOT NULL,
	verified  INTEGER NOT NULL,
	held      TEXT NOT NULL,              -- why a person must decide before more of its mail is taken
	text      TEXT NOT NULL,
	since     INTEGER NOT NULL,
	heard     INTEGER NOT NULL,
	PRIMARY KEY (agent, address)
) WITHOUT ROWID;
CREATE UNIQUE INDEX contacts_by_name ON contacts(agent, name) WHERE name <> '';
CREATE TABLE conversations (              -- the ratchets with one peer
	agent   TEXT NOT NULL,
	peer    TEXT NOT NULL,
	state   BLOB NOT NULL,
	pinned  BLOB NOT NULL,                -- the peer's keys as they were first seen, or accepted
	next    INTEGER NOT NULL,             -- the number of the next message to it
	reports INTEGER NOT NULL,             -- and of the next report
	renew   INTEGER NOT NULL,             -- 1: begin a new session before anything is sealed
	rate_at INTEGER NOT NULL,             -- mail's clock: since when the next two are counted
	rate_n  INTEGER NOT NULL,             -- messages taken from it
	rate_b  INTEGER NOT NULL,             -- bytes
	PRIMARY KEY (agent, peer)
) WITHOUT ROWID;
CREATE TABLE outbox (                     -- until the peer's daemon says that it has it
	n         INTEGER PRIMARY KEY AUTOINCREMENT, -- whoever has one in hand must not meet another row
	agent     TEXT NOT NULL,
	peer      TEXT NOT NULL,
	kind      TEXT NOT NULL,
	id        TEXT NOT NULL,
	msg       INTEGER NOT NULL,           -- in messages; 0: none
	body      BLOB NOT NULL,              -- what to seal, where msg does not say it
	seq       INTEGER NOT NULL,           -- 0: not sealed yet
	attempt   INTEGER NOT NULL,
	sealed    BLOB NOT NULL,              -- empty: not sealed yet
	published INTEGER NOT NULL,           -- how often
	at        INTEGER NOT NULL,           -- mail's clock: when it was queued
	next_at   INTEGER NOT NULL            -- mail's clock: when to publish it (again)
);
CREATE INDEX outbox_by_peer ON outbox(agent, peer, n);
CREATE INDEX outbox_by_id ON outbox(id);
CREATE TABLE dedupe (                     -- exact and for ever: all up to through have come
	agent   TEXT NOT NULL,
	peer    TEXT NOT NULL,
	epoch   INTEGER NOT NULL,
	lane    INTEGER NOT NULL,
	through INTEGER NOT NULL,
	PRIMARY KEY (agent, peer, epoch, lane)
) WITHOUT ROWID;
CREATE TABLE dedupe_sparse (              -- and these above it
	agent TEXT NOT NULL,
	peer  TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	lane  INTEGER NOT NULL,
	seq   INTEGER NOT NULL,
	PRIMARY KEY (agent, peer, epoch, lane, seq)
) WITHOUT ROWID;
CREATE TABLE early (                      -- opened, and waits for one that comes before it
	agent  TEXT NOT NULL,
	peer   TEXT NOT NULL,
	epoch  INTEGER NOT NULL,
	seq    INTEGER NOT NULL,
	header BLOB NOT NULL,
	body   BLOB NOT NULL,
	at     INTEGER NOT NULL,              -- mail's clock
	PRIMARY KEY (agent, peer, epoch, seq)
) WITHOUT ROWID;
CREATE TABLE quarantine (
	n       INTEGER PRIMARY KEY,
	agent   TEXT NOT NULL,
	peer    TEXT NOT NULL,
	id      TEXT NOT NULL,
	lane    INTEGER NOT NULL,
	reason  TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	asked   INTEGER NOT NULL,             -- mail's clock: when it was asked for again; 0: not
	data    BLOB NOT NULL,
	at      INTEGER NOT NULL
);
CREATE INDEX quarantine_by_id ON quarantine(agent, peer, id);
CREATE TABLE reports (                    -- what a peer is to be told that is no step of a message here
	agent  TEXT NOT NULL,
	peer   TEXT NOT NULL,
	id     TEXT NOT NULL,
	status TEXT NOT NULL,
	reason TEXT NOT NULL,
	at     INTEGER NOT NULL,
	due    INTEGER NOT NULL,
	PRIMARY KEY (agent, peer, id)
) WITHOUT ROWID;
CREATE INDEX reports_due ON reports(agent, peer) WHERE due = 1;
CREATE TABLE statements (                 -- those that were acted on
	agent TEXT NOT NULL,
	peer  TEXT NOT NULL,
	id    TEXT NOT NULL,
	at    INTEGER NOT NULL,
	PRIMARY KEY (agent, peer, id)
) WITHOUT ROWID;
CREATE TABLE reported (                   -- the step of mail that was looked at last
	one     INTEGER PRIMARY KEY CHECK (one = 1),
	through INTEGER NOT NULL
);
INSERT INTO reported SELECT 1, coalesce(max(n), 0) FROM receipts;
CREATE TABLE attachments (
	msg    INTEGER NOT NULL,
	i      INTEGER NOT NULL,
	id     TEXT NOT NULL,                 -- of its file in the home, and of its blob at the relay
	name   TEXT NOT NULL,
	size   INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	key    BLOB NOT NULL,                 -- that its blob is sealed with
	state  TEXT NOT NULL,                 -- here, away, gone
	error  TEXT NOT NULL,
	PRIMARY KEY (msg, i)
) WITHOUT ROWID;
CREATE TABLE uploads (                    -- files that no message has yet
	id     TEXT PRIMARY KEY,
	name   TEXT NOT NULL,
	size   INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	at     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX attachments_by_id ON attachments(id);
CREATE INDEX attachments_away ON attachments(msg) WHERE state = 'away';
`,
	// 7: ids are unique within a home. A message from elsewhere whose id is taken
	// has one of its own here, and wire is what its sender calls it. note is what a
	// person should know of a contact's keys.
	`
ALTER TABLE messages ADD COLUMN wire TEXT NOT NULL DEFAULT '';
CREATE INDEX messages_by_wire ON messages(wire, from_agent) WHERE wire <> '';
UPDATE messages SET wire = id, id = substr(id, 1, 100) || '@' || n
	WHERE via = 'relay' AND length(from_agent) > 32 AND EXISTS (SELECT 1 FROM messages o WHERE o.id = messages.id AND o.n < messages.n);
ALTER TABLE contacts ADD COLUMN note TEXT NOT NULL DEFAULT '';
`,
}

// migrate brings the file up to date, each step in a transaction of its own.
func migrate(tx *Tx) error {
	for {
		var have int
		if err := tx.Row(`PRAGMA user_version`).Scan(&have); err != nil {
			return err
		}
		if have > len(migrations) {
			return conch.Errorf(conch.VersionMismatch, "conch.db is of version %d, this conch knows versions up to %d", have, len(migrations)).
				Hint("a newer conch wrote it: use that one")
		}
		if have == len(migrations) {
			return nil
		}
		err := inTx(tx, func() error {
			if err := script(tx, migrations[have]); err != nil {
				return err
			}
			fault.Point("store.migrating")
			_, err := tx.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, have+1))
			return err
		})
		// Statements prepared before know the schema that was.
		tx.forget()
		if err != nil {
			return err
		}
	}
}

// script runs several statements; they are not worth preparing.
func script(tx *Tx, text string) error {
	st, err := tx.prepare(background, text)
	if err != nil {
		return err
	}
	defer st.Close()
	_, err = st.ExecContext(background)
	return err
}
