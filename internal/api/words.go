package api

// wordText says of every field what its type does not: a name, a piece of JSON
// schema where there is one, and a sentence. A test misses what is missing.
const wordText = `
info Every answer carries Conch-Protocol and Conch-Version; a request with another Conch-Protocol is refused. Errors have one form, Error, with a stable code. Unknown parameters and unknown fields are refused.
path.agent {"pattern":"^[a-z0-9][a-z0-9-]{0,31}$"} The agent that owns the session; me is the default one.
path.label {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} The session's label.
path.id {"pattern":"^[a-z2-7]{8}-[1-9][0-9]{0,9}$"} The command's id.
path.message {"pattern":"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$"} The message's id.
path.token {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} The token's name, or the login's.
path.n {"pattern":"^[1-9][0-9]?$"} The number of the attachment, from 1.
path.name {"pattern":"^[a-z0-9][a-z0-9-]{0,31}$"} The agent's name.

ErrorBody The form of every error.
.code A stable word for the kind of error.
.message What happened.
.hint What to do about it; may be empty.
.retryable The same call may succeed later.
ErrorBody.error The error.
ErrorCode A stable word for a kind of error.
CommandID {"pattern":"^[a-z2-7]{8}-[1-9][0-9]{0,9}$"} Names a command for ever: its session's id, a dash, its number.
Status {"enum":["queued","running","done","lost"]} Where a command stands.

NewRequest What a session starts with.
NewRequest.label {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} The label, which no open session has.
NewRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent that owns it; default me.
NewRequest.cwd An absolute path to start in; default the parent's current directory, or the user's home.
NewRequest.env {"propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}} Variables added to the login environment.
NewRequest.parent {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The label of a session of the same agent to inherit from.
NewRequest.inherit_env Take the parent's environment too.
NewRequest.rc Load the user's rc file.
NewRequest.sandbox Keep what runs in it to its starting directory: the rest of the system is read-only or hidden, and there is no network.
NewRequest.sandbox_allow Absolute paths that a sandboxed session may read besides.
NewRequest.limits Limits of its own, by the names of docs/CONFIG.md, such as tape_limit.

PruneRequest Which closed sessions to remove: all, unless it says less.
PruneRequest.older_than_ms {"minimum":0} Only those that were closed at least so many milliseconds ago.
PruneRequest.keep {"minimum":0} But not the so many that were closed last.

ExecBody A command and how to run it.
ExecRequest.command {"maxLength":16777216} Shell text.
ExecRequest.timeout_ms {"minimum":0} The command is ended after so many milliseconds from its start; 0: never.
ExecRequest.queue_timeout_ms {"minimum":0} It is given up after so many milliseconds of waiting for its turn; 0: never.
ExecRequest.cwd A directory for this command only.
ExecRequest.env {"propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}} Variables for this command only.
ExecRequest.stdin Its whole input.
ExecRequest.open_stdin Leave its input open, for the stdin call.
ExecRequest.merge Send stderr into stdout, in exact order.
ExecRequest.max_output {"minimum":0,"maximum":67108864} Bytes of each stream in the result, first and last half; 0: 1 MiB.
ExecBody.encoding {"enum":["","utf-8","base64"]} base64 when command, cwd and the values of env are.

Result What was observed of a command.
Result.session The session's label.
Result.command_id The command's id.
Result.exit_code The status it ended with; null where nobody saw one.
Result.signal The signal that ended the shell, by name, where conch saw it.
Result.stdout What it wrote, less what stdout_omitted says.
Result.stderr What it wrote, less what stderr_omitted says.
Result.encoding {"enum":["utf-8","base64"]} How both streams are written here.
Result.stdout_bytes How much it wrote.
Result.stderr_bytes How much it wrote.
Result.truncated A stream is not whole here; the output call has it.
Result.timed_out It was ended for its timeout.
Result.interrupted It was ended by an interrupt.
Result.stdout_omitted Which bytes are left out.
Result.stderr_omitted Which bytes are left out.
Result.background Processes of it that go on.
Result.shell What became of the shell.
Result.cwd The shell's directory afterwards.
Result.duration_ms From start to end.
Result.started_at When it started.
Result.ended What it took to end it, where it was ended.
Omitted Bytes of a stream that a result leaves out.
Omitted.offset Where they begin.
Omitted.bytes How many.
ShellReport What became of the shell during a command.
ShellReport.restarted It was replaced by a new one.
ShellReport.restored What the new one has of the old.
ShellReport.lost What it has not.
Ended How a command was ended.
Ended.signal The last signal that was needed.
Ended.processes How many processes there were.
Ended.verified All were seen gone.

Event The data of an event named start, stdout or stderr. That of exit is a Result less its streams, with type, seq and t; that of error is an ErrorBody.
Event.type {"enum":["start","stdout","stderr"]} The event's name.
Event.seq Its number on the tape, and the event's id.
Event.t Seconds since the command's start.
Event.data Output, as encoding says.
Event.encoding {"enum":["utf-8","base64"]} How data is written.
Event.session The session's label.
Event.command_id The command's id: in a start, and in all events of a whole session.
Event.command The command's text: in a start of a whole session.

HistoryEntry One command of a session.
HistoryEntry.command_id Its id.
HistoryEntry.session The session's label.
HistoryEntry.command Its text.
HistoryEntry.status Where it stands.
HistoryEntry.exit_code The status it ended with; null where there is none.
HistoryEntry.signal The signal that ended the shell, where conch saw it.
HistoryEntry.timed_out It was ended for its timeout.
HistoryEntry.interrupted It was ended by an interrupt.
HistoryEntry.restarted The shell was replaced in the end.
HistoryEntry.started_at When it started; null while queued.
HistoryEntry.ended_at When it ended.
HistoryEntry.stdout_bytes What it wrote, late output included.
HistoryEntry.stderr_bytes What it wrote, late output included.
HistoryEntry.position Its place in the queue, from 1.

SessionInfo An open session.
SessionInfo.agent Who owns it.
SessionInfo.label Its label.
SessionInfo.id Its id, with which its commands' ids begin.
SessionInfo.live A client holds it, or a command runs in it.
SessionInfo.mail Messages in its inbox that nobody is done with.
SessionInfo.busy A command runs in it.
SessionInfo.cwd Its shell's directory.
SessionInfo.shell_pid Its shell; 0: not started.
SessionInfo.keeper_pid Its keeper; 0: not running.
SessionInfo.queue Commands that wait.
SessionInfo.started_at When it was made.
SessionInfo.last_active When something last happened in it.
SessionInfo.last_command What was run last and has ended, the first 200 bytes of it.
SessionInfo.last_outcome {"enum":["","done","failed","timed_out","interrupted","lost"]} How that ended; done is with status 0.
SessionInfo.running The command that runs.
SessionInfo.command What it runs, at most 200 bytes of it.
SessionInfo.tape_bytes What its tape takes on disk.

SessionInfo.processes Background processes that run.
SessionInfo.attached People at its prompt.
SessionInfo.sandbox Its processes are sandboxed.
TerminalSize The size of a terminal, in characters.
TerminalSize.cols {"minimum":2,"maximum":1000} Columns.
TerminalSize.rows {"minimum":1,"maximum":300} Rows.
Screen What a program on a terminal shows.
Screen.process_id The process; left out for a session's own terminal.
Screen.status Where the process stands; left out for a session's own terminal.
Screen.text A line a row, without blanks at the ends of lines and empty lines at the end.
Screen.cols Columns.
Screen.rows Rows.
Screen.cursor Where the cursor is.
Screen.alternate A full-screen program's own screen is shown.
Screen.title The window title the program has set.
Screen.changed_at When the program last wrote something.
Screen.partial The beginning of the output could not be taken into account.
Screen.reason {"enum":["","stable","contains","ended","timeout"]} What a wait ended by.
ScreenCursor A place on a screen; rows and columns count from 0.
ScreenCursor.row Its row.
ScreenCursor.col Its column.
ScreenCursor.visible Whether it is shown.
KeysRequest What to type: text, then keys.
KeysRequest.text Typed as it is.
KeysRequest.keys Typed with names of keys in angle brackets (<Enter>, <C-c>, <Up>, <lt>); a newline is Enter.
KeysTyped What was typed.
KeysTyped.bytes Bytes that went to the program.

RunBody A command and how to start it.
RunRequest.command {"maxLength":16777216} Shell text.
RunRequest.name {"pattern":"^([A-Za-z0-9_.:-]{1,64})?$"} A handle for people, which no other process that runs in the session has.
RunRequest.cwd A directory instead of the session's.
RunRequest.env {"propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}} Variables on top of the session's.
RunRequest.no_stdin Give it an empty stdin.
RunRequest.tty Run it on a terminal of its own.
RunRequest.cols {"minimum":0,"maximum":1000} With tty, the terminal's columns; 0: 80.
RunRequest.rows {"minimum":0,"maximum":300} With tty, the terminal's rows; 0: 24.
RunRequest.notify Where a message is put when it ends: a label, agent/label, or an agent.
RunRequest.notify_log With notify, a regular expression (RE2): a message too when its output first matches.
RunBody.encoding {"enum":["","utf-8","base64"]} base64 when command, cwd and the values of env are.
ProcessStatus {"enum":["starting","running","exited","killed","failed"]} Where a process stands.
Process A background process.
Process.error What could not be kept of it, such as output on a full disk.
Process.notify Who is told of its end.
Process.notify_log What else they are told of: output that matches.
Process.process_id Its id, which is also a command's.
Process.name Its name; may be empty.
Process.agent Who owns its session.
Process.session The session's label.
Process.command Its text.
Process.status Where it stands.
Process.pid Its first process.
Process.exit_code The status it ended with; null where there is none.
Process.signal The signal that ended it.
Process.started_at When it started.
Process.ended_at When it ended.
Process.cwd Where it started.
Process.tty It has a terminal of its own.
Process.processes Processes of its tree that are there.
Process.stdout_bytes How much it wrote.
Process.stderr_bytes How much it wrote.
Process.cpu_ms Processor time used.
Process.peak_memory_bytes The most memory any one of its processes had; 0: not known.
Process.memory_bytes What all of its processes have in memory now; 0 when it has ended.
WaitRequest What to wait for: the first of it, or with none the end.
WaitRequest.exit Its end.
WaitRequest.log A regular expression (RE2), looked for in all that was written and then in what comes.
WaitRequest.stream {"enum":["","stdout","stderr"]} Where to look; default both.
WaitRequest.port {"minimum":0,"maximum":65535} A TCP port on this machine.
WaitRequest.http An address to GET.
WaitRequest.http_status {"minimum":0,"maximum":599} What it must answer; 0: anything below 400.
WaitRequest.idle_ms {"minimum":0} How long it writes nothing.
WaitRequest.timeout_ms {"minimum":0} When to give up; 0: never.
WaitResult What happened.
WaitResult.reason {"enum":["exit","log","port","http","idle","ended","timeout"]} Which of the things.
WaitResult.match Where the expression was found.
WaitResult.detail In words, what was last seen.
WaitResult.elapsed_ms How long it took.
WaitResult.process The process, as of then.
Match Where an expression was found.
Match.stream In which stream.
Match.offset Where in that stream.
Match.text What matched.
Match.line The line it begins in.
Match.cursor Of the output that completed it.
LogPage A piece of a process's output.
LogPage.process_id The process.
LogPage.status Where it stands.
LogPage.stdout What it wrote there.
LogPage.stderr What it wrote there.
LogPage.encoding {"enum":["utf-8","base64"]} How both streams are written here.
LogPage.error What of it could not be kept.
LogPage.cursor What to give as since to go on.
LogPage.more There is more now.
SignalRequest What to send.
SignalRequest.signal A name or number; without one they are ended, by TERM first.
Killed What ending or signalling a process took.
Killed.process The process afterwards.
Forgotten What was taken off the list.
Forgotten.processes How many ended processes.
Pruned.processes Ended processes that are not listed any more.

Scope {"enum":["global","project","session","named","default"]} What an agent can be assigned to; named and default only say what decided.
Assignment A place an agent works in.
Assignment.scope What kind of place: global, project or session.
Assignment.key The directory of a project, or the harness's id of a session.
AgentInfo An agent.
AgentInfo.name Its name.
AgentInfo.address Its address, the base58 of its public key.
AgentInfo.active The caller works as it when it names none.
AgentInfo.protected Its key is sealed with a passphrase.
AgentInfo.locked And the daemon has not been told it.
AgentInfo.created_at When it was made.
AgentInfo.assigned Where it works.
AgentInfo.error Why its key cannot be used.
WhoAmI Who and where a caller is.
WhoAmI.agent The agent it works as.
WhoAmI.address That agent's address.
WhoAmI.label The session's label.
WhoAmI.sessions The agent's open sessions.
WhoAmI.daemon The daemon that answers.
WhoAmI.relay The relay for messages.
WhoAmI.chosen_by What decided that it is this agent.
DaemonInfo The daemon that answers.
DaemonInfo.pid Its process.
DaemonInfo.mode {"enum":["auto","up"]} auto: it leaves when it is not needed.
NewAgentRequest What an agent is made of.
NewAgentRequest.name {"pattern":"^[a-z0-9][a-z0-9-]{0,31}$"} Its name.
NewAgentRequest.passphrase What its key is sealed with.
NewAgentRequest.replace Make it although the name has sessions or mail, its key being lost.
ImportAgentRequest A key to keep.
ImportAgentRequest.name {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} Another name for it.
ImportAgentRequest.key The key file that an export gave.
PassphraseRequest A passphrase.
PassphraseRequest.passphrase The passphrase.
Unassigned Whether something was taken back.
Unassigned.removed There was such an assignment.

InterruptRequest What to end.
InterruptRequest.command_id A command, running or queued; without it whatever runs.
Interrupted What an interrupt did.
Interrupted.interrupted False: nothing was running.
Interrupted.command_id What was ended.
Interrupted.ended How it was ended.
Gone What was ended with a session or its shell.
Gone.ok It was done.
Gone.processes How many processes there were.
Gone.verified All were seen gone.
StdinOffset How far a command's input has come.
StdinOffset.offset Bytes taken so far.
Environment A shell's environment.
Environment.env The exported variables.
Pruned What was removed.
Pruned.removed Sessions.
Pruned.bytes What they took on disk.
Imported The session that holds an imported log.
Imported.agent Who owns it.
Imported.label Its label.
Imported.stdout_bytes What the log has of stdout.
Imported.stderr_bytes What the log has of stderr.
Imported.unlabelled_bytes What lines without a label have: kept, and in neither stream.
VersionInfo Which conch this is.
VersionInfo.version Its version.
VersionInfo.protocol What it speaks.
Checkup What the doctor found.
Checkup.checks One entry for each thing it looked at.
Check One thing the doctor looked at.
Check.name What it is.
Check.ok It is as it should be.
Check.detail What was found.
Check.hint What to do where it is not.
ShutdownRequest How to leave.
ShutdownRequest.all Close all sessions first.
StatusInfo How the daemon is.
StatusInfo.version Its version.
StatusInfo.daemon_pid Its process.
StatusInfo.home Its state directory.
StatusInfo.uptime_s How long it has run.
StatusInfo.sessions How many sessions are open.
StatusInfo.processes How many background processes run.
StatusInfo.relay The relay for messages.
StatusInfo.ui_url Where the web page is; null: nowhere.
RelayInfo The relay for messages.
RelayInfo.mode Which kind.
RelayInfo.url Where it is.
RelayInfo.connected It runs, or is connected to.
RelayStatus The relay: which it is, and who is there.
RelayStatus.running The home's own relay is started; it starts when it is needed.
RelayStatus.listen Where it takes connections of other machines; null: nowhere.
RelayStatus.fingerprint What the relay is known by: the SHA-256 of its certificate; null: none is known.
RelayStatus.error Why it is not connected, or cannot listen; null: nothing is wrong.
RelayStatus.replicas How many copies of a mailbox there are.
RelayStatus.mailboxes How many mailboxes the home's own relay has.
RelayStatus.messages How many messages are in them.
RelayStatus.bytes How much is on its disk.
RelayStatus.homes The homes that were let in.
RelayStatus.agents This home's agents that are connected, or try to be.
RelayHome A home that an invitation let in.
RelayHome.id What it is called here.
RelayHome.joined_at When it came.
RelayHome.agents The addresses of its agents.
RelayAgent An agent of this home at the relay.
RelayAgent.address Its address.
RelayAgent.connected It is connected.
RelayAgent.error Why it is not; null: nothing is wrong.
RelayListenRequest Where to listen.
RelayListenRequest.address An address of this machine, HOST:PORT, port 0 for any; empty: nowhere any more.
RelayInviteRequest What the invitation is to say.
RelayInviteRequest.expires_s {"minimum":0,"maximum":2592000} How many seconds it is good; 0: an hour.
RelayInviteRequest.addresses What the other home is to dial; none: where the relay listens.
RelayInvite An invitation.
RelayInvite.invite The text, a secret: it lets one home in.
RelayInvite.addresses What the other home will dial.
RelayInvite.expires_at Until when it is good.
RelayJoinRequest Which relay to use.
RelayJoinRequest.invite An invitation; or the addresses of NATS servers, nats:// or tls://, with commas between.
RelayJoinRequest.creds What is in the credentials file of a cluster.
RelayRemoveRequest Whom to shut out.
RelayRemoveRequest.id The home, as the status calls it.

ResponderRequest Whether an agent's auto-responder is on.
ResponderRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
ResponderRequest.on Whether it is to answer mail.
ResponderStatus An agent's auto-responder.
ResponderStatus.agent The agent.
ResponderStatus.on It answers mail.
ResponderStatus.since Since when; mail that came before is not answered.
ResponderStatus.command What it runs; empty: nothing is configured.
ResponderStatus.mail Which mail it is for: unclaimed or all.
ResponderStatus.after_s How many seconds mail is left to a session.
ResponderStatus.sandbox What its runs are kept in, or why they are not.
ResponderStatus.not_ready Why it would not run; empty: it would.
ResponderStatus.pool How many runs there may be at once.
ResponderStatus.running How many there are now, for all agents.
ResponderStatus.waiting Messages that are its to answer, now or when their time comes.
ResponderStatus.budget What it may do in any 24 hours.
ResponderStatus.totals What it did, as far as it is remembered.
ResponderStatus.runs The last runs, newest first.
ResponderBudget What the responder may do in any 24 hours.
ResponderBudget.per_day Runs for all; 0: no limit.
ResponderBudget.per_peer Runs for one agent that writes; 0: no limit.
ResponderBudget.used Runs of the last 24 hours.
ResponderBudget.over Messages that wait because of it.
ResponderTotals What the responder did.
ResponderTotals.runs How often its command was run.
ResponderTotals.answered Of those, how many were answers.
ResponderTotals.failed And how many failed or were lost.
ResponderTotals.refused How often it was not run, by a rule.
ResponderTotals.seconds How long it ran.
ResponderTotals.bytes_in Text that it was given.
ResponderTotals.bytes_out What it wrote.
ResponderRun A run of the command, or messages for which it was not run.
ResponderRun.run Its number.
ResponderRun.status How it stands.
ResponderRun.reason Why it failed, was lost or refused.
ResponderRun.from Who wrote.
ResponderRun.to Whose mail it is.
ResponderRun.messages The messages it was for, unless a later run was for them too.
ResponderRun.session Where it ran.
ResponderRun.command_id Its command, whose output is kept until pruned.
ResponderRun.exit_code Its exit status; null: none was seen.
ResponderRun.started_at When it began.
ResponderRun.ended_at When it ended.
ResponderRun.seconds How long it took.
ResponderRun.bytes_in Text that it was given.
ResponderRun.bytes_out What it wrote.
RunStatus {"enum":["running","answered","failed","refused","lost"]} How a run stands.

SendRequest A message to send.
SendRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
SendRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session that acts; default main.
SendRequest.to Whom to: a label, agent/label, an agent, a contact's name or an address, these two with or without a label.
SendRequest.text {"minLength":1,"maxLength":1048576} The text, at most 1 MiB.
SendRequest.id {"pattern":"^([A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"} Sending again under it is the same message; default a new one.
SendRequest.in_reply_to {"pattern":"^([A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"} The id of the message that this answers.
SendRequest.role {"enum":["","user","agent"]} Who speaks; default agent.
SendRequest.expires_ms {"minimum":0,"maximum":3153600000000} Given up when nobody fetched it in so many milliseconds; 0: never.
SendRequest.policy To an agent: who gets it; default what the agent says.
SendRequest.auto A program wrote it on its own.
SendRequest.hops {"minimum":0,"maximum":1000} How many auto-responders stand between a person and this message.
SendRequest.chain {"maxItems":64} The agents of those responders.
SendRequest.attachments {"maxItems":16} Ids of files that were uploaded for it.
Policy {"enum":["","primary","broadcast","drop"]} Who gets mail to an agent that names no session: its primary, every live session, or nobody.
AskRequest A message to send, and how long to wait for its answer.
AskRequest.timeout_ms {"minimum":0} How many milliseconds to wait; 0: for ever.
AskRequest.token {"maxLength":100} Names this request: sent again under it, it gets the answer that it got, although that is leased.
ReplyRequest An answer.
ReplyRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
ReplyRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session that acts; default main.
ReplyRequest.text {"minLength":1,"maxLength":1048576} The text, at most 1 MiB.
ReplyRequest.id {"pattern":"^([A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"} Sending again under it is the same message; default a new one.
ReplyRequest.role {"enum":["","user","agent"]} Who speaks; default agent.
ReplyRequest.expires_ms {"minimum":0,"maximum":3153600000000} Given up when nobody fetched it in so many milliseconds; 0: never.
ReplyRequest.auto A program wrote it on its own.
InboxRequest Whose messages, and how many.
InboxRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
InboxRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session that acts; default main.
InboxRequest.peek Show all, leased ones too, and lease nothing.
InboxRequest.limit At most so many; 0: as many as one answer holds.
InboxRequest.after {"minimum":0} With peek: go on after the page whose next this is.
InboxPage What one answer holds of an inbox: 1000 messages or 16 MiB of text.
InboxPage.messages The messages, oldest first.
InboxPage.more There are more.
InboxPage.next Where peek goes on; 0: nothing was shown.
AckRequest Messages that are done with.
AckRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
AckRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session that acts; default main.
AckRequest.ids Their ids; all of them or, with an error, none.
Acked The messages are done with.
Acked.ok It is so.
AwaitRequest Which message to wait for.
AwaitRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
AwaitRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session that acts; default main.
AwaitRequest.from Only from this agent or session, written as for send.
AwaitRequest.in_reply_to {"pattern":"^([A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"} Only replies to this message.
AwaitRequest.timeout_ms {"minimum":0} How many milliseconds to wait; 0: for ever.
AwaitRequest.token {"maxLength":100} Names this request: sent again under it, it gets the message that it got, although that is leased.
PolicyInfo What an agent does with mail that names no session.
PolicyInfo.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
PolicyInfo.policy Who gets it.
PriorityRequest A session and its priority.
PriorityRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
PriorityRequest.session {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The session; default main.
PriorityRequest.priority The highest that is live is the primary; 0 is the default.
BusyRequest A presence, and whether its client is at work.
BusyRequest.agent The agent.
BusyRequest.label The label.
BusyRequest.holder The number that the presence was given.
BusyRequest.busy It is at work.
SentMessage A message that was accepted.
SentMessage.id Its id.
SentMessage.to The agent it is for.
SentMessage.to_session The session it is for; null when it is not for one.
SentMessage.from_session The session that sent it.
SentMessage.via {"enum":["local","relay"]} How it goes.
SentMessage.status Where it stands.
Receipt {"enum":["queued","sent","held","stored","offered","seen","done","refused","expired","failed"]} Where a message stands.
InboxEntry A message as its reader gets it.
InboxEntry.id Its id.
InboxEntry.from The agent that sent it.
InboxEntry.from_session The session that sent it.
InboxEntry.to_session The session whose inbox this is.
InboxEntry.role Who speaks: user or agent.
InboxEntry.text The text.
InboxEntry.in_reply_to The message that it answers; null: none.
InboxEntry.auto A program wrote it on its own.
InboxEntry.repeat It was fetched before.
InboxEntry.sent_at When it was sent.
InboxEntry.received_at When it came into this inbox.
InboxEntry.leased_until In what peek shows: it is leased until then.
InboxEntry.thread The id of the first message of the chain of replies.
InboxEntry.contact Our name for a sender of another home, whose address from is; empty: none.
InboxEntry.verified It is of an agent of this home, or of a contact whose keys were compared.
InboxEntry.authority What the sender's word counts for.
InboxEntry.attachments The files that came with it.
Authority {"enum":["","own","inform","ask","act"]} What an agent's word counts for: own for one of this home; of a contact it is only to be known, may ask for answers, or may ask for work.
Attachment A file that goes with a message.
Attachment.n Its number, from 1.
Attachment.id Names it.
Attachment.name What its sender calls it.
Attachment.size Its bytes.
Attachment.sha256 The hash of its content.
Attachment.here Its content is in this home.
Attachment.error Why it could not be fetched, so far.
Contact An agent of another home, as an agent of this one knows it.
Contact.agent The agent of this home.
Contact.address The other's address.
Contact.name Our name for it; empty: none.
Contact.state How they stand.
ContactState {"enum":["requested","asked","accepted","blocked","refused"]} requested: we asked; asked: they did, and a person has to decide; blocked: by us; refused: by them.
Contact.authority What its word counts for.
Contact.verified A person has compared the safety numbers.
Contact.held Why its mail is held until a person accepts its keys; empty: it is not.
Contact.text What it said when it asked.
Contact.pending Messages to it that have not been reported on.
Contact.since Since when it is so.
Contact.heard When something of it last came in; null: never.
Contact.note What a person should know of its keys or this home's; comparing the safety number ends it.
ContactRequest Which contact, and what to do with it.
ContactRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
ContactRequest.peer The contact's address, or our name for it.
ContactRequest.name {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} Add: our name for it.
ContactRequest.text {"maxLength":500} Add: what it is told.
ContactRequest.authority Accept and authority: what its word is to count for.
ContactRequest.confirm Verify: a person has compared the number.
ContactSafety A number for two people to compare.
ContactSafety.contact The contact.
ContactSafety.number 60 digits, the same on both sides.
Quarantined A letter that could not be opened or taken.
Quarantined.n Its number.
Quarantined.agent Whose mailbox it was in.
Quarantined.from Who it says it is from, or who the relay says.
Quarantined.id The message's id; empty: it could not be read.
Quarantined.reason What was wrong with it.
Quarantined.attempt How often it had been sealed again.
Quarantined.asked Its sender was asked for it again.
Quarantined.bytes Its length.
Quarantined.at When it came.
Asked A question and its answer.
Asked.sent The question.
Asked.reply The answer; null: none in time, or none will come.
Asked.timed_out The time was up.
AskedMessage The question.
AskedMessage.id Its id.
AskedMessage.to The agent that was asked.
AskedMessage.to_session The session that was asked; null: not known yet.
AskedMessage.status Where it stands. Refused, expired or failed: nobody will answer.
AskedMessage.reason Why, or how far its recipients are; else empty.
Receipts All that became of a message.
Receipts.id Its id.
Receipts.status Where it stands; of several recipients the one that is least far counts.
Receipts.reason Why it came to nothing, or how far its recipients are if not all are equally far; else empty.
Receipts.recipients The sessions that have it in their inbox.
Recipient A session that has a message in its inbox.
Recipient.session The session, agent/label.
Recipient.status How far the message is there.
Recipient.at Since when.
Receipts.history Every step, oldest first.
ReceiptEntry One step of a message.
ReceiptEntry.status What happened.
ReceiptEntry.at When.
ReceiptEntry.reason Why, where there is something to say.
ReceiptEntry.session The recipient it is about, agent/label; empty: the message.
FoundMessage A message that was sent or received.
FoundMessage.id Its id.
FoundMessage.attachments The files that came with it.
FoundMessage.from The agent that sent it.
FoundMessage.from_session The session that sent it.
FoundMessage.to The agent it is for.
FoundMessage.to_session The session it was sent to; empty: the agent.
FoundMessage.text The text.
FoundMessage.in_reply_to The message that it answers; empty: none.
FoundMessage.thread The id of the first message of the chain.
FoundMessage.status Where it stands; of several recipients the one that is least far counts.
FoundMessage.reason Why it came to nothing, or how far its recipients are; else empty.
FoundMessage.recipients The sessions that have it in their inbox.
FoundMessage.sent_at When it was sent.
HookRequest A harness's hook.
HookRequest.event {"enum":["start","prompt","stop","end"]} Its session begins, its user has written a prompt, its model wants to stop, its session ends.
HookRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
HookRequest.label {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The label wanted, where the session has none yet.
HookRequest.harness {"pattern":"^[A-Za-z0-9_-]{0,20}$"} What the harness is; labels are made of it.
HookRequest.harness_session {"minLength":1,"maxLength":200} The harness's own name for its session.
HookRequest.harness_pid {"minimum":0} The harness's process.
HookAnswer A harness's session, and what waits for it.
HookAnswer.agent The session's agent; empty: it has no session.
HookAnswer.label The session's label.
HookAnswer.live Somebody holds the session.
HookAnswer.waiting How many messages a fetch would give, up to 100.
HookAnswer.new How many of them no hook of this kind had told of before.
HookAnswer.messages The first few of those.
PresenceRequest Who is there, and as which session.
PresenceRequest.agent {"pattern":"^([a-z0-9][a-z0-9-]{0,31})?$"} The agent; default the one that works everywhere.
PresenceRequest.label {"pattern":"^([A-Za-z0-9_:-]{1,32})?$"} The label wanted, or joined.
PresenceRequest.claim Take a label that no live session has; else join the session of the label, which must exist.
PresenceRequest.only That label or none: label_taken if it cannot be had.
PresenceRequest.harness {"pattern":"^[A-Za-z0-9_-]{0,20}$"} What the client is; labels are made of it.
PresenceRequest.harness_session {"maxLength":200} The client's own name for its conversation, by which a label is found again.
PresenceRequest.harness_pid {"minimum":0} The harness's process, by which its hooks find this session.
PresenceRequest.pid {"minimum":0} The process that holds it; 0: the connection alone counts.
PresenceRequest.start The start time of the process, as the system counts it.
PresenceRequest.boot The run of the machine that the process belongs to.
PresenceRequest.priority Which live session is the primary; null leaves it as it is.
PresenceRequest.cwd Where the client works.
PresenceRequest.busy It is at work.

TokenInfo A token, or a browser's login to the page, without its secret.
TokenInfo.kind {"enum":["token","page"]} Which of the two.
TokenInfo.name {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} Its name.
TokenInfo.scopes {"items":{"enum":["read","exec","mail","admin"]}} What it may do; exec includes read, admin everything.
TokenInfo.created_at When it was made.
TokenInfo.expires_at Until when it is good; null: until it is revoked.
TokenInfo.decides It may decide what is a person's to decide: its scope is admin, and a person made it.
NewTokenRequest A token to be made.
NewTokenRequest.name {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} A name that no token has.
NewTokenRequest.scopes {"minItems":1,"items":{"enum":["read","exec","mail","admin"]}} What it may do.
NewTokenRequest.expires_ms {"minimum":0,"maximum":3153600000000} How long it is good for; 0: until it is revoked.
NewTokenRequest.no_person No person asks, so it is not to decide what is a person's to decide. The daemon looks for itself as well.
NewToken A token with its secret.
NewToken.token The secret, for the header Authorization. It is shown here and never again.
Revoked What became of a token.
Revoked.revoked It is no longer good.
ListenRequest Where to serve the network.
ListenRequest.address HOST:PORT, or :PORT for all addresses; port 0 is any that is free.
ListenInfo Where the network is served.
ListenInfo.address What is listened at.
ListenInfo.url The address for clients.
ListenInfo.certificate The certificate's file.
ListenInfo.fingerprint SHA-256 of the certificate, by which a client knows it.
StatusInfo.listen Where the network is served; null: nowhere.
PageRequest A way to the web page.
PageRequest.read_only It lets a browser look and not touch.
PageRequest.port {"minimum":0,"maximum":65535} The port on 127.0.0.1; 0: as configured, or the one it had, or any.
PageRequest.file Make a file as well that leads a browser to the address.
PageRequest.no_person No person asks, so the login is not to decide what is a person's to decide. The daemon looks for itself as well.
PageLink An address that lets one browser in, once.
PageLink.url The address, with its secret in the fragment.
PageLink.file The file that leads there, if it was asked for; it is gone with the secret.
PageLink.expires_at Until when it lets somebody in.
PageLink.decides Who comes by it may decide what is a person's to decide.
LoggedOut What became of the browsers' logins.
LoggedOut.logged_out How many there were.
AccessInfo What a caller may do.
AccessInfo.via {"enum":["socket","token","page"]} How the request came.
AccessInfo.name The token's name, or the login's; empty on the socket.
AccessInfo.scopes {"items":{"enum":["read","exec","mail","admin"]}} What it may do; exec includes read, admin everything.
AccessInfo.expires_at Until when; null: without end.
AccessInfo.decides It may decide what is a person's to decide.

TerminalEvent A text message to who is at a terminal's WebSocket.
TerminalEvent.type {"enum":["hello","redraw","size","role","exit","left","error"]} What it says: hello is the first; after redraw, forget what is shown, the next bytes draw the screen; left: one was sent away from the prompt, or the session ended; error: what was sent last was not done.
TerminalEvent.role {"enum":["viewer","typist"]} One's own (hello, role).
TerminalEvent.cols The terminal's columns (hello, size).
TerminalEvent.rows The terminal's rows (hello, size).
TerminalEvent.exit_code How the process ended (exit).
TerminalEvent.signal The signal that ended it (exit).
TerminalEvent.code The kind of error.
TerminalEvent.message What is wrong.
TerminalEvent.hint What to do about it.
TerminalCommand A text message from who is at a terminal's WebSocket.
TerminalCommand.type {"enum":["resize","role"]} What is wanted.
TerminalCommand.cols {"minimum":0,"maximum":1000} The new columns (resize), 2 to 1000.
TerminalCommand.rows {"minimum":0,"maximum":300} The new rows (resize), 1 to 300.
TerminalCommand.role {"enum":["viewer","typist"]} The role to take (role).
`
