package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/conchsh/conch"
)

// Contacts lists the contacts of a session's agent in other homes, those who wait for an
// answer first.
func (c *Client) Contacts(ctx context.Context, session string) ([]conch.Contact, error) {
	agent, _, err := c.Resolve(session)
	if err != nil {
		return nil, err
	}
	var list []conch.Contact
	err = c.json(ctx, call{method: http.MethodGet, url: daemonURL("/contacts", url.Values{"agent": {agent}})}, &list)
	return list, err
}

// AddContact asks an agent to be a contact: r.Peer is its address, r.Name ours for
// it, r.Text what it is told.
func (c *Client) AddContact(ctx context.Context, session string, r conch.ContactRequest) (*conch.Contact, error) {
	return c.contact(ctx, session, "add", r)
}

// AcceptContact lets a contact in: one that asked, one that was blocked, or one
// whose keys changed. The daemon takes it from a process at a terminal only.
func (c *Client) AcceptContact(ctx context.Context, session string, r conch.ContactRequest) (*conch.Contact, error) {
	return c.contact(ctx, session, "accept", r)
}

// BlockContact keeps an agent out, and tells it.
func (c *Client) BlockContact(ctx context.Context, session, peer string) (*conch.Contact, error) {
	return c.contact(ctx, session, "block", conch.ContactRequest{Peer: peer})
}

// ResetContact begins new ratchets with a contact.
func (c *Client) ResetContact(ctx context.Context, session, peer string) (*conch.Contact, error) {
	return c.contact(ctx, session, "reset", conch.ContactRequest{Peer: peer})
}

// SetAuthority says what a contact's word counts for. To raise it the daemon
// wants a process at a terminal.
func (c *Client) SetAuthority(ctx context.Context, session, peer string, a conch.Authority) (*conch.Contact, error) {
	return c.contact(ctx, session, "authority", conch.ContactRequest{Peer: peer, Authority: a})
}

func (c *Client) contact(ctx context.Context, session, verb string, r conch.ContactRequest) (*conch.Contact, error) {
	var out conch.Contact
	if err := c.onContact(ctx, session, verb, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// VerifyContact gives the safety number of the agent and a contact. confirm notes
// that a person compared it, for which the daemon wants a process at a terminal.
func (c *Client) VerifyContact(ctx context.Context, session, peer string, confirm bool) (*conch.ContactSafety, error) {
	var out conch.ContactSafety
	if err := c.onContact(ctx, session, "verify", conch.ContactRequest{Peer: peer, Confirm: confirm}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (c *Client) onContact(ctx context.Context, session, verb string, r conch.ContactRequest, v any) (err error) {
	if r.Agent, _, err = c.Resolve(session); err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodPost, url: daemonURL("/contacts/"+verb, nil), body: r}, v)
}

// Quarantine lists letters that could not be opened or taken, newest first.
func (c *Client) Quarantine(ctx context.Context) ([]conch.Quarantined, error) {
	agent, _, err := c.Resolve("")
	if err != nil {
		return nil, err
	}
	var list []conch.Quarantined
	err = c.json(ctx, call{method: http.MethodGet, url: daemonURL("/mail/quarantine", url.Values{"agent": {agent}})}, &list)
	return list, err
}

// ClearQuarantine throws them away.
func (c *Client) ClearQuarantine(ctx context.Context) error {
	agent, _, err := c.Resolve("")
	if err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodPost, url: daemonURL("/mail/quarantine/clear", nil), body: conch.ContactRequest{Agent: agent}}, nil)
}

// Upload keeps a file for a message: its id goes into SendRequest.Attachments.
func (c *Client) Upload(ctx context.Context, name string, file io.Reader) (*conch.Attachment, error) {
	var a conch.Attachment
	if err := c.upload(ctx, daemonURL("/mail/upload", url.Values{"name": {name}}), "file", file, &a); err != nil {
		return nil, err
	}
	return &a, nil
}

// Attachment reads the nth file of a message that the session's agent sent or got.
func (c *Client) Attachment(ctx context.Context, session, id string, n int) (io.ReadCloser, error) {
	if err := conch.CheckMessageID(id); err != nil {
		return nil, err
	}
	agent, _, err := c.Resolve(session)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, call{method: http.MethodGet, url: daemonURL(fmt.Sprintf("/mail/attachments/%s/%d", url.PathEscape(id), n), url.Values{"agent": {agent}})})
}
