package conch

import (
	"errors"
	"fmt"
	"net/http"
)

// A Kind is a class of failure. It survives the wire as its string, the stable
// error code, and matches with errors.Is.
type Kind string

func (k Kind) Error() string { return string(k) }

const (
	InvalidLabel     Kind = "invalid_label"
	InvalidAgent     Kind = "invalid_agent"
	InvalidEnv       Kind = "invalid_env"
	InvalidRequest   Kind = "invalid_request"
	InvalidCommand   Kind = "invalid_command"
	TooLarge         Kind = "request_too_large"
	HeaderTooLarge   Kind = "header_too_large"
	RequestTimeout   Kind = "request_timeout"
	RouteNotFound    Kind = "route_not_found"
	MethodNotAllowed Kind = "method_not_allowed"
	UnsupportedMedia Kind = "unsupported_media_type"
	TooManyClients   Kind = "too_many_connections"
	SessionNotFound  Kind = "session_not_found"
	SessionBusy      Kind = "session_busy"
	SessionClosed    Kind = "session_closed"
	LabelTaken       Kind = "label_taken"
	AgentNotFound    Kind = "agent_not_found"
	AgentExists      Kind = "agent_exists"
	AgentLocked      Kind = "agent_locked"
	InvalidKey       Kind = "invalid_key"
	WrongPassphrase  Kind = "wrong_passphrase"
	CommandNotFound  Kind = "command_not_found"
	ProcessNotFound  Kind = "process_not_found"
	ProcessEnded     Kind = "process_ended"
	NoTerminal       Kind = "no_terminal"
	NameTaken        Kind = "name_taken"
	LimitReached     Kind = "limit_reached"
	CommandTimeout   Kind = "command_timeout"
	QueueTimeout     Kind = "queue_timeout"
	QueueFull        Kind = "queue_full"
	StdinClosed      Kind = "stdin_closed"
	OutputGone       Kind = "output_gone"
	StorageFull      Kind = "storage_full"
	HomeUnusable     Kind = "home_unusable"
	AlreadyRunning   Kind = "already_running"
	VersionMismatch  Kind = "version_mismatch"
	NotRunning       Kind = "not_running"
	PermissionDenied Kind = "permission_denied"
	Unsupported      Kind = "unsupported"
	ShellFailed      Kind = "shell_failed"
	Damaged          Kind = "damaged"
	Unresponsive     Kind = "daemon_unresponsive"
	InvalidConfig    Kind = "invalid_config"
	LabelNotFound    Kind = "label_not_found"
	MessageNotFound  Kind = "message_not_found"
	MessageConflict  Kind = "message_conflict"
	MessageRefused   Kind = "message_refused"
	NotAContact      Kind = "not_a_contact"
	ContactNotFound  Kind = "contact_not_found"
	NotHuman         Kind = "human_needed"
	NotOwner         Kind = "not_owner"
	StoreDamaged     Kind = "store_damaged"
	Unauthorized     Kind = "unauthorized"
	TokenNotFound    Kind = "token_not_found"
	RelayUnreachable Kind = "relay_unreachable"
	RelayRefused     Kind = "relay_refused"
	InvalidInvite    Kind = "invalid_invite"
	MailboxNotFound  Kind = "mailbox_not_found"
	MailboxFull      Kind = "mailbox_full"
	QuotaReached     Kind = "quota_reached"
	GenerationStale  Kind = "generation_stale"
	BlobNotFound     Kind = "blob_not_found"
	Internal         Kind = "internal"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{
		InvalidLabel, InvalidAgent, InvalidEnv, InvalidRequest, InvalidCommand, TooLarge, HeaderTooLarge,
		RequestTimeout, RouteNotFound, MethodNotAllowed, UnsupportedMedia, TooManyClients, SessionNotFound,
		SessionBusy, SessionClosed, LabelTaken, AgentNotFound, AgentExists, AgentLocked, InvalidKey,
		WrongPassphrase, CommandNotFound, ProcessNotFound, ProcessEnded, NoTerminal, NameTaken,
		LimitReached, CommandTimeout, QueueTimeout,
		QueueFull, StdinClosed, OutputGone, StorageFull, HomeUnusable, AlreadyRunning, VersionMismatch, Damaged, Unresponsive, InvalidConfig,
		NotRunning, PermissionDenied, Unsupported, ShellFailed, LabelNotFound, MessageNotFound, MessageConflict,
		MessageRefused, NotAContact, ContactNotFound, NotHuman, NotOwner, StoreDamaged, Unauthorized, TokenNotFound, RelayUnreachable, RelayRefused, InvalidInvite, MailboxNotFound,
		MailboxFull, QuotaReached, GenerationStale, BlobNotFound, Internal,
	}
}

