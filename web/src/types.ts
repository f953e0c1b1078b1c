// What the API answers, as far as the page looks at it. Names are those of /openapi.json.

export interface Session {
  agent: string;
  label: string;
  live: boolean;
  busy: boolean;
  cwd: string;
  shell_pid: number;
  keeper_pid: number;
  queue: number;
  started_at: string;
  last_active: string;
  id: string;
  running?: string;
  command?: string;
  last_command?: string;
  last_outcome?: string;
  processes: number;
  attached: number;
  mail: number;
  sandbox: boolean;
}

export interface Command {
  command_id: string;
  session: string;
  command: string;
  status: "queued" | "running" | "done" | "lost";
  exit_code: number | null;
  signal: string | null;
  timed_out: boolean;
  interrupted: boolean;
  restarted: boolean;
  started_at: string | null;
  ended_at: string | null;
  stdout_bytes: number;
  stderr_bytes: number;
  position?: number;
}

export interface Process {
  process_id: string;
  name: string;
  agent: string;
  session: string;
  command: string;
  status: "starting" | "running" | "exited" | "killed" | "failed";
  pid: number;
  exit_code: number | null;
  signal: string | null;
  started_at: string;
  ended_at: string | null;
  cwd: string;
  tty: boolean;
  processes: number;
  stdout_bytes: number;
  stderr_bytes: number;
  cpu_ms: number;
  peak_memory_bytes: number;
  memory_bytes: number;
  error?: string;
}

export interface Change {
  session: Session;
  commands: Command[];
  processes: Process[];
  queue: Command[];
  forgotten: string[];
  missed: boolean;
}

export interface Recipient {
  session: string;
  status: string;
  at: string;
}

export interface Message {
  id: string;
  from: string;
  from_session: string;
  to: string;
  to_session: string;
  text: string;
  in_reply_to: string;
  thread: string;
  status: string;
  sent_at: string;
  reason: string;
  recipients: Recipient[] | null;
  attachments: Attachment[];
}

export interface Attachment {
  n: number;
  id: string;
  name: string;
  size: number;
  here: boolean;
  error: string;
}

export interface MailEvent {
  seq: number;
  type: "mail" | "receipt";
  id: string;
  status: string;
  at: string;
  reason: string;
  from: string;
  from_session: string;
  to: string;
  to_session: string;
  in_reply_to: string;
}

export interface Agent {
  name: string;
  address: string;
  active: boolean;
  error?: string;
}

export interface Status {
  version: string;
  daemon_pid: number;
  home: string;
  uptime_s: number;
}

export interface Access {
  via: string;
  scopes: string[];
  decides: boolean; // what is a person's to decide
}

export interface Contact {
  agent: string;
  address: string;
  name: string;
  state: "requested" | "asked" | "accepted" | "blocked" | "refused";
  authority: string;
  verified: boolean;
  held: string;
  text: string;
  pending: number;
}

export interface Quarantined {
  n: number;
  agent: string;
  from: string;
  reason: string;
  asked: boolean;
  bytes: number;
  at: string;
}
