package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/conchsh/conch"
)

// PutBundle makes a bundle the agent's public one. A serial below the one that
// the directory has is conch.GenerationStale, and changes nothing.
func (a *Agent) PutBundle(ctx context.Context, serial uint64, bundle []byte) error {
	_, err := a.ask(ctx, verbBundle, bundleRequest{serial}, bundle, nil)
	return err
}

// Bundle gives the bundle of an address and takes nothing.
// conch.MailboxNotFound: it has none here.
func (a *Agent) Bundle(ctx context.Context, address string) (serial uint64, bundle []byte, err error) {
	var r claimAnswer
	bundle, err = a.ask(ctx, verbGet, addressRequest{address}, nil, &r)
	return r.Serial, bundle, err
}

// A OneTimeKey is a public key to be handed out once.
type OneTimeKey struct {
	ID   string `json:"id"` // at most 64 bytes
	Data []byte `json:"data"`
}

// PutOneTimeKeys adds keys to the directory and returns how many it has now. An
// id that it has, or has handed out, is not added again. More than
// MaxOneTimeKeys are left out, the last ones first.
func (a *Agent) PutOneTimeKeys(ctx context.Context, keys []OneTimeKey) (count int, err error) {
	return a.changeKeys(ctx, keysRequest{Keys: keys})
}

// DropOneTimeKeys removes all of the agent's one-time keys, as after a
// restored backup. Their ids are not taken again.
func (a *Agent) DropOneTimeKeys(ctx context.Context) error {
	_, err := a.changeKeys(ctx, keysRequest{Drop: true})
	return err
}

// Count says how many one-time keys are left.
func (a *Agent) Count(ctx context.Context) (int, error) {
	return a.changeKeys(ctx, keysRequest{})
}

func (a *Agent) changeKeys(ctx context.Context, r keysRequest) (int, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	var out keysAnswer
	_, err = a.ask(ctx, verbKeys, nil, b, &out)
	return out.Count, err
}

// A Claim is what starting a conversation needs.
type Claim struct {
	Serial uint64
	Bundle []byte
	// Key is nil when none is left, or when this agent has claimed too many in
	// the last hour (Limited): the bundle's fallback serves.
	Key     *OneTimeKey
	Limited bool
}

// Claim gives the bundle of an address and takes one of its one-time keys, which
// nobody gets again. conch.MailboxNotFound: it has no bundle here.
func (a *Agent) Claim(ctx context.Context, address string) (Claim, error) {
	var r claimAnswer
	bundle, err := a.ask(ctx, verbClaim, addressRequest{address}, nil, &r)
	return Claim{Serial: r.Serial, Bundle: bundle, Key: r.Key, Limited: r.Limited}, err
}

// A Mark is how far an agent's store has come, kept at the relay so that one
// that was restored from a backup, or runs twice, is noticed.
type Mark struct {
	// Store is a random name made with the store, at most 64 bytes.
	Store      string `json:"store"`
	Generation uint64 `json:"generation"`
	// Sent is the highest sequence number that was given to a message.
	Sent uint64 `json:"sent"`
}

// Mark moves the agent's mark forward by compare and set, and returns what the
// relay has then. conch.GenerationStale, with the relay's mark: the store's
// generation is below the relay's, or equal with a lower Sent, or equal in
// another store. A generation above the relay's is taken from any store.
func (a *Agent) Mark(ctx context.Context, m Mark) (Mark, error) {
	var r markAnswer
	if _, err := a.ask(ctx, verbMark, m, nil, &r); err != nil {
		return Mark{}, err
	}
	if r.Stale {
		return r.Mark, conch.Errorf(conch.GenerationStale, "the relay has seen a later state of this agent: generation %d, %d sent", r.Generation, r.Sent).
			Hint("this home was restored from a backup, or another daemon has the same key")
	}
	return r.Mark, nil
}

// A Handle is a name that an address took, first come, at one relay.
type Handle struct {
	Name      string
	Address   string
	Statement []byte // opaque; says by signature that the address took it
}

// MaxHandles is how many names an agent may take.
const MaxHandles = 4

// TakeHandle takes a name for the agent. Another's is conch.NameTaken. An agent
// has at most MaxHandles.
func (a *Agent) TakeHandle(ctx context.Context, name string, statement []byte) error {
	_, err := a.ask(ctx, verbHandle, handleRequest{name}, statement, nil)
	return err
}

// FindHandle looks a name up. conch.MailboxNotFound: nobody has it.
func (a *Agent) FindHandle(ctx context.Context, name string) (Handle, error) {
	var r handleAnswer
	statement, err := a.ask(ctx, verbResolve, handleRequest{name}, nil, &r)
	if err != nil {
		return Handle{}, err
	}
	return Handle{name, r.Address, statement}, nil
}

// PutBlob keeps what r holds, at most MaxBlob bytes, under an id of the caller's
// making (32 to 64 letters and digits, not to be guessed: whoever is at this
// relay and knows address and id may fetch it) for BlobAge. The same bytes under
// the same id may be put again, as after a failure; other bytes are
// conch.MessageConflict. A blob is there when PutBlob has returned.
func (a *Agent) PutBlob(ctx context.Context, id string, r io.Reader) (size int64, err error) {
	// One chunk ahead: the last must say that it is.
	read := func() ([]byte, error) {
		b := make([]byte, BlobChunk)
		n, err := io.ReadFull(r, b)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return b[:n], err
	}
	chunk, err := read()
	if err != nil {
		return 0, err
	}
	for n := 0; ; n++ {
		var next []byte
		if len(chunk) == BlobChunk {
			if next, err = read(); err != nil {
				return size, err
			}
		}
		if size += int64(len(chunk)); size > MaxBlob {
			return size, conch.Errorf(conch.TooLarge, "the blob has more than %d MiB", MaxBlob>>20)
		}
		if _, err := a.ask(ctx, verbPut, chunkRequest{ID: id, N: n, Last: len(next) == 0}, chunk, nil); err != nil {
			return size, err
		}
		if len(next) == 0 {
			return size, nil
		}
		chunk = next
	}
}

// Blob writes a blob of an address to w. What was written before an error is
// not whole. conch.BlobNotFound: it is not there, not yet whole, or too old.
func (a *Agent) Blob(ctx context.Context, address, id string, w io.Writer) (size int64, err error) {
	for n := 0; ; n++ {
		var r chunkRequest
		b, err := a.ask(ctx, verbRead, chunkRequest{Owner: address, ID: id, N: n}, nil, &r)
		if err != nil {
			return size, err
		}
		c, err := io.Copy(w, bytes.NewReader(b))
		if size += c; err != nil || r.Last {
			return size, err
		}
	}
}

// DropBlob removes a blob of this agent's own.
func (a *Agent) DropBlob(ctx context.Context, id string) error {
	_, err := a.ask(ctx, verbDrop, chunkRequest{ID: id}, nil, nil)
	return err
}
