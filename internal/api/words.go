package api

// wordText says of every field what its type does not: a name, a piece of JSON
// schema where there is one, and a sentence. A test misses what is missing.
const wordText = `
info Every answer carries Conch-Protocol and Conch-Version; a request with another Conch-Protocol is refused. Errors have one form, Error, with a stable code. Unknown parameters and unknown fields are refused.
path.agent {"pattern":"^[a-z0-9][a-z0-9-]{0,31}$"} The agent that owns the session; me is the default one.
path.label {"pattern":"^[A-Za-z0-9_:-]{1,32}$"} The session's label.
path.id {"pattern":"^[a-z2-7]{8}-[1-9][0-9]{0,9}$"} The command's id.
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
HistoryEntry.started_at When it started; null while queued.
HistoryEntry.ended_at When it ended.
HistoryEntry.stdout_bytes What it wrote, late output included.
HistoryEntry.stderr_bytes What it wrote, late output included.
HistoryEntry.position Its place in the queue, from 1.

SessionInfo An open session.
SessionInfo.agent Who owns it.
SessionInfo.label Its label.
SessionInfo.id Its id, with which its commands' ids begin.
SessionInfo.live A command runs in it.
SessionInfo.busy A command runs in it.
SessionInfo.cwd Its shell's directory.
SessionInfo.shell_pid Its shell; 0: not started.
SessionInfo.keeper_pid Its keeper; 0: not running.
SessionInfo.queue Commands that wait.
SessionInfo.started_at When it was made.
SessionInfo.last_active When something last happened in it.
SessionInfo.running The command that runs.
SessionInfo.command What it runs, at most 200 bytes of it.
SessionInfo.tape_bytes What its tape takes on disk.

SessionInfo.processes Background processes that run.

RunBody A command and how to start it.
RunRequest.command {"maxLength":16777216} Shell text.
RunRequest.name {"pattern":"^([A-Za-z0-9_.:-]{1,64})?$"} A handle for people, which no other process that runs in the session has.
RunRequest.cwd A directory instead of the session's.
RunRequest.env {"propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}} Variables on top of the session's.
RunRequest.no_stdin Give it an empty stdin.
RunBody.encoding {"enum":["","utf-8","base64"]} base64 when command, cwd and the values of env are.
ProcessStatus {"enum":["starting","running","exited","killed","failed"]} Where a process stands.
Process A background process.
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
Process.processes Processes of its tree that are there.
Process.stdout_bytes How much it wrote.
Process.stderr_bytes How much it wrote.
Process.cpu_ms Processor time used.
Process.peak_memory_bytes The most memory any one of its processes had; 0: not known.
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
RelayInfo.connected It can be reached.
`