// An Error says what happened, what to do about it, and whether the same call
// may succeed later.
type Error struct {
	Kind      Kind
	Message   string
	HintText  string
	Retryable bool
}

// Errorf makes an Error of a kind.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Hint adds what the user can do and returns e.
func (e *Error) Hint(format string, args ...any) *Error {
	e.HintText = fmt.Sprintf(format, args...)
	return e
}

// Retry marks the error as one that may pass and returns e.
func (e *Error) Retry() *Error { e.Retryable = true; return e }

func (e *Error) Error() string { return e.Message }

// Is reports whether target is this error's kind, so that
// errors.Is(err, conch.SessionNotFound) works on both sides of the wire.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// AsError gives err as an *Error; what is not one becomes Internal.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Message: err.Error(), HintText: "this is a fault in conch; conch doctor may say more"}
}

// HTTPStatus is the status code an error kind travels under.
func (k Kind) HTTPStatus() int {
	switch k {
	case InvalidLabel, InvalidAgent, InvalidEnv, InvalidRequest, InvalidCommand, InvalidKey, InvalidInvite, Damaged:
		return http.StatusBadRequest
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case HeaderTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case UnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case SessionNotFound, CommandNotFound, ProcessNotFound, AgentNotFound, RouteNotFound, LabelNotFound, MessageNotFound,
		MailboxNotFound, BlobNotFound, ContactNotFound, TokenNotFound:
		return http.StatusNotFound
	case SessionBusy, LabelTaken, NameTaken, StdinClosed, ProcessEnded, NoTerminal, AlreadyRunning, AgentExists, MessageConflict, NotOwner, GenerationStale:
		return http.StatusConflict
	case SessionClosed, OutputGone:
		return http.StatusGone
	case CommandTimeout, QueueTimeout, RequestTimeout:
		return http.StatusRequestTimeout
	case QueueFull, LimitReached, MailboxFull, QuotaReached:
		return http.StatusTooManyRequests
	case Unauthorized:
		return http.StatusUnauthorized
	case PermissionDenied, AgentLocked, WrongPassphrase, MessageRefused, RelayRefused, NotAContact, NotHuman:
		return http.StatusForbidden
	case VersionMismatch:
		return http.StatusUpgradeRequired
	case StorageFull, StoreDamaged:
		return http.StatusInsufficientStorage
	case NotRunning, Unresponsive, InvalidConfig, TooManyClients, RelayUnreachable:
		return http.StatusServiceUnavailable
	case Unsupported:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// ErrorBody is the JSON form of an error.
type ErrorBody struct {
	Error struct {
		Code      Kind   `json:"code"`
		Message   string `json:"message"`
		Hint      string `json:"hint"`
		Retryable bool   `json:"retryable"`
	} `json:"error"`
}

// Body is e as it is sent.
func (e *Error) Body() ErrorBody {
	var b ErrorBody
	b.Error.Code, b.Error.Message, b.Error.Hint, b.Error.Retryable = e.Kind, e.Message, e.HintText, e.Retryable
	return b
}

// Err is the error a body stands for.
func (b ErrorBody) Err() *Error {
	return &Error{Kind: b.Error.Code, Message: b.Error.Message, HintText: b.Error.Hint, Retryable: b.Error.Retryable}
}
