package conch

import "time"

// TokenInfo is a token without its secret.
type TokenInfo struct {
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// NewTokenRequest asks for a token; without ExpiresMS it does not expire.
type NewTokenRequest struct {
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	ExpiresMS int64    `json:"expires_ms,omitempty"`
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
}

// PageLink is an address that lets one browser in, once.
type PageLink struct {
	URL       string    `json:"url"` // with the secret, in its fragment
	File      string    `json:"file,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
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
	Name      string     `json:"name"` // the token's
	Scopes    []string   `json:"scopes"`
	ExpiresAt *time.Time `json:"expires_at"`
}
