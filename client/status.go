package client

import (
	"context"
	"net/http"

	"github.com/conchsh/conch"
)

// Version says what a daemon is.
type Version struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

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
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// Doctor has the daemon look at what it stands on.
func (c *Client) Doctor(ctx context.Context) ([]Check, error) {
	var r struct {
		Checks []Check `json:"checks"`
	}
	if err := c.json(ctx, call{method: http.MethodGet, url: daemonURL("/doctor", nil)}, &r); err != nil {
		return nil, err
	}
	return r.Checks, nil
}
