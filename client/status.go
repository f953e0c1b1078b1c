package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/conchsh/conch"
)

// Version says what a daemon is.
type Version = conch.VersionInfo

// Version asks the daemon for its version, whatever protocol it speaks.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	var v Version
	k := call{method: http.MethodGet, url: daemonURL("/version", nil), anyVersion: true}
	if err := c.json(ctx, k, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

// Status asks the daemon how it is.
func (c *Client) Status(ctx context.Context) (*conch.StatusInfo, error) {
	var s conch.StatusInfo
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/status", nil)}, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// A Check is one thing the doctor looked at.
type Check = conch.Check

// Doctor has the daemon look at what it stands on.
func (c *Client) Doctor(ctx context.Context) ([]Check, error) {
	var r conch.Checkup
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/doctor", nil)}, &r); err != nil {
		return nil, err
	}
	return r.Checks, nil
}

// OpenAPI is the daemon's description of its HTTP interface, as JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	var doc json.RawMessage
	u := strings.TrimSuffix(daemonURL("", nil), "/v1") + "/openapi.json"
	if err := c.json(ctx, call{method: http.MethodGet, url: u}, &doc); err != nil {
		return nil, err
	}
	return doc, nil
}
