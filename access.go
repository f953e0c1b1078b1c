package conch

import "time"

// TokenInfo is a token, or a browser's login to the page, without its secret.
type TokenInfo struct {
	Kind      string     `json:"kind"` // ViaToken or ViaPage
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	// Decides says that it may decide what is a person's: it was made by one.
	Decides bool `json:"decides"`
}

// NewTokenRequest asks for a token; without ExpiresMS it does not expire.
type NewTokenRequest struct {
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	ExpiresMS int64    `json:"expires_ms,omitempty"`
	// NoPerson says that no person asks, which the daemon cannot always see.
	NoPerson bool `json:"no_person,omitempty"`
}

// NewToken is a token with its secret, which is shown once and kept nowhere.
type NewToken struct {
	TokenInfo
	Token string `json:"token"`
}

// Revoked says that a token is no longer good.
type Revoked struct {
	Revoked bool `json:"revoked"`
}

// ListenRequest says where to serve the network.
type ListenRequest struct {
	Address string `json:"address"` // HOST:PORT, or :PORT for all addresses
}

// ListenInfo says where the network is served.
type ListenInfo struct {
	Address     string `json:"address"`
	URL         string `json:"url"`
	Certificate string `json:"certificate"` // its file
	Fingerprint string `json:"fingerprint"` // SHA-256 of the certificate
}

// PageRequest asks for a way to the web page.
type PageRequest struct {
	ReadOnly bool `json:"read_only,omitempty"`
	Port     int  `json:"port,omitempty"` // 0: as configured, or the one it had, or any
	// File asks for a file that leads a browser to the address: the address
	// itself would stand in the browser's arguments, for all users to see.
	File bool `json:"file,omitempty"`
	// NoPerson says that no person asks, which the daemon cannot always see.
	NoPerson bool `json:"no_person,omitempty"`
}

// PageLink is an address that lets one browser in, once.
type PageLink struct {
	URL       string    `json:"url"` // with the secret, in its fragment
	File      string    `json:"file,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
	Decides   bool      `json:"decides"` // who comes by it may decide what is a person's
}

// LoggedOut says how many browsers were shut out.
type LoggedOut struct {
	LoggedOut int `json:"logged_out"`
}

// The ways in which a request comes.
const (
	ViaSocket = "socket"
	ViaToken  = "token"
	ViaPage   = "page"
)

// AccessInfo is what a caller may do.
type AccessInfo struct {
	Via       string     `json:"via"`
	Name      string     `json:"name"` // the token's, or the login's
	Scopes    []string   `json:"scopes"`
	ExpiresAt *time.Time `json:"expires_at"`
	Decides   bool       `json:"decides"` // what is a person's to decide
}
