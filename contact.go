package conch

import "time"

// MaxAttachment is how many bytes one attachment may have, and MaxAttachments how
// many a message.
const (
	MaxAttachment  = 64 << 20
	MaxAttachments = 16
)

// An Authority is how much a contact's word counts. Whoever shows a message says
// it with it; conch itself only heeds it where it would act on its own.
type Authority string

const (
	AuthorityOwn    Authority = "own"    // an agent of this home
	AuthorityInform Authority = "inform" // to be known, not to be followed
	AuthorityAsk    Authority = "ask"    // may ask for answers
	AuthorityAct    Authority = "act"    // may ask for work to be done
)

// CheckAuthority refuses what is no level that a contact can have.
func CheckAuthority(a Authority) error {
	switch a {
	case AuthorityInform, AuthorityAsk, AuthorityAct:
		return nil
	}
	return Errorf(InvalidRequest, "%.40q is not an authority", string(a)).Hint("inform, ask or act")
}

// Above reports whether a counts for more than b.
func (a Authority) Above(b Authority) bool {
	rank := func(a Authority) int {
		switch a {
		case AuthorityAsk:
			return 1
		case AuthorityAct:
			return 2
		case AuthorityOwn:
			return 3
		}
		return 0
	}
	return rank(a) > rank(b)
}

// A ContactState is how an agent stands with another.
type ContactState string

const (
	ContactRequested ContactState = "requested" // we asked, and have no answer
	ContactAsked     ContactState = "asked"     // they asked, and a person has to decide
	ContactAccepted  ContactState = "accepted"
	ContactBlocked   ContactState = "blocked" // nothing of theirs gets in
	ContactRefused   ContactState = "refused" // they do not want ours
)

// A Contact is an agent of another home, as an agent of this one knows it.
type Contact struct {
	Agent     string       `json:"agent"`
	Address   string       `json:"address"`
	Name      string       `json:"name"` // ours for it; empty: none
	State     ContactState `json:"state"`
	Authority Authority    `json:"authority"`
	Verified  bool         `json:"verified"` // a person has compared the safety numbers
	// Held says why its mail is held: its keys have changed, and a person has
	// to decide. Empty: it is not.
	Held    string     `json:"held"`
	Text    string     `json:"text"`    // what it said when it asked
	Pending int        `json:"pending"` // messages to it that wait for it
	Since   time.Time  `json:"since"`
	Heard   *time.Time `json:"heard"` // when something of it last came in; null: never
	// Note is what a person should know of its keys, or this home's: why it is
	// verified no more. Comparing the safety number ends it.
	Note string `json:"note"`
}

// ContactRequest names a contact to do something with. Peer is its address or
// our name for it.
type ContactRequest struct {
	Agent     string    `json:"agent,omitempty"`
	Peer      string    `json:"peer"`
	Name      string    `json:"name,omitempty"`      // add, accept: our name for it
	Text      string    `json:"text,omitempty"`      // add: what it is told
	Authority Authority `json:"authority,omitempty"` // accept, authority
	Confirm   bool      `json:"confirm,omitempty"`   // verify: the numbers were compared
}

// ContactSafety is what two people compare to know that nobody stands between.
type ContactSafety struct {
	Contact Contact `json:"contact"`
	Number  string  `json:"number"`
}

// An Attachment is a file that came with a message.
type Attachment struct {
	N      int    `json:"n"` // 1 for the first
	ID     string `json:"id"`
	Name   string `json:"name"` // as its sender calls it: no path, and not to be trusted
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Here says that its content is in this home. What is not yet is fetched
	// from the relay; Error says why that failed, so far.
	Here  bool   `json:"here"`
	Error string `json:"error"`
}

// A Quarantined message is one that could not be read or must not be taken.
type Quarantined struct {
	N       int64     `json:"n"`
	Agent   string    `json:"agent"` // whose mailbox
	From    string    `json:"from"`  // an address; as the relay says it, where nothing better is known
	ID      string    `json:"id"`    // of the message, where it could be read
	Reason  string    `json:"reason"`
	Attempt int       `json:"attempt"`
	Asked   bool      `json:"asked"` // its sender was asked for it again
	Bytes   int64     `json:"bytes"`
	At      time.Time `json:"at"`
}
